/* Filters of single values. */
#include "jinja/jinja_format.h"
#include "jinja/jinja_strings.h"

#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name)                                                                               \
  hp_status jinja_filter_##name(jinja_run *r, const jinja_value *self, const jinja_args *a,        \
                                jinja_value *out);                                                 \
  hp_status jinja_filter_##name(jinja_run *r, const jinja_value *self, const jinja_args *a,        \
                                jinja_value *out)

/* --- strings ----------------------------------------------------------------------------- */

static hp_status change_case(jinja_run *r, const jinja_value *self, jinja_case to,
                             jinja_value *out) {
  jinja_value text;
  HP_TRY(jinja_to_string(r, self, &text));
  return jinja_change_case(r, &text, to, false, out);
}
FILTER(lower) {
  (void)a;
  return change_case(r, self, JINJA_LOWER, out);
}
FILTER(upper) {
  (void)a;
  return change_case(r, self, JINJA_UPPER, out);
}
FILTER(capitalize) {
  (void)a;
  return change_case(r, self, JINJA_TITLE, out);
}

/* What Jinja takes for the beginning of a word: behind white space and - ( { [ <. */
FILTER(title) {
  (void)a;
  jinja_value text;
  bool inside = false;
  HP_TRY(jinja_to_string(r, self, &text));
  size_t start = r->buffer.len;
  for (size_t at = 0, n; at < text.len; at += n) {
    uint32_t c = 0;
    char mapped[8];
    n = utf8_decode(text.text + at, text.len - at, &c);
    if (!n) n = 1;
    bool between = jinja_is_space(c) || (c < 0x80 && strchr("-({[<", (int)c));
    size_t len = jinja_map_case(c, inside ? JINJA_LOWER : JINJA_UPPER, mapped);
    HP_TRY(between ? jinja_add(r, text.text + at, n) : jinja_add(r, mapped, len));
    inside = !between;
  }
  return jinja_take(r, start, out);
}

FILTER(trim) {
  jinja_value text;
  HP_TRY(jinja_to_string(r, self, &text));
  return jinja_strip(r, &text, &a->at[0], true, true, out);
}

FILTER(replace) {
  jinja_value text, from, to;
  int64_t most;
  HP_TRY(jinja_to_string(r, self, &text));
  HP_TRY(jinja_to_string(r, &a->at[0], &from));
  HP_TRY(jinja_to_string(r, &a->at[1], &to));
  HP_TRY(jinja_opt_int(r, &a->at[2], -1, &most));
  text.markup = false;
  return jinja_replace(r, &text, &from, &to, most, out);
}

FILTER(string) {
  (void)a;
  return jinja_to_string(r, self, out);
}

FILTER(safe) {
  (void)a;
  HP_TRY(jinja_to_string(r, self, out));
  out->markup = true;
  return HP_OK;
}

FILTER(escape) {
  (void)a;
  return jinja_escape(r, self, out);
}

static hp_status read_width(jinja_run *r, const jinja_value *v, jinja_value *out) {
  int64_t n;
  if (v->kind == JINJA_STRING) {
    *out = *v;
    return HP_OK;
  }
  HP_TRY(jinja_opt_int(r, v, 4, &n));
  size_t start = r->buffer.len;
  for (int64_t i = 0; i < n; i++) HP_TRY(jinja_add(r, " ", 1));
  return jinja_take(r, start, out);
}

/* All lines but the first; that too with `first`, and empty ones with `blank`. */
FILTER(indent) {
  jinja_value text, lines, width;
  bool first = jinja_truth(&a->at[1]), blank = jinja_truth(&a->at[2]);
  HP_TRY(jinja_need_string(r, self, "indent"));
  HP_TRY(read_width(r, &a->at[0], &width));
  size_t start = r->buffer.len;
  HP_TRY(jinja_add(r, self->text, self->len));
  HP_TRY(jinja_add(r, "\n", 1));
  HP_TRY(jinja_take(r, start, &text));
  HP_TRY(jinja_split_lines(r, &text, false, &lines));
  for (uint32_t i = 0; i < lines.seq->len; i++) {
    const jinja_value *line = &lines.seq->at[i];
    if (i) HP_TRY(jinja_add(r, "\n", 1));
    if (i ? blank || line->len : first) HP_TRY(jinja_add(r, width.text, width.len));
    HP_TRY(jinja_add(r, line->text, line->len));
  }
  HP_TRY(jinja_take(r, start, out));
  out->markup = self->markup;
  return HP_OK;
}

FILTER(forceescape) {
  jinja_value text;
  (void)a;
  HP_TRY(jinja_to_string(r, self, &text));
  text.markup = false;
  return jinja_escape(r, &text, out);
}

FILTER(center) {
  jinja_value text;
  int64_t width;
  HP_TRY(jinja_to_string(r, self, &text));
  HP_TRY(jinja_opt_int(r, &a->at[0], 80, &width));
  int64_t missing = width - (int64_t)jinja_count_chars(text.text, text.len);
  bool odd = missing > 0 && (missing & width & 1);
  size_t start = r->buffer.len;
  HP_TRY(jinja_charge(r, missing > 0 ? (uint64_t)missing / 16 : 0));
  if (odd) HP_TRY(jinja_add(r, " ", 1));
  HP_TRY(jinja_add_padded(r, text.text, text.len, '^', " ", 1, width - odd));
  return jinja_take(r, start, out);
}

/* Values by position, or by name: "%(name)s". */
FILTER(format) {
  jinja_value text, values;
  HP_TRY(jinja_to_string(r, self, &text));
  if (a->n && a->n_named) JINJA_FAIL(r, "format takes values by position or by name, not both");
  if (a->n_named) {
    HP_TRY(jinja_new_dict(r, JINJA_DICT, a->n_named, &values));
    for (uint32_t i = 0; i < a->n_named; i++)
      HP_TRY(jinja_dict_set(r, values.dict, &a->name[i], &a->named[i]));
  } else {
    HP_TRY(jinja_new_seq(r, JINJA_TUPLE, a->n, &values));
    if (a->n) memcpy(values.seq->at, a->at, a->n * sizeof *a->at);
  }
  return jinja_format_percent(r, &text, &values, out);
}

/* Runs of letters, digits and underscores. */
FILTER(wordcount) {
  jinja_value text;
  int64_t n = 0;
  bool inside = false;
  (void)a;
  HP_TRY(jinja_to_string(r, self, &text));
  for (size_t at = 0, len; at < text.len; at += len) {
    uint32_t c = 0;
    if (!(len = utf8_decode(text.text + at, text.len - at, &c))) len = 1;
    bool word = c == '_' || jinja_is_letter(c) || jinja_is_digit(c);
    n += word && !inside;
    inside = word;
  }
  *out = jinja_int(n);
  return HP_OK;
}

/* --- numbers ----------------------------------------------------------------------------- */

/* The text of a number as Python's int() and float() take it: no spaces at its ends, single
 * underscores between digits; false: it is longer than room, or an underscore is elsewhere. */
static bool plain_number(const jinja_value *v, char *to, size_t room) {
  size_t from = jinja_skip_space(v->text, v->len), end = jinja_trim_space(v->text, v->len), n = 0;
  for (size_t i = from; i < end; i++) {
    char c = v->text[i];
    bool digits = i > from && i + 1 < end && strchr("0123456789", v->text[i - 1]) &&
                  strchr("0123456789", v->text[i + 1]) && v->text[i - 1] && v->text[i + 1];
    if (c == '_' && digits) continue;
    if (c == '_' || !c || n + 1 >= room) return false;
    to[n++] = c;
  }
  to[n] = 0;
  return n > 0;
}

static bool read_float(const jinja_value *v, double *out) {
  char text[400];
  if (v->kind != JINJA_STRING || !plain_number(v, text, sizeof text)) return false;
  if (strpbrk(text, "xXpP(")) return false; /* C's hexadecimal numbers are none in Python */
  return str_to_f64(text, out);
}

static bool read_int(const jinja_value *v, int base, int64_t *out) {
  char text[80], *end;
  if (!plain_number(v, text, sizeof text)) return false;
  const char *digits = text + (*text == '-' || *text == '+');
  char kind = digits[0] == '0' ? (char)(digits[1] | 0x20) : 0;
  if ((kind == 'b' && base == 2) || (kind == 'o' && base == 8)) {
    memmove(text + (digits - text), digits + 2, strlen(digits + 2) + 1);
  } else if (kind == 'x' && base != 16) {
    return false;
  }
  errno = 0;
  long long x = strtoll(text, &end, base);
  if (errno || *end || end == text) return false;
  *out = x;
  return true;
}

FILTER(int) {
  int64_t absent, base, x;
  double f;
  if (self->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, self);
  *out = a->at[0];
  if (a->at[0].kind == JINJA_MISSING) *out = jinja_int(0);
  else HP_TRY(jinja_opt_int(r, &a->at[0], 0, &absent));
  HP_TRY(jinja_opt_int(r, &a->at[1], 10, &base));
  if (base < 2 || base > 36) JINJA_FAIL(r, "int: base %lld is not 2 to 36", (long long)base);
  if (self->kind == JINJA_INT || self->kind == JINJA_BOOL) {
    *out = jinja_int(jinja_as_int(self));
    return HP_OK;
  }
  if (self->kind == JINJA_STRING && read_int(self, (int)base, &x)) {
    *out = jinja_int(x);
    return HP_OK;
  }
  if (self->kind == JINJA_FLOAT) f = self->number;
  else if (!read_float(self, &f)) return HP_OK;
  if (!isfinite(f)) return HP_OK;
  if (fabs(f) >= 0x1p63) JINJA_FAIL(r, "int: %g has more than 64 bits", f);
  *out = jinja_int((int64_t)f);
  return HP_OK;
}

FILTER(float) {
  double f;
  if (self->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, self);
  *out = a->at[0].kind == JINJA_MISSING ? jinja_float(0) : a->at[0];
  if (jinja_is_number(self)) *out = jinja_float(jinja_as_float(self));
  else if (read_float(self, &f)) *out = jinja_float(f);
  return HP_OK;
}

FILTER(abs) {
  (void)a;
  if (self->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, self);
  if (!jinja_is_number(self)) JINJA_FAIL(r, "abs needs a number, not a %s", jinja_type(self));
  *out = *self;
  bool negative = self->kind == JINJA_FLOAT ? signbit(self->number) : jinja_as_int(self) < 0;
  return jinja_negate(r, self, negative, out);
}

/* Python rounds the exact decimal value, half to even: so does printf. */
static double round_to(double x, int64_t digits) {
  char text[400];
  if (!isfinite(x) || digits > 300) return x;
  if (digits < 0) {
    double scale = pow(10, (double)-digits);
    return isfinite(scale) ? nearbyint(x / scale) * scale : 0;
  }
  snprintf(text, sizeof text, "%.*f", (int)digits, x);
  return strtod(text, NULL);
}

FILTER(round) {
  int64_t digits;
  const jinja_value *method = &a->at[1];
  HP_TRY(jinja_opt_int(r, &a->at[0], 0, &digits));
  if (self->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, self);
  if (!jinja_is_number(self)) JINJA_FAIL(r, "round needs a number, not a %s", jinja_type(self));
  if (method->kind == JINJA_MISSING || jinja_is(method, "common")) {
    *out = self->kind == JINJA_FLOAT ? jinja_float(round_to(self->number, digits))
                                     : jinja_int(jinja_as_int(self));
    if (self->kind != JINJA_FLOAT && digits < 0)
      JINJA_FAIL(r, "round: a negative precision of an integer is not supported");
    return HP_OK;
  }
  double scale = pow(10, (double)digits), x = jinja_as_float(self) * scale;
  if (jinja_is(method, "ceil")) x = ceil(x);
  else if (jinja_is(method, "floor")) x = floor(x);
  else JINJA_FAIL(r, "round: the method must be common, ceil or floor");
  *out = jinja_float(x / scale);
  return HP_OK;
}

/* --- any value --------------------------------------------------------------------------- */

FILTER(default) {
  (void)r;
  const jinja_value *other = &a->at[0];
  bool absent = self->kind == JINJA_UNDEFINED || (jinja_truth(&a->at[1]) && !jinja_truth(self));
  *out = !absent ? *self : other->kind == JINJA_MISSING ? jinja_string("", 0) : *other;
  return HP_OK;
}

FILTER(length) {
  (void)a;
  int64_t n;
  HP_TRY(jinja_length(r, self, &n));
  *out = jinja_int(n);
  return HP_OK;
}
