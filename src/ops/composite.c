#include "ops/composite.h"

#include "ir/rewrite.h"

#include <string.h>

typedef struct {
  rewrite r;
  const ir_node *n;
  val in[8];
  val out[3];
} site;

#define TO (s->r.to)

static val add_binary(site *s, int op, val a, val b) { return ops_binary(TO, op, a, b); }

/* By powers of 2, which are quicker, and one division a row. */
static void softmax(site *s) {
  int t = graph_value(TO, s->in[0])->dtype;
  val x = ops_cast(TO, s->in[0], HP_F32);
  val d = ops_scale(TO, add_binary(s, OP_SUB, x, ops_max_last(TO, x)), 1.4426950408889634);
  val e = ops_unary(TO, OP_EXP2, d);
  val share = ops_unary(TO, OP_RECIP, ops_sum_last(TO, e));
  s->out[0] = ops_cast(TO, add_binary(s, OP_MUL, e, share), (hp_dtype)t);
}

static val mean_last(site *s, val x) {
  if (TO->failure.code) return 0;
  const ir_value *v = graph_value(TO, x);
  double width = (double)v->dim[v->rank - 1]; /* adding nodes moves the values */
  return ops_scale(TO, ops_sum_last(TO, x), 1.0 / width);
}

/* x / sqrt(mean(x^2) + eps) */
static val add_normalized(site *s, val x) {
  val eps = ops_const(TO, HP_F32, attr_float(s->r.from, s->n, "eps"));
  val ms = mean_last(s, ops_unary(TO, OP_SQUARE, x));
  return add_binary(s, OP_MUL, x, ops_unary(TO, OP_RSQRT, add_binary(s, OP_ADD, ms, eps)));
}

static void rms_norm(site *s) {
  int t = graph_value(TO, s->in[0])->dtype;
  val x = ops_cast(TO, s->in[0], HP_F32);
  s->out[0] = ops_cast(TO, add_binary(s, OP_MUL, add_normalized(s, x), s->in[1]), (hp_dtype)t);
}

static void layer_norm(site *s) {
  int t = graph_value(TO, s->in[0])->dtype;
  val x = ops_cast(TO, s->in[0], HP_F32);
  val n = add_normalized(s, add_binary(s, OP_SUB, x, mean_last(s, x)));
  val y = add_binary(s, OP_ADD, add_binary(s, OP_MUL, n, s->in[1]), s->in[2]);
  s->out[0] = ops_cast(TO, y, (hp_dtype)t);
}

/* x / (1 - p) where a uniform number is at least p, else 0 */
static void dropout(site *s) {
  ir_value x = *graph_value(TO, s->in[0]);
  double p = attr_float(s->r.from, s->n, "p");
  int64_t stream = attr_int(s->r.from, s->n, "stream");
  val u = ops_random(TO, OP_UNIFORM, s->in[1], stream, HP_F32, x.dim, x.rank);
  val keep = add_binary(s, OP_GE, u, ops_const(TO, HP_F32, p));
  val y = ops_scale(TO, ops_cast(TO, s->in[0], HP_F32), 1 / (1 - p));
  val zero = ops_const(TO, HP_F32, 0);
  s->out[0] = ops_cast(TO, ops_select(TO, keep, y, zero), (hp_dtype)x.dtype);
}

/* PyTorch's AdamW: decoupled decay, then p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) +
 * eps) */
static void adamw(site *s) {
  double b1 = attr_float(s->r.from, s->n, "beta1"), b2 = attr_float(s->r.from, s->n, "beta2");
  double eps = attr_float(s->r.from, s->n, "eps"), decay = attr_float(s->r.from, s->n, "decay");
  val p = s->in[0], m = s->in[2], v = s->in[3];
  val scale = s->in[4], lr = s->in[5], step = s->in[6], sqrt_bc2 = s->in[7];
  val g = add_binary(s, OP_MUL, s->in[1], scale);
  val more = ops_scale(TO, g, 1 - b1);
  val m1 = add_binary(s, OP_ADD, ops_scale(TO, m, b1), more);
  more = ops_scale(TO, ops_unary(TO, OP_SQUARE, g), 1 - b2);
  val v1 = add_binary(s, OP_ADD, ops_scale(TO, v, b2), more);
  val root = add_binary(s, OP_DIV, ops_unary(TO, OP_SQRT, v1), sqrt_bc2);
  val denominator = add_binary(s, OP_ADD, root, ops_const(TO, HP_F32, eps));
  val update = add_binary(s, OP_MUL, step, add_binary(s, OP_DIV, m1, denominator));
  if (decay != 0) {
    val lost = ops_scale(TO, lr, decay);
    p = add_binary(s, OP_MUL, p, add_binary(s, OP_SUB, ops_const(TO, HP_F32, 1), lost));
  }
  s->out[0] = add_binary(s, OP_SUB, p, update);
  s->out[1] = m1;
  s->out[2] = v1;
}

/* PyTorch's SGD: d = g + decay p; buffer = momentum buffer + d; p -= lr (momentum ? buffer : d) */
static void sgd(site *s) {
  double momentum = attr_float(s->r.from, s->n, "momentum");
  double decay = attr_float(s->r.from, s->n, "decay");
  val d = add_binary(s, OP_MUL, s->in[1], s->in[3]);
  if (decay != 0) d = add_binary(s, OP_ADD, d, ops_scale(TO, s->in[0], decay));
  s->out[1] = s->in[2];
  if (momentum != 0) s->out[1] = d = add_binary(s, OP_ADD, ops_scale(TO, s->in[2], momentum), d);
  s->out[0] = add_binary(s, OP_SUB, s->in[0], add_binary(s, OP_MUL, s->in[4], d));
}

/* Other reductions than over the last dim or over all but the last: bring the reduced dims to
 * the end and merge them. */
static void reduction(site *s) {
  ir_value x = *graph_value(TO, s->in[0]);
  int64_t axes[ATTR_LIST_MAX], perm[HP_MAX_RANK], rows[HP_MAX_RANK], merged = 1;
  int n = attr_list(s->r.from, s->n, "axes", axes), kept = 0;
  bool cut[HP_MAX_RANK] = {false};
  for (int i = 0; i < n; i++) cut[axes[i]] = true;
  for (int d = 0; d < x.rank; d++)
    if (!cut[d]) {
      rows[kept] = x.dim[d];
      perm[kept++] = d;
    } else {
      merged *= x.dim[d];
    }
  int at = kept;
  if (!n) {
    s->out[0] = s->in[0];
    return;
  }
  bool last = n == 1 && cut[x.rank - 1], leading = kept == 1 && !cut[x.rank - 1];
  for (int d = 0; d < x.rank; d++)
    if (cut[d]) perm[at++] = d;
  val y = s->in[0];
  if (!last && !leading) {
    bool moved = false;
    for (int d = 0; d < x.rank; d++) moved |= perm[d] != d;
    if (moved) y = ops_transpose(TO, y, perm);
    rows[kept] = merged;
    y = ops_reshape(TO, y, rows, kept + 1);
    axes[0] = kept;
    n = 1;
  }
  attr_record a = {0};
  attr_put_list(&a, axes, n);
  attr_put_int(&a, last && attr_int(s->r.from, s->n, "keep"));
  y = ops_add(TO, s->n->op, &y, 1, &a);
  const ir_value *want = graph_value(s->r.from, s->n->out0);
  if (y && !value_same_shape(graph_value(TO, y), want))
    y = ops_reshape(TO, y, want->dim, want->rank);
  s->out[0] = y;
}

typedef void (*decomposition)(site *s);
static const decomposition table[OP_COUNT] = {
    [OP_SOFTMAX] = softmax,      [OP_RMS_NORM] = rms_norm, [OP_LAYER_NORM] = layer_norm,
    [OP_ADAMW] = adamw,          [OP_SGD] = sgd,           [OP_SUM] = reduction,
    [OP_REDUCE_MAX] = reduction, [OP_DROPOUT] = dropout,
};

static bool is_empty(const hp_graph *g, val v) { return value_elements(graph_value(g, v)) == 0; }

/* Has the node nothing to compute: no element in any result, or a sum of none? */
static bool is_void(const hp_graph *g, const ir_node *n) {
  if (!n->n_out || n->op == OP_INPUT || n->op == OP_PARAM || n->op == OP_CONST) return false;
  if (n->op == OP_SUM && is_empty(g, graph_in(g, n)[0])) return true;
  for (int k = 0; k < n->n_out; k++)
    if (!is_empty(g, n->out0 + (val)k)) return false;
  return true;
}

static void zeros(site *s) {
  for (int k = 0; k < s->n->n_out; k++) {
    ir_value t = *graph_value(s->r.from, s->n->out0 + (val)k);
    s->out[k] = ops_broadcast(TO, ops_const(TO, (hp_dtype)t.dtype, 0), t.dim, t.rank);
  }
}

static decomposition decomposition_of(const hp_graph *g, const ir_node *n) {
  return is_void(g, n) ? zeros : table[n->op];
}

bool composite_has_form(const hp_graph *g, const ir_node *n) {
  return decomposition_of(g, n) != NULL;
}

void composite_decompose(hp_graph *to, const hp_graph *from, const ir_node *n, const val *in,
                         val out[OPS_OUT_MAX]) {
  site s = {.r = {.from = from, .to = to}, .n = n};
  for (int k = 0; k < n->n_in && k < 8; k++) s.in[k] = in[k];
  decomposition_of(from, n)(&s);
  memcpy(out, s.out, sizeof s.out);
}
