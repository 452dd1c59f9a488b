/* Leaves, effects and what the compiler makes. */
#include "ops/ops.h"

op_cost cost_zero(const hp_graph *g, const ir_node *n) {
  (void)g, (void)n;
  return (op_cost){0, 0};
}

hp_status infer_leaf(infer_ctx *c) {
  int64_t dim[ATTR_LIST_MAX];
  int rank = attr_list(c->g, &c->node, "shape", dim);
  if (rank > HP_MAX_RANK)
    return ops_fail(c, "has %d dims, at most %d are possible", rank, HP_MAX_RANK);
  c->out[0].dtype = (uint8_t)attr_int(c->g, &c->node, "dtype");
  c->out[0].rank = (uint8_t)rank;
  for (int i = 0; i < rank; i++) {
    if (dim[i] < 0) return ops_fail(c, "dim %d is %lld, negative", i, (long long)dim[i]);
    c->out[0].dim[i] = dim[i];
  }
  return HP_OK;
}

hp_status infer_iota(infer_ctx *c) {
  int64_t axis = attr_int(c->g, &c->node, "axis");
  HP_TRY(infer_leaf(c));
  if (axis < 0 || axis >= c->out[0].rank)
    return ops_fail(c, "axis %lld is not one of its %d dims", (long long)axis, c->out[0].rank);
  return HP_OK;
}

int64_t ops_const_int(double x) {
  if (x != x) return 0;
  if (x >= 0x1p63) return INT64_MAX;
  return x <= -0x1p63 ? INT64_MIN : (int64_t)x;
}

hp_status infer_effect(infer_ctx *c) {
  (void)c;
  return HP_OK;
}

hp_status infer_assign(infer_ctx *c) {
  const ir_value *p = graph_value(c->g, c->in[0]), *x = graph_value(c->g, c->in[1]);
  if (graph_def(c->g, c->in[0])->op != OP_PARAM)
    return ops_fail(c, "%s is not a param but %s", ops_operand(c, 0), ops_type(c, 0));
  if (p->dtype != x->dtype || !value_same_shape(p, x))
    return ops_fail(c, "the param is %s, its new value %s", ops_type(c, 0), ops_type(c, 1));
  return HP_OK;
}

hp_status ops_check_seed(infer_ctx *c, int i) {
  const ir_value *seed = graph_value(c->g, c->in[i]);
  if (seed->dtype != HP_I64 || seed->rank)
    return ops_fail(c, "the seed is %s, expected i64[]", ops_type(c, i));
  return HP_OK;
}

hp_status ops_check_rate(infer_ctx *c, const char *key) {
  double p = attr_float(c->g, &c->node, key);
  if (!(p >= 0 && p < 1)) return ops_fail(c, "%s is %g, expected 0 or more and below 1", key, p);
  return HP_OK;
}

hp_status infer_random(infer_ctx *c) {
  HP_TRY(ops_check_seed(c, 0));
  if (!dtype_is_float((int)attr_int(c->g, &c->node, "dtype")))
    return ops_fail(c, "only floats are drawn");
  return infer_leaf(c);
}

hp_status infer_dropout(infer_ctx *c) {
  if (!dtype_is_float(graph_value(c->g, c->in[0])->dtype))
    return ops_fail(c, "x is %s, expected floats", ops_type(c, 0));
  HP_TRY(ops_check_rate(c, "p"));
  HP_TRY(ops_check_seed(c, 1));
  return infer_same(c);
}

/* The mask is drawn again, not kept. */
void grad_dropout(grad_ctx *c) {
  attr_record a = {0};
  attr_put_float(&a, attr_float(c->g, &c->node, "p"));
  attr_put_int(&a, attr_int(c->g, &c->node, "stream"));
  c->din[0] = ops_add(c->g, OP_DROPOUT, (val[]){c->dout[0], c->in[1]}, 2, &a);
}

hp_status infer_fused(infer_ctx *c) {
  return ops_fail(c, "fused nodes are made by the fuse pass only");
}

/* Each operand read and each result written once; one flop an element of the largest. */
static op_cost touch_all(const hp_graph *g, const ir_node *n, double flops_per_element) {
  op_cost k = {0, 0};
  double most = 0;
  for (int i = 0; i < n->n_in + n->n_out; i++) {
    val v = i < n->n_in ? graph_in(g, n)[i] : n->out0 + (val)(i - n->n_in);
    double e = (double)value_elements(graph_value(g, v));
    k.bytes += (double)value_bytes(graph_value(g, v));
    if (e > most) most = e;
  }
  k.flops = most * flops_per_element;
  return k;
}

op_cost cost_map(const hp_graph *g, const ir_node *n) { return touch_all(g, n, 1); }
op_cost cost_reduce(const hp_graph *g, const ir_node *n) { return touch_all(g, n, 1); }
op_cost cost_row(const hp_graph *g, const ir_node *n) { return touch_all(g, n, 5); }
op_cost cost_copy(const hp_graph *g, const ir_node *n) { return touch_all(g, n, 0); }
op_cost cost_fused(const hp_graph *g, const ir_node *n) { return touch_all(g, n, 4); }

/* Rows of a table: what is touched is the rows and the ids, not the table. */
op_cost cost_gather(const hp_graph *g, const ir_node *n) {
  double rows = (double)value_bytes(graph_value(g, n->out0));
  double in = (double)value_bytes(graph_value(g, graph_in(g, n)[0]));
  return (op_cost){0, 2 * (rows < in ? rows : in)};
}

/* none: no gradient is known; zero: it is zero wherever there is one. */
void grad_none(grad_ctx *c) { (void)c; }
void grad_zero(grad_ctx *c) {
  ir_value x = *graph_value(c->g, c->in[0]);
  c->din[0] = ops_broadcast(c->g, ops_const(c->g, (hp_dtype)x.dtype, 0), x.dim, x.rank);
}
