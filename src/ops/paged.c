/* A cache of keys and values in blocks of tokens: pools [G,N,KV,..] of N blocks for each of G
 * groups of sequences, and a table [B,M] of the blocks of each sequence in the pool of its group.
 * In a block the keys of a head are transposed, [D,PAGE], so that scores read memory in order;
 * values are rows, [PAGE,Dv]. */
#include "ops/ops.h"
#include "ops/paged.h"

static bool is_table(const ir_value *t, int64_t B, int rank) {
  return t->dtype == HP_I32 && t->rank == rank && t->dim[0] == B;
}

/* A pool for sequences of x [B,..,heads,width], H a multiple of its heads. */
static bool is_pool_of(const ir_value *pool, bool transposed, const ir_value *x, int64_t width) {
  const int64_t *d = pool->dim;
  if (pool->rank != 5 || pool->dtype != x->dtype || !dtype_is_float(x->dtype)) return false;
  bool block = d[transposed ? 4 : 3] == PAGE_TOKENS && (!width || d[transposed ? 3 : 4] == width);
  return block && d[0] > 0 && x->dim[0] % d[0] == 0 && d[2] > 0 && x->dim[2] % d[2] == 0;
}

hp_status infer_paged_update(infer_ctx *c) {
  const ir_value *pool = graph_value(c->g, c->in[0]), *x = graph_value(c->g, c->in[1]);
  bool transposed = attr_int(c->g, &c->node, "transposed") != 0;
  if (x->rank != 4 || !is_pool_of(pool, transposed, x, x->dim[3]) || pool->dim[2] != x->dim[2])
    return ops_fail(c,
                    "the pool is %s, new rows %s; expected [G,N,KV,%s] and [B,T,KV,D] of one "
                    "dtype, B a multiple of G",
                    ops_type(c, 0), ops_type(c, 1), transposed ? "D,32" : "32,D");
  int64_t B = x->dim[0];
  for (int i = 2; i < 5; i++)
    if (!is_table(graph_value(c->g, c->in[i]), B, i == 2 ? 2 : 1))
      return ops_fail(c, "operand %d is %s, expected i32[%lld%s]", i, ops_type(c, i), (long long)B,
                      i == 2 ? ",M]: blocks of the sequences" : "]");
  return infer_same(c);
}

hp_status infer_paged_attention(infer_ctx *c) {
  const ir_value *q = graph_value(c->g, c->in[0]), *k = graph_value(c->g, c->in[1]);
  const ir_value *v = graph_value(c->g, c->in[2]), *span = graph_value(c->g, c->in[4]);
  bool fits = q->rank == 4 && is_pool_of(k, true, q, q->dim[3]) && is_pool_of(v, false, q, 0);
  for (int i = 0; fits && i < 3; i++) fits = k->dim[i] == v->dim[i];
  if (!fits)
    return ops_fail(c,
                    "q is %s, keys %s, values %s; expected [B,T,H,D], [G,N,KV,D,32], "
                    "[G,N,KV,32,Dv] of one dtype, B a multiple of G, H of KV",
                    ops_type(c, 0), ops_type(c, 1), ops_type(c, 2));
  if (attr_int(c->g, &c->node, "window") < 0) return ops_fail(c, "the window is negative");
  if (!is_table(graph_value(c->g, c->in[3]), q->dim[0], 2))
    return ops_fail(c, "the table is %s, expected i32[%lld,M]: blocks of the sequences",
                    ops_type(c, 3), (long long)q->dim[0]);
  if (!is_table(span, q->dim[0], 3) || span->dim[1] != q->dim[1] || span->dim[2] != 2)
    return ops_fail(c, "the span is %s, expected i32[%lld,%lld,2]", ops_type(c, 4),
                    (long long)q->dim[0], (long long)q->dim[1]);
  c->out[0] = *q;
  c->out[0].layout = 0;
  c->out[0].dim[3] = v->dim[4];
  return HP_OK;
}

/* Only the new rows move, and the table is read. */
op_cost cost_paged_update(const hp_graph *g, const ir_node *n) {
  const val *in = graph_in(g, n);
  op_cost k = {.bytes = 2 * (double)value_bytes(graph_value(g, in[1]))};
  for (int i = 2; i < n->n_in; i++) k.bytes += (double)value_bytes(graph_value(g, in[i]));
  return k;
}

/* Of full pools that share no block; what a run reads follows from its span. */
op_cost cost_paged_attention(const hp_graph *g, const ir_node *n) {
  const val *in = graph_in(g, n);
  const ir_value *q = graph_value(g, in[0]), *k = graph_value(g, in[1]), *v = graph_value(g, in[2]);
  double keys = (double)k->dim[0] * (double)k->dim[1] * PAGE_TOKENS;
  double rows = (double)q->dim[1] * (double)q->dim[2];
  op_cost cost = cost_copy(g, n);
  cost.flops = 2 * (double)(q->dim[3] + v->dim[4]) * keys * rows;
  return cost;
}
