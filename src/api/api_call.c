#include "api/api_call.h"

#include "base/dtype.h"
#include "ops/ops.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

/* --- a call --------------------------------------------------------------------------------- */

api_call api_begin(bool tells) {
  err_call_begin();
  return (api_call){NULL, tells};
}

void api_end(const api_call *c) {
  if (c->g) {
    c->g->caller = c->g->operands = NULL;
    if (c->g->failure.code && !*err_call_message()) (void)err_give(&c->g->failure);
  }
  err_call_end(c->tells);
}

hp_status api_result(const char *function, hp_status st) {
  if (st && !*err_message())
    return err_set(st, __FILE__, __LINE__, "%s: %s", function, err_name(st));
  if (!st) err_call_succeeded();
  return st;
}

hp_status api_text(const char *function, hp_status st, str *s, char **text) {
  if (!st) st = str_status(s);
  if (!st && !s->at) str_add(s, "");
  char *taken = st ? NULL : str_take(s);
  if (!st && !taken) st = HP_ERR_OOM;
  if (st) str_free(s);
  else *text = taken;
  return api_result(function, st);
}

/* --- arguments ------------------------------------------------------------------------------ */

hp_status api_null(const char *function, const char *argument, const char *expected) {
  HP_FAIL(HP_ERR_ARG, "%s: %s is NULL; expected %s", function, argument, expected);
}

hp_status api_refuse(const char *function, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  HP_FAIL(HP_ERR_ARG, "%s: %s", function, text);
}

/* --- builders ------------------------------------------------------------------------------- */

bool api_build(api_call *c, hp_graph *g, const char *function, const char *names) {
  if (!g) {
    (void)api_null(function, "g", "a graph");
    return false;
  }
  c->g = g;
  g->caller = function;
  g->operands = names;
  return !g->failure.code;
}

static const hp_tensor value_mask = ((hp_tensor)1 << API_VALUE_BITS) - 1;

val api_number_of(const hp_graph *g, hp_tensor x) {
  val v = x & value_mask;
  return (x & ~value_mask) == g->tag && v < g->values.len ? v : 0;
}

const char *api_why_not(const hp_graph *g, hp_tensor x, const char *argument,
                        char why[API_WHY_MAX]) {
  hp_tensor tag = x & ~value_mask;
  if (!x) snprintf(why, API_WHY_MAX, "%s is HP_NONE, which is not a tensor", argument);
  else if (tag != g->tag && api_tag_is_taken(tag))
    snprintf(why, API_WHY_MAX, "%s is not a tensor of this graph, but of another one", argument);
  else
    snprintf(why, API_WHY_MAX,
             "%s is %u, which is not a tensor of this graph: expected an id that a builder gave",
             argument, x);
  return why;
}

val api_value_or_none(hp_graph *g, hp_tensor x, const char *argument) {
  char why[API_WHY_MAX];
  if (!x || g->failure.code) return 0;
  val v = api_number_of(g, x);
  return v ? v : ops_refuse(g, 0, "%s", api_why_not(g, x, argument, why));
}

val api_value(hp_graph *g, hp_tensor x, const char *argument) {
  char why[API_WHY_MAX];
  if (x) return api_value_or_none(g, x, argument);
  return ops_refuse(g, 0, "%s", api_why_not(g, x, argument, why));
}

val api_value_at(hp_graph *g, const hp_tensor *x, int i, const char *argument) {
  char name[64];
  snprintf(name, sizeof name, "%s[%d]", argument, i);
  return api_value(g, x[i], name);
}

hp_tensor api_tensor(hp_graph *g, val x) {
  if (x > value_mask)
    return ops_refuse(g, 0, "the graph has more than %u tensors, the most that are possible",
                      value_mask);
  return x ? x | g->tag : HP_NONE;
}

bool api_need_given(hp_graph *g, const void *p, const char *argument) {
  if (!p) ops_refuse(g, 0, "%s is NULL", argument);
  return p && !g->failure.code;
}

bool api_need_dtype(hp_graph *g, hp_dtype t, const char *argument) {
  bool known = (unsigned)t < HP_DTYPE_COUNT;
  if (!known)
    ops_refuse(g, 0, "%s is %d; expected a dtype, from HP_F32 to HP_BOOL", argument, (int)t);
  return known && !g->failure.code;
}

bool api_need_shape(hp_graph *g, const hp_shape *s, const char *argument) {
  if (s->rank < 0 || s->rank > HP_MAX_RANK)
    ops_refuse(g, 0, "%s has %d dims; expected 0 to %d", argument, s->rank, HP_MAX_RANK);
  for (int i = 0; i < s->rank && !g->failure.code; i++)
    if (s->dim[i] < 0)
      ops_refuse(g, 0, "dim %d of %s is %lld; expected 0 or more", i, argument,
                 (long long)s->dim[i]);
  return !g->failure.code;
}

bool api_need_number(hp_graph *g, hp_dtype t, double x, const char *argument) {
  double low = t == HP_I32 ? INT32_MIN : t == HP_I64 ? -0x1p63 : 0;
  double above = t == HP_I32 ? 0x1p31 : t == HP_I64 ? 0x1p63 : t == HP_U8 ? 256 : 2;
  double most = t == HP_F16 ? 65504 : t == HP_BF16 ? 0x1.fep127 : FLT_MAX;
  if (dtype_is_float(t) && isfinite(x) && fabs(x) > most)
    ops_refuse(g, 0, "%s is %g, beyond the range of %s; expected -%g to %g, or an infinity",
               argument, x, dtype_name(t), most, most);
  if (!dtype_is_float(t) && !(x >= low && x < above && x == floor(x)))
    ops_refuse(g, 0, "%s is %g, which is no number of %s; hp_cast to a float dtype first", argument,
               x, dtype_name(t));
  return !g->failure.code;
}

val api_number(hp_graph *g, hp_dtype t, double x, const char *argument) {
  return api_need_number(g, t, x, argument) ? ops_const(g, t, x) : 0;
}
