/* Optimizers: functional updates of a parameter and its state. */
#include "ops/ops.h"

#include <math.h>

static hp_status check_update(infer_ctx *c, int tensors) {
  const ir_value *p = graph_value(c->g, c->in[0]);
  for (int i = 0; i < c->node.n_in; i++) {
    const ir_value *v = graph_value(c->g, c->in[i]);
    bool fits = v->dtype == HP_F32 && (i < tensors ? value_same_shape(v, p) : v->rank == 0);
    if (!fits)
      return ops_fail(c, "%s is %s; expected %s", ops_operand(c, i), ops_type(c, i),
                      i < tensors ? "f32 of the parameter's shape" : "f32[]");
  }
  return HP_OK;
}

/* The attribute is from 0 on, and below `end`. */
static hp_status check_option(infer_ctx *c, const char *key, double end) {
  double x = attr_float(c->g, &c->node, key);
  if (x >= 0 && x < end) return HP_OK;
  if (end < INFINITY)
    return ops_fail(c, "%s is %g; 0 or more and below %g was expected", key, x, end);
  return ops_fail(c, "%s is %g; a finite number of 0 or more was expected", key, x);
}

hp_status infer_adamw(infer_ctx *c) {
  HP_TRY(check_update(c, 4));
  HP_TRY(check_option(c, "beta1", 1));
  HP_TRY(check_option(c, "beta2", 1));
  HP_TRY(check_option(c, "eps", INFINITY));
  HP_TRY(check_option(c, "decay", INFINITY));
  for (int i = 0; i < 3; i++) {
    c->out[i] = *graph_value(c->g, c->in[i == 0 ? 0 : i + 1]);
    c->out[i].layout = 0;
  }
  return HP_OK;
}

hp_status infer_sgd(infer_ctx *c) {
  HP_TRY(check_update(c, 3));
  HP_TRY(check_option(c, "momentum", INFINITY));
  HP_TRY(check_option(c, "decay", INFINITY));
  for (int i = 0; i < 2; i++) {
    c->out[i] = *graph_value(c->g, c->in[i == 0 ? 0 : 2]);
    c->out[i].layout = 0;
  }
  return HP_OK;
}
