#include "jinja/jinja_text.h"

#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

/* str.isspace of Python, and \s of its regular expressions. */
bool jinja_is_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static utf8proc_category_t category(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c); }

bool jinja_is_printable(uint32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  switch (category(c)) {
  case UTF8PROC_CATEGORY_CN:
  case UTF8PROC_CATEGORY_ZS:
  case UTF8PROC_CATEGORY_ZL:
  case UTF8PROC_CATEGORY_ZP:
  case UTF8PROC_CATEGORY_CC:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_CS:
  case UTF8PROC_CATEGORY_CO: return false;
  default: return true;
  }
}

bool jinja_is_cased(uint32_t c) {
  utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

bool jinja_is_letter(uint32_t c) {
  utf8proc_category_t k = category(c);
  return jinja_is_cased(c) || k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_LO;
}

bool jinja_is_digit(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

size_t jinja_map_case(uint32_t c, jinja_case to, char out[8]) {
  if (c == 0xdf && to != JINJA_LOWER) {
    memcpy(out, to == JINJA_UPPER ? "SS" : "Ss", 2);
    return 2;
  }
  utf8proc_int32_t x = (utf8proc_int32_t)c;
  x = to == JINJA_LOWER   ? utf8proc_tolower(x)
      : to == JINJA_UPPER ? utf8proc_toupper(x)
                          : utf8proc_totitle(x);
  return utf8_encode((uint32_t)x, out);
}

bool jinja_has_case(const char *text, size_t n, jinja_case which) {
  bool any = false;
  for (size_t at = 0, len; at < n; at += len) {
    uint32_t c;
    if (!(len = utf8_decode(text + at, n - at, &c))) return false;
    if (!jinja_is_cased(c)) continue;
    if ((category(c) == UTF8PROC_CATEGORY_LL) != (which == JINJA_LOWER)) return false;
    any = true;
  }
  return any;
}

size_t jinja_skip_space(const char *text, size_t n) {
  size_t at = 0;
  for (uint32_t c; at < n;) {
    size_t len = utf8_decode(text + at, n - at, &c);
    if (!len || !jinja_is_space(c)) break;
    at += len;
  }
  return at;
}

size_t jinja_trim_space(const char *text, size_t n) {
  for (uint32_t c; n;) {
    size_t at = n - 1;
    while (at && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
    if (!utf8_decode(text + at, n - at, &c) || !jinja_is_space(c)) break;
    n = at;
  }
  return n;
}

bool jinja_is_utf8(const char *text, size_t n) {
  uint32_t c;
  for (size_t at = 0, len; at < n; at += len)
    if (!(len = utf8_decode(text + at, n - at, &c))) return false;
  return true;
}

size_t jinja_count_chars(const char *text, size_t n) {
  size_t count = 0;
  for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
  return count;
}

size_t jinja_char_offset(const char *text, size_t n, size_t k) {
  size_t at = 0;
  for (; at < n; at++)
    if (((unsigned char)text[at] & 0xc0) != 0x80 && !k--) break;
  return at;
}

size_t jinja_find_text(const char *text, size_t n, const char *part, size_t m, size_t from) {
  if (from > n) return SIZE_MAX;
  if (!m) return from;
  const char *p = memmem(text + from, n - from, part, m);
  return p ? (size_t)(p - text) : SIZE_MAX;
}

size_t jinja_find_last(const char *text, size_t n, const char *part, size_t m) {
  if (m > n) return SIZE_MAX;
  for (size_t at = n - m + 1; at-- > 0;)
    if (!memcmp(text + at, part, m)) return at;
  return SIZE_MAX;
}
