/* A cache of keys and values in blocks of tokens: pools [G,N,KV,..] of N blocks for each of G
 * groups of sequences, and a table [B,M] of the blocks of each sequence in the pool of its group.
 * In a block the keys of a head are transposed, [D,PAGE], so that scores read memory in order;
 * values are rows, [PAGE,Dv]. */
#include "base/dtype.h"
#include "base/round.h"
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

/* q to pools of keys and values, with a table and a span. */
static hp_status check_attention(infer_ctx *c) {
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

hp_status infer_paged_attention(infer_ctx *c) { return check_attention(c); }

hp_status infer_paged_part(infer_ctx *c) {
  HP_TRY(check_attention(c));
  ir_value state = c->out[0];
  state.dtype = HP_F32;
  state.dim[3] = PAGED_STATE + round_up(state.dim[3], 16);
  if (attr_int(c->g, &c->node, "first") < 0) return ops_fail(c, "the first entry is negative");
  if (c->node.n_in > 5) {
    const ir_value *before = graph_value(c->g, c->in[5]);
    if (before->dtype != HP_F32 || !value_same_shape(before, &state))
      return ops_fail(c, "the state is %s, expected f32[%lld,%lld,%lld,%lld]", ops_type(c, 5),
                      (long long)state.dim[0], (long long)state.dim[1], (long long)state.dim[2],
                      (long long)state.dim[3]);
  }
  if (!attr_int(c->g, &c->node, "end")) c->out[0] = state;
  return HP_OK;
}

/* --- blocks between tiers --------------------------------------------------------------------- */

static hp_status check_tier(infer_ctx *c) {
  int64_t tier = attr_int(c->g, &c->node, "tier");
  if (tier == TIER_HOST || tier == TIER_FLASH) return HP_OK;
  return ops_fail(c, "tier is %lld; expected %d (host) or %d (flash)", (long long)tier, TIER_HOST,
                  TIER_FLASH);
}

/* A pool of any order in its blocks, and lists of blocks of its groups. */
static bool is_pool(const ir_value *pool) {
  return pool->rank == 5 && dtype_is_float(pool->dtype) && pool->dim[0] > 0;
}

hp_status infer_paged_fetch(infer_ctx *c) {
  const ir_value *pool = graph_value(c->g, c->in[0]), *list = graph_value(c->g, c->in[1]);
  int64_t first = attr_int(c->g, &c->node, "first"), slots = attr_int(c->g, &c->node, "slots");
  HP_TRY(check_tier(c));
  if (!is_pool(pool) || !is_table(list, pool->dim[0], 2))
    return ops_fail(c, "the pool is %s, the list %s; expected [G,N,KV,..,..] and i32[G,L]",
                    ops_type(c, 0), ops_type(c, 1));
  if (first < 0 || slots < 0 || first > list->dim[1] || slots > list->dim[1] - first)
    return ops_fail(c, "entries %lld.. of %lld slots are not in the list %s", (long long)first,
                    (long long)slots, ops_type(c, 1));
  c->out[0] = *pool;
  c->out[0].layout = 0;
  c->out[0].dim[1] = slots;
  if (attr_int(c->g, &c->node, "split")) c->out[0].dim[2] = 1;
  return HP_OK;
}

hp_status infer_paged_store(infer_ctx *c) {
  const ir_value *pool = graph_value(c->g, c->in[0]), *slots = graph_value(c->g, c->in[1]);
  const ir_value *list = graph_value(c->g, c->in[2]);
  HP_TRY(check_tier(c));
  bool fits = is_pool(pool) && slots->rank == 5 && slots->dtype == pool->dtype;
  for (int d = 0; fits && d < 5; d++)
    fits = d == 1 || slots->dim[d] == pool->dim[d] || (d == 2 && slots->dim[d] == 1);
  if (!fits || !is_table(list, pool->dim[0], 2) || list->dim[1] != slots->dim[1])
    return ops_fail(c,
                    "the pool is %s, the slots %s, the list %s; expected [G,N,KV,..,..], "
                    "[G,S,KV,..,..] and i32[G,S]",
                    ops_type(c, 0), ops_type(c, 1), ops_type(c, 2));
  return infer_same(c);
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

/* --- bounds ----------------------------------------------------------------------------------- */

/* Bounds of the keys of sequences of x, [B,T,heads,D]. */
static bool are_bounds(const ir_value *v, const ir_value *x) {
  const int64_t *d = v->dim;
  return v->rank == 5 && v->dtype == x->dtype && dtype_is_float(x->dtype) && d[0] > 0 &&
         x->dim[0] % d[0] == 0 && d[2] > 0 && x->dim[2] % d[2] == 0 && d[3] == 2 &&
         d[4] == x->dim[3];
}

hp_status infer_paged_bounds(infer_ctx *c) {
  const ir_value *bounds = graph_value(c->g, c->in[0]), *x = graph_value(c->g, c->in[1]);
  const ir_value *span = graph_value(c->g, c->in[5]);
  if (x->rank != 4 || !are_bounds(bounds, x) || bounds->dim[2] != x->dim[2])
    return ops_fail(c, "the bounds are %s, new rows %s; expected [G,N,KV,2,D] and [B,T,KV,D]",
                    ops_type(c, 0), ops_type(c, 1));
  for (int i = 2; i < 5; i++)
    if (!is_table(graph_value(c->g, c->in[i]), x->dim[0], i == 2 ? 2 : 1))
      return ops_fail(c, "operand %d is %s, expected i32[%lld%s]", i, ops_type(c, i),
                      (long long)x->dim[0], i == 2 ? ",M]: blocks of the sequences" : "]");
  if (!is_table(span, x->dim[0], 3) || span->dim[1] != x->dim[1] || span->dim[2] != 2)
    return ops_fail(c, "the span is %s, expected i32[%lld,%lld,2]", ops_type(c, 5),
                    (long long)x->dim[0], (long long)x->dim[1]);
  return infer_same(c);
}

hp_status infer_paged_select(infer_ctx *c) {
  const ir_value *q = graph_value(c->g, c->in[0]), *bounds = graph_value(c->g, c->in[1]);
  int64_t n = attr_int(c->g, &c->node, "n");
  if (q->rank != 4 || q->dim[1] != 1 || !are_bounds(bounds, q))
    return ops_fail(c,
                    "q is %s, the bounds %s; expected [B,1,H,D] and [G,N,KV,2,D], H a multiple "
                    "of KV",
                    ops_type(c, 0), ops_type(c, 1));
  for (int i = 2; i < 5; i++)
    if (!is_table(graph_value(c->g, c->in[i]), q->dim[0], i == 2 ? 2 : 1))
      return ops_fail(c, "operand %d is %s, expected i32[%lld%s]", i, ops_type(c, i),
                      (long long)q->dim[0], i == 2 ? ",M]: blocks of the sequences" : "]");
  if (n < 2 || n > INT32_MAX) return ops_fail(c, "n is %lld; expected 2 or more", (long long)n);
  for (int k = 0; k < 3; k++)
    c->out[k] = (ir_value){.dtype = HP_I32,
                           .rank = k < 2 ? 2 : 1,
                           .dim = {q->dim[0] * bounds->dim[2], k < 2 ? n : 0}};
  return HP_OK;
}

op_cost cost_paged_bounds(const hp_graph *g, const ir_node *n) {
  return (op_cost){.bytes = 2 * (double)value_bytes(graph_value(g, graph_in(g, n)[1]))};
}

/* The bounds of all blocks of a table. */
op_cost cost_paged_select(const hp_graph *g, const ir_node *n) {
  const ir_value *q = graph_value(g, graph_in(g, n)[0]), *b = graph_value(g, graph_in(g, n)[1]);
  double blocks = (double)graph_value(g, graph_in(g, n)[2])->dim[1] * (double)q->dim[0];
  double each = 2 * (double)(b->dim[2] * q->dim[3]);
  return (op_cost){.flops = 2 * blocks * (double)(2 * q->dim[2] * q->dim[3]),
                   .bytes = blocks * each * (double)dtype_size((hp_dtype)q->dtype)};
}

/* The state is read and written, too. */
op_cost cost_paged_part(const hp_graph *g, const ir_node *n) { return cost_paged_attention(g, n); }

op_cost cost_paged_store(const hp_graph *g, const ir_node *n) {
  return (op_cost){.bytes = 2 * (double)value_bytes(graph_value(g, graph_in(g, n)[1]))};
}
