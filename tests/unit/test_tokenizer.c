#include "tokenizer_help.h"

#include "base/thread.h"
#include "tokenizer_cases.h"

#include <time.h>

/* The bytes of the merges of tokenizer_help.h. */
static const char *const merged[] = {"he",    "ll",   "in",  " t",       "hell",
                                     "hello", " the", "ing", " a",       "  ",
                                     "the",   " 1",   "12",  "33",       "\303\251",
                                     "'s",    "\n\n", "ab",  "\342\226", "\342\226\201"};

TEST(small_tokenizers_agree_with_the_reference) {
  tokenizer *t = NULL;
  for (size_t i = 0; i < sizeof tokenizer_case / sizeof *tokenizer_case; i++) {
    token_ids ids = {0};
    if (tokenizer_case[i].json) {
      tokenizer_free(t);
      t = small(tokenizer_case[i].json);
    }
    const char *text = tokenizer_case[i].text, *name = tokenizer_case[i].name;
    char *got = encode(t, text, tokenizer_case[i].n, TOKENIZE_SPECIAL);
    if (strcmp(got, tokenizer_case[i].ids))
      test_fail(__FILE__, __LINE__, "%s: \"%s\" is %s, want %s", name, text, got,
                tokenizer_case[i].ids);
    mem_free(got);
    CHECK_OK(tokenizer_encode(t, text, tokenizer_case[i].n, TOKENIZE_SPECIAL, &ids));
    check_decoded(t, &ids, false, tokenizer_case[i].decoded, tokenizer_case[i].decoded_n);
    check_decoded(t, &ids, true, NULL, 0);
    vec_free(&ids);
  }
  tokenizer_free(t);
}

TEST(special_tokens_in_text_can_be_plain_text) {
  tokenizer *t = small("{" BYTE_LEVEL "," TWO_SPECIALS "}");
  check_ids(t, "<s>the", 0, "276 266");
  check_ids(t, "<s>the", TOKENIZE_PLAIN, "60 115 62 266");
  CHECK_EQ(tokenizer_find(t, "</s>", 4), 277);
  CHECK_EQ(tokenizer_find(t, "\304\240the", 5), 262);
  CHECK_EQ(tokenizer_find(t, "nothing", 7), -1);
  size_t n;
  CHECK_STR(tokenizer_token(t, 262, &n), "\304\240the");
  CHECK_EQ(n, 5);
  CHECK(!tokenizer_token(t, 278, NULL) && !tokenizer_token(t, -1, NULL));
  CHECK_EQ(tokenizer_size(t), 278);
  CHECK_EQ(tokenizer_role(t, TOKEN_BOS), -1);
  tokenizer_free(t);
}

TEST(ids_without_a_token_decode_to_nothing) {
  tokenizer *t = small("{" BYTE_LEVEL "," TWO_SPECIALS "}");
  const int32_t at[] = {276, -1, 266, 100000, INT32_MIN, 277, INT32_MAX};
  token_ids ids = {(int32_t *)at, 7, 7};
  check_decoded(t, &ids, true, "the", 3);
  check_decoded(t, &ids, false, "<s>the</s>", 10);
  tokenizer_free(t);
}

/* --- bytes that are no UTF-8 ------------------------------------------------------------ */

TEST(stray_bytes_survive_byte_level_and_byte_fallback) {
  static const char text[] = "the \xFF\xC3 a\xED\xA0\x80\xF0\x9F\x98 \xE2\x96\xFFthe\x80\0\xC3\xA9";
  tokenizer *t = small("{" BYTE_LEVEL "}");
  token_ids ids = {0};
  CHECK_OK(tokenizer_encode(t, text, sizeof text - 1, 0, &ids));
  str bytes = {0};
  for (size_t i = 0; i < ids.len; i++)
    if (ids.at[i] < 256) str_add_char(&bytes, (char)ids.at[i]);
    else str_add(&bytes, merged[ids.at[i] - 256]);
  CHECK_EQ(bytes.len, sizeof text - 1);
  CHECK(!memcmp(bytes.at, text, bytes.len));
  check_decoded(t, &ids, false, NULL, 0);
  tokenizer_free(t);
  str_free(&bytes);
  ids.len = 0;
  str json = {0};
  str_add(&json,
          "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"merges\":[],\"vocab\":{\"a\":256");
  for (int i = 0; i < 256; i++) str_printf(&json, ",\"<0x%02X>\":%d", (unsigned)i, i);
  str_add(&json, "}}}");
  t = parse(json.at);
  check_ids(t,
            "\xFF"
            "a\xC3",
            0, "255 256 195");
  tokenizer_free(t);
  str_free(&json);
  vec_free(&ids);
}

TEST(stray_bytes_become_replacement_characters_elsewhere) {
  tokenizer *t = parse("{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":"
                       "{\"a\":0,\"\xEF\xBF\xBD\":1}}}");
  check_ids(t,
            "a\xFF"
            "a\xE2\x96"
            "a\xF0\x9F\x98\xC3",
            0, "0 1 0 1 0 1 1");
  tokenizer_free(t);
}

/* --- merging ---------------------------------------------------------------------------- */

typedef struct {
  char text[64][16];
  int left[64], right[64], n; /* of token i >= 3: its parts */
} toy;

/* Tokens "a", "b", "c" and random merges of earlier ones, in the order of their ranks. */
static void make_toy(toy *v, uint64_t *seed) {
  v->n = 3;
  for (int i = 0; i < 3; i++) snprintf(v->text[i], sizeof v->text[i], "%c", 'a' + i);
  for (int tries = 0; tries < 200 && v->n < 60; tries++) {
    int l = (int)draw(seed, (uint32_t)v->n), r = (int)draw(seed, (uint32_t)v->n), i = 0;
    char text[40];
    snprintf(text, sizeof text, "%s%s", v->text[l], v->text[r]);
    if (strlen(text) > 12) continue;
    while (i < v->n && strcmp(v->text[i], text)) i++;
    if (i < v->n) continue;
    memcpy(v->text[v->n], text, strlen(text) + 1);
    v->left[v->n] = l;
    v->right[v->n++] = r;
  }
}

/* The definition: while there is a mergeable pair, merge the one of best rank, leftmost. */
static size_t merge_slowly(const toy *v, int32_t *id, size_t n) {
  for (;;) {
    int best = v->n;
    size_t at = 0;
    for (size_t i = 0; i + 1 < n; i++)
      for (int k = 3; k < best; k++)
        if (v->left[k] == id[i] && v->right[k] == id[i + 1]) {
          best = k;
          at = i;
        }
    if (best == v->n) return n;
    id[at] = best;
    memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof *id);
    n--;
  }
}

TEST(long_and_short_words_merge_as_defined) {
  uint64_t seed = 1;
  for (int round = 0; round < 40; round++) {
    toy v;
    str json = {0};
    make_toy(&v, &seed);
    str_add(&json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int i = 0; i < v.n; i++) str_printf(&json, "%s\"%s\":%d", i ? "," : "", v.text[i], i);
    str_add(&json, "},\"merges\":[");
    for (int i = 3; i < v.n; i++)
      str_printf(&json, "%s\"%s %s\"", i > 3 ? "," : "", v.text[v.left[i]], v.text[v.right[i]]);
    str_add(&json, "]}}");
    tokenizer *t = parse(json.at);
    for (size_t len = 1; len <= 130; len += 1 + len / 8) {
      char word[160];
      int32_t want[160];
      token_ids got = {0};
      for (size_t i = 0; i < len; i++) word[i] = (char)('a' + (want[i] = (int32_t)draw(&seed, 3)));
      size_t n = merge_slowly(&v, want, len);
      for (int again = 0; again < 2; again++) { /* the second time whole words are known */
        got.len = 0;
        CHECK_OK(tokenizer_encode(t, word, len, 0, &got));
        CHECK_EQ(got.len, n);
        CHECK(!memcmp(got.at, want, n * sizeof *want));
      }
      vec_free(&got);
    }
    tokenizer_free(t);
    str_free(&json);
  }
}

/* --- time, threads, memory -------------------------------------------------------------- */

static double encode_s(const tokenizer *t, const char *pattern, size_t n) {
  size_t k = strlen(pattern);
  char *text = mem_calloc(n, 1);
  CHECK(text);
  n -= n % k;
  for (size_t i = 0; i < n; i++) text[i] = pattern[i % k];
  double best = 1e9;
  for (int again = 0; again < (n < 100000 ? 3 : 1); again++) {
    token_ids ids = {0};
    clock_t start = clock();
    CHECK_OK(tokenizer_encode(t, text, n, 0, &ids));
    double s = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (s < best) best = s;
    vec_free(&ids);
  }
  mem_free(text);
  return best;
}

TEST(time_is_linear_in_repetitive_text) {
  static const char *const pattern[] =
      {"a", " ", "\n", "he", "\xCC\x81\xCC\xA3", "\xF0\x9F\x98\x80", "\xFF", "<s>"};
  static const char *const kind[] =
      {"{" BYTE_LEVEL ",`normalizer`:{`type`:`NFC`}," TWO_SPECIALS "}",
       "{`added_tokens`:[{`id`:276,`content`:`aaaaaaaaaaaaaaab`},{`id`:277,`content`:` "
       "`,`rstrip`:true,"
       "`lstrip`:true},{`id`:278,`content`:`eheheheh `,`normalized`:true}],`pre_tokenizer`:{`type`:"
       "`Sequence`,`pretokenizers`:[{`type`:`Split`,`pattern`:{`Regex`:`\\\\s*[\\\\r\\\\n]+|\\\\s+("
       "?!\\\\S)|"
       "\\\\s+`},`behavior`:`MergedWithNext`,`invert`:false},{`type`:`ByteLevel`,`add_prefix_space`"
       ":false,"
       "`use_regex`:false}]}}"};
  for (size_t k = 0; k < sizeof kind / sizeof *kind; k++) {
    tokenizer *t = small(kind[k]);
    for (size_t i = 0; i < (k ? 4 : sizeof pattern / sizeof *pattern); i++) {
      double few = encode_s(t, pattern[i], 1 << 16), many = encode_s(t, pattern[i], 1 << 20);
      if (many > 16 * 3 * few)
        many = encode_s(t, pattern[i], 1 << 20); /* the machine may be busy */
      if (many > 0.1 && many > 16 * 3 * few)
        test_fail(__FILE__, __LINE__,
                  "pattern %zu of tokenizer %zu: %.1f ms for 64 KiB, %.1f for 1 MiB", i, k,
                  few * 1e3, many * 1e3);
    }
    tokenizer_free(t);
  }
}

typedef struct {
  const tokenizer *t;
  const token_ids *want;
  const char *text;
  size_t n;
  bool ok[64];
} shared_work;

static void encode_part(void *ctx, int64_t part) {
  shared_work *w = ctx;
  token_ids ids = {0};
  w->ok[part] = !tokenizer_encode(w->t, w->text, w->n, 0, &ids) && ids.len == w->want->len &&
                !memcmp(ids.at, w->want->at, ids.len * sizeof *ids.at);
  vec_free(&ids);
}

TEST(threads_share_a_tokenizer) {
  tokenizer *t = small("{" BYTE_LEVEL "}"), *fresh = small("{" BYTE_LEVEL "}");
  str text = {0};
  uint64_t seed = 9;
  for (int i = 0; i < 4000; i++) str_add_char(&text, "the hellingab 12"[draw(&seed, 16)]);
  token_ids want = {0};
  CHECK_OK(tokenizer_encode(t, text.at, text.len, 0, &want));
  pool *p;
  CHECK_OK(pool_create(4, false, &p));
  shared_work w = {.t = fresh, .want = &want, .text = text.at, .n = text.len};
  pool_run(p, 64, encode_part, &w);
  for (int i = 0; i < 64; i++) CHECK(w.ok[i]);
  pool_free(p);
  vec_free(&want);
  str_free(&text);
  tokenizer_free(t);
  tokenizer_free(fresh);
}

static hp_status whole_life(const char *json) {
  tokenizer *t;
  token_ids ids = {0};
  str out = {0};
  HP_TRY(tokenizer_parse("test.json", json, strlen(json), &t));
  hp_status st = tokenizer_encode(t, "the \303\251\xFF <s> x33", 13, TOKENIZE_SPECIAL, &ids);
  if (!st) st = tokenizer_decode(t, ids.at, ids.len, false, &out);
  tokenizer_stream s = tokenizer_stream_create(t, true);
  for (size_t i = 0; !st && i < ids.len; i++) st = tokenizer_stream_push(&s, ids.at[i], &out);
  if (!st) st = tokenizer_stream_flush(&s, &out);
  tokenizer_stream_free(&s);
  vec_free(&ids);
  str_free(&out);
  tokenizer_free(t);
  return st;
}

/* Every allocation fails once: each time a clean HP_ERR_OOM, nothing leaked. */
TEST(failed_allocations_are_reported) {
  static const char *const kind[] = {
      "{" BYTE_LEVEL ",`normalizer`:{`type`:`NFKC`}," TWO_SPECIALS "}",
      "{`normalizer`:{`type`:`Replace`,`pattern`:{`Regex`:`e+`},`content`:`a`},`pre_tokenizer`:{`"
      "type`:"
      "`Metaspace`,`replacement`:`_`},`decoder`:{`type`:`Sequence`,`decoders`:[{`type`:`"
      "ByteFallback`},"
      "{`type`:`Replace`,`pattern`:{`String`:`_`},`content`:` `},{`type`:`Fuse`}]},`model`:{`type`:"
      "`Unigram`,`unk_id`:0,`vocab`:[[`<unk>`,0],[`_`,-1],[`t`,-1],[`th`,-1.5]]}}",
      "{`pre_tokenizer`:{`type`:`BertPreTokenizer`},`post_processor`:{`type`:`TemplateProcessing`,"
      "`single`:[{`SpecialToken`:{`id`:`x`}},{`Sequence`:{`id`:`A`}}],`special_tokens`:{`x`:{`ids`:"
      "[0]}}},"
      "`decoder`:{`type`:`WordPiece`,`prefix`:`##`,`cleanup`:true},`model`:{`type`:`WordPiece`,`"
      "unk_token`:"
      "`u`,`continuing_subword_prefix`:`##`,`max_input_chars_per_word`:9,`vocab`:{`u`:0,`t`:1,`##"
      "he`:2}}}"};
  for (size_t k = 0; k < sizeof kind / sizeof *kind; k++) {
    char *json = small_json(kind[k]);
    uint64_t n = 1;
    for (;; n++) {
      mem_fail_at(n);
      hp_status st = whole_life(json);
      mem_fail_at(0);
      if (!st) break;
      CHECK_EQ(st, HP_ERR_OOM);
      err_clear();
    }
    CHECK(n > 50);
    mem_free(json);
  }
}
