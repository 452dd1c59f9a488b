/* What models are made of: embedding, softmax, norms, rotary embedding, cross-entropy. */
#include "base/dtype.h"
#include "ops/ops.h"

#include <string.h>

static bool is_index(int t) { return t == HP_I32 || t == HP_I64; }

/* --- embedding ---------------------------------------------------------------------------- */

hp_status infer_embedding(infer_ctx *c) {
  const ir_value *t = graph_value(c->g, c->in[0]), *ids = graph_value(c->g, c->in[1]);
  if (t->rank != 2 || !dtype_is_float(t->dtype))
    return ops_fail(c, "the table is %s, expected [V,C] of floats", ops_type(c, 0));
  if (!is_index(ids->dtype) || ids->rank >= HP_MAX_RANK)
    return ops_fail(c, "the ids are %s, expected i32 or i64", ops_type(c, 1));
  c->out[0] = *ids;
  c->out[0].layout = 0;
  c->out[0].dtype = t->dtype;
  c->out[0].dim[c->out[0].rank++] = t->dim[1];
  return HP_OK;
}

/* Ids with `skip` replaced by an index that is out of range. */
static val mask_ids(hp_graph *g, val ids, int64_t skip) {
  if (skip < 0) return ids;
  hp_dtype t = (hp_dtype)graph_value(g, ids)->dtype;
  val is = ops_binary(g, OP_EQ, ids, ops_const(g, t, (double)skip));
  return ops_select(g, is, ops_const(g, t, ID_ELSEWHERE), ids);
}

void grad_embedding(grad_ctx *c) {
  ir_value table = *graph_value(c->g, c->in[0]);
  val dy = ops_cast(c->g, c->dout[0], (hp_dtype)table.dtype);
  val ids = mask_ids(c->g, c->in[1], attr_int(c->g, &c->node, "skip"));
  c->din[0] = ops_embedding_grad(c->g, dy, ids, 0, table.dim[0]);
}

hp_status infer_embedding_grad(infer_ctx *c) {
  const ir_value *dy = graph_value(c->g, c->in[0]), *ids = graph_value(c->g, c->in[1]);
  int64_t rows = attr_int(c->g, &c->node, "rows");
  bool fits =
      is_index(ids->dtype) && dtype_is_float(dy->dtype) && dy->rank == ids->rank + 1 && rows >= 0;
  for (int i = 0; fits && i < ids->rank; i++) fits = dy->dim[i] == ids->dim[i];
  if (!fits)
    return ops_fail(c, "dy is %s, ids %s, rows %lld", ops_type(c, 0), ops_type(c, 1),
                    (long long)rows);
  c->out[0].dtype = dy->dtype;
  c->out[0].rank = 2;
  c->out[0].dim[0] = rows;
  c->out[0].dim[1] = dy->dim[dy->rank - 1];
  return c->node.n_in == 3 ? ops_check_start(c) : HP_OK;
}

/* --- softmax and norms ----------------------------------------------------------------------- */

hp_status infer_softmax(infer_ctx *c) {
  if (!graph_value(c->g, c->in[0])->rank)
    return ops_fail(c, "x is %s, expected a last dim", ops_type(c, 0));
  return infer_float(c);
}

/* y = softmax(x): dx = y (dy - sum(y dy)) */
void grad_softmax(grad_ctx *c) {
  hp_graph *g = c->g;
  val y = c->out[0], ydy = ops_binary(g, OP_MUL, y, c->dout[0]);
  c->din[0] = ops_binary(g, OP_SUB, ydy, ops_binary(g, OP_MUL, y, ops_sum_last(g, ydy)));
}

hp_status infer_norm(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]);
  if (x->rank < 1 || !dtype_is_float(x->dtype))
    return ops_fail(c, "x is %s, expected floats with a last dim", ops_type(c, 0));
  for (int i = 1; i < c->node.n_in; i++) {
    const ir_value *w = graph_value(c->g, c->in[i]);
    if (w->rank != 1 || w->dim[0] != x->dim[x->rank - 1] || w->dtype != HP_F32)
      return ops_fail(c, "x is %s, %s is %s, expected f32[%lld]", ops_type(c, 0), ops_operand(c, i),
                      ops_type(c, i), (long long)x->dim[x->rank - 1]);
  }
  return infer_same(c);
}

static val mean_last(hp_graph *g, val x, int64_t width) {
  return ops_scale(g, ops_sum_last(g, x), 1.0 / (double)width);
}

/* All norms compute in f32; the result has x's dtype.  With r = rsqrt(mean(x^2) + eps), n = x r:
 * dx = r (w dy - n mean(x w dy) r), dw = sum over rows of dy n.  A mean of n w dy would be of what
 * waits for r: another loop over the row. */
void grad_rms_norm(grad_ctx *c) {
  hp_graph *g = c->g;
  ir_value xt = *graph_value(g, c->in[0]);
  int64_t width = xt.dim[xt.rank - 1];
  val x = ops_cast(g, c->in[0], HP_F32), dy = ops_cast(g, c->dout[0], HP_F32);
  val eps = ops_const(g, HP_F32, attr_float(g, &c->node, "eps"));
  val ms = mean_last(g, ops_unary(g, OP_SQUARE, x), width);
  val r = ops_unary(g, OP_RSQRT, ops_binary(g, OP_ADD, ms, eps));
  val n = ops_binary(g, OP_MUL, x, r);
  val wdy = ops_binary(g, OP_MUL, dy, c->in[1]);
  val dot = mean_last(g, ops_binary(g, OP_MUL, x, wdy), width);
  val along = ops_binary(g, OP_MUL, ops_binary(g, OP_MUL, n, dot), r);
  val dx = ops_binary(g, OP_MUL, r, ops_binary(g, OP_SUB, wdy, along));
  c->din[0] = ops_cast(g, dx, (hp_dtype)xt.dtype);
  c->din[1] = ops_unbroadcast(g, ops_binary(g, OP_MUL, dy, n), c->in[1]);
}

/* With d = x - mean and n = d r: dx = r (w dy - mean(w dy) - n mean(d w dy) r). */
void grad_layer_norm(grad_ctx *c) {
  hp_graph *g = c->g;
  ir_value xt = *graph_value(g, c->in[0]);
  int64_t width = xt.dim[xt.rank - 1];
  val x = ops_cast(g, c->in[0], HP_F32), dy = ops_cast(g, c->dout[0], HP_F32);
  val eps = ops_const(g, HP_F32, attr_float(g, &c->node, "eps"));
  val d = ops_binary(g, OP_SUB, x, mean_last(g, x, width));
  val var = mean_last(g, ops_unary(g, OP_SQUARE, d), width);
  val r = ops_unary(g, OP_RSQRT, ops_binary(g, OP_ADD, var, eps));
  val n = ops_binary(g, OP_MUL, d, r);
  val wdy = ops_binary(g, OP_MUL, dy, c->in[1]);
  val dot = mean_last(g, ops_binary(g, OP_MUL, d, wdy), width);
  val along = ops_binary(g, OP_MUL, ops_binary(g, OP_MUL, n, dot), r);
  val t = ops_binary(g, OP_SUB, wdy, mean_last(g, wdy, width));
  val dx = ops_binary(g, OP_MUL, r, ops_binary(g, OP_SUB, t, along));
  c->din[0] = ops_cast(g, dx, (hp_dtype)xt.dtype);
  c->din[1] = ops_unbroadcast(g, ops_binary(g, OP_MUL, dy, n), c->in[1]);
  c->din[2] = ops_unbroadcast(g, dy, c->in[2]);
}

/* --- rotary embedding ------------------------------------------------------------------------- */

hp_status infer_rope(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]), *cs = graph_value(c->g, c->in[1]);
  const ir_value *sn = graph_value(c->g, c->in[2]), *pos = graph_value(c->g, c->in[3]);
  if (x->rank != 4 || !dtype_is_float(x->dtype))
    return ops_fail(c, "x is %s, expected [B,T,H,D]", ops_type(c, 0));
  if (cs->rank != 2 || cs->dtype != HP_F32 || sn->dtype != HP_F32 || !value_same_shape(cs, sn) ||
      cs->dim[1] * 2 > x->dim[3])
    return ops_fail(c, "the tables are %s and %s, expected f32[P,R/2] twice with R <= %lld",
                    ops_type(c, 1), ops_type(c, 2), (long long)x->dim[3]);
  if (pos->rank != 2 || pos->dtype != HP_I32 || pos->dim[0] != x->dim[0] ||
      pos->dim[1] != x->dim[1])
    return ops_fail(c, "positions are %s, expected i32[%lld,%lld]", ops_type(c, 3),
                    (long long)x->dim[0], (long long)x->dim[1]);
  return infer_same(c);
}

/* A rotation: the gradient is turned back. */
void grad_rope(grad_ctx *c) {
  attr_record a = {0};
  attr_put_int(&a, !attr_int(c->g, &c->node, "inverse"));
  attr_put_int(&a, attr_int(c->g, &c->node, "interleaved"));
  val in[4] = {c->dout[0], c->in[1], c->in[2], c->in[3]};
  c->din[0] = ops_add(c->g, OP_ROPE, in, 4, &a);
}

/* --- attention -------------------------------------------------------------------------------- */

static bool do_qkv_fit(const ir_value *q, const ir_value *k, const ir_value *v) {
  if (q->rank != 4 || k->rank != 4 || v->rank != 4 || !dtype_is_float(q->dtype)) return false;
  if (q->dtype != k->dtype || q->dtype != v->dtype) return false;
  for (int i = 0; i < 3; i++)
    if (k->dim[i] != v->dim[i]) return false;
  return q->dim[0] == k->dim[0] && k->dim[2] > 0 && q->dim[2] % k->dim[2] == 0 &&
         q->dim[3] == k->dim[3];
}

/* i64[], or of some sequences and heads of more i64[3]: with the number of their first row of
 * weights, and how many rows a whole sequence has. */
static hp_status check_seed_of_weights(infer_ctx *c, int i) {
  const ir_value *seed = graph_value(c->g, c->in[i]);
  bool part = seed->dtype == HP_I64 && seed->rank == 1 && seed->dim[0] == 3;
  return part ? HP_OK : ops_check_seed(c, i);
}

/* q [B,T,H,D], k [B,S,KV,D], v [B,S,KV,Dv]; from operand `more` on the span i32 [B,T,2], when
 * there, and with dropout the seed. */
static hp_status check_qkv(infer_ctx *c, int more) {
  const ir_value *q = graph_value(c->g, c->in[0]);
  if (!do_qkv_fit(q, graph_value(c->g, c->in[1]), graph_value(c->g, c->in[2])))
    return ops_fail(c,
                    "q is %s, k %s, v %s; expected [B,T,H,D], [B,S,KV,D], [B,S,KV,Dv] of one dtype "
                    "with H a multiple of KV",
                    ops_type(c, 0), ops_type(c, 1), ops_type(c, 2));
  if (attr_int(c->g, &c->node, "window") < 0) return ops_fail(c, "the window is negative");
  bool drops = attr_float(c->g, &c->node, "dropout") != 0;
  HP_TRY(ops_check_rate(c, "dropout"));
  if (drops && c->node.n_in <= more) return ops_fail(c, "dropout has no seed");
  if (drops) HP_TRY(check_seed_of_weights(c, c->node.n_in - 1));
  if (c->node.n_in - drops > more + 1) return ops_fail(c, "there is a seed, but no dropout");
  if (c->node.n_in - drops == more) return HP_OK;
  const ir_value *s = graph_value(c->g, c->in[more]);
  if (s->rank != 3 || s->dtype != HP_I32 || s->dim[0] != q->dim[0] || s->dim[1] != q->dim[1] ||
      s->dim[2] != 2)
    return ops_fail(c, "the span is %s, expected i32[%lld,%lld,2]", ops_type(c, more),
                    (long long)q->dim[0], (long long)q->dim[1]);
  return HP_OK;
}

hp_status infer_attention(infer_ctx *c) {
  HP_TRY(check_qkv(c, 3));
  const ir_value *q = graph_value(c->g, c->in[0]), *v = graph_value(c->g, c->in[2]);
  c->out[0] = *q;
  c->out[0].layout = 0;
  c->out[0].dim[3] = v->dim[3];
  c->out[1] = (ir_value){.dtype = HP_F32, .rank = 3, .dim = {q->dim[0], q->dim[2], q->dim[1]}};
  return HP_OK;
}

void grad_attention(grad_ctx *c) {
  hp_graph *g = c->g;
  attr_record a = {0};
  attr_put_float(&a, attr_float(g, &c->node, "scale"));
  attr_put_int(&a, attr_int(g, &c->node, "causal"));
  attr_put_int(&a, attr_int(g, &c->node, "window"));
  attr_put_float(&a, attr_float(g, &c->node, "dropout"));
  attr_put_int(&a, attr_int(g, &c->node, "stream"));
  if (c->dout[1]) ops_no_grad(c, "of the log-sum-exp");
  if (!c->dout[0]) return;
  val in[8] = {c->in[0], c->in[1], c->in[2], c->out[0], c->out[1], c->dout[0]};
  int n = 6;
  for (int i = 3; i < c->node.n_in; i++) in[n++] = c->in[i];
  val d = ops_add(g, OP_ATTENTION_GRAD, in, n, &a);
  for (int i = 0; d && i < 3; i++) c->din[i] = d + (val)i;
}

hp_status infer_attention_grad(infer_ctx *c) {
  HP_TRY(check_qkv(c, 6));
  for (int i = 0; i < 3; i++) {
    c->out[i] = *graph_value(c->g, c->in[i]);
    c->out[i].layout = 0;
  }
  const ir_value *o = graph_value(c->g, c->in[3]), *d = graph_value(c->g, c->in[5]);
  if (o->dtype != d->dtype || !value_same_shape(o, d))
    return ops_fail(c, "o is %s, its gradient %s", ops_type(c, 3), ops_type(c, 5));
  return HP_OK;
}

/* Pairs of query and key that are computed, causal at the half. */
static double count_attention_pairs(const hp_graph *g, const ir_node *n) {
  const ir_value *q = graph_value(g, graph_in(g, n)[0]), *k = graph_value(g, graph_in(g, n)[1]);
  double t = (double)q->dim[1], s = (double)k->dim[1];
  double pairs = attr_int(g, n, "causal") && t <= s ? t * (s - t) + t * (t + 1) / 2 : t * s;
  double window = (double)attr_int(g, n, "window");
  if (window > 0 && pairs > t * window) pairs = t * window;
  return pairs * (double)q->dim[0] * (double)q->dim[2];
}

op_cost cost_attention(const hp_graph *g, const ir_node *n) {
  op_cost k = cost_copy(g, n);
  double d = (double)graph_value(g, graph_in(g, n)[0])->dim[3],
         dv = (double)graph_value(g, graph_in(g, n)[2])->dim[3];
  k.flops = 2 * (d + dv) * count_attention_pairs(g, n);
  return k;
}

op_cost cost_attention_grad(const hp_graph *g, const ir_node *n) {
  op_cost k = cost_attention(g, n);
  k.flops *= 2.5; /* scores again, dv, dp, dq, dk */
  return k;
}

/* --- cross-entropy ---------------------------------------------------------------------------- */

static hp_status check_labels(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]), *l = graph_value(c->g, c->in[1]);
  bool fits = x->rank == l->rank + 1 && dtype_is_float(x->dtype) && is_index(l->dtype);
  for (int i = 0; fits && i < l->rank; i++) fits = x->dim[i] == l->dim[i];
  if (!fits)
    return ops_fail(c,
                    "logits are %s, labels %s; expected [...,V] of floats and [...] of i32 or i64",
                    ops_type(c, 0), ops_type(c, 1));
  return HP_OK;
}

hp_status infer_cross_entropy(infer_ctx *c) {
  HP_TRY(check_labels(c));
  for (int i = 0; i < 2; i++) {
    c->out[i] = *graph_value(c->g, c->in[1]);
    c->out[i].layout = 0;
    c->out[i].dtype = HP_F32;
  }
  return HP_OK;
}

void grad_cross_entropy(grad_ctx *c) {
  attr_record a = {0};
  attr_put_int(&a, attr_int(c->g, &c->node, "ignore"));
  if (c->dout[1]) ops_no_grad(c, "of the log-sum-exp");
  if (!c->dout[0]) return;
  val in[4] = {c->in[0], c->in[1], c->out[1], c->dout[0]};
  c->din[0] = ops_add(c->g, OP_CROSS_ENTROPY_GRAD, in, 4, &a);
}

hp_status infer_cross_entropy_grad(infer_ctx *c) {
  HP_TRY(check_labels(c));
  const ir_value *l = graph_value(c->g, c->in[1]);
  for (int i = 2; i < 4; i++) {
    const ir_value *v = graph_value(c->g, c->in[i]);
    if (v->dtype != HP_F32 || !value_same_shape(v, l))
      return ops_fail(c, "operand %d is %s, expected f32 of the labels' shape %s", i,
                      ops_type(c, i), ops_type(c, 1));
  }
  return infer_same(c);
}
