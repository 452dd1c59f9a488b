#include "shard/expand.h"

#include "ops/composite.h"
#include "ir/rewrite.h"
#include "shard/rule_node.h"

enum { OPERANDS_MAX = 8 }; /* of ops that are written in other ops */

/* [B,S,KV,D] -> [B,S,KV*times,D] */
static val repeat_heads(hp_graph *g, val x, int64_t times) {
  if (!x) return 0;
  ir_value t = *graph_value(g, x);
  const int64_t one[] = {t.dim[0], t.dim[1], t.dim[2], 1, t.dim[3]};
  const int64_t all[] = {t.dim[0], t.dim[1], t.dim[2], times, t.dim[3]};
  const int64_t joined[] = {t.dim[0], t.dim[1], t.dim[2] * times, t.dim[3]};
  return ops_reshape(g, ops_broadcast(g, ops_reshape(g, x, one, 5), all, 5), joined, 4);
}

/* The gradient of repeat_heads. */
static val sum_heads(hp_graph *g, val dx, int64_t times) {
  if (!dx) return 0;
  ir_value t = *graph_value(g, dx);
  const int64_t apart[] = {t.dim[0], t.dim[1], t.dim[2] / times, times, t.dim[3]};
  return ops_sum(g, ops_reshape(g, dx, apart, 5), &(int64_t){3}, 1, false);
}

static void attention_by_head(hp_graph *to, const hp_graph *from, const ir_node *n, val *in,
                              val out[OPS_OUT_MAX]) {
  const val *old = graph_in(from, n);
  int64_t times = graph_value(from, old[0])->dim[2] / graph_value(from, old[1])->dim[2];
  for (int i = 1; i < 3; i++) in[i] = repeat_heads(to, in[i], times);
  attr_record a = rule_local_attrs(from, n, graph_value(from, n->out0));
  val y = ops_add(to, n->op, in, n->n_in, &a);
  for (int k = 0; k < n->n_out; k++) out[k] = y ? y + (val)k : 0;
  for (int k = 1; n->op == OP_ATTENTION_GRAD && k < 3; k++) out[k] = sum_heads(to, out[k], times);
}

hp_status expand_node(const hp_graph *g, const ir_node *n, hp_graph **out,
                      val results[OPS_OUT_MAX]) {
  const val *old = graph_in(g, n);
  val in[OPERANDS_MAX];
  hp_graph *to;
  HP_ASSERT(n->n_in <= OPERANDS_MAX);
  HP_TRY(graph_create(g, &to));
  rewrite_place(&(rewrite){.to = to}, n);
  for (int i = 0; i < n->n_in; i++) {
    const ir_value *x = graph_value(g, old[i]);
    in[i] = ops_leaf(to, OP_INPUT, "operand", (hp_dtype)x->dtype, x->dim, x->rank);
  }
  if (op_flags((op_id)n->op) & OPF_DECOMPOSE) composite_decompose(to, g, n, in, results);
  else attention_by_head(to, g, n, in, results);
  hp_status st = graph_status(to);
  if (st) graph_free(to);
  else *out = to;
  return st;
}
