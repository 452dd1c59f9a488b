#include "ir/scan.h"

#include "base/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRING_MAX = 1 << 20 };

scanner scan_begin(const char *text, size_t n, const char *name) {
  return (scanner){.name = name, .at = text, .end = text + n, .line_start = text};
}

void scan_free(scanner *s) { str_free(&s->text); }

hp_status scan_fail(const scanner *s, const char *fmt, ...) {
  char why[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  HP_FAIL(HP_ERR_INPUT, "%s:%d:%d: %s", s->name, s->line, (int)(s->at - s->line_start) + 1, why);
}

int scan_peek(const scanner *s) { return s->at < s->end ? (unsigned char)*s->at : -1; }

void scan_blanks(scanner *s) {
  while (scan_peek(s) == ' ' || scan_peek(s) == '\t' || scan_peek(s) == '\r') s->at++;
}

bool scan_accept(scanner *s, char c) {
  scan_blanks(s);
  if (scan_peek(s) != c) return false;
  s->at++;
  return true;
}

bool scan_is_word(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Fails; the message has the expected and the actual text. */
static hp_status fail_unexpected(const scanner *s, const char *want) {
  int n = 0, c = scan_peek(s);
  while (n < SCAN_WORD && s->at + n < s->end && scan_is_word((unsigned char)s->at[n])) n++;
  if (c < 0 || c == '\n') return scan_fail(s, "expected %s, found the end of the line", want);
  if (c < ' ' || c > '~') return scan_fail(s, "expected %s, found the byte 0x%02x", want, c);
  return scan_fail(s, "expected %s, found \"%.*s\"", want, n ? n : 1, s->at);
}

hp_status scan_expect(scanner *s, char c) {
  char want[] = {'\'', c, '\'', 0};
  return scan_accept(s, c) ? HP_OK : fail_unexpected(s, want);
}

hp_status scan_word(scanner *s, char out[SCAN_WORD]) {
  scan_blanks(s);
  int n = 0;
  while (scan_is_word(scan_peek(s)) && n < SCAN_WORD - 1) out[n++] = *s->at++;
  out[n] = 0;
  if (scan_is_word(scan_peek(s))) return scan_fail(s, "\"%s...\" is too long for a name", out);
  return n ? HP_OK : fail_unexpected(s, "a name");
}

static bool is_digit(int c) { return c >= '0' && c <= '9'; }

hp_status scan_integer(scanner *s, int64_t *out) {
  scan_blanks(s);
  bool minus = scan_peek(s) == '-';
  if (minus) s->at++;
  if (!is_digit(scan_peek(s))) return fail_unexpected(s, "a whole number");
  int64_t v = 0; /* negative: it has one value more */
  while (is_digit(scan_peek(s))) {
    int d = *s->at++ - '0';
    if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, d, &v))
      return scan_fail(s, "the number does not fit in 64 bits");
  }
  if (!minus && v == INT64_MIN) return scan_fail(s, "the number does not fit in 64 bits");
  *out = minus ? v : -v;
  return HP_OK;
}

hp_status scan_count(scanner *s, uint64_t most, uint64_t *out) {
  int64_t v;
  HP_TRY(scan_integer(s, &v));
  if (v < 0 || (uint64_t)v > most)
    return scan_fail(s, "%lld is out of range, expected 0 to %llu", (long long)v,
                     (unsigned long long)most);
  *out = (uint64_t)v;
  return HP_OK;
}

hp_status scan_number(scanner *s, double *out) {
  char buf[64];
  int n = 0;
  scan_blanks(s);
  while (scan_peek(s) > ' ' && !strchr(",}]", scan_peek(s)) && n < 63) buf[n++] = *s->at++;
  buf[n] = 0;
  char *end;
  *out = strtod(buf, &end);
  return n && !*end ? HP_OK : scan_fail(s, "expected a number, found \"%s\"", buf);
}

/* What follows a backslash. */
static hp_status scan_escape(scanner *s) {
  int c = scan_peek(s);
  s->at += c >= 0;
  if (c == 'n') str_add_char(&s->text, '\n');
  else if (c == '"' || c == '\\') str_add_char(&s->text, (char)c);
  else if (c == 'u' && s->end - s->at >= 4) {
    char hex[5] = {s->at[0], s->at[1], s->at[2], s->at[3], 0}, *end;
    long code = strtol(hex, &end, 16);
    if (*end || code <= 0 || code > 0x7f)
      return scan_fail(s, "\\u%s is not a control character", hex);
    str_add_char(&s->text, (char)code);
    s->at += 4;
  } else return scan_fail(s, "unknown escape in a string");
  return HP_OK;
}

hp_status scan_string(scanner *s) {
  HP_TRY(scan_expect(s, '"'));
  str_clear(&s->text);
  str_add(&s->text, "");
  while (scan_peek(s) != '"') {
    int c = scan_peek(s);
    if (c < 0 || c == '\n') return scan_fail(s, "the string does not end on its line");
    if (!c) return scan_fail(s, "a NUL in a string");
    if (s->text.len > STRING_MAX) return scan_fail(s, "the string is too long");
    s->at++;
    if (c == '\\') HP_TRY(scan_escape(s));
    else str_add_char(&s->text, (char)c);
  }
  s->at++;
  return str_status(&s->text);
}

hp_status scan_type(scanner *s, ir_value *v) {
  char name[SCAN_WORD];
  hp_dtype t;
  HP_TRY(scan_word(s, name));
  if (!dtype_parse(name, &t)) return scan_fail(s, "\"%s\" is not a dtype", name);
  *v = (ir_value){.dtype = (uint8_t)t};
  HP_TRY(scan_expect(s, '['));
  if (scan_accept(s, ']')) return HP_OK;
  do {
    uint64_t d;
    HP_TRY(scan_count(s, INT64_MAX, &d));
    if (v->rank == HP_MAX_RANK) return scan_fail(s, "more than %d dims", HP_MAX_RANK);
    v->dim[v->rank++] = (int64_t)d;
  } while (scan_accept(s, ','));
  HP_TRY(scan_expect(s, ']'));
  if (!value_fits(v)) return scan_fail(s, "more elements than memory can hold");
  return HP_OK;
}

static hp_status scan_list(scanner *s, attr_record *a) {
  int64_t v[ATTR_LIST_MAX];
  int n = 0;
  HP_TRY(scan_expect(s, '['));
  while (!scan_accept(s, ']')) {
    if (n == ATTR_LIST_MAX) return scan_fail(s, "more than %d entries", ATTR_LIST_MAX);
    if (n) HP_TRY(scan_expect(s, ','));
    HP_TRY(scan_integer(s, &v[n++]));
  }
  attr_put_list(a, v, n);
  return HP_OK;
}

static hp_status scan_attribute(scanner *s, hp_graph *g, char kind, attr_record *a) {
  int64_t v;
  double f;
  char name[SCAN_WORD];
  hp_dtype t;
  switch (kind) {
  case 'f':
    HP_TRY(scan_number(s, &f));
    attr_put_float(a, f);
    return HP_OK;
  case 's':
    HP_TRY(scan_string(s));
    attr_put_str(a, g, s->text.at);
    return graph_status(g);
  case 't':
    HP_TRY(scan_word(s, name));
    if (!dtype_parse(name, &t)) return scan_fail(s, "\"%s\" is not a dtype", name);
    attr_put_int(a, t);
    return HP_OK;
  case 'l': return scan_list(s, a);
  default:
    HP_TRY(scan_integer(s, &v));
    attr_put_int(a, v);
    return HP_OK;
  }
}

hp_status scan_attributes(scanner *s, hp_graph *g, op_id op, uint32_t *out) {
  const char *at = op_table[op].attrs, *key;
  int len, count = 0;
  char kind, name[SCAN_WORD];
  attr_record a = {0};
  *out = 0;
  if (!*at) return HP_OK;
  HP_TRY(scan_expect(s, '{'));
  while (attr_next_key(&at, &key, &len, &kind)) {
    if (count++) HP_TRY(scan_expect(s, ','));
    HP_TRY(scan_word(s, name));
    if ((int)strlen(name) != len || strncmp(name, key, (size_t)len))
      return scan_fail(s, "expected the attribute %.*s of %s", len, key, op_table[op].name);
    HP_TRY(scan_expect(s, '='));
    HP_TRY(scan_attribute(s, g, kind, &a));
  }
  HP_TRY(scan_expect(s, '}'));
  *out = attr_intern(g, &a);
  return graph_status(g);
}

bool scan_next_line(scanner *s) {
  while (s->at < s->end) {
    s->line_start = s->at;
    s->line++;
    scan_blanks(s);
    if (scan_peek(s) == '#')
      while (s->at < s->end && *s->at != '\n') s->at++;
    if (s->at == s->end) return false;
    if (*s->at != '\n') return true;
    s->at++;
  }
  return false;
}

hp_status scan_end_of_line(scanner *s) {
  scan_blanks(s);
  if (scan_peek(s) == '#')
    while (s->at < s->end && *s->at != '\n') s->at++;
  if (s->at < s->end && *s->at != '\n') return fail_unexpected(s, "the end of the line");
  if (s->at < s->end) s->at++;
  return HP_OK;
}
