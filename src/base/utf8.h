/* UTF-8, one character at a time. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The character at s (n bytes left, n > 0): its length in bytes, 1 to 4; 0 when it is not valid
 * UTF-8 (cut short, too long a form, a surrogate, above U+10FFFF). */
static inline size_t utf8_decode(const char *s, size_t n, uint32_t *out) {
  const unsigned char *p = (const unsigned char *)s;
  if (p[0] < 0x80) {
    *out = p[0];
    return 1;
  }
  size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
  if (p[0] < 0xc2 || p[0] > 0xf4 || len > n) return 0;
  uint32_t c = p[0] & (0x7fu >> len);
  for (size_t i = 1; i < len; i++) {
    if ((p[i] & 0xc0) != 0x80) return 0;
    c = c << 6 | (p[i] & 0x3fu);
  }
  if ((len == 3 && c < 0x800) || (len == 4 && (c < 0x10000 || c > 0x10ffff))) return 0;
  if (c >= 0xd800 && c < 0xe000) return 0;
  *out = c;
  return len;
}

/* Writes a character (not a surrogate, at most U+10FFFF); its length in bytes, 1 to 4. */
static inline size_t utf8_encode(uint32_t c, char out[4]) {
  if (c < 0x80) {
    out[0] = (char)c;
    return 1;
  }
  size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t i = len - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
  out[0] = (char)((0xf00u >> len & 0xf0) | c);
  return len;
}

#endif
