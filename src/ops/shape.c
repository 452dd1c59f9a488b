/* Reductions and ops that move elements. */
#include "base/dtype.h"
#include "ops/ops.h"

#include <string.h>

/* --- reductions --------------------------------------------------------------------------- */

hp_status infer_reduce(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]);
  int64_t axes[ATTR_LIST_MAX];
  int n = attr_list(c->g, &c->node, "axes", axes);
  bool keep = attr_int(c->g, &c->node, "keep") != 0, cut[HP_MAX_RANK] = {false};
  for (int i = 0; i < n; i++) {
    if (axes[i] < 0 || axes[i] >= x->rank || cut[axes[i]])
      return ops_fail(c, "axis %lld is not a dim of %s, or named twice", (long long)axes[i],
                      ops_type(c, 0));
    cut[axes[i]] = true;
  }
  ir_value *o = &c->out[0];
  o->dtype = x->dtype;
  for (int d = 0; d < x->rank; d++)
    if (!cut[d]) o->dim[o->rank++] = x->dim[d];
    else if (keep) o->dim[o->rank++] = 1;
  if (c->node.op == OP_REDUCE_MAX && value_elements(x) == 0 && value_elements(o) > 0)
    return ops_fail(c, "%s has no elements, so none is the largest", ops_type(c, 0));
  return HP_OK;
}

/* A reduced value, spread over the operand again. */
static val broadcast_reduced(grad_ctx *c, val y) {
  hp_graph *g = c->g;
  ir_value x = *graph_value(g, c->in[0]);
  int64_t axes[ATTR_LIST_MAX], kept[HP_MAX_RANK];
  int n = attr_list(g, &c->node, "axes", axes);
  memcpy(kept, x.dim, sizeof kept);
  for (int i = 0; i < n; i++) kept[axes[i]] = 1;
  return ops_broadcast(g, ops_reshape(g, y, kept, x.rank), x.dim, x.rank);
}

void grad_sum(grad_ctx *c) { c->din[0] = broadcast_reduced(c, c->dout[0]); }

/* To the largest elements, in equal parts, as PyTorch's amax. */
void grad_reduce_max(grad_ctx *c) {
  hp_graph *g = c->g;
  ir_value x = *graph_value(g, c->in[0]);
  if (!dtype_is_float(x.dtype)) return;
  int64_t axes[ATTR_LIST_MAX];
  int n = attr_list(g, &c->node, "axes", axes);
  val is = ops_binary(g, OP_EQ, c->in[0], broadcast_reduced(c, c->out[0]));
  val one = ops_cast(g, is, (hp_dtype)x.dtype);
  val count = ops_sum(g, one, axes, n, attr_int(g, &c->node, "keep") != 0);
  c->din[0] =
      ops_binary(g, OP_MUL, one, broadcast_reduced(c, ops_binary(g, OP_DIV, c->dout[0], count)));
}

void grad_sum_sq(grad_ctx *c) {
  hp_graph *g = c->g;
  hp_dtype t = (hp_dtype)graph_value(g, c->in[0])->dtype;
  val dy = ops_cast(g, ops_scale(g, c->dout[0], 2), t);
  c->din[0] = ops_binary(g, OP_MUL, c->in[0], dy);
}

hp_status infer_argmax(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]);
  if (x->rank < 1 || x->dim[x->rank - 1] < 1)
    return ops_fail(c, "%s has no last dim", ops_type(c, 0));
  if (!dtype_is_float(x->dtype)) return ops_fail(c, "%s is not of floats", ops_type(c, 0));
  c->out[0] = *x;
  c->out[0].dtype = HP_I32;
  c->out[0].rank--;
  return HP_OK;
}

hp_status infer_scalar_f32(infer_ctx *c) {
  if (!dtype_is_float(graph_value(c->g, c->in[0])->dtype))
    return ops_fail(c, "%s is not of floats", ops_type(c, 0));
  c->out[0].dtype = HP_F32;
  return HP_OK;
}

/* --- shape --------------------------------------------------------------------------------- */

static hp_status set_shape(infer_ctx *c, const char *key) {
  int64_t dim[ATTR_LIST_MAX];
  int rank = attr_list(c->g, &c->node, key, dim);
  if (rank > HP_MAX_RANK) return ops_fail(c, "%d dims, at most %d are possible", rank, HP_MAX_RANK);
  c->out[0].dtype = graph_value(c->g, c->in[0])->dtype;
  c->out[0].rank = (uint8_t)rank;
  for (int i = 0; i < rank; i++) {
    if (dim[i] < 0) return ops_fail(c, "dim %d is %lld", i, (long long)dim[i]);
    c->out[0].dim[i] = dim[i];
  }
  return HP_OK;
}

hp_status infer_reshape(infer_ctx *c) {
  HP_TRY(set_shape(c, "shape"));
  int64_t have = value_elements(graph_value(c->g, c->in[0])), want = value_elements(&c->out[0]);
  if (have != want)
    return ops_fail(c, "%s has %lld elements, the new shape %lld", ops_type(c, 0), (long long)have,
                    (long long)want);
  return HP_OK;
}

void grad_reshape(grad_ctx *c) {
  ir_value x = *graph_value(c->g, c->in[0]);
  c->din[0] = ops_reshape(c->g, c->dout[0], x.dim, x.rank);
}

hp_status infer_transpose(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]);
  int64_t perm[ATTR_LIST_MAX];
  bool seen[HP_MAX_RANK] = {false};
  int n = attr_list(c->g, &c->node, "perm", perm);
  if (n != x->rank)
    return ops_fail(c, "perm has %d entries, %s has %d dims", n, ops_type(c, 0), x->rank);
  c->out[0].dtype = x->dtype;
  c->out[0].rank = x->rank;
  for (int i = 0; i < n; i++) {
    if (perm[i] < 0 || perm[i] >= n || seen[perm[i]])
      return ops_fail(c, "%s is %s; perm has %lld at %d, each dim from 0 to %d once was expected",
                      ops_operand(c, 0), ops_type(c, 0), (long long)perm[i], i, n - 1);
    seen[perm[i]] = true;
    c->out[0].dim[i] = x->dim[perm[i]];
  }
  return HP_OK;
}

void grad_transpose(grad_ctx *c) {
  int64_t perm[ATTR_LIST_MAX], back[HP_MAX_RANK] = {0};
  int n = attr_list(c->g, &c->node, "perm", perm);
  for (int i = 0; i < n; i++) back[perm[i]] = i;
  c->din[0] = ops_transpose(c->g, c->dout[0], back);
}

hp_status infer_broadcast(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]);
  HP_TRY(set_shape(c, "shape"));
  int more = c->out[0].rank - x->rank;
  if (more < 0) return ops_fail(c, "%s has more dims than the new shape", ops_type(c, 0));
  for (int i = 0; i < x->rank; i++)
    if (x->dim[i] != 1 && x->dim[i] != c->out[0].dim[i + more])
      return ops_fail(c, "dim %d of %s cannot become %lld", i, ops_type(c, 0),
                      (long long)c->out[0].dim[i + more]);
  return HP_OK;
}

void grad_broadcast(grad_ctx *c) { c->din[0] = ops_unbroadcast(c->g, c->dout[0], c->in[0]); }

hp_status infer_slice(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]);
  int64_t start[ATTR_LIST_MAX], stop[ATTR_LIST_MAX], step[ATTR_LIST_MAX];
  int n = attr_list(c->g, &c->node, "start", start);
  if (n != x->rank || attr_list(c->g, &c->node, "stop", stop) != n ||
      attr_list(c->g, &c->node, "step", step) != n)
    return ops_fail(c, "start, stop and step need %d entries each, for %s", x->rank,
                    ops_type(c, 0));
  c->out[0] = *x;
  c->out[0].layout = 0;
  for (int i = 0; i < n; i++) {
    if (start[i] < 0 || stop[i] < start[i] || stop[i] > x->dim[i] || step[i] < 1)
      return ops_fail(c,
                      "%s is %s; of dim %d start is %lld, stop %lld, step %lld: 0 <= start <= stop "
                      "<= %lld and a step of 1 or more was expected",
                      ops_operand(c, 0), ops_type(c, 0), i, (long long)start[i], (long long)stop[i],
                      (long long)step[i], (long long)x->dim[i]);
    c->out[0].dim[i] = stop[i] == start[i] ? 0 : (stop[i] - start[i] - 1) / step[i] + 1;
  }
  return HP_OK;
}

/* y with step - 1 zeros after each element along dim d, but the last. */
static val insert_zeros(hp_graph *g, val y, int d, int64_t step) {
  if (g->failure.code) return 0;
  ir_value t = *graph_value(g, y);
  int64_t n = t.dim[d], outer = 1, inner = 1;
  for (int i = 0; i < d; i++) outer *= t.dim[i];
  for (int i = d + 1; i < t.rank; i++) inner *= t.dim[i];
  y = ops_reshape(g, y, (int64_t[]){outer, n, 1, inner}, 4);
  y = ops_pad(g, y, (int64_t[4]){0}, (int64_t[]){0, 0, step - 1, 0}, 0);
  y = ops_reshape(g, y, (int64_t[]){outer, n * step, inner}, 3);
  t.dim[d] = n ? (n - 1) * step + 1 : 0;
  y = ops_slice(g, y, (int64_t[3]){0}, (int64_t[]){outer, t.dim[d], inner}, (int64_t[]){1, 1, 1});
  return ops_reshape(g, y, t.dim, t.rank);
}

/* Zeros around dy, and between its elements where a step was taken. */
void grad_slice(grad_ctx *c) {
  hp_graph *g = c->g;
  ir_value x = *graph_value(g, c->in[0]), y = *graph_value(g, c->out[0]);
  int64_t start[ATTR_LIST_MAX], step[ATTR_LIST_MAX], hi[HP_MAX_RANK];
  attr_list(g, &c->node, "start", start);
  attr_list(g, &c->node, "step", step);
  val dy = c->dout[0];
  for (int i = 0; i < x.rank; i++) {
    if (y.dim[i] > 1 && step[i] > 1) dy = insert_zeros(g, dy, i, step[i]);
    int64_t taken = y.dim[i] > 1 ? (y.dim[i] - 1) * step[i] + 1 : y.dim[i];
    hi[i] = x.dim[i] - start[i] - taken;
  }
  c->din[0] = ops_pad(g, dy, start, hi, 0);
}

hp_status infer_pad(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]);
  int64_t lo[ATTR_LIST_MAX], hi[ATTR_LIST_MAX];
  int n = attr_list(c->g, &c->node, "lo", lo);
  if (n != x->rank || attr_list(c->g, &c->node, "hi", hi) != n)
    return ops_fail(c, "lo and hi need %d entries each, for %s", x->rank, ops_type(c, 0));
  c->out[0] = *x;
  c->out[0].layout = 0;
  for (int i = 0; i < n; i++) {
    if (lo[i] < 0 || hi[i] < 0 || lo[i] > INT64_MAX / 4 || hi[i] > INT64_MAX / 4)
      return ops_fail(c,
                      "%s is %s; of dim %d low is %lld, high %lld: 0 or more, and no more than "
                      "memory holds, was expected",
                      ops_operand(c, 0), ops_type(c, 0), i, (long long)lo[i], (long long)hi[i]);
    c->out[0].dim[i] += lo[i] + hi[i];
  }
  return HP_OK;
}

void grad_pad(grad_ctx *c) {
  ir_value x = *graph_value(c->g, c->in[0]);
  int64_t lo[ATTR_LIST_MAX], stop[HP_MAX_RANK], one[HP_MAX_RANK];
  int n = attr_list(c->g, &c->node, "lo", lo);
  for (int i = 0; i < n; i++) {
    stop[i] = lo[i] + x.dim[i];
    one[i] = 1;
  }
  c->din[0] = ops_slice(c->g, c->dout[0], lo, stop, one);
}

hp_status infer_concat(infer_ctx *c) {
  int64_t axis = attr_int(c->g, &c->node, "axis");
  c->out[0] = *graph_value(c->g, c->in[0]);
  c->out[0].layout = 0;
  if (axis < 0 || axis >= c->out[0].rank)
    return ops_fail(c, "axis %lld is not a dim of %s", (long long)axis, ops_type(c, 0));
  for (int i = 1; i < c->node.n_in; i++) {
    const ir_value *v = graph_value(c->g, c->in[i]);
    bool fits = v->dtype == c->out[0].dtype && v->rank == c->out[0].rank;
    for (int d = 0; fits && d < v->rank; d++) fits = d == axis || v->dim[d] == c->out[0].dim[d];
    if (!fits)
      return ops_fail(c, "%s is %s, %s is %s; all but dim %lld must agree", ops_operand(c, i),
                      ops_type(c, i), ops_operand(c, 0), ops_type(c, 0), (long long)axis);
    if (__builtin_add_overflow(c->out[0].dim[axis], v->dim[axis], &c->out[0].dim[axis]))
      return ops_fail(c, "the result is too long");
  }
  return HP_OK;
}

void grad_concat(grad_ctx *c) {
  hp_graph *g = c->g;
  int axis = (int)attr_int(g, &c->node, "axis");
  int64_t start[HP_MAX_RANK] = {0}, one[HP_MAX_RANK] = {1, 1, 1, 1, 1, 1};
  for (int i = 0; i < c->node.n_in; i++) {
    ir_value v = *graph_value(g, c->in[i]);
    int64_t stop[HP_MAX_RANK];
    memcpy(stop, v.dim, sizeof stop);
    stop[axis] += start[axis];
    c->din[i] = ops_slice(g, c->dout[0], start, stop, one);
    start[axis] = stop[axis];
  }
}

hp_status infer_tier(infer_ctx *c) {
  int64_t tier = attr_int(c->g, &c->node, "tier");
  if (tier <= TIER_DEVICE || tier >= TIER_COUNT)
    return ops_fail(c, "tier %lld is not one of those beyond the device, 1 to %d", (long long)tier,
                    TIER_COUNT - 1);
  return infer_same(c);
}

hp_status infer_update(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]), *y = graph_value(c->g, c->in[1]);
  const ir_value *pos = graph_value(c->g, c->in[2]);
  int64_t axis = attr_int(c->g, &c->node, "axis");
  bool fits = x->dtype == y->dtype && x->rank == y->rank && axis >= 0 && axis < x->rank;
  for (int d = 0; fits && d < x->rank; d++)
    fits = d == axis ? y->dim[d] <= x->dim[d] : y->dim[d] == x->dim[d];
  if (!fits)
    return ops_fail(c, "%s cannot be written into %s along dim %lld", ops_type(c, 1),
                    ops_type(c, 0), (long long)axis);
  bool each = pos->rank == 1 && axis > 0 && pos->dim[0] == x->dim[0];
  if (pos->dtype != HP_I32 || (pos->rank && !each))
    return ops_fail(c,
                    "the index is %s, expected i32[], or one for each element of dim 0 where "
                    "that is not the one written along",
                    ops_type(c, 2));
  return infer_same(c);
}
