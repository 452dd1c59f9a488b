#include "metric/words.h"

#include "base/utf8.h"

#include <string.h>

bool words_is_space(uint32_t c) {
  if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* A text and the place in it. */
typedef struct {
  const char *at;
  size_t n;
} reader;

/* The character at r, its bytes in *len; a byte that is no UTF-8 counts as one. */
static uint32_t look(reader r, size_t *len) {
  uint32_t c = 0xfffd;
  *len = utf8_decode(r.at, r.n, &c);
  if (!*len) *len = 1;
  return c;
}

static void skip(reader *r, size_t n) {
  r->at += n;
  r->n -= n;
}

static bool is_chinese(uint32_t c) { return c >= 0x4e00 && c <= 0x9fd5; }

static bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }

static bool is_alnum(uint32_t c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Characters that may be parts of one word. */
static bool is_inner(uint32_t c) {
  return is_alnum(c) || is_chinese(c) || (c && c < 0x80 && strchr("+#&._%-", (int)c));
}

static void put(const char *word, size_t n, str *out) {
  if (out->len) str_add_char(out, ' ');
  str_add_n(out, word, n);
}

/* Bytes at the start that satisfy `is`. */
static size_t span(reader r, bool (*is)(uint32_t)) {
  size_t len, all = 0;
  while (r.n && is(look(r, &len))) {
    skip(&r, len);
    all += len;
  }
  return all;
}

/* Bytes of a word or number at the start: abc, 12, 3.14, 50%; 0: there is none. */
static size_t span_number(reader r) {
  size_t n = span(r, is_alnum);
  if (!n) return 0;
  skip(&r, n);
  if (r.n > 1 && *r.at == '.' && is_digit((unsigned char)r.at[1])) {
    size_t fraction = 1 + span((reader){r.at + 1, r.n - 1}, is_digit);
    n += fraction;
    skip(&r, fraction);
  }
  return n + (r.n && *r.at == '%');
}

static bool is_mark(uint32_t c) { return !is_alnum(c) && !is_chinese(c); }

/* Characters that are in none of the dictionary's words. */
static void put_loose(reader r, str *out, bool *chinese) {
  while (r.n) {
    size_t n = span_number(r);
    if (!n) n = span(r, is_mark);
    if (!n) {
      look(r, &n);
      *chinese = true;
    }
    put(r.at, n, out);
    skip(&r, n);
  }
}

/* The dictionary's words without Chinese characters. */
static size_t span_known(reader r) {
  static const char *const word[] = {"AT&T", "C++", "c++", "C#", "c#"};
  for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
    size_t n = strlen(word[i]);
    if (n <= r.n && !memcmp(r.at, word[i], n)) return n;
  }
  return 0;
}

/* A run of characters that may be parts of one word. */
static void put_run(reader r, str *out, bool *chinese) {
  reader loose = {r.at, 0};
  while (r.n) {
    size_t n = span_known(r), len;
    if (n) {
      put_loose(loose, out, chinese);
      put(r.at, n, out);
      loose = (reader){r.at + n, 0};
    } else {
      look(r, &len);
      loose.n += n = len;
    }
    skip(&r, n);
  }
  put_loose(loose, out, chinese);
}

void words_join(const str *text, str *out, bool *chinese) {
  reader r = {text->at, text->len};
  while (r.n) {
    size_t len = span(r, is_inner);
    if (len) {
      put_run((reader){r.at, len}, out, chinese);
    } else {
      bool line_end = r.n > 1 && r.at[0] == '\r' && r.at[1] == '\n';
      look(r, &len);
      if (line_end) len = 2;
      put(r.at, len, out);
    }
    skip(&r, len);
  }
}
