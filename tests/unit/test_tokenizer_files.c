#include "tokenizer_help.h"

#include "base/io.h"
#include "base/json.h"
#include "tok/tok_llama2c.h"

#include <stdlib.h>

/* --- real tokenizers -------------------------------------------------------------------- */

static void put_file(const char *name, const char *text) {
  str path = {0};
  CHECK_OK(path_join(&path, test_dir(), name));
  CHECK_OK(file_write(path.at, text, strlen(text)));
  str_free(&path);
}

static void copy_file(const char *name, const char *from) {
  char *bytes;
  size_t n;
  CHECK_OK(file_read(from, 0, &bytes, &n));
  put_file(name, bytes);
  mem_free(bytes);
}

static void check_vectors(const tokenizer *t, const char *want_path) {
  static const char cut[] = "\n__ggml_vocab_test__\n";
  char *text, *want;
  size_t n, want_n;
  CHECK_OK(file_read(test_data("vectors/all.inp"), 0, &text, &n));
  CHECK_OK(file_read(want_path, 0, &want, &want_n));
  int count = 0;
  char *line = want;
  for (char *at = text, *next; at; at = next, count++) {
    char *stop = strstr(at, cut), *newline = strchr(line, '\n');
    next = stop ? stop + strlen(cut) : NULL;
    if (newline) *newline = 0;
    if (stop) *stop = 0;
    check_ids(t, at, 0, line + (*line == ' '));
    if (newline) line = newline + 1;
  }
  CHECK_EQ(count, 47);
  mem_free(text);
  mem_free(want);
}

static void check_file_round_trip(const tokenizer *t, const char *path) {
  char *text;
  size_t n;
  CHECK_OK(file_read(path, 0, &text, &n));
  check_round_trip(t, text, n);
  mem_free(text);
}

/* All of Unicode, in an order that mixes scripts. */
static void check_unicode_round_trip(const tokenizer *t) {
  uint64_t seed = 3;
  str s = {0};
  for (uint32_t i = 0; i < 60000; i++) {
    uint32_t cp = draw(&seed, 4) ? draw(&seed, 0x3000) : draw(&seed, 0x110000);
    if (cp < 0xD800 || cp > 0xDFFF) utf8_add(&s, cp);
  }
  check_round_trip(t, s.at, s.len);
  str_free(&s);
}

TEST(gpt2_passes_the_47_vectors_and_round_trips) {
  tokenizer *t = load(test_data("tokenizer/gpt2.tokenizer.json"));
  CHECK_EQ(tokenizer_size(t), 50257);
  check_vectors(t, test_data("vectors/gpt-2.out"));
  check_file_round_trip(t, test_data("text/tinyshakespeare.txt"));
  check_unicode_round_trip(t);
  tokenizer_free(t);
}

TEST(qwen2_from_vocab_and_merges_passes_the_47_vectors) {
  copy_file("vocab.json", test_data("tokenizer/qwen2.vocab.json"));
  copy_file("merges.txt", test_data("tokenizer/qwen2.merges.txt"));
  copy_file("tokenizer_config.json", test_data("tokenizer/qwen2.tokenizer_config.json"));
  tokenizer *t = load(test_dir());
  check_vectors(t, test_data("vectors/qwen2.out"));
  CHECK_EQ(tokenizer_role(t, TOKEN_EOS), 151645);
  CHECK_EQ(tokenizer_role(t, TOKEN_PAD), 151643);
  CHECK_EQ(tokenizer_role(t, TOKEN_BOS), -1);
  CHECK_EQ(tokenizer_size(t), 151646);
  check_ids(t, "<|im_start|>user\nHi<|im_end|>", TOKENIZE_SPECIAL, "151644 872 198 13048 151645");
  check_file_round_trip(t, test_data("text/tinyshakespeare.txt"));
  tokenizer_free(t);
}

TEST(llama2_and_torchtitan_files_load_and_encode) {
  tokenizer *t = load(test_data("tokenizer/llama2.tokenizer.json"));
  check_ids(t, "Hello world", TOKENIZE_SPECIAL, "1 15043 3186");
  check_ids(t, " Hello\n\xF0\x9F\xA6\x99 na\xC3\xAFve", 0,
            "15043 13 243 162 169 156 1055 30085 345");
  check_file_round_trip(t, test_data("text/tinyshakespeare.txt"));
  tokenizer_free(t);
  t = load(test_data("tokenizer/torchtitan-small.tokenizer.json"));
  CHECK_EQ(tokenizer_size(t), 2020);
  check_ids(t, "Hello world", 0, "72 101 108 108 111 119 111 114 108 100");
  tokenizer_free(t);
}

TEST(the_golden_model_directory_gives_the_golden_ids) {
  tree golden;
  const tree_node *samples, *ids, *text;
  token_ids want = {0}, got = {0};
  str all = {0};
  tokenizer *t = load(test_data("golden/llamafactory/model"));
  CHECK_EQ(tokenizer_role(t, TOKEN_BOS), 488);
  CHECK_EQ(tokenizer_role(t, TOKEN_EOS), 489);
  CHECK_OK(json_load(test_data("golden/llamafactory/templates/pt-packed64.json"), 0, &golden));
  CHECK_OK(tree_need_list(golden.root, "samples", &samples));
  CHECK(samples->len > 10);
  for (uint32_t i = 0; i < samples->len; i++) { /* blocks of one long run of ids */
    token_ids one = {0};
    CHECK_OK(tree_need_list(samples->child[i], "input_ids", &ids));
    CHECK_OK(tree_need(samples->child[i], "text", &text));
    for (uint32_t k = 0; k < ids->len; k++) {
      CHECK(vec_push(&one, (int32_t)ids->child[k]->integer));
      CHECK(vec_push(&want, (int32_t)ids->child[k]->integer));
    }
    check_decoded(t, &one, false, text->string, text->len);
    vec_free(&one);
  }
  CHECK_OK(tokenizer_decode(t, want.at, want.len, false, &all));
  CHECK_OK(tokenizer_encode(t, all.at, all.len, 0, &got));
  CHECK_EQ(got.len, want.len);
  CHECK(!memcmp(got.at, want.at, want.len * sizeof *want.at));
  vec_free(&want);
  vec_free(&got);
  str_free(&all);
  tree_free(&golden);
  tokenizer_free(t);
}

/* --- directories ------------------------------------------------------------------------ */

#define VOCAB       "{\"a\":0,\"b\":1,\"ab\":2,\"\304\240\":3,\"\304\240ab\":4,\"<e>\":5}"
#define MERGES_CRLF "#version: 0.2\r\na b\r\n\304\240 ab\r\n"

static void check_clean(const tokenizer *t, const char *text, const char *want) {
  token_ids ids = {0};
  str out = {0};
  str_add(&out, "> ");
  CHECK_OK(tokenizer_encode(t, text, strlen(text), 0, &ids));
  CHECK_OK(tokenizer_decode_clean(t, ids.at, ids.len, true, &out));
  CHECK_STR(out.at + 2, want);
  CHECK_EQ(out.len, strlen(want) + 2);
  vec_free(&ids);
  str_free(&out);
}

TEST(vocab_and_merges_need_a_class_that_is_known) {
  put_file("vocab.json", VOCAB);
  put_file("merges.txt", MERGES_CRLF);
  tokenizer *t;
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "tokenizer_class is not given");
  put_file("tokenizer_config.json", "{\"tokenizer_class\": \"XyzTokenizer\"}");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "XyzTokenizer");
  put_file("tokenizer_config.json", "{}");
  put_file("config.json", "{\"model_type\": \"gpt2\"}");
  t = load(test_dir());
  check_ids(t, "ab ab a", 0, "2 4 3 0");
  CHECK_EQ(tokenizer_role(t, TOKEN_BOS), 6); /* <|endoftext|>, added behind the vocabulary */
  tokenizer_free(t);
  put_file(
      "tokenizer_config.json",
      "{\"tokenizer_class\": \"GPT2TokenizerFast\", \"add_prefix_space\": true, \"bos_token\": "
      "{\"content\": \"<e>\"}, \"eos_token\": \"<e>\", \"unk_token\": null, \"add_bos_token\": "
      "true}");
  t = load(test_dir());
  check_ids(t, "ab", TOKENIZE_SPECIAL, "5 4");
  check_ids(t, "a<e>", 0, "3 0 5");
  CHECK_EQ(tokenizer_role(t, TOKEN_EOS), 5);
  CHECK_EQ(tokenizer_role(t, TOKEN_UNK), -1);
  CHECK_EQ(tokenizer_size(t), 6);
  tokenizer_free(t);
}

TEST(configuration_files_add_tokens_and_name_roles) {
  char *json = small_json("{" BYTE_LEVEL "," TWO_SPECIALS
                          ",`post_processor`:{`type`:`BertProcessing`,`cls`:[`<s>`,276],"
                          "`sep`:[`</s>`,277]}}");
  put_file("tokenizer.json", json);
  put_file(
      "tokenizer_config.json",
      "{\"added_tokens_decoder\": {\"279\": {\"content\": \"<p>\", \"lstrip\": true, \"special\": "
      "true}, \"278\": {\"content\": \"new\", \"normalized\": false}}, \"bos_token\": \"<s>\", "
      "\"pad_token\": \"<p>\", \"unk_token\": null, \"additional_special_tokens\": [\"<q>\"]}");
  put_file(
      "special_tokens_map.json",
      "{\"eos_token\": {\"content\": \"</s>\"}, \"bos_token\": \"wrong\", \"unk_token\": \"<u>\"}");
  tokenizer *t = load(test_dir());
  check_ids(t, "the <p>new<q>", TOKENIZE_SPECIAL, "276 266 279 278 280 277");
  CHECK_EQ(tokenizer_role(t, TOKEN_BOS), 276);
  CHECK_EQ(tokenizer_role(t, TOKEN_EOS), 277);
  CHECK_EQ(tokenizer_role(t, TOKEN_PAD), 279);
  CHECK_EQ(tokenizer_role(t, TOKEN_UNK), -1);
  CHECK_EQ(tokenizer_role(t, TOKEN_MASK), -1);
  CHECK_EQ(tokenizer_extra_specials(t)->len, 1);
  CHECK_EQ(tokenizer_extra_specials(t)->at[0], 280);
  check_clean(t, "it 's ' so ' . it ?", "it 's ' so ' . it ?");
  tokenizer_free(t);
  put_file("tokenizer_config.json", "{\"clean_up_tokenization_spaces\": true}");
  t = load(test_dir());
  CHECK_EQ(tokenizer_extra_specials(t)->len, 0);
  check_clean(t, "it 's ' so ' . it ? does n't , I 'm we 've they 're  !", /* Transformers 5.6.0 */
              "it's'so '. it? doesn't, I'm we've they're !");
  check_clean(t, "", "");
  tokenizer_free(t);
  put_file("tokenizer_config.json", "{\"split_special_tokens\": true}");
  t = load(test_dir());
  check_ids(t, "<s>", 0, "60 115 62");
  tokenizer_free(t);
  put_file("tokenizer_config.json",
           "{\"added_tokens_decoder\": {\"300\": {\"content\": \"x\\u0120\"}}}");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "its place is 278");
  put_file("tokenizer_config.json", "{\"added_tokens_decoder\": {\"x\": {\"content\": \"y\"}}}");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "the key must be an id");
  put_file("tokenizer_config.json", "[]");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "tokenizer_config.json");
  mem_free(json);
}

/* --- llama2.c --------------------------------------------------------------------------- */

typedef struct {
  char text[600][32];
  size_t len[600];
  float score[600];
  int n;
} scored;

static void read_scored(scored *v, const char *bytes, size_t n) {
  v->n = 0;
  for (size_t at = 4; at < n; v->n++) {
    int32_t len;
    memcpy(&v->score[v->n], bytes + at, 4);
    memcpy(&len, bytes + at + 4, 4);
    memcpy(v->text[v->n], bytes + at + 8, (size_t)len);
    v->len[v->n] = (size_t)len;
    at += 8 + (size_t)len;
  }
}

static int find_scored(const scored *v, const char *s, size_t n) {
  for (int i = 0; i < v->n; i++)
    if (v->len[i] == n && !memcmp(v->text[i], s, n)) return i;
  return -1;
}

/* llama2.c's algorithm: characters, else bytes; then again and again the neighbours whose
 * concatenation has the highest score, the leftmost of equals. */
static size_t encode_scored(const scored *v, const char *text, size_t n, int32_t *id) {
  size_t len = 0;
  if (n) id[len++] = find_scored(v, " ", 1);
  for (size_t at = 0, k; at < n; at += k) {
    k = utf8_len(text + at);
    int whole = find_scored(v, text + at, k);
    if (whole >= 0) id[len++] = whole;
    else
      for (size_t i = 0; i < k; i++) id[len++] = (unsigned char)text[at + i] + 3;
  }
  for (;;) {
    float best = -1e10f;
    int into = -1;
    size_t at = 0;
    for (size_t i = 0; i + 1 < len; i++) {
      char both[64];
      memcpy(both, v->text[id[i]], v->len[id[i]]);
      memcpy(both + v->len[id[i]], v->text[id[i + 1]], v->len[id[i + 1]]);
      int t = find_scored(v, both, v->len[id[i]] + v->len[id[i + 1]]);
      if (t >= 0 && v->score[t] > best) {
        best = v->score[t];
        into = t;
        at = i;
      }
    }
    if (into < 0) return len;
    id[at] = into;
    memmove(id + at + 1, id + at + 2, (len - at - 2) * sizeof *id);
    len--;
  }
}

static void add_scored(str *out, float score, const char *text) {
  int32_t n = (int32_t)strlen(text);
  str_add_n(out, (const char *)&score, 4);
  str_add_n(out, (const char *)&n, 4);
  str_add(out, text);
}

static void check_llama2c(const char *bytes, size_t n, const char *letters) {
  scored *v = mem_calloc(1, sizeof *v);
  str json = {0};
  uint64_t seed = 5;
  read_scored(v, bytes, n);
  CHECK_OK(tok_llama2c_to_json("tok.bin", bytes, n, &json));
  tokenizer *t = parse(json.at);
  for (int round = 0; round < 300; round++) {
    char text[128];
    int32_t want[256];
    token_ids got = {0};
    str s = {0};
    uint32_t len = draw(&seed, 60);
    for (uint32_t i = 0; i < len; i++) {
      text[i] = letters[draw(&seed, (uint32_t)strlen(letters))];
      if (text[i] == '?') str_add(&s, "\303\251");
      else str_add_char(&s, text[i]);
    }
    size_t count = encode_scored(v, s.at ? s.at : "", s.len, want);
    CHECK_OK(tokenizer_encode(t, s.at ? s.at : "", s.len, TOKENIZE_PLAIN, &got));
    CHECK_EQ(got.len, count);
    CHECK(!count || !memcmp(got.at, want, count * sizeof *want));
    vec_free(&got);
    str_free(&s);
  }
  tokenizer_free(t);
  str_free(&json);
  mem_free(v);
}

TEST(llama2c_files_with_ties_encode_as_in_llama2c) {
  str bin = {0};
  str_add_n(&bin, "\x10\0\0\0", 4);
  add_scored(&bin, 0, "<unk>");
  add_scored(&bin, 0, "\n<s>\n");
  add_scored(&bin, 0, "\n</s>\n");
  for (int i = 0; i < 256; i++) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
    add_scored(&bin, 0, name);
  }
  static const struct {
    const char *text;
    float score;
  } row[] = {{" ", -20},  {"a", -20},   {"b", -20},  {"x", -20},    {"xx", -5},
             {"xxx", -1}, {"ab", -2},   {"ba", -2},  {"aab", -1},   {"aba", -1},
             {" a", -3},  {"xxxx", -1}, {"bxx", -4}, {"xa", -5.5f}, {"<s>", -1}};
  for (size_t i = 0; i < sizeof row / sizeof *row - 1; i++)
    add_scored(&bin, row[i].score, row[i].text);
  check_llama2c(bin.at, bin.len, "aabbxxx ?y\n");
  str_free(&bin);
}

TEST(tok512_gives_the_published_ids) {
  char *bytes;
  size_t n;
  str json = {0};
  CHECK_OK(file_read(test_data("model/tok512.bin"), 0, &bytes, &n));
  CHECK_OK(tok_llama2c_to_json("tok512.bin", bytes, n, &json));
  tokenizer *t = parse(json.at);
  check_ids(
      t,
      "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
      "park. One day, she saw a big, red ball.",
      TOKENIZE_SPECIAL,
      "1 403 407 261 378 432 383 286 261 376 298 315 421 395 317 426 338 401 396 267 337 410 408 "
      "419 292 411 322 265 282 295 433 426 385 328 432 358 394 261 370 432 352 266 268 388 426");
  check_llama2c(bytes, n, "thes and Lily. \n?<s>1Zq");
  tokenizer_free(t);
  str_free(&json);
  mem_free(bytes);
}
