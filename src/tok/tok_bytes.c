#include "tok/tok_bytes.h"

#include "tok/unicode.h"

/* Printable Latin-1 characters stand for themselves; the other 68 bytes take U+0100 and up, in
 * order: 0x00-0x20 -> U+0100-U+0120, 0x7F-0xA0 -> U+0121-U+0142, 0xAD -> U+0143. */
static uint32_t code_point_of(unsigned char b) {
  if (b <= 0x20) return 0x100u + b;
  if (b >= 0x7F && b <= 0xA0) return 0x121u + (b - 0x7Fu);
  if (b == 0xAD) return 0x143;
  return b;
}

int tok_byte_of(uint32_t cp) {
  if (cp >= 0x100) {
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
  }
  return cp <= 0x20 || (cp >= 0x7F && cp <= 0xA0) || cp == 0xAD ? -1 : (int)cp;
}

/* Into a block at a time: one append per byte would cost more than the mapping. */
void tok_bytes_add(str *out, const char *text, size_t n) {
  char block[512];
  size_t fill = 0;
  for (size_t at = 0; at < n; at++) {
    unsigned char b = (unsigned char)text[at];
    if (b == 0xED && at + 2 < n && (unsigned char)text[at + 1] >= 0xA0) { /* an escape */
      size_t k;
      b = (unsigned char)(utf8_get(text + at, &k) - UNICODE_ESCAPE);
      at += 2;
    }
    if (b > 0x20 && b < 0x7F) {
      block[fill++] = (char)b;
    } else {
      uint32_t cp = code_point_of(b);
      block[fill++] = (char)(0xC0 | cp >> 6);
      block[fill++] = (char)(0x80 | (cp & 0x3F));
    }
    if (fill > sizeof block - 2) {
      str_add_n(out, block, fill);
      fill = 0;
    }
  }
  str_add_n(out, block, fill);
}
