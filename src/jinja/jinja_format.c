#include "jinja/jinja_format.h"

#include "jinja/jinja_call.h"
#include "jinja/jinja_text.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH_MAX = 10000, DIGITS_MAX = 300, NUMBER_ROOM = 1024 };

/* How one value is written. */
typedef struct {
  char fill[4];
  size_t fill_len;
  char align, sign, type, group; /* 0: not given */
  bool alternate, zero;
  int64_t width, precision; /* -1: not given */
} format_spec;

typedef struct {
  const char *at, *end;
} reader;

static bool take(reader *in, char c) {
  if (in->at >= in->end || *in->at != c) return false;
  in->at++;
  return true;
}

static char take_any(reader *in, const char *of) {
  return in->at < in->end && *in->at && strchr(of, *in->at) ? *in->at++ : 0;
}

/* A number, -1 when there is none; too large ones become more than any limit. */
static int64_t take_number(reader *in) {
  int64_t n = -1;
  for (; in->at < in->end && *in->at >= '0' && *in->at <= '9'; in->at++)
    if (n <= 1000000) n = (n < 0 ? 0 : 10 * n) + (*in->at - '0');
  return n;
}

static hp_status check_size(jinja_run *r, const format_spec *f) {
  if (f->width > WIDTH_MAX) JINJA_FAIL(r, "format: a width above %d", WIDTH_MAX);
  if (f->precision > DIGITS_MAX) JINJA_FAIL(r, "format: a precision above %d", DIGITS_MAX);
  return HP_OK;
}

hp_status jinja_add_padded(jinja_run *r, const char *text, size_t n, char align, const char *fill,
                           size_t fill_len, int64_t width) {
  int64_t missing = width - (int64_t)jinja_count_chars(text, n);
  int64_t left = missing <= 0 || align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  for (int64_t i = 0; i < left; i++) HP_TRY(jinja_add(r, fill, fill_len));
  HP_TRY(jinja_add(r, text, n));
  for (int64_t i = left; i < missing; i++) HP_TRY(jinja_add(r, fill, fill_len));
  return HP_OK;
}

/* --- numbers ----------------------------------------------------------------------------- */

/* The digits of a whole number in base 2, 8, 10 or 16. */
static size_t put_integer(char *to, uint64_t x, int base, bool upper) {
  char back[66];
  size_t n = 0;
  do back[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[x % (unsigned)base];
  while (x /= (unsigned)base);
  for (size_t i = 0; i < n; i++) to[i] = back[n - 1 - i];
  return n;
}

/* A separator between groups of three digits before the point, of four in other bases. */
static size_t put_groups(char *to, const char *digits, size_t n, char group, size_t size) {
  size_t whole = strspn(digits, size == 3 ? "0123456789" : "0123456789abcdefABCDEF"), out = 0;
  if (!group || whole > n) whole = group ? n : 0;
  for (size_t i = 0; i < whole; i++) {
    if (i && (whole - i) % size == 0) to[out++] = group;
    to[out++] = digits[i];
  }
  memcpy(to + out, digits + whole, n - whole);
  return out + n - whole;
}

/* Sign, prefix and digits, padded as f says. */
static hp_status add_digits(jinja_run *r, const format_spec *f, bool negative, const char *prefix,
                            const char *digits, size_t n) {
  char head[8], text[2 * NUMBER_ROOM];
  const char *sign = negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
  size_t head_len = (size_t)snprintf(head, sizeof head, "%s%s", sign, prefix);
  char align = f->align ? f->align : f->zero ? '=' : '>';
  if (align != '=') {
    memcpy(text, head, head_len);
    memcpy(text + head_len, digits, n);
    return jinja_add_padded(r, text, head_len + n, align, f->fill, f->fill_len, f->width);
  }
  HP_TRY(jinja_add(r, head, head_len));
  return jinja_add_padded(r, digits, n, '>', f->fill, f->fill_len, f->width - (int64_t)head_len);
}

static hp_status add_integer(jinja_run *r, const format_spec *f, int64_t v) {
  char digits[80], text[160];
  char type = f->type ? f->type : 'd';
  int base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
  const char *prefix = !f->alternate || base == 10 ? ""
                       : base == 2                 ? "0b"
                       : base == 8                 ? "0o"
                       : type == 'x'               ? "0x"
                                                   : "0X";
  uint64_t x = v < 0 ? -(uint64_t)v : (uint64_t)v;
  size_t n = put_integer(digits, x, base, type == 'X');
  digits[n] = 0;
  n = put_groups(text, digits, n, f->group, base == 10 ? 3 : 4);
  return add_digits(r, f, v < 0, prefix, text, n);
}

static hp_status add_float(jinja_run *r, const format_spec *f, double x) {
  char c[16], digits[NUMBER_ROOM], text[2 * NUMBER_ROOM - 16];
  bool percent = f->type == '%';
  char type = percent ? 'f' : f->type;
  double size = fabs(percent ? x * 100 : x);
  size_t n;
  if (!type && (f->precision >= 0 || f->alternate))
    JINJA_FAIL(r, "format: a precision or \"#\" needs a type, e.g. \".2f\"");
  if (!type) {
    str s = {0};
    str_add_double(&s, size);
    HP_TRY(str_status(&s));
    n = (size_t)snprintf(digits, sizeof digits, "%s", s.at);
    str_free(&s);
  } else {
    snprintf(c, sizeof c, "%%%s.*%c", f->alternate ? "#" : "", type);
    n = (size_t)snprintf(digits, sizeof digits, c, f->precision < 0 ? 6 : (int)f->precision, size);
  }
  if (percent) {
    digits[n++] = '%';
    digits[n] = 0;
  }
  n = put_groups(text, digits, n, isfinite(x) ? f->group : 0, 3);
  return add_digits(r, f, signbit(x) && !isnan(x), "", text, n);
}

static hp_status add_text(jinja_run *r, const format_spec *f, const char *text, size_t n) {
  if (f->precision >= 0) n = jinja_char_offset(text, n, (size_t)f->precision);
  return jinja_add_padded(r, text, n, f->align ? f->align : '<', f->fill, f->fill_len, f->width);
}

static bool is_type(const format_spec *f, const char *types) {
  return f->type && strchr(types, f->type);
}

/* --- "%s" % value ------------------------------------------------------------------------ */

static hp_status add_percent(jinja_run *r, const format_spec *f, const jinja_value *v) {
  jinja_value text;
  size_t start = r->buffer.len;
  if (is_type(f, "sr")) {
    HP_TRY(f->type == 's' ? jinja_add_str(r, v) : jinja_add_repr(r, v));
    HP_TRY(jinja_take(r, start, &text));
    return add_text(r, f, text.text, text.len);
  }
  if (v->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, v);
  bool whole = v->kind == JINJA_INT || v->kind == JINJA_BOOL;
  if (is_type(f, "xXo") && whole) return add_integer(r, f, jinja_as_int(v));
  if (is_type(f, "eEfFgG") && jinja_is_number(v)) return add_float(r, f, jinja_as_float(v));
  if (is_type(f, "diu") && whole) return add_integer(r, f, jinja_as_int(v));
  if (is_type(f, "diu") && v->kind == JINJA_FLOAT && fabs(v->number) < 0x1p63)
    return add_integer(r, f, (int64_t)v->number);
  JINJA_FAIL(r, "a %s cannot be written by \"%%%c\"", jinja_type(v), f->type);
}

/* The values in turn. */
typedef struct {
  const jinja_value *values;
  uint32_t next, n;
} percent_values;

static const jinja_value *next_value(percent_values *v) {
  if (v->next >= v->n) return NULL;
  const jinja_value *all = v->values;
  return all->kind == JINJA_TUPLE ? &all->seq->at[v->next++] : (v->next++, all);
}

static hp_status find_name(jinja_run *r, reader *in, const jinja_value *values,
                           const jinja_value **out) {
  const char *end = memchr(in->at, ')', (size_t)(in->end - in->at));
  if (!end) JINJA_FAIL(r, "a name in a format has no \")\"");
  const jinja_value name = jinja_string(in->at, (size_t)(end - in->at));
  if (values->kind != JINJA_DICT) JINJA_FAIL(r, "a name in a format needs a dict of values");
  in->at = end + 1;
  HP_TRY(jinja_dict_get(r, values->dict, &name, out));
  if (!*out) JINJA_FAIL(r, "no value for '%.*s' of the format", (int)name.len, name.text);
  return HP_OK;
}

static hp_status percent_field(jinja_run *r, reader *in, percent_values *values) {
  format_spec f = {.fill = " ", .fill_len = 1, .align = '>', .width = -1, .precision = -1};
  const jinja_value *v = NULL;
  if (take(in, '%')) return jinja_add(r, "%", 1);
  if (take(in, '(')) HP_TRY(find_name(r, in, values->values, &v));
  for (char c; (c = take_any(in, "-+ 0#"));) {
    if (c == '-') f.align = '<';
    else if (c == '0') f.zero = true;
    else if (c == '#') f.alternate = true;
    else if (f.sign != '+') f.sign = c;
  }
  f.width = take_number(in);
  if (take(in, '.') && (f.precision = take_number(in)) < 0) f.precision = 0;
  (void)take_any(in, "hlL");
  HP_TRY(check_size(r, &f));
  f.type = take_any(in, "srdiuxXoeEfFgG");
  if (!f.type) JINJA_FAIL(r, "a format that is not supported behind a %%");
  if (f.zero && f.align == '>' && !is_type(&f, "sr")) {
    f.align = '=';
    *f.fill = '0';
  }
  if (is_type(&f, "diuxXo") && f.precision >= 0)
    JINJA_FAIL(r, "a precision of a whole number is not supported");
  if (!v && !(v = next_value(values))) JINJA_FAIL(r, "the format needs more values");
  return add_percent(r, &f, v);
}

hp_status jinja_format_percent(jinja_run *r, const jinja_value *text, const jinja_value *values,
                               jinja_value *out) {
  reader in = {text->text, text->text + text->len};
  percent_values v = {values, 0, values->kind == JINJA_TUPLE ? values->seq->len : 1};
  size_t start = r->buffer.len;
  while (in.at < in.end) {
    const char *p = memchr(in.at, '%', (size_t)(in.end - in.at));
    HP_TRY(jinja_add(r, in.at, (size_t)((p ? p : in.end) - in.at)));
    HP_TRY(jinja_charge(r, 1));
    in.at = p ? p + 1 : in.end;
    if (p) HP_TRY(percent_field(r, &in, &v));
  }
  bool may_rest = values->kind == JINJA_DICT || values->kind == JINJA_LIST ||
                  values->kind == JINJA_RANGE || values->kind == JINJA_UNDEFINED;
  if (v.next < v.n && !may_rest) JINJA_FAIL(r, "the format does not need all values");
  return jinja_take(r, start, out);
}

/* --- "{}".format(value) ------------------------------------------------------------------ */

static hp_status read_spec(jinja_run *r, reader in, format_spec *f) {
  *f = (format_spec){.fill = " ", .fill_len = 1, .width = -1, .precision = -1};
  uint32_t c;
  size_t n = in.at < in.end ? utf8_decode(in.at, (size_t)(in.end - in.at), &c) : 0;
  if (n && in.at + n < in.end && strchr("<>^=", in.at[n]) && in.at[n]) {
    memcpy(f->fill, in.at, n);
    f->fill_len = n;
    in.at += n;
  } else {
    n = 0;
  }
  f->align = take_any(&in, "<>^=");
  f->sign = take_any(&in, "+- ");
  f->alternate = take(&in, '#');
  f->zero = take(&in, '0');
  if (f->zero && !n) *f->fill = '0';
  f->width = take_number(&in);
  f->group = take_any(&in, ",_");
  if (take(&in, '.') && (f->precision = take_number(&in)) < 0)
    JINJA_FAIL(r, "format: a precision is missing");
  f->type = take_any(&in, "sdbxXoeEfFgG%");
  if (in.at != in.end)
    JINJA_FAIL(r, "format: \"%.*s\" is not supported", (int)(in.end - in.at), in.at);
  if (f->group && (f->zero || (f->align == '=' && *f->fill == '0')))
    JINJA_FAIL(r, "format: zeros with a separator are not supported");
  return check_size(r, f);
}

static bool is_empty(const format_spec *f) {
  return f->width < 0 && f->precision < 0 && !f->align && !f->sign && !f->type && !f->group &&
         !f->zero && !f->alternate;
}

static bool fits_text(const format_spec *f) {
  return (!f->type || f->type == 's') && f->align != '=' && !f->sign && !f->group && !f->alternate;
}

static bool fits_integer(const format_spec *f) {
  if (f->precision >= 0 || (f->type && !is_type(f, "dbxXo"))) return false;
  return f->group != ',' || !is_type(f, "bxXo");
}

static hp_status add_formatted(jinja_run *r, const format_spec *f, const jinja_value *v) {
  bool whole = v->kind == JINJA_INT || v->kind == JINJA_BOOL;
  if (is_empty(f)) return jinja_add_str(r, v);
  if (v->kind == JINJA_STRING && fits_text(f)) return add_text(r, f, v->text, v->len);
  if (whole && fits_integer(f)) return add_integer(r, f, jinja_as_int(v));
  if (jinja_is_number(v) && (is_type(f, "eEfFgG%") || (!f->type && !whole)))
    return add_float(r, f, jinja_as_float(v));
  JINJA_FAIL(r, "format: a %s cannot be written so", jinja_type(v));
}

/* Whether all of a text is a number. */
static bool is_number(reader in, int64_t *out) {
  *out = take_number(&in);
  return *out >= 0 && in.at == in.end;
}

/* The argument of a name, of a number, or the next one if there is neither. */
static hp_status find_argument(jinja_run *r, reader name, const jinja_args *a, uint32_t *next,
                               jinja_value *out) {
  const jinja_value text = jinja_string(name.at, (size_t)(name.end - name.at));
  int64_t k = *next;
  if (!text.len) ++*next;
  if (!text.len || is_number(name, &k)) {
    if (k < a->n) {
      *out = a->at[k];
      return HP_OK;
    }
  } else {
    for (uint32_t i = 0; i < a->n_named; i++) {
      bool same;
      HP_TRY(jinja_equal(r, &a->name[i], &text, &same));
      if (!same) continue;
      *out = a->named[i];
      return HP_OK;
    }
  }
  JINJA_FAIL(r, "format: no value for \"{%.*s}\"", (int)text.len, text.text);
}

/* The bytes up to one of the two characters. */
static size_t span_to(reader in, char a, char b) {
  const char *at = in.at;
  while (at < in.end && *at != a && *at != b) at++;
  return (size_t)(at - in.at);
}

/* The value of "name", "0" or "", and of ".attribute" and "[key]" behind it. */
static hp_status find_field(jinja_run *r, reader in, const jinja_args *a, uint32_t *next,
                            jinja_value *out) {
  size_t n = span_to(in, '.', '[');
  HP_TRY(find_argument(r, (reader){in.at, in.at + n}, a, next, out));
  for (in.at += n; in.at < in.end;) {
    int64_t k;
    bool item = *in.at++ == '[';
    n = item ? span_to(in, ']', ']') : span_to(in, '.', '[');
    jinja_value key = jinja_string(in.at, n);
    if (item && is_number((reader){in.at, in.at + n}, &k)) key = jinja_int(k);
    HP_TRY(item ? jinja_get_item(r, out, &key, out) : jinja_get_attribute(r, out, in.at, n, out));
    if (out->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, out);
    in.at += n;
    if (item && !take(&in, ']')) JINJA_FAIL(r, "format: a \"[\" without \"]\"");
  }
  return HP_OK;
}

static hp_status brace_field(jinja_run *r, reader in, const jinja_args *a, uint32_t *next) {
  format_spec f;
  jinja_value v;
  reader name = in;
  const char *colon = memchr(in.at, ':', (size_t)(in.end - in.at));
  if (colon) name.end = colon;
  const char *bang = memchr(name.at, '!', (size_t)(name.end - name.at));
  char conversion = bang && bang + 2 == name.end ? bang[1] : 0;
  if (bang) name.end = bang;
  if (bang && conversion != 'r' && conversion != 's')
    JINJA_FAIL(r, "format: the conversion must be !r or !s");
  if (memchr(in.at, '{', (size_t)(in.end - in.at)))
    JINJA_FAIL(r, "format: fields in fields are not supported");
  HP_TRY(find_field(r, name, a, next, &v));
  if (conversion) {
    size_t start = r->buffer.len;
    HP_TRY(conversion == 'r' ? jinja_add_repr(r, &v) : jinja_add_str(r, &v));
    HP_TRY(jinja_take(r, start, &v));
  }
  HP_TRY(read_spec(r, (reader){colon ? colon + 1 : in.end, in.end}, &f));
  return add_formatted(r, &f, &v);
}

hp_status jinja_format_braces(jinja_run *r, const jinja_value *text, const jinja_args *values,
                              jinja_value *out) {
  reader in = {text->text, text->text + text->len};
  uint32_t next = 0;
  size_t start = r->buffer.len;
  while (in.at < in.end) {
    const char *from = in.at;
    while (in.at < in.end && *in.at != '{' && *in.at != '}') in.at++;
    HP_TRY(jinja_add(r, from, (size_t)(in.at - from)));
    HP_TRY(jinja_charge(r, 1));
    if (in.at == in.end) break;
    char c = *in.at++;
    if (take(&in, c)) {
      HP_TRY(jinja_add(r, &c, 1));
      continue;
    }
    const char *end = c == '{' ? memchr(in.at, '}', (size_t)(in.end - in.at)) : NULL;
    if (!end) JINJA_FAIL(r, "format: a single \"%c\"", c);
    HP_TRY(brace_field(r, (reader){in.at, end}, values, &next));
    in.at = end + 1;
  }
  return jinja_take(r, start, out);
}
