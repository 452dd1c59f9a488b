/* Tests: what "x is ..." asks. */
#include "jinja/jinja_strings.h"

#define TEST(name, value)                                                                          \
  hp_status jinja_test_##name(jinja_run *r, const jinja_value *self, const jinja_args *a,          \
                              jinja_value *out);                                                   \
  hp_status jinja_test_##name(jinja_run *r, const jinja_value *self, const jinja_args *a,          \
                              jinja_value *out) {                                                  \
    (void)r, (void)a;                                                                              \
    *out = jinja_bool(value);                                                                      \
    return HP_OK;                                                                                  \
  }

TEST(defined, self->kind != JINJA_UNDEFINED)
TEST(undefined, self->kind == JINJA_UNDEFINED)
TEST(none, self->kind == JINJA_NONE)
TEST(boolean, self->kind == JINJA_BOOL)
TEST(true, self->kind == JINJA_BOOL && self->boolean)
TEST(false, self->kind == JINJA_BOOL && !self->boolean)
TEST(integer, self->kind == JINJA_INT)
TEST(float, self->kind == JINJA_FLOAT)
TEST(number, jinja_is_number(self))
TEST(string, self->kind == JINJA_STRING)
TEST(mapping, self->kind == JINJA_DICT)
TEST(callable, self->kind == JINJA_MACRO || self->kind == JINJA_FUNCTION ||
                   self->kind == JINJA_METHOD || self->kind == JINJA_UNDEFINED)
/* an undefined value has length 0 and no values */
TEST(iterable, jinja_is_seq(self) || self->kind == JINJA_DICT || self->kind == JINJA_STRING ||
                   self->kind == JINJA_LOOP || self->kind == JINJA_UNDEFINED)
TEST(sequence, self->kind == JINJA_LIST || self->kind == JINJA_TUPLE || self->kind == JINJA_RANGE ||
                   self->kind == JINJA_DICT || self->kind == JINJA_STRING ||
                   self->kind == JINJA_UNDEFINED)

#undef TEST
#define TEST(name)                                                                                 \
  hp_status jinja_test_##name(jinja_run *r, const jinja_value *self, const jinja_args *a,          \
                              jinja_value *out);                                                   \
  hp_status jinja_test_##name(jinja_run *r, const jinja_value *self, const jinja_args *a,          \
                              jinja_value *out)

static bool is_same(const jinja_value *a, const jinja_value *b) {
  if (a->kind != b->kind) return false;
  switch (a->kind) {
  case JINJA_NONE: return true;
  case JINJA_BOOL: return a->boolean == b->boolean;
  case JINJA_INT: return a->integer == b->integer;
  case JINJA_STRING: return a->text == b->text && a->len == b->len;
  default: return a->seq == b->seq;
  }
}
TEST(sameas) {
  (void)r;
  *out = jinja_bool(is_same(self, &a->at[0]));
  return HP_OK;
}

static hp_status has_case(jinja_run *r, const jinja_value *self, jinja_case which,
                          jinja_value *out) {
  jinja_value text;
  HP_TRY(jinja_to_string(r, self, &text));
  *out = jinja_bool(jinja_has_case(text.text, text.len, which));
  return HP_OK;
}
TEST(lower) {
  (void)a;
  return has_case(r, self, JINJA_LOWER, out);
}
TEST(upper) {
  (void)a;
  return has_case(r, self, JINJA_UPPER, out);
}

/* Whether self % by is rest. */
static hp_status has_rest(jinja_run *r, const jinja_value *self, const jinja_value *by,
                          int64_t rest, jinja_value *out) {
  const jinja_value wanted = jinja_int(rest);
  jinja_value x;
  bool same;
  HP_TRY(jinja_binary(r, JINJA_MOD, self, by, &x));
  HP_TRY(jinja_equal(r, &x, &wanted, &same));
  *out = jinja_bool(same);
  return HP_OK;
}
TEST(odd) {
  const jinja_value two = jinja_int(2);
  (void)a;
  return has_rest(r, self, &two, 1, out);
}
TEST(even) {
  const jinja_value two = jinja_int(2);
  (void)a;
  return has_rest(r, self, &two, 0, out);
}
TEST(divisibleby) { return has_rest(r, self, &a->at[0], 0, out); }

static hp_status relation(jinja_run *r, jinja_op op, const jinja_value *self, const jinja_args *a,
                          jinja_value *out) {
  bool holds;
  HP_TRY(jinja_relation(r, op, self, &a->at[0], &holds));
  *out = jinja_bool(holds);
  return HP_OK;
}
TEST(in) { return relation(r, JINJA_IN, self, a, out); }
TEST(eq) { return relation(r, JINJA_EQ, self, a, out); }
TEST(ne) { return relation(r, JINJA_NE, self, a, out); }
TEST(lt) { return relation(r, JINJA_LT, self, a, out); }
TEST(le) { return relation(r, JINJA_LE, self, a, out); }
TEST(gt) { return relation(r, JINJA_GT, self, a, out); }
TEST(ge) { return relation(r, JINJA_GE, self, a, out); }
