/* Mixtures of experts: choosing a few of many, and linear layers whose weight each row chooses. */
#include "base/dtype.h"
#include "ops/ops.h"

/* --- choosing --------------------------------------------------------------------------------- */

static bool is_same_but_last(const ir_value *a, const ir_value *b) {
  bool same = a->rank == b->rank && a->rank > 0;
  for (int i = 0; same && i < a->rank - 1; i++) same = a->dim[i] == b->dim[i];
  return same;
}

static ir_value replace_last_dim(const ir_value *v, int dtype, int64_t last) {
  ir_value y = *v;
  y.layout = 0;
  y.dtype = (uint8_t)dtype;
  y.dim[y.rank - 1] = last;
  return y;
}

hp_status infer_topk(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]);
  int64_t k = attr_int(c->g, &c->node, "k");
  if (x->rank < 1 || !dtype_is_float(x->dtype) || k < 1 || k > x->dim[x->rank - 1])
    return ops_fail(c, "x is %s, k %lld; expected floats with at least k in the last dim",
                    ops_type(c, 0), (long long)k);
  c->out[0] = replace_last_dim(x, x->dtype, k);
  c->out[1] = replace_last_dim(x, HP_I32, k);
  return HP_OK;
}

/* v summed into n places of the last dim. */
static val add_scatter(hp_graph *g, val v, val index, int64_t n) {
  attr_record a = {0};
  attr_put_int(&a, n);
  return ops_add(g, OP_SCATTER_ADD, (val[]){v, index}, 2, &a);
}

static int64_t get_last_dim(const hp_graph *g, val v) {
  const ir_value *x = graph_value(g, v);
  return x->dim[x->rank - 1];
}

void grad_topk(grad_ctx *c) {
  if (c->dout[0])
    c->din[0] = add_scatter(c->g, c->dout[0], c->out[1], get_last_dim(c->g, c->in[0]));
}

static hp_status check_index(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]), *i = graph_value(c->g, c->in[1]);
  if (!dtype_is_float(x->dtype) || i->dtype != HP_I32 || !is_same_but_last(x, i))
    return ops_fail(c, "%s is %s, %s is %s; expected floats and i32, alike but for the last dim",
                    ops_operand(c, 0), ops_type(c, 0), ops_operand(c, 1), ops_type(c, 1));
  return HP_OK;
}

hp_status infer_gather_last(infer_ctx *c) {
  HP_TRY(check_index(c));
  c->out[0] = replace_last_dim(graph_value(c->g, c->in[0]), graph_value(c->g, c->in[0])->dtype,
                               get_last_dim(c->g, c->in[1]));
  return HP_OK;
}

void grad_gather_last(grad_ctx *c) {
  c->din[0] = add_scatter(c->g, c->dout[0], c->in[1], get_last_dim(c->g, c->in[0]));
}

hp_status infer_scatter_add(infer_ctx *c) {
  const ir_value *v = graph_value(c->g, c->in[0]);
  int64_t n = attr_int(c->g, &c->node, "n");
  HP_TRY(check_index(c));
  if (!value_same_shape(v, graph_value(c->g, c->in[1])) || n < 0)
    return ops_fail(c, "v is %s, its indices %s, n %lld; expected one shape and n of 0 or more",
                    ops_type(c, 0), ops_type(c, 1), (long long)n);
  c->out[0] = replace_last_dim(v, v->dtype, n);
  return HP_OK;
}

void grad_scatter_add(grad_ctx *c) {
  c->din[0] = ops_add(c->g, OP_GATHER, (val[]){c->dout[0], c->in[1]}, 2, NULL);
}

/* --- linear layers by row --------------------------------------------------------------------- */

/* Rows of x for ids e [R...,J]: [R...,J,K], or [R...,K], which serves all J. */
static bool do_rows_fit(const ir_value *x, const ir_value *e) {
  bool fits = dtype_is_float(x->dtype) && e->dtype == HP_I32 && e->rank >= 1 &&
              e->rank < HP_MAX_RANK && (x->rank == e->rank || x->rank == e->rank + 1);
  for (int i = 0; fits && i < x->rank - 1; i++) fits = x->dim[i] == e->dim[i];
  return fits;
}

static bool has_slots(const ir_value *x, const ir_value *e) { return x->rank > e->rank; }

hp_status infer_grouped(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]), *w = graph_value(c->g, c->in[1]);
  const ir_value *e = graph_value(c->g, c->in[2]);
  int transposed = attr_int(c->g, &c->node, "transposed") != 0;
  int64_t dtype = attr_int(c->g, &c->node, "dtype");
  if (!do_rows_fit(x, e) || w->rank != 3 || w->dtype != x->dtype ||
      !dtype_is_float((hp_dtype)dtype) || x->dim[x->rank - 1] != w->dim[2 - transposed])
    return ops_fail(c,
                    "x is %s, the weights %s, the ids %s; expected [R...,K] or [R...,J,K], "
                    "[E,N,K] ([E,K,N] when transposed) of one float dtype and i32[R...,J]",
                    ops_type(c, 0), ops_type(c, 1), ops_type(c, 2));
  c->out[0] = *e;
  c->out[0].layout = 0;
  c->out[0].dtype = (uint8_t)dtype;
  c->out[0].dim[c->out[0].rank++] = w->dim[1 + transposed];
  return HP_OK;
}

static val add_grouped_matmul(hp_graph *g, val x, val w, val e, bool transposed, int dtype) {
  attr_record a = {0};
  attr_put_int(&a, transposed);
  attr_put_int(&a, dtype);
  return ops_add(g, OP_GROUPED_MATMUL, (val[]){x, w, e}, 3, &a);
}

static val grouped_grad(hp_graph *g, val dy, val x, val e, int64_t experts, int dtype) {
  attr_record a = {0};
  attr_put_int(&a, experts);
  attr_put_int(&a, dtype);
  return ops_add(g, OP_GROUPED_MATMUL_GRAD, (val[]){dy, x, e}, 3, &a);
}

/* x [R...,K] once for each of the J slots of e: [R...,J,K]. */
static val repeat_for_slots(hp_graph *g, val x, val e) {
  ir_value t = *graph_value(g, x), slots = *graph_value(g, e);
  if (has_slots(&t, &slots)) return x;
  int64_t dim[HP_MAX_RANK], last = t.dim[t.rank - 1];
  for (int i = 0; i < slots.rank; i++) dim[i] = slots.dim[i];
  dim[slots.rank] = last;
  dim[slots.rank - 1] = 1;
  x = ops_reshape(g, x, dim, slots.rank + 1);
  dim[slots.rank - 1] = slots.dim[slots.rank - 1];
  return ops_broadcast(g, x, dim, slots.rank + 1);
}

void grad_grouped(grad_ctx *c) {
  hp_graph *g = c->g;
  ir_value xt = *graph_value(g, c->in[0]), w = *graph_value(g, c->in[1]);
  ir_value et = *graph_value(g, c->in[2]);
  bool transposed = attr_int(g, &c->node, "transposed") != 0;
  val e = c->in[2], dy = ops_cast(g, c->dout[0], (hp_dtype)xt.dtype);
  val dx = add_grouped_matmul(g, dy, c->in[1], e, !transposed, xt.dtype);
  if (!has_slots(&xt, &et)) dx = ops_sum(g, dx, (int64_t[]){et.rank - 1}, 1, false);
  c->din[0] = dx;
  c->din[1] = transposed
                  ? grouped_grad(g, repeat_for_slots(g, c->in[0], e), dy, e, w.dim[0], w.dtype)
                  : grouped_grad(g, dy, c->in[0], e, w.dim[0], w.dtype);
}

hp_status infer_grouped_grad(infer_ctx *c) {
  const ir_value *dy = graph_value(c->g, c->in[0]), *x = graph_value(c->g, c->in[1]);
  const ir_value *e = graph_value(c->g, c->in[2]);
  int64_t experts = attr_int(c->g, &c->node, "experts"), dtype = attr_int(c->g, &c->node, "dtype");
  if (!do_rows_fit(x, e) || !do_rows_fit(dy, e) || !has_slots(dy, e) || dy->dtype != x->dtype ||
      experts < 0 || !dtype_is_float((hp_dtype)dtype))
    return ops_fail(c,
                    "dy is %s, x %s, the ids %s, experts %lld; expected [R...,J,N], [R...,K] or "
                    "[R...,J,K], i32[R...,J]",
                    ops_type(c, 0), ops_type(c, 1), ops_type(c, 2), (long long)experts);
  c->out[0] = (ir_value){.dtype = (uint8_t)dtype,
                         .rank = 3,
                         .dim = {experts, dy->dim[dy->rank - 1], x->dim[x->rank - 1]}};
  return HP_OK;
}

/* Every slot is a product of a row and a matrix, or of two rows: with N and K those of the weights
 * [E,N,K].  Of the weights only those are read that some row chooses. */
static op_cost cost_slots(const hp_graph *g, const ir_node *n, val weights) {
  const ir_value *w = graph_value(g, weights), *e = graph_value(g, graph_in(g, n)[2]);
  double slots = (double)value_elements(e), experts = (double)w->dim[0];
  op_cost k = cost_copy(g, n);
  k.flops = 2 * slots * (double)w->dim[1] * (double)w->dim[2];
  if (slots < experts) k.bytes -= (double)value_bytes(w) * (1 - slots / experts);
  return k;
}
op_cost cost_grouped(const hp_graph *g, const ir_node *n) {
  return cost_slots(g, n, graph_in(g, n)[1]);
}
op_cost cost_grouped_grad(const hp_graph *g, const ir_node *n) {
  op_cost k = cost_slots(g, n, n->out0);
  k.bytes = cost_copy(g, n).bytes; /* all of dw is written */
  return k;
}
