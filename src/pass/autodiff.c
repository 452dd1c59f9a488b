#include "pass/autodiff.h"

#include "ops/ops.h"

#include <string.h>

typedef struct {
  hp_graph *g;
  val *cotangent; /* by value id of the forward graph */
  bool *needed;   /* depends on one of wrt */
  size_t values;
} autodiff;

/* Which values depend on wrt, with a gradient that may be other than zero. */
static void mark_needed(autodiff *a, const val *wrt, int n, size_t nodes) {
  for (int i = 0; i < n; i++) a->needed[wrt[i]] = true;
  for (size_t i = 0; i < nodes; i++) {
    const ir_node *d = graph_node(a->g, (uint32_t)i);
    const val *in = graph_in(a->g, d);
    bool any = false, flat = op_meanings[d->op].grad == grad_zero; /* its gradient is zero */
    for (int k = 0; k < d->n_in && !flat; k++) any |= a->needed[in[k]];
    for (int k = 0; any && k < d->n_out; k++) a->needed[d->out0 + (val)k] = true;
  }
}

/* A gradient that is zero except for a range along one axis, such as that of a slice. */
typedef struct {
  val run;
  int axis;
  int64_t before, behind; /* zeros */
} padded_run;

static bool is_run(const hp_graph *g, val d, padded_run *out) {
  const ir_node *n = graph_def(g, d);
  int64_t lo[ATTR_LIST_MAX], hi[ATTR_LIST_MAX];
  if (n->op != OP_PAD || attr_float(g, n, "value") != 0) return false;
  int rank = attr_list(g, n, "lo", lo), axes = 0;
  attr_list(g, n, "hi", hi);
  for (int i = 0; i < rank; i++) {
    if (!lo[i] && !hi[i]) continue;
    *out = (padded_run){graph_in(g, n)[0], i, lo[i], hi[i]};
    axes++;
  }
  return axes == 1;
}

/* Longer concats are operands of others, since rules of layouts hold 64 operands. */
enum { PARTS_MOST = 16 };

/* The ranges of a concat; returns their number. */
static int parts_of(const hp_graph *g, const padded_run *x, const val **part) {
  const ir_node *n = graph_def(g, x->run);
  bool joined = n->op == OP_CONCAT && n->n_in <= PARTS_MOST && attr_int(g, n, "axis") == x->axis;
  *part = joined ? graph_in(g, n) : &x->run;
  return joined ? n->n_in : 1;
}

/* The sum of two gradients whose ranges are adjacent needs no addition: if slices partition a
 * value, its gradient is the concat of theirs.  0 for other cases. */
static val side_by_side(hp_graph *g, val a, val b) {
  padded_run x, y;
  if (!is_run(g, a, &x) || !is_run(g, b, &y) || x.axis != y.axis) return 0;
  if (x.before > y.before) {
    padded_run t = x;
    x = y, y = t;
  }
  const ir_value first = *graph_value(g, x.run);
  if (x.before + first.dim[x.axis] != y.before) return 0;
  val all[2 * PARTS_MOST];
  const val *part;
  int n = parts_of(g, &x, &part);
  memcpy(all, part, (size_t)n * sizeof *part);
  int more = parts_of(g, &y, &part);
  memcpy(all + n, part, (size_t)more * sizeof *part);
  val run = ops_concat(g, all, n + more, x.axis);
  int64_t lo[HP_MAX_RANK] = {0}, hi[HP_MAX_RANK] = {0};
  lo[x.axis] = x.before, hi[x.axis] = y.behind;
  return x.before || y.behind ? ops_pad(g, run, lo, hi, 0) : run;
}

/* A sum of terms of several stages of a pipeline is on the lowest, whose backward is the last. */
static void accumulate(autodiff *a, val x, val d) {
  val *slot = &a->cotangent[x];
  const uint16_t stage = a->g->stage, before = *slot ? graph_def(a->g, *slot)->stage : stage;
  if (before < stage) a->g->stage = before;
  val joined = *slot && !a->g->failure.code ? side_by_side(a->g, *slot, d) : 0;
  if (joined) *slot = joined;
  else *slot = *slot ? ops_binary(a->g, OP_ADD, *slot, d) : d;
  a->g->stage = stage;
}

/* Gradients of a node's operands from those of its results. */
static void step_back(autodiff *a, uint32_t index) {
  grad_ctx c = {.g = a->g, .node = *graph_node(a->g, index)};
  val in[255];
  memcpy(in, graph_in(a->g, &c.node), c.node.n_in * sizeof *in);
  c.in = in;
  bool any = false;
  for (int k = 0; k < c.node.n_out && k < OPS_OUT_MAX; k++) {
    c.out[k] = c.node.out0 + (val)k;
    c.dout[k] = a->cotangent[c.out[k]];
    any |= c.dout[k] != 0;
  }
  bool wanted = false;
  for (int k = 0; k < c.node.n_in; k++)
    wanted |= a->needed[in[k]] && dtype_is_float(graph_value(a->g, in[k])->dtype);
  if (!any || !wanted) return;
  a->g->block = c.node.block;
  a->g->stage = c.node.stage;
  a->g->group = c.node.group;
  a->g->loc = c.node.loc;
  op_meanings[c.node.op].grad(&c);
  for (int k = 0; k < c.node.n_in && !a->g->failure.code; k++) {
    if (!a->needed[in[k]] || !dtype_is_float(graph_value(a->g, in[k])->dtype)) continue;
    if (c.din[k]) accumulate(a, in[k], c.din[k]);
    else ops_no_grad(&c, "for operand %d, on which the loss depends", k);
  }
}

/* --- what the loss depends on where no gradient comes ------------------------------------------
 */

/* Which values the loss depends on. */
static void mark_used(const hp_graph *g, val loss, size_t nodes, bool *used) {
  used[loss] = true;
  for (size_t i = nodes; i-- > 0;) {
    const ir_node *d = graph_node(g, (uint32_t)i);
    bool any = false;
    for (int k = 0; k < d->n_out; k++) any |= used[d->out0 + (val)k];
    for (int k = 0; any && k < d->n_in; k++) used[graph_in(g, d)[k]] = true;
  }
}

/* The first node with a result that is not a float, on which the loss depends, computed from
 * floats that depend on the tensors in `needed`; NULL: none. */
static const ir_node *find_cut(const autodiff *a, size_t nodes, const bool *used) {
  for (size_t i = 0; i < nodes; i++) {
    const ir_node *d = graph_node(a->g, (uint32_t)i);
    bool depends = false;
    for (int k = 0; k < d->n_in; k++) {
      val x = graph_in(a->g, d)[k];
      depends |= a->needed[x] && dtype_is_float(graph_value(a->g, x)->dtype);
    }
    for (int k = 0; depends && k < d->n_out; k++)
      if (used[d->out0 + (val)k] && !dtype_is_float(graph_value(a->g, d->out0 + (val)k)->dtype))
        return d;
  }
  return NULL;
}

/* The loss depends on x, but only through ops without a gradient: zeros would be wrong. */
static void refuse_cut(autodiff *a, int i, val x, size_t nodes, const bool *used) {
  memset(a->needed, 0, a->values * sizeof *a->needed);
  mark_needed(a, &x, 1, nodes);
  const ir_node *at = find_cut(a, nodes, used), *made = graph_def(a->g, x);
  bool leaf = made->op == OP_INPUT || made->op == OP_PARAM;
  if (!at) return;
  a->g->loc = at->loc;
  ops_refuse(
      a->g, at->op,
      "no gradient of it is known, and only through it does the loss depend on wrt[%d]%s%s%s", i,
      leaf ? " (\"" : "", leaf ? attr_str(a->g, made, "name") : "", leaf ? "\")" : "");
}

/* Gradients of tensors that none reached: zeros if the loss does not depend on them. */
static hp_status check_cuts(autodiff *a, val loss, const val *wrt, int n, size_t nodes) {
  bool *used = mem_calloc(a->values, sizeof *used);
  HP_TRY_MEM(used);
  mark_used(a->g, loss, nodes, used);
  for (int i = 0; i < n && !a->g->failure.code; i++)
    if (!a->cotangent[wrt[i]] && used[wrt[i]]) refuse_cut(a, i, wrt[i], nodes, used);
  mem_free(used);
  return graph_status(a->g);
}

static val zeros_like(hp_graph *g, val x) {
  ir_value v = *graph_value(g, x);
  return ops_broadcast(g, ops_const(g, (hp_dtype)v.dtype, 0), v.dim, v.rank);
}

hp_status pass_autodiff(hp_graph *g, val loss, const val *wrt, int n, val *grads) {
  HP_TRY(graph_status(g));
  ir_value lv = *graph_value(g, loss);
  if (!dtype_is_float(lv.dtype) || value_elements(&lv) != 1)
    HP_FAIL(HP_ERR_SHAPE, "the loss is %s; one element of a float dtype was expected",
            ops_type(&(infer_ctx){.g = g, .in = &loss}, 0));
  for (int i = 0; i < n; i++) {
    const ir_value *x = graph_value(g, wrt[i]);
    if (!dtype_is_float(x->dtype))
      HP_FAIL(HP_ERR_ARG, "wrt[%d] is %s; only tensors of a float dtype have a gradient", i,
              ops_type(&(infer_ctx){.g = g, .in = &wrt[i]}, 0));
  }
  size_t nodes = graph_value(g, loss)->def + 1;
  autodiff a = {.g = g, .values = g->values.len};
  hp_graph saved = *g;
  a.cotangent = mem_calloc(a.values, sizeof *a.cotangent);
  a.needed = mem_calloc(a.values, sizeof *a.needed);
  hp_status st = a.cotangent && a.needed ? HP_OK : HP_ERR_OOM;
  if (st) goto done;
  mark_needed(&a, wrt, n, nodes);
  g->phase = PHASE_BACKWARD;
  val one = ops_const(g, (hp_dtype)lv.dtype, 1);
  a.cotangent[loss] = lv.rank ? ops_reshape(g, one, lv.dim, lv.rank) : one;
  for (size_t i = nodes; i-- > 0 && !g->failure.code;) step_back(&a, (uint32_t)i);
  if (!g->failure.code) HP_TRY_GOTO(check_cuts(&a, loss, wrt, n, nodes), st);
  for (int i = 0; i < n && !g->failure.code; i++) {
    val d = a.cotangent[wrt[i]];
    grads[i] = d ? d : zeros_like(g, wrt[i]);
  }
  st = graph_status(g);
done:
  g->phase = saved.phase;
  g->block = saved.block;
  g->stage = saved.stage;
  g->group = saved.group;
  g->loc = saved.loc;
  mem_free(a.cotangent);
  mem_free(a.needed);
  return st;
}
