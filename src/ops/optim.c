/* Optimizers: functional updates of a parameter and its state. */
#include "ops/ops.h"

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

hp_status infer_adamw(infer_ctx *c) {
  HP_TRY(check_update(c, 4));
  for (int i = 0; i < 3; i++) {
    c->out[i] = *graph_value(c->g, c->in[i == 0 ? 0 : i + 1]);
    c->out[i].layout = 0;
  }
  return HP_OK;
}

hp_status infer_sgd(infer_ctx *c) {
  HP_TRY(check_update(c, 3));
  for (int i = 0; i < 2; i++) {
    c->out[i] = *graph_value(c->g, c->in[i == 0 ? 0 : 2]);
    c->out[i].layout = 0;
  }
  return HP_OK;
}
