#include "tok/unicode.h"

#include <string.h>
#include <utf8proc.h>

void utf8_add(str *out, uint32_t cp) {
  char b[4];
  size_t n;
  if (cp < 0x80) {
    b[0] = (char)cp;
    n = 1;
  } else if (cp < 0x800) {
    b[0] = (char)(0xC0 | cp >> 6);
    b[1] = (char)(0x80 | (cp & 0x3F));
    n = 2;
  } else if (cp < 0x10000) {
    b[0] = (char)(0xE0 | cp >> 12);
    b[1] = (char)(0x80 | (cp >> 6 & 0x3F));
    b[2] = (char)(0x80 | (cp & 0x3F));
    n = 3;
  } else {
    b[0] = (char)(0xF0 | cp >> 18);
    b[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    b[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    b[3] = (char)(0x80 | (cp & 0x3F));
    n = 4;
  }
  str_add_n(out, b, n);
}

/* The bytes at p..end that form one character, or begin one that the end cuts off (*whole is
 * false then); 0 when p begins none.  Bounds of the second byte are those of table 3-7. */
static size_t measure_sequence(const unsigned char *p, const unsigned char *end, bool *whole) {
  unsigned char c = *p;
  *whole = true;
  if (c < 0x80) return 1;
  size_t need = c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
  if (!need) return 0;
  unsigned char low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
  unsigned char high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
  size_t n = 1;
  for (; n < need && p + n < end; n++) {
    if (p[n] < low || p[n] > high) break;
    low = 0x80;
    high = 0xBF;
  }
  *whole = n == need;
  return n;
}

size_t utf8_valid(const char *s, size_t n) {
  const unsigned char *p = (const unsigned char *)s, *end = p + n;
  while (p < end) {
    uint64_t eight;
    if (end - p >= 8 && (memcpy(&eight, p, 8), !(eight & 0x8080808080808080u))) {
      p += 8;
      continue;
    }
    bool whole;
    size_t k = measure_sequence(p, end, &whole);
    if (!k || !whole) break;
    p += k;
  }
  return (size_t)((const char *)p - s);
}

void utf8_add_lossy(str *out, const char *s, size_t n) {
  for (size_t at = 0; at < n;) {
    size_t good = utf8_valid(s + at, n - at);
    str_add_n(out, s + at, good);
    at += good;
    if (at == n) break;
    bool whole;
    size_t bad =
        measure_sequence((const unsigned char *)s + at, (const unsigned char *)s + n, &whole);
    utf8_add(out, UNICODE_REPLACEMENT);
    at += bad ? bad : 1;
  }
}

void utf8_add_escaped(str *out, const char *s, size_t n) {
  for (size_t at = 0; at < n;) {
    size_t good = utf8_valid(s + at, n - at);
    str_add_n(out, s + at, good);
    at += good;
    if (at < n) utf8_add(out, UNICODE_ESCAPE + (unsigned char)s[at++]);
  }
}

size_t utf8_complete(const char *s, size_t n) {
  const unsigned char *p = (const unsigned char *)s;
  for (size_t back = 1; back <= 3 && back <= n; back++) {
    if ((p[n - back] & 0xC0) == 0x80) continue;
    bool whole;
    size_t k = measure_sequence(p + n - back, p + n, &whole);
    return k == back && !whole ? n - back : n;
  }
  return n;
}

static utf8proc_category_t get_category(uint32_t cp) {
  return utf8proc_category((int32_t)unicode_stand_in(cp));
}

bool unicode_is_space(uint32_t cp) {
  if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13);
  return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
         cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool unicode_is_word(uint32_t cp) {
  switch (get_category(cp)) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO:
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_MC:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_PC: return true;
  default: /* the symbols that are Other_Alphabetic, and Join_Control */
    return (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
           (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189) || cp == 0x200C ||
           cp == 0x200D;
  }
}

bool unicode_is_numeric(uint32_t cp) {
  utf8proc_category_t c = get_category(cp);
  if (c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO)
    return true;
  return (cp >= 0x11DE0 && cp <= 0x11DE9) || (cp >= 0x16FF4 && cp <= 0x16FF6); /* Unicode 17.0 */
}

/* In categories first..last, but for what the reference's tables say: `not` and `is` of compat. */
static bool is_in_categories(uint32_t cp, utf8proc_category_t first, utf8proc_category_t last,
                             unsigned not, unsigned is) {
  utf8proc_category_t c = get_category(cp);
  if (c >= first && c <= last) return !(unicode_compat(cp) & not );
  return cp >= 0x80 && (unicode_compat(cp) & is);
}

bool unicode_is_punctuation(uint32_t cp) {
  if (cp < 0x80)
    return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') ||
           (cp >= '{' && cp <= '~');
  return is_in_categories(cp, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO, UNICODE_NOT_PUNCTUATION,
                          UNICODE_PUNCTUATION);
}

bool unicode_is_mark(uint32_t cp) {
  return is_in_categories(cp, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME, UNICODE_NOT_MARK,
                          UNICODE_MARK);
}

bool unicode_is_nonspacing(uint32_t cp) {
  return is_in_categories(cp, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MN, UNICODE_NOT_NONSPACING,
                          UNICODE_NONSPACING);
}

bool unicode_is_other(uint32_t cp) {
  return is_in_categories(cp, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO, UNICODE_NOT_OTHER, 0);
}

void unicode_add_lower(str *out, uint32_t cp) {
  static const uint32_t newer[][2] = {{0x1C89, 0x1C8A}, {0xA7CB, 0x264},  {0xA7CC, 0xA7CD},
                                      {0xA7CE, 0xA7CF}, {0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D5},
                                      {0xA7DA, 0xA7DB}, {0xA7DC, 0x19B}};
  if (cp == 0x130) { /* the one letter whose lower case is two code points */
    str_add(out, "i\xCC\x87");
    return;
  }
  uint32_t lower = cp;
  if (cp >= 0x10D50 && cp <= 0x10D65) lower = cp + 0x20; /* these and `newer`: Unicode 16.0, 17.0 */
  else if (cp >= 0x16EA0 && cp <= 0x16EB8) lower = cp + 0x1B;
  else if (!unicode_is_escape(cp)) lower = (uint32_t)utf8proc_tolower((int32_t)cp);
  for (size_t i = 0; cp >= 0x1C89 && cp <= 0xA7DC && i < sizeof newer / sizeof *newer; i++)
    if (cp == newer[i][0]) lower = newer[i][1];
  utf8_add(out, lower);
}
