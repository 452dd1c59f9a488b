/* Attention whose queries are sharded along the sequence.  A span tells each query its keys,
 * since the position of a query is no longer its index.  If keys and values are sharded alike,
 * they go round in a ring: each step is the attention over another device's shard, with a span
 * for its keys, and the results are combined by their log-sum-exp.  For causal attention the
 * shards are permuted first, so that every device has the same number of visible keys. */
#include "shard/shard_state.h"
#include "shard/slices.h"

#include <string.h>

typedef struct {
  shard *s;
  hp_graph *g; /* output graph */
  const ir_node *n;
  bool gradient, ring, deals; /* deals: in zigzag order */
  int given;                  /* operands before the span */
  const layout *queries;      /* their layout: the axes of dim 1 shard the sequence */
  int64_t devices;            /* over which the sequence is sharded */
  layout need[RULE_TENSORS], out[RULE_TENSORS];
  val in[8], span; /* of this device; span refers to all keys */
} site;

/* The dim of an operand that is the sequence; the last one of lse [B,H,T]. */
static int sequence_of(const site *t, int operand) { return t->gradient && operand == 4 ? 2 : 1; }
static int result_sequence(const site *t, int result) { return !t->gradient && result ? 2 : 1; }

static bool same_cut(const layout *a, int da, const layout *b, int db) {
  return a->n[da] == b->n[db] && !memcmp(a->axis[da], b->axis[db], sizeof a->axis[da]);
}

bool shard_cuts_sequence(const shard *s, const ir_node *n) {
  bool attends = n->op == OP_ATTENTION || n->op == OP_ATTENTION_GRAD;
  if (!attends || s->plan->no_partial_sums || attr_float(s->r.from, n, "dropout") > 0) return false;
  const val *in = graph_in(s->r.from, n);
  const layout *q = &s->now[in[0]], *k = &s->now[in[1]];
  if (layout_shard_count(s->m, q, 1) == 1) return false;
  bool span = n->n_in > (n->op == OP_ATTENTION ? 3 : 6);
  return !span || same_cut(q, 1, k, 1);
}

/* --- dropout ---------------------------------------------------------------------------------- */

/* The number of the device's shard of dim d: i64[1]. */
static val shard_number(shard *s, const layout *l, int d) {
  int64_t shards = layout_shard_count(s->m, l, d);
  val all = ops_iota(s->r.to, HP_I64, &shards, 1, 0);
  attr_record a = {0};
  if (shards == 1) return all;
  shard_put_communicator(s, l->axis[d], l->n[d], &a);
  attr_put_int(&a, 0);
  return ops_add(s->r.to, OP_LOCAL_SHARD, &all, 1, &a);
}

static val times(hp_graph *g, val x, int64_t n) {
  return ops_binary(g, OP_MUL, x, ops_const(g, HP_I64, (double)n));
}

void shard_place_dropout(shard *s, const ir_node *n, const choice *c, val *in) {
  enum { BATCH = 0, HEADS = 2 };
  bool attends = n->op == OP_ATTENTION || n->op == OP_ATTENTION_GRAD;
  if (!attends || attr_float(s->r.from, n, "dropout") == 0) return;
  hp_graph *g = s->r.to;
  const layout *q = &c->need[0];
  const int64_t *dim = graph_value(s->r.from, graph_in(s->r.from, n)[0])->dim, one = 1;
  int64_t rows = dim[1], sequence = dim[HEADS] * rows;
  if (layout_shard_count(s->m, q, BATCH) == 1 && layout_shard_count(s->m, q, HEADS) == 1) return;
  val b =
      times(g, shard_number(s, q, BATCH), layout_shard_size(s->m, q, BATCH, dim[BATCH]) * sequence);
  val h = times(g, shard_number(s, q, HEADS), layout_shard_size(s->m, q, HEADS, dim[HEADS]) * rows);
  val *seed = &in[n->n_in - 1];
  val three[] = {ops_reshape(g, *seed, &one, 1), ops_binary(g, OP_ADD, b, h),
                 ops_broadcast(g, ops_const(g, HP_I64, (double)sequence), &one, 1)};
  *seed = ops_concat(g, three, 3, 0);
}

/* --- layouts ---------------------------------------------------------------------------------- */

/* Removes the axes of the sequence from a layout. */
static void without_sequence(const site *t, layout *l) {
  for (int i = 0; i < t->queries->n[1]; i++) {
    int axis = t->queries->axis[1][i], d = layout_dim_of(l, axis);
    l->partial[axis] = PARTIAL_NONE;
    while (d >= 0 && layout_dim_of(l, axis) >= 0) layout_cut(l, d, 1);
  }
}

static void with_sequence(const site *t, layout *l, int dim) {
  layout_cut(l, dim, l->n[dim]);
  for (int i = 0; i < t->queries->n[1]; i++) layout_append(l, dim, t->queries->axis[1][i]);
}

/* Layouts by the rule for heads and batch, with the sequence sharded as that of the queries. */
static hp_status decide(site *t, rule *r) {
  const val *from = graph_in(t->s->r.from, t->n);
  layout in[RULE_TENSORS];
  HP_TRY(rule_of_node(t->s->r.from, t->n, r));
  for (int i = 0; i < t->n->n_in; i++) {
    in[i] = t->s->now[from[i]];
    without_sequence(t, &in[i]);
    if (i < t->given) layout_cut(&in[i], sequence_of(t, i), in[i].n[sequence_of(t, i)]);
  }
  if (rule_derive(t->s->m, r, in, t->need, t->out)) { /* the layout of the queries, or replicated */
    err_clear();
    for (int i = 1; i < t->n->n_in; i++) in[i] = (layout){.rank = in[i].rank};
    if (rule_derive(t->s->m, r, in, t->need, t->out)) {
      err_clear();
      in[0] = (layout){.rank = in[0].rank};
      HP_TRY(rule_derive(t->s->m, r, in, t->need, t->out));
    }
  }
  for (int i = 0; i < t->n->n_in; i++) {
    bool of_keys = i == 1 || i == 2;
    if (!of_keys || t->ring) with_sequence(t, &t->need[i], sequence_of(t, i));
  }
  for (int o = 0; o < t->n->n_out; o++) {
    bool of_keys = t->gradient && o;
    if (!of_keys || t->ring) with_sequence(t, &t->out[o], result_sequence(t, o));
    else
      for (int i = 0; i < t->queries->n[1]; i++)
        t->out[o].partial[t->queries->axis[1][i]] = PARTIAL_SUM;
  }
  return HP_OK;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static void put_communicator(const site *t, attr_record *a) {
  shard_put_communicator(t->s, t->queries->axis[1], t->queries->n[1], a);
}

static val own_shard(const site *t, val x, int dim) {
  attr_record a = {0};
  put_communicator(t, &a);
  attr_put_int(&a, dim);
  return ops_add(t->g, OP_LOCAL_SHARD, &x, 1, &a);
}

static val permute(const site *t, val x, int64_t by) {
  attr_record a = {0};
  put_communicator(t, &a);
  attr_put_int(&a, by);
  return by ? ops_add(t->g, OP_PERMUTE, &x, 1, &a) : x;
}

static val deal(const site *t, val x, int dim, bool inverse) {
  attr_record a = {0};
  if (!t->deals) return x;
  put_communicator(t, &a);
  attr_put_int(&a, dim);
  attr_put_int(&a, inverse);
  return ops_add(t->g, OP_ZIGZAG, &x, 1, &a);
}

static val number(const site *t, int64_t x) { return ops_const(t->g, HP_I32, (double)x); }
static val binary(const site *t, op_id op, val a, val b) { return ops_binary(t->g, op, a, b); }

static val index_along(const site *t, int64_t size) {
  attr_record a = {0};
  attr_put_int(&a, 1);
  attr_put_int(&a, HP_I32);
  attr_put_list(&a, (int64_t[]){1, size, 1}, 3);
  return ops_add(t->g, OP_IOTA, NULL, 0, &a);
}

/* First and last key of every query by its position: i32 [B,T,2] of the device's batch and
 * shard. */
static val span_by_place(const site *t) {
  const hp_graph *from = t->s->r.from;
  const val *in = graph_in(from, t->n);
  int64_t queries = graph_value(from, in[0])->dim[1], keys = graph_value(from, in[1])->dim[1];
  int64_t window = attr_int(from, t->n, "window"), batch = graph_value(t->g, t->in[0])->dim[0];
  val at = binary(t, OP_ADD, index_along(t, queries), number(t, keys - queries));
  val last = at, first = binary(t, OP_MUL, at, number(t, 0));
  if (window > 0) first = binary(t, OP_MAX, binary(t, OP_SUB, at, number(t, window - 1)), first);
  if (!attr_int(from, t->n, "causal")) {
    val zero = binary(t, OP_MUL, at, number(t, 0));
    last = binary(t, OP_ADD, zero, number(t, keys - 1));
  }
  val pair = ops_concat(t->g, (val[]){first, last}, 2, 2);
  return own_shard(t, ops_broadcast(t->g, pair, (int64_t[]){batch, queries, 2}, 3), 1);
}

static val column(const site *t, val span, int which) {
  if (!span) return 0;
  const int64_t *dim = graph_value(t->g, span)->dim;
  int64_t start[3] = {0, 0, which}, stop[3] = {dim[0], dim[1], which + 1}, step[3] = {1, 1, 1};
  return ops_slice(t->g, span, start, stop, step);
}

/* How many of the global keys 0..k-1 are in the shard of the device at place `owner`: its keys
 * are one range, or one chunk from the front and one from the back, in order in both cases. */
static val keys_before(const site *t, val k, val owner) {
  int64_t rows = graph_value(t->g, t->in[1])->dim[1], run = t->deals ? rows / 2 : rows;
  val start = binary(t, OP_MUL, owner, number(t, run)), count = 0;
  for (int chunk = 0; chunk <= t->deals; chunk++) {
    if (chunk) start = binary(t, OP_SUB, number(t, (2 * t->devices - 1) * run), start);
    val n = binary(t, OP_MAX, binary(t, OP_SUB, k, start), number(t, 0));
    n = binary(t, OP_MIN, n, number(t, run));
    count = chunk ? binary(t, OP_ADD, count, n) : n;
  }
  return count;
}

/* The span among the keys that arrive in `step` steps. */
static val span_at(const site *t, int64_t step) {
  attr_record a = {0};
  if (!t->ring) return t->span;
  put_communicator(t, &a);
  val zero = number(t, -step), owner = ops_add(t->g, OP_PLACE, &zero, 1, &a);
  val around = binary(t, OP_ADD, owner, number(t, t->devices));
  owner = ops_select(t->g, binary(t, OP_LT, owner, number(t, 0)), around, owner);
  val first = keys_before(t, column(t, t->span, 0), owner);
  val stop = keys_before(t, binary(t, OP_ADD, column(t, t->span, 1), number(t, 1)), owner);
  val pair[2] = {first, binary(t, OP_SUB, stop, number(t, 1))};
  return ops_concat(t->g, pair, 2, 2);
}

static val attend(const site *t, val *in, int given) {
  const hp_graph *from = t->s->r.from;
  attr_record a = {0};
  attr_put_float(&a, attr_float(from, t->n, "scale"));
  attr_put_int(&a, 0);
  attr_put_int(&a, 0);
  attr_put_float(&a, 0);
  attr_put_int(&a, 0);
  return ops_add(t->g, t->n->op, in, given + 1, &a);
}

/* --- forward ---------------------------------------------------------------------------------- */

typedef struct {
  val o, lse; /* [B,T,H,D] and [B,H,T], f32 */
} seen;

/* [B,H,T] as a factor of [B,T,H,D]. */
static val by_row(const site *t, val x) {
  if (!x) return 0;
  val y = ops_transpose(t->g, x, (int64_t[]){0, 2, 1});
  if (!y) return 0;
  ir_value v = *graph_value(t->g, y);
  v.dim[v.rank] = 1;
  return ops_reshape(t->g, y, v.dim, v.rank + 1);
}

/* Both weighted by their keys' share of the sum.  A row without keys has lse -inf and o 0. */
static seen join(const site *t, seen a, seen b) {
  hp_graph *g = t->g;
  val least = ops_const(g, HP_F32, -1e30);
  val top = binary(t, OP_MAX, binary(t, OP_MAX, a.lse, b.lse), least);
  val wa = ops_unary(g, OP_EXP, binary(t, OP_SUB, a.lse, top));
  val wb = ops_unary(g, OP_EXP, binary(t, OP_SUB, b.lse, top));
  val sum = binary(t, OP_ADD, wa, wb);
  val some = binary(t, OP_MAX, sum, ops_const(g, HP_F32, 1e-30));
  wa = by_row(t, binary(t, OP_DIV, wa, some));
  wb = by_row(t, binary(t, OP_DIV, wb, some));
  val oa = binary(t, OP_MUL, a.o, wa), ob = binary(t, OP_MUL, b.o, wb);
  val lse = binary(t, OP_ADD, top, ops_unary(g, OP_LOG, sum));
  return (seen){binary(t, OP_ADD, oa, ob), lse};
}

static void forward(site *t, val out[OPS_OUT_MAX]) {
  hp_dtype type = (hp_dtype)graph_value(t->g, t->in[0])->dtype;
  val k = t->in[1], v = t->in[2];
  seen all = {0};
  for (int64_t step = 0; step < (t->ring ? t->devices : 1); step++) {
    k = permute(t, k, step > 0);
    v = permute(t, v, step > 0);
    val in[4] = {t->in[0], k, v, span_at(t, step)};
    val o = attend(t, in, 3);
    seen now = {t->ring ? ops_cast(t->g, o, HP_F32) : o, o ? o + 1 : 0};
    all = step ? join(t, all, now) : now;
  }
  out[0] = deal(t, ops_cast(t->g, all.o, type), 1, true);
  out[1] = deal(t, all.lse, 2, true);
}

/* --- backward --------------------------------------------------------------------------------- */

/* The contribution of a step to the gradients of another device's keys is sent back to it. */
static void backward(site *t, val out[OPS_OUT_MAX]) {
  hp_dtype type = (hp_dtype)graph_value(t->g, t->in[0])->dtype;
  val in[7];
  memcpy(in, t->in, sizeof in);
  for (int64_t step = 0; step < (t->ring ? t->devices : 1); step++) {
    for (int i = 1; i < 3; i++) in[i] = permute(t, in[i], step > 0);
    in[6] = span_at(t, step);
    val d = attend(t, in, 6);
    for (val i = 0; i < 3; i++) {
      val x = d ? d + i : 0;
      if (i && t->ring) x = permute(t, x, (t->devices - step) % t->devices);
      if (t->ring) x = ops_cast(t->g, x, HP_F32);
      out[i] = step ? binary(t, OP_ADD, out[i], x) : x;
    }
  }
  for (int i = 0; i < 3; i++) out[i] = deal(t, ops_cast(t->g, out[i], type), 1, true);
}

/* --- the node --------------------------------------------------------------------------------- */

static hp_status bring_operands(site *t) {
  const val *from = graph_in(t->s->r.from, t->n);
  for (int i = 0; i < t->n->n_in; i++) HP_TRY(shard_bring(t->s, from[i], &t->need[i], &t->in[i]));
  int64_t rows = graph_value(t->g, t->in[0])->dim[1], keys = graph_value(t->g, t->in[1])->dim[1];
  bool given = t->n->n_in > t->given;
  t->span = given ? t->in[t->given] : span_by_place(t);
  t->deals = t->ring && !given && attr_int(t->s->r.from, t->n, "causal") && rows % 2 == 0 &&
             keys == rows && t->devices > 1;
  for (int i = 0; i < t->given; i++) t->in[i] = deal(t, t->in[i], sequence_of(t, i), false);
  t->span = deal(t, t->span, 1, false);
  return graph_status(t->g);
}

hp_status shard_attention(shard *s, const ir_node *n) {
  const val *from = graph_in(s->r.from, n);
  layout queries = s->now[from[0]];
  site t = {.s = s, .g = s->r.to, .n = n, .queries = &queries};
  t.gradient = n->op == OP_ATTENTION_GRAD;
  t.given = t.gradient ? 6 : 3;
  t.ring = same_cut(&queries, 1, &s->now[from[1]], 1);
  t.devices = layout_shard_count(s->m, &queries, 1);
  rule *r = mem_calloc(1, sizeof *r);
  HP_TRY_MEM(r);
  hp_status st = decide(&t, r);
  mem_free(r);
  if (!st) st = bring_operands(&t);
  if (st) return st;
  val out[OPS_OUT_MAX] = {0};
  if (t.gradient) backward(&t, out);
  else forward(&t, out);
  for (int o = 0; o < n->n_out; o++) {
    val old = n->out0 + (val)o;
    s->r.map[old] = out[o];
    s->made[old] = s->now[old] = t.out[o];
  }
  return graph_status(s->r.to);
}
