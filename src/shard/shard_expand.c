/* Composite ops whose operands' layouts their rule does not allow: a norm over a sharded dim,
 * the loss of sharded classes, dropout on a shard, attention whose query heads are not sharded
 * by groups.  They are written in ops that allow these layouts.  This file decides which ops
 * these are; shard.c writes them, except cross-entropy, which has ops of its own. */
#include "shard/expand.h"
#include "shard/shard_state.h"
#include "shard/slices.h"

#include <string.h>

static bool last_is_cut(const shard *s, val x) {
  const layout *l = &s->now[x];
  return l->rank && layout_shard_count(s->m, l, l->rank - 1) > 1;
}

/* Are query heads sharded neither by complete groups nor, with one key head per device, within
 * groups?  Summing the gradients of repeated heads has another order than attention. */
static bool cuts_groups(const shard *s, const ir_node *n) {
  if (n->op != OP_ATTENTION && n->op != OP_ATTENTION_GRAD) return false;
  if (s->plan->no_partial_sums) return false;
  const val *in = graph_in(s->r.from, n);
  const layout *q = &s->now[in[0]];
  int64_t kv = graph_value(s->r.from, in[1])->dim[2], shards = 1;
  if (graph_value(s->r.from, in[0])->dim[2] == kv) return false;
  for (int i = 0; i < q->n[2]; i++) {
    int64_t size = s->m->size[q->axis[2][i]];
    if (kv % (shards * size)) return shards != kv;
    shards *= size;
  }
  return false;
}

/* Random numbers are generated for the global tensor; each device keeps its shard. */
static bool drops_shard(const shard *s, const ir_node *n) {
  if (n->op != OP_DROPOUT) return false;
  const layout *x = &s->now[graph_in(s->r.from, n)[0]];
  for (int d = 0; d < x->rank; d++)
    if (layout_shard_count(s->m, x, d) > 1) return true;
  return false;
}

bool shard_expands(const shard *s, const ir_node *n) {
  if (drops_shard(s, n)) return true;
  if (s->plan->no_partial_sums) return false;
  bool rows = n->op == OP_RMS_NORM || n->op == OP_LAYER_NORM || n->op == OP_SOFTMAX;
  rows |= n->op == OP_CROSS_ENTROPY && attr_int(s->r.from, n, "ignore") < 0;
  return (rows && last_is_cut(s, graph_in(s->r.from, n)[0])) || cuts_groups(s, n);
}

/* --- cross-entropy over sharded classes ---------------------------------------------------------
 *
 * Every device has the loss and the log-sum-exp of its own classes; for a label of another device
 * its loss is the log-sum-exp.  So lse - loss, summed over the devices, is the label's logit. */
hp_status shard_cross_entropy(shard *s, const ir_node *n) {
  const val *from = graph_in(s->r.from, n);
  hp_graph *g = s->r.to;
  layout lx = s->now[from[0]], rows;
  int d = lx.rank - 1, cut = lx.n[d];
  uint8_t *axis = lx.axis[d];
  val x, label;
  memset(lx.partial, 0, sizeof lx.partial);
  rows = lx;
  rows.rank--;
  layout_cut(&rows, d, cut);
  HP_TRY(shard_bring(s, from[0], &lx, &x));
  HP_TRY(shard_bring(s, from[1], &rows, &label));
  int64_t ignore = attr_int(s->r.from, n, "ignore"), size = graph_value(g, x)->dim[d];
  attr_record a = {0};
  attr_put_int(&a, ignore);
  val own[2] = {x, shard_locate(s, label, axis, cut, size)};
  val loss = ops_add(g, OP_CROSS_ENTROPY, own, 2, &a), local = loss ? loss + 1 : 0;
  val top = shard_reduce(s, local, axis, cut, PARTIAL_MAX);
  val sum = ops_unary(g, OP_EXP, ops_binary(g, OP_SUB, local, top));
  sum = ops_unary(g, OP_LOG, shard_reduce(s, sum, axis, cut, PARTIAL_SUM));
  val lse = ops_binary(g, OP_ADD, top, sum);
  val logit = ops_binary(g, OP_SUB, local, loss);
  logit = shard_reduce(s, logit, axis, cut, PARTIAL_SUM);
  hp_dtype t = (hp_dtype)graph_value(s->r.from, from[1])->dtype;
  val left_out = ops_binary(g, OP_EQ, label, ops_const(g, t, (double)ignore));
  val zero = ops_const(g, HP_F32, 0);
  loss = ops_select(g, left_out, zero, ops_binary(g, OP_SUB, lse, logit));
  s->r.map[n->out0] = loss;
  s->r.map[n->out0 + 1] = lse;
  for (val k = 0; k < 2; k++) s->made[n->out0 + k] = s->now[n->out0 + k] = rows;
  return graph_status(g);
}
