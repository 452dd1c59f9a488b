/* Contractions. */
#include "ir/einsum_eq.h"
#include "ops/ops.h"

#include <string.h>

static bool can_multiply(const ir_value *a, const ir_value *b) {
  if (a->dtype == b->dtype) return dtype_is_float(a->dtype);
  return (a->dtype == HP_F32 && b->dtype == HP_BF16) || (a->dtype == HP_BF16 && b->dtype == HP_F32);
}

/* The type of the product of operand 0 with operand k. */
static hp_status infer_product_type(infer_ctx *c, int k, ir_value *result) {
  const char *text = attr_str(c->g, &c->node, "eq");
  int out = (int)attr_int(c->g, &c->node, "dtype");
  const ir_value *a = graph_value(c->g, c->in[0]), *b = graph_value(c->g, c->in[k]);
  einsum_eq eq;
  HP_TRY(einsum_parse(text, &eq));
  if (!can_multiply(a, b) || !dtype_is_float(out))
    return ops_fail(c, "%s is %s, %s is %s; two of one float dtype, or f32 and bf16, were expected",
                    ops_operand(c, 0), ops_type(c, 0), ops_operand(c, k), ops_type(c, k));
  hp_shape sa = value_shape(a), sb = value_shape(b), so;
  if (einsum_out_shape(&eq, &sa, &sb, &so)) {
    const char *why = err_message();
    char copy[512];
    strncpy(copy, why, sizeof copy - 1);
    copy[sizeof copy - 1] = 0;
    err_clear();
    return ops_fail(c, "a is %s, b is %s: %s", ops_type(c, 0), ops_type(c, k), copy);
  }
  result->dtype = (uint8_t)out;
  result->rank = (uint8_t)so.rank;
  memcpy(result->dim, so.dim, sizeof so.dim);
  return HP_OK;
}

hp_status infer_einsum(infer_ctx *c) {
  HP_TRY(infer_product_type(c, 1, &c->out[0]));
  return c->node.n_in == 3 ? ops_check_start(c) : HP_OK;
}

hp_status infer_einsums(infer_ctx *c) {
  for (int k = 1; k < c->node.n_in; k++) HP_TRY(infer_product_type(c, k, &c->out[k - 1]));
  return HP_OK;
}

/* The gradient is the same contraction with the gradient of the result in the operand's place, of
 * the type that the product has: f32 with bf16 is taken as bf16. */
static val operand_grad(grad_ctx *c, const einsum_eq *eq, int operand) {
  hp_graph *g = c->g;
  ir_value x = *graph_value(g, c->in[operand]), other = *graph_value(g, c->in[1 - operand]);
  hp_dtype type = (hp_dtype)(x.dtype == HP_F32 ? other.dtype : x.dtype);
  einsum_grad how;
  char text[EINSUM_TEXT_MAX];
  einsum_grad_of(eq, operand, &how);
  val dy = ops_cast(g, c->dout[0], type);
  val a = operand == 0 ? dy : c->in[0], b = operand == 0 ? c->in[1] : dy;
  val d = ops_einsum(g, einsum_print(&how.eq, text), a, b, (hp_dtype)x.dtype);
  if (!how.missing[0]) return d;
  /* letters that only this operand has were summed: its gradient is the same along them */
  int64_t kept[HP_MAX_RANK];
  const char *letters = operand == 0 ? eq->a : eq->b;
  for (int i = 0; i < x.rank; i++) kept[i] = strchr(how.missing, letters[i]) ? 1 : x.dim[i];
  return ops_broadcast(g, ops_reshape(g, d, kept, x.rank), x.dim, x.rank);
}

void grad_einsum(grad_ctx *c) {
  einsum_eq eq;
  if (einsum_parse(attr_str(c->g, &c->node, "eq"), &eq)) {
    graph_poison(c->g, HP_ERR_INTERNAL);
    return;
  }
  c->din[0] = operand_grad(c, &eq, 0);
  c->din[1] = operand_grad(c, &eq, 1);
  if (c->node.n_in == 3) c->din[2] = c->dout[0];
}

/* Flops of the product of operand 0 with operand k. */
static double count_product_flops(const hp_graph *g, const ir_node *n, int k) {
  const val *in = graph_in(g, n);
  einsum_eq eq;
  einsum_sizes sizes;
  hp_shape a = value_shape(graph_value(g, in[0])), b = value_shape(graph_value(g, in[k]));
  if (einsum_parse(attr_str(g, n, "eq"), &eq) || einsum_bind(&eq, &a, &b, &sizes)) {
    err_clear();
    return 0;
  }
  double flops = 2;
  for (const char *l = sizes.letter; *l; l++) flops *= (double)einsum_size(&sizes, *l);
  return flops;
}

op_cost cost_einsum(const hp_graph *g, const ir_node *n) {
  op_cost k = cost_copy(g, n);
  k.flops = count_product_flops(g, n, 1);
  return k;
}

op_cost cost_einsums(const hp_graph *g, const ir_node *n) {
  op_cost cost = cost_copy(g, n);
  for (int k = 1; k < n->n_in; k++) cost.flops += count_product_flops(g, n, k);
  return cost;
}
