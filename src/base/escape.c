#include "base/escape.h"

#include "base/utf8.h"

#include <string.h>

/* Marks and overrides of direction, and separators that some programs take for the end of a line.
 */
static bool is_deceptive(uint32_t c) {
  return (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0x061c || c == 0xfeff;
}

static bool is_control(uint32_t c) { return c < 0x20 || (c >= 0x7f && c < 0xa0); }

/* \x or \u and so many hex digits.  By hand: a signal handler may not call snprintf. */
static size_t write_hex(char *to, char kind, uint32_t c, size_t digits) {
  static const char digit[] = "0123456789abcdef";
  to[0] = '\\', to[1] = kind;
  for (size_t i = 0; i < digits; i++) to[2 + i] = digit[c >> 4 * (digits - 1 - i) & 15];
  return 2 + digits;
}

size_t escape_next(const char *from, size_t n, bool lines, char to[ESCAPE_MAX], size_t *len) {
  uint32_t c;
  size_t used = utf8_decode(from, n, &c);
  if (!used) {
    *len = write_hex(to, 'x', (unsigned char)*from, 2);
    return 1;
  }
  bool line = c == '\n' || c == '\t';
  if ((line && !lines) || c == '\r') {
    to[0] = '\\', to[1] = c == '\n' ? 'n' : c == '\t' ? 't' : 'r';
    *len = 2;
  } else if (!line && is_control(c)) {
    *len = write_hex(to, 'x', c, 2);
  } else if (is_deceptive(c)) {
    *len = write_hex(to, 'u', c, 4);
  } else {
    memcpy(to, from, used);
    *len = used;
  }
  return used;
}

size_t escape_text(char *to, size_t room, const char *from, size_t n, bool lines) {
  size_t at = 0;
  for (size_t i = 0; i < n;) {
    char one[ESCAPE_MAX];
    size_t len;
    i += escape_next(from + i, n - i, lines, one, &len);
    if (len >= room - at) break;
    memcpy(to + at, one, len);
    at += len;
  }
  to[at] = 0;
  return at;
}

escaped_name escape_name(const char *name) {
  escaped_name e;
  escape_text(e.text, sizeof e.text, name, strlen(name), false);
  return e;
}

void escape_print(const char *text, FILE *f) {
  for (size_t i = 0, n = strlen(text); i < n;) {
    char one[ESCAPE_MAX];
    size_t len;
    i += escape_next(text + i, n - i, true, one, &len);
    fwrite(one, 1, len, f);
  }
}
