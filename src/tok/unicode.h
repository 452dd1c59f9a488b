/* Unicode text: UTF-8, character classes, lower case and the four normal forms.
 *
 * Text here is "well-formed": valid UTF-8, plus byte escapes: a byte b that was no UTF-8 in the
 * input stands as U+DC00 + b (three bytes, never part of valid UTF-8).  So every stage handles
 * code points only, and a byte-level model gets the raw byte back. */
#ifndef TOK_UNICODE_H
#define TOK_UNICODE_H

#include "base/str.h"

enum { UNICODE_REPLACEMENT = 0xFFFD, UNICODE_ESCAPE = 0xDC00 };

/* Bytes of the character that begins at s; well-formed text only. */
static inline size_t utf8_len(const char *s) {
  unsigned char c = (unsigned char)*s;
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

/* Code point at s, its bytes in *n; well-formed text only. */
static inline uint32_t utf8_get(const char *s, size_t *n) {
  const unsigned char *p = (const unsigned char *)s;
  *n = utf8_len(s);
  switch (*n) {
  case 1: return p[0];
  case 2: return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
  case 3: return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  default:
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
  }
}

/* Start of the character that ends before s[at]; well-formed text, at > 0. */
static inline size_t utf8_back(const char *s, size_t at) {
  do at--;
  while (at && ((unsigned char)s[at] & 0xC0) == 0x80);
  return at;
}

static inline bool unicode_is_escape(uint32_t cp) { return cp >= 0xDC80 && cp <= 0xDCFF; }

/* Appends a code point (below 0x110000). */
void utf8_add(str *out, uint32_t cp);
/* Bytes of the longest prefix of s[0..n) that is valid UTF-8 (n when all is). */
size_t utf8_valid(const char *s, size_t n);
/* Appends s with every maximal ill-formed sequence as one U+FFFD (Unicode 15, section 3.9). */
void utf8_add_lossy(str *out, const char *s, size_t n);
/* Appends s with every byte that is no UTF-8 as an escape: the result is well-formed. */
void utf8_add_escaped(str *out, const char *s, size_t n);
/* Bytes of s that can be shown now: n less a character that is cut off at the end. */
size_t utf8_complete(const char *s, size_t n);

/* An older character that stands for cp in every property used here, with as many UTF-8 bytes, when
 * cp is too new for the libraries' tables; else cp. */
uint32_t unicode_stand_in(uint32_t cp);

/* How the reference's older tables see cp; 0 for almost all. */
enum {
  UNICODE_FROZEN = 1, /* has no decomposition, combining class or composition */
  UNICODE_NOT_MARK = 2,
  UNICODE_NOT_NONSPACING = 4,
  UNICODE_NOT_PUNCTUATION = 8,
  UNICODE_MARK = 16,
  UNICODE_NONSPACING = 32,
  UNICODE_PUNCTUATION = 64,
  UNICODE_NOT_OTHER = 128
};
unsigned unicode_compat(uint32_t cp);

/* As the reference sees them: White_Space; \w of the regex crate; N*; P* and ASCII punctuation; M*;
 * Mn; C* without Cn. */
bool unicode_is_space(uint32_t cp);
bool unicode_is_word(uint32_t cp);
bool unicode_is_numeric(uint32_t cp);
bool unicode_is_punctuation(uint32_t cp);
bool unicode_is_mark(uint32_t cp);
bool unicode_is_nonspacing(uint32_t cp);
bool unicode_is_other(uint32_t cp);
/* Appends the lower case of cp (one or two code points). */
void unicode_add_lower(str *out, uint32_t cp);

typedef enum { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD } unicode_form;
/* Appends the normal form of well-formed text; time is linear, whatever the marks. */
hp_status unicode_normalize(unicode_form form, const char *s, size_t n, str *out);

#endif
