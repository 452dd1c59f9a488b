/* What the tests of the tokenizer share: a small byte-level model, and checks. */
#ifndef TOKENIZER_HELP_H
#define TOKENIZER_HELP_H

#include "test.h"

#include "tok/tokenizer.h"
#include "tok/unicode.h"

static inline tokenizer *load(const char *path) {
  tokenizer *t;
  CHECK_OK(tokenizer_load(path, &t));
  return t;
}

static inline tokenizer *parse(const char *json) {
  tokenizer *t;
  CHECK_OK(tokenizer_parse("test.json", json, strlen(json), &t));
  return t;
}

/* Ids as "1 2 3"; mem_free. */
static inline char *encode(const tokenizer *t, const char *text, size_t n, unsigned flags) {
  token_ids ids = {0};
  str s = {0};
  CHECK_OK(tokenizer_encode(t, text, n, flags, &ids));
  str_add(&s, "");
  for (size_t i = 0; i < ids.len; i++) str_printf(&s, "%s%d", i ? " " : "", ids.at[i]);
  vec_free(&ids);
  return str_take(&s);
}

static inline void check_ids(const tokenizer *t, const char *text, unsigned flags,
                             const char *want) {
  char *got = encode(t, text, strlen(text), flags);
  CHECK_STR(got, want);
  mem_free(got);
}

/* Decoded at once and in a stream, whose pieces must be whole characters. */
static inline void check_decoded(const tokenizer *t, const token_ids *ids, bool skip,
                                 const char *want, size_t n) {
  str whole = {0}, streamed = {0};
  tokenizer_stream s = tokenizer_stream_create(t, skip);
  CHECK_OK(tokenizer_decode(t, ids->at, ids->len, skip, &whole));
  str_add(&whole, "");
  str_add(&streamed, "");
  for (size_t i = 0; i < ids->len; i++) {
    size_t before = streamed.len;
    CHECK_OK(tokenizer_stream_push(&s, ids->at[i], &streamed));
    CHECK_EQ(utf8_valid(streamed.at + before, streamed.len - before), streamed.len - before);
  }
  CHECK_OK(tokenizer_stream_flush(&s, &streamed));
  if (want) {
    CHECK_STR(whole.at, want);
    CHECK_EQ(whole.len, n);
    CHECK(!memcmp(whole.at, want, n));
  }
  CHECK_STR(streamed.at, whole.at);
  CHECK_EQ(streamed.len, whole.len);
  CHECK(!memcmp(streamed.at, whole.at, whole.len));
  CHECK_EQ(utf8_valid(whole.at, whole.len), whole.len);
  tokenizer_stream_free(&s);
  str_free(&whole);
  str_free(&streamed);
}

static inline void check_round_trip(const tokenizer *t, const char *text, size_t n) {
  token_ids ids = {0};
  str back = {0};
  CHECK_OK(tokenizer_encode(t, text, n, 0, &ids));
  CHECK_OK(tokenizer_decode(t, ids.at, ids.len, false, &back));
  CHECK_EQ(back.len, n);
  CHECK(!n || !memcmp(back.at, text, n));
  vec_free(&ids);
  str_free(&back);
}

/* Merges in the byte-level alphabet, and the bytes they make. */
static const char *const merges[] = {"h e",
                                     "l l",
                                     "i n",
                                     "\304\240 t",
                                     "he ll",
                                     "hell o",
                                     "\304\240t he",
                                     "in g",
                                     "\304\240 a",
                                     "\304\240 \304\240",
                                     "t he",
                                     "\304\240 1",
                                     "1 2",
                                     "3 3",
                                     "\303\203 \302\251",
                                     "' s",
                                     "\304\212 \304\212",
                                     "a b",
                                     "\303\242 \304\270",
                                     "\303\242\304\270 \304\243"};

/* Appends a JSON string of s without its spaces. */
static inline void add_quoted(str *out, const char *s) {
  str_add_char(out, '"');
  for (; *s; s++) {
    if (*s == ' ') continue;
    if (*s == '"' || *s == '\\') str_add_char(out, '\\');
    str_add_char(out, *s);
  }
  str_add_char(out, '"');
}

/* The byte-level model: token i < 256 is byte i, the others are the merges.  GPT-2's list:
 * printable Latin-1 first, then the rest from U+0100 on. */
static inline void add_model(str *out) {
  uint32_t next = 0x100;
  str_add(out, "\"model\":{\"type\":\"BPE\",\"vocab\":{");
  for (uint32_t b = 0; b < 256; b++) {
    bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    str c = {0};
    utf8_add(&c, printable ? b : next++);
    add_quoted(out, c.at);
    str_printf(out, ":%u,", b);
    str_free(&c);
  }
  enum { N = sizeof merges / sizeof *merges };
  for (uint32_t i = 0; i < N; i++) {
    add_quoted(out, merges[i]);
    str_printf(out, ":%u%s", 256 + i, i + 1 < N ? "," : "},\"merges\":[");
  }
  for (int i = 0; i < N; i++) str_printf(out, "\"%s\"%s", merges[i], i + 1 < N ? "," : "]}");
}

/* A tokenizer.json from members written with ` for "; mem_free. */
static inline char *small_json(const char *members) {
  str s = {0};
  str_add(&s, members);
  for (size_t i = 0; i < s.len; i++)
    if (s.at[i] == '`') s.at[i] = '"';
  if (!strstr(s.at, "\"model\":{")) {
    s.at[--s.len] = 0; /* the closing brace */
    if (s.len > 1) str_add(&s, ",");
    if (!strstr(s.at, "\"decoder\":")) str_add(&s, "\"decoder\":{\"type\":\"ByteLevel\"},");
    add_model(&s);
    str_add(&s, "}");
  }
  return str_take(&s);
}

static inline tokenizer *small(const char *members) {
  char *json = small_json(members);
  tokenizer *t = parse(json);
  mem_free(json);
  return t;
}

static inline uint32_t draw(uint64_t *at, uint32_t below) {
  *at = *at * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*at >> 33) % below;
}

#define BYTE_LEVEL "`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false}"
#define TWO_SPECIALS                                                                               \
  "`added_tokens`:[{`id`:276,`content`:`<s>`,`special`:true},"                                     \
  "{`id`:277,`content`:`</s>`,`special`:true}]"

#endif
