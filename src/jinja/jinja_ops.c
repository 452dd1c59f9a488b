/* Arithmetic and comparison, by Python's rules. */
#include "jinja/jinja_ops.h"

#include "jinja/jinja_text.h"

#include <math.h>
#include <string.h>

static const char *const op_text[] =
    {[JINJA_ADD] = "+",       [JINJA_SUB] = "-", [JINJA_MUL] = "*", [JINJA_DIV] = "/",
     [JINJA_FLOORDIV] = "//", [JINJA_MOD] = "%", [JINJA_POW] = "**"};

/* --- numbers ----------------------------------------------------------------------------- */

static hp_status power(jinja_run *r, int64_t base, int64_t exponent, jinja_value *out) {
  int64_t x = 1;
  if (exponent < 0) {
    if (!base) JINJA_FAIL(r, "0 to the power of %lld", (long long)exponent);
    *out = jinja_float(pow((double)base, (double)exponent));
    return HP_OK;
  }
  for (bool overflow = false; exponent; exponent >>= 1) {
    if (overflow || (exponent & 1 && __builtin_mul_overflow(x, base, &x)))
      JINJA_FAIL(r, "the power has more than 64 bits");
    overflow = __builtin_mul_overflow(base, base, &base);
  }
  *out = jinja_int(x);
  return HP_OK;
}

static hp_status integers(jinja_run *r, jinja_op op, int64_t a, int64_t b, jinja_value *out) {
  int64_t x = 0;
  bool overflow = false;
  if (op == JINJA_POW) return power(r, a, b, out);
  if (!b && (op == JINJA_DIV || op == JINJA_FLOORDIV || op == JINJA_MOD))
    JINJA_FAIL(r, "%lld %s 0: division by zero", (long long)a, op_text[op]);
  if (op == JINJA_DIV) {
    *out = jinja_float((double)a / (double)b);
    return HP_OK;
  }
  if (op == JINJA_ADD) overflow = __builtin_add_overflow(a, b, &x);
  else if (op == JINJA_SUB) overflow = __builtin_sub_overflow(a, b, &x);
  else if (op == JINJA_MUL) overflow = __builtin_mul_overflow(a, b, &x);
  else if (b == -1) overflow = op == JINJA_FLOORDIV && __builtin_sub_overflow(0, a, &x);
  else {
    int64_t rest = a % b;
    bool below = rest && (rest < 0) != (b < 0); /* C rounds to zero, Python down */
    x = op == JINJA_MOD ? rest + (below ? b : 0) : a / b - below;
  }
  if (overflow)
    JINJA_FAIL(r, "%lld %s %lld has more than 64 bits", (long long)a, op_text[op], (long long)b);
  *out = jinja_int(x);
  return HP_OK;
}

static double float_mod(double a, double b) {
  double rest = fmod(a, b);
  if (rest) return (rest < 0) != (b < 0) ? rest + b : rest;
  return copysign(0, b);
}

static hp_status floats(jinja_run *r, jinja_op op, double a, double b, jinja_value *out) {
  double x = 0;
  if (!b && (op == JINJA_DIV || op == JINJA_FLOORDIV || op == JINJA_MOD))
    JINJA_FAIL(r, "%g %s 0: division by zero", a, op_text[op]);
  if (op == JINJA_ADD) x = a + b;
  else if (op == JINJA_SUB) x = a - b;
  else if (op == JINJA_MUL) x = a * b;
  else if (op == JINJA_DIV) x = a / b;
  else if (op == JINJA_MOD) x = float_mod(a, b);
  else if (op == JINJA_FLOORDIV) x = round((a - float_mod(a, b)) / b);
  else {
    x = pow(a, b);
    if (!isfinite(x) && isfinite(a) && isfinite(b)) JINJA_FAIL(r, "%g ** %g is not finite", a, b);
  }
  *out = jinja_float(x);
  return HP_OK;
}

/* --- strings and lists ------------------------------------------------------------------- */

hp_status jinja_escape(jinja_run *r, const jinja_value *v, jinja_value *out) {
  jinja_value text;
  HP_TRY(jinja_to_string(r, v, &text));
  size_t start = r->buffer.len;
  if (!text.markup) {
    for (size_t i = 0; i < text.len; i++) {
      char c = text.text[i];
      const char *e = c == '&'    ? "&amp;"
                      : c == '<'  ? "&lt;"
                      : c == '>'  ? "&gt;"
                      : c == '\'' ? "&#39;"
                      : c == '"'  ? "&#34;"
                                  : NULL;
      HP_TRY(jinja_add(r, e ? e : &c, e ? strlen(e) : 1));
    }
    HP_TRY(jinja_charge(r, text.len / 64));
    HP_TRY(jinja_take(r, start, &text));
    text.markup = true;
  }
  *out = text;
  return HP_OK;
}

/* Text next to Markup is escaped. */
static hp_status join_strings(jinja_run *r, const jinja_value *a, const jinja_value *b,
                              jinja_value *out) {
  jinja_value left = *a, right = *b;
  bool markup = a->markup || b->markup;
  if (markup) {
    HP_TRY(jinja_escape(r, a, &left));
    HP_TRY(jinja_escape(r, b, &right));
  }
  size_t start = r->buffer.len;
  HP_TRY(jinja_add(r, left.text, left.len));
  HP_TRY(jinja_add(r, right.text, right.len));
  HP_TRY(jinja_take(r, start, out));
  out->markup = markup;
  return HP_OK;
}

static hp_status join_lists(jinja_run *r, const jinja_value *a, const jinja_value *b,
                            jinja_value *out) {
  HP_TRY(jinja_new_seq(r, (jinja_kind)a->kind, (size_t)a->seq->len + b->seq->len, out));
  if (a->seq->len) memcpy(out->seq->at, a->seq->at, a->seq->len * sizeof *a->seq->at);
  if (b->seq->len) memcpy(out->seq->at + a->seq->len, b->seq->at, b->seq->len * sizeof *b->seq->at);
  return HP_OK;
}

static hp_status repeat(jinja_run *r, const jinja_value *v, int64_t times, jinja_value *out) {
  if (times < 0) times = 0;
  if (v->kind == JINJA_STRING) {
    size_t start = r->buffer.len;
    HP_TRY(jinja_charge(r, v->len ? (uint64_t)times / 16 : 0));
    for (int64_t i = 0; v->len && i < times; i++) HP_TRY(jinja_add(r, v->text, v->len));
    HP_TRY(jinja_take(r, start, out));
    out->markup = v->markup;
    return HP_OK;
  }
  size_t n;
  if (!size_mul(v->seq->len, (size_t)times, &n) || n > UINT32_MAX)
    JINJA_FAIL(r, "a list of more than %u values", UINT32_MAX);
  HP_TRY(jinja_new_seq(r, (jinja_kind)v->kind, n, out));
  for (size_t i = 0; i < n; i++) out->seq->at[i] = v->seq->at[i % v->seq->len];
  return HP_OK;
}

static bool can_repeat(const jinja_value *v) {
  return v->kind == JINJA_STRING || v->kind == JINJA_LIST || v->kind == JINJA_TUPLE;
}
static bool is_integer(const jinja_value *v) {
  return v->kind == JINJA_BOOL || v->kind == JINJA_INT;
}

hp_status jinja_binary(jinja_run *r, jinja_op op, const jinja_value *a, const jinja_value *b,
                       jinja_value *out) {
  if (is_integer(a) && is_integer(b)) return integers(r, op, jinja_as_int(a), jinja_as_int(b), out);
  if (jinja_is_number(a) && jinja_is_number(b))
    return floats(r, op, jinja_as_float(a), jinja_as_float(b), out);
  if (a->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, a);
  if (b->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, b);
  if (op == JINJA_ADD && a->kind == b->kind) {
    if (a->kind == JINJA_STRING) return join_strings(r, a, b, out);
    if (a->kind == JINJA_LIST || a->kind == JINJA_TUPLE) return join_lists(r, a, b, out);
  }
  if (op == JINJA_MUL && can_repeat(a) && is_integer(b)) return repeat(r, a, jinja_as_int(b), out);
  if (op == JINJA_MUL && can_repeat(b) && is_integer(a)) return repeat(r, b, jinja_as_int(a), out);
  JINJA_FAIL(r, "'%s' %s '%s' is not possible", jinja_type(a), op_text[op], jinja_type(b));
}

hp_status jinja_negate(jinja_run *r, const jinja_value *v, bool minus, jinja_value *out) {
  if (v->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, v);
  if (!jinja_is_number(v)) JINJA_FAIL(r, "a %s has no sign", jinja_type(v));
  if (v->kind == JINJA_FLOAT) *out = jinja_float(minus ? -v->number : v->number);
  else if (minus) return integers(r, JINJA_SUB, 0, jinja_as_int(v), out);
  else *out = jinja_int(jinja_as_int(v));
  return HP_OK;
}

/* --- comparison -------------------------------------------------------------------------- */

static hp_status contains(jinja_run *r, const jinja_value *v, const jinja_value *in, bool *out) {
  *out = false;
  if (in->kind == JINJA_STRING) {
    if (v->kind != JINJA_STRING)
      JINJA_FAIL(r, "only a string can be in a string, not a %s", jinja_type(v));
    HP_TRY(jinja_charge(r, in->len / 32));
    *out = jinja_find_text(in->text, in->len, v->text, v->len, 0) != SIZE_MAX;
    return HP_OK;
  }
  if (in->kind == JINJA_DICT) {
    const jinja_value *value;
    HP_TRY(jinja_dict_get(r, in->dict, v, &value));
    *out = value != NULL;
    return HP_OK;
  }
  const jinja_value *at;
  uint32_t n;
  HP_TRY(jinja_iterate(r, in, &at, &n));
  for (uint32_t i = 0; i < n && !*out; i++) {
    HP_TRY(jinja_charge(r, 1));
    HP_TRY(jinja_equal(r, v, &at[i], out));
    if (*out && in->kind == JINJA_ITERATOR) in->seq->next -= n - 1 - i; /* the rest is unread */
  }
  return HP_OK;
}

hp_status jinja_relation(jinja_run *r, jinja_op op, const jinja_value *a, const jinja_value *b,
                         bool *out) {
  int order;
  if (op == JINJA_IN || op == JINJA_NOT_IN) {
    HP_TRY(contains(r, a, b, out));
    *out ^= op == JINJA_NOT_IN;
    return HP_OK;
  }
  if (op == JINJA_EQ || op == JINJA_NE) {
    HP_TRY(jinja_equal(r, a, b, out));
    *out ^= op == JINJA_NE;
    return HP_OK;
  }
  HP_TRY(jinja_compare(r, a, b, &order));
  *out = order != 2 && (op == JINJA_LT   ? order < 0
                        : op == JINJA_LE ? order <= 0
                        : op == JINJA_GT ? order > 0
                                         : order >= 0);
  return HP_OK;
}
