/* Extends dims that layouts do not divide, in the global graph, before it is sharded: an input or
 * param gets the total length of its shards, and the values computed from it follow by the factor
 * rules.  So the sharding pass only sees dims that are divided.
 *
 * The values in padding are arbitrary; in params they are 0, and integers are valid indices.
 * Where a padded factor is reduced, its padding is replaced in all operands by the identity of
 * the reduction, because even 0 * NaN is not 0.  A dim can be extended only at its outermost
 * factor; where an op needs the true size, the padding is removed. */
#include "shard/shard_pad.h"

#include "shard/expand.h"
#include "shard/shard_state.h"
#include "shard/slices.h"

#include <math.h>
#include <string.h>

typedef struct {
  rewrite r;
  const shard_plan *plan;
  use_lists users;
  uint8_t *zero; /* by value of the original graph, a bit per dim: its padding, if any, is known to
                    be 0 */
  double true_flops, all_flops;
  /* of the current node */
  const ir_node *n;
  rule rule;
  int64_t size[RULE_FACTORS]; /* with padding */
  bool fixed[RULE_FACTORS];   /* must have its true size */
} padding;

static const ir_value *old_type(const padding *p, val v) { return graph_value(p->r.from, v); }
static const ir_value *new_type(const padding *p, val v) { return graph_value(p->r.to, v); }

/* --- one value -------------------------------------------------------------------------------- */

/* Extends what costs nothing to extend: constants, indices, and repeated values; 0 for other
 * ops. */
static val remade(padding *p, val x, const int64_t *dim) {
  const ir_node *n = graph_def(p->r.to, x);
  ir_value t = *new_type(p, x);
  if (n->op == OP_BROADCAST) {
    val from = graph_in(p->r.to, n)[0];
    const ir_value *f = new_type(p, from);
    for (int d = 0, k = f->rank - t.rank; d < t.rank; d++, k++)
      if (dim[d] != t.dim[d] && k >= 0 && f->dim[k] != 1) return 0;
    return ops_broadcast(p->r.to, from, dim, t.rank);
  }
  if (n->op != OP_CONST && n->op != OP_IOTA) return 0;
  memcpy(t.dim, dim, (size_t)t.rank * sizeof *dim);
  attr_record a = rule_local_attrs(p->r.to, n, &t);
  return ops_add(p->r.to, n->op, NULL, 0, &a);
}

/* Value x of the new graph with these dims, padded or truncated at the end; *zero: is its
 * padding 0? */
static val resized(padding *p, val x, const int64_t *dim, uint8_t *zero) {
  if (!x) return 0;
  ir_value t = *new_type(p, x);
  int64_t none[HP_MAX_RANK] = {0}, one[HP_MAX_RANK], less[HP_MAX_RANK], more[HP_MAX_RANK];
  bool shorter = false;
  uint8_t longer = 0;
  for (int d = 0; d < t.rank; d++) {
    one[d] = 1;
    less[d] = dim[d] < t.dim[d] ? dim[d] : t.dim[d];
    more[d] = dim[d] - less[d];
    shorter |= less[d] != t.dim[d];
    longer = (uint8_t)(longer | (more[d] != 0) << d);
  }
  if (shorter) x = ops_slice(p->r.to, x, none, less, one);
  if (!longer || !x) return x;
  val y = remade(p, x, dim);
  if (!y) return ops_pad(p->r.to, x, none, more, 0);
  *zero = (uint8_t)(*zero & ~longer);
  return y;
}

/* x with `value` after its first n elements along a dim. */
static val blanked(padding *p, val x, int dim, int64_t n, double value) {
  if (!x) return 0;
  hp_graph *g = p->r.to;
  ir_value t = *graph_value(g, x);
  int64_t shape[HP_MAX_RANK] = {t.dim[dim]};
  for (int d = dim + 1; d < t.rank; d++) shape[d - dim] = 1;
  attr_record a = {0};
  attr_put_int(&a, 0);
  attr_put_int(&a, HP_I64);
  attr_put_list(&a, shape, t.rank - dim);
  val index = ops_add(g, OP_IOTA, NULL, 0, &a);
  val inside = ops_binary(g, OP_LT, index, ops_const(g, HP_I64, (double)n));
  return ops_select(g, inside, x, ops_const(g, (hp_dtype)t.dtype, value));
}

/* x, the form of an original value, with 0 in all of its padding. */
static val with_zeros(padding *p, val old, val x, uint8_t zero) {
  ir_value t = *old_type(p, old);
  for (int d = 0; x && d < t.rank; d++)
    if (new_type(p, x)->dim[d] > t.dim[d] && !(zero >> d & 1)) x = blanked(p, x, d, t.dim[d], 0);
  return x;
}

/* Maps an original value to y; for the dims that are longer in y, `zero` says whether their
 * padding is 0. */
static void becomes(padding *p, val old, val y, uint8_t zero) {
  p->r.map[old] = y;
  for (int d = 0; y && d < old_type(p, old)->rank; d++)
    if (new_type(p, y)->dim[d] == old_type(p, old)->dim[d]) zero = (uint8_t)(zero | 1 << d);
  p->zero[old] = zero;
}

/* --- the factors of a node -------------------------------------------------------------------- */

/* The factor of a dim that may be extended: the outermost with more than one element. */
static int leading(const rule *r, const rule_tensor *t, int dim) {
  for (int k = 0; k < t->n[dim]; k++)
    if (r->factor[t->factor[dim][k]].size > 1) return t->factor[dim][k];
  return t->n[dim] ? t->factor[dim][0] : -1;
}

static const rule_tensor *tensor_of(const rule *r, int i) {
  return i < r->n_in ? &r->in[i] : &r->out[i - r->n_in];
}

static bool in_results(const rule *r, int f, bool all) {
  for (int o = 0; o < r->n_out; o++)
    if (rule_has(&r->out[o], f) != all) return !all;
  return all;
}

/* Ops over the last dim that padding with the smallest number does not change. */
static bool ignores_lowest(const padding *p, int f) {
  int op = p->n->op;
  const rule_tensor *x = &p->rule.in[0];
  return (op == OP_CROSS_ENTROPY || op == OP_SOFTMAX) && leading(&p->rule, x, x->rank - 1) == f;
}

/* The factors of attention's queries and keys; false: it needs their true numbers.  With as many
 * queries as keys, causal, no query sees padding; nor with a span. */
static bool sequence(const padding *p, int *queries, int *keys) {
  const ir_node *n = p->n;
  if (n->op != OP_ATTENTION && n->op != OP_ATTENTION_GRAD) return false;
  const val *in = graph_in(p->r.from, n);
  bool span = n->n_in > (n->op == OP_ATTENTION ? 3 : 6);
  bool causal =
      attr_int(p->r.from, n, "causal") && old_type(p, in[0])->dim[1] == old_type(p, in[1])->dim[1];
  *queries = leading(&p->rule, &p->rule.in[0], 1);
  *keys = leading(&p->rule, &p->rule.in[1], 1);
  return !p->plan->no_partial_sums && attr_float(p->r.from, n, "dropout") == 0 && (span || causal);
}

/* The factor of heads if random numbers are drawn for each: padding would change them.  -1:
 * none. */
static int counted_heads(const padding *p) {
  bool attends = p->n->op == OP_ATTENTION || p->n->op == OP_ATTENTION_GRAD;
  if (!attends || attr_float(p->r.from, p->n, "dropout") == 0) return -1;
  return leading(&p->rule, &p->rule.in[1], 2);
}

static void find_fixed(padding *p) {
  const rule *r = &p->rule;
  for (int f = 0; f < r->factors; f++) {
    p->size[f] = r->factor[f].size;
    bool reduces = r->factor[f].reduce != PARTIAL_NONE;
    p->fixed[f] = r->factor[f].replicated || (!reduces && !in_results(r, f, false));
    p->fixed[f] &= !ignores_lowest(p, f);
    /* padding would change the order of a sum, and its bits */
    p->fixed[f] |=
        p->plan->no_partial_sums && (reduces || r->factor[f].replicated) && !in_results(r, f, true);
  }
  int queries, keys;
  if (sequence(p, &queries, &keys)) p->fixed[queries] = p->fixed[keys] = false;
  int heads = counted_heads(p);
  if (heads >= 0) p->fixed[heads] = true;
  for (int i = 0; i < r->n_in + r->n_out; i++) {
    const rule_tensor *t = tensor_of(r, i);
    for (int d = 0; d < t->rank; d++)
      for (int k = 0, f = leading(r, t, d); k < t->n[d]; k++)
        if (t->factor[d][k] != f) p->fixed[t->factor[d][k]] = true;
  }
}

/* The factor gets the length of the operand in which it is longest. */
static void grow(padding *p, const rule_tensor *t, const ir_value *have) {
  for (int d = 0; !t->absent && d < t->rank; d++) {
    int f = leading(&p->rule, t, d);
    if (f < 0 || p->fixed[f] || !p->rule.factor[f].size) continue;
    int64_t rest = rule_dim_size(&p->rule, t, d) / p->rule.factor[f].size;
    int64_t size = rest ? have->dim[d] / rest : 0;
    if (size > p->size[f] && size * rest == have->dim[d]) p->size[f] = size;
  }
}

/* A query finds its keys by position, so both get the same length. */
static void grow_sequence(padding *p) {
  int q, k;
  if (!sequence(p, &q, &k)) return;
  if (p->rule.factor[q].size != p->rule.factor[k].size) return;
  if (p->size[q] < p->size[k]) p->size[q] = p->size[k];
  p->size[k] = p->size[q];
}

/* Factors that only results have get the length of a param that is combined with the result. */
static void grow_results(padding *p) {
  ir_value like = *old_type(p, p->n->out0);
  layout l;
  const rule_tensor *y = &p->rule.out[0];
  for (int d = 0; p->rule.n_out && d < y->rank; d++) {
    int f = leading(&p->rule, y, d), dim;
    if (f < 0 || !p->rule.factor[f].index || rule_find(&p->rule, f, &dim) < p->rule.n_in) continue;
    if (!shard_wanted(p->r.from, &p->users, p->plan, p->n->out0, &l)) return;
    for (int k = 0; k < y->rank; k++)
      like.dim[k] = layout_padded_size(p->plan->mesh, &l, k, like.dim[k]);
    grow(p, y, &like);
    return;
  }
}

static void padded_dims(const padding *p, const rule_tensor *t, const ir_value *old, int64_t *dim) {
  for (int d = 0; d < old->rank; d++) {
    int f = t->absent ? -1 : leading(&p->rule, t, d);
    dim[d] = old->dim[d];
    if (f >= 0 && p->size[f] != p->rule.factor[f].size)
      dim[d] = old->dim[d] / p->rule.factor[f].size * p->size[f];
  }
}

/* --- what a reduction must not see ------------------------------------------------------------ */

/* The identity of a maximum; for a loss, where a device may have nothing else, a finite number. */
static double lowest(const padding *p, int dtype) {
  if (dtype_is_float((hp_dtype)dtype) && p->n->op != OP_CROSS_ENTROPY) return -INFINITY;
  switch (dtype) {
  case HP_BOOL:
  case HP_U8: return 0;
  case HP_I32: return INT32_MIN;
  case HP_I64: return (double)INT64_MIN;
  case HP_F16: return -65504;
  default: return -0x1.fep127; /* the least bf16, also for f32 */
  }
}

/* Is the factor extended, and reduced in some result or treated as reduced? */
static bool to_blank(const padding *p, int f) {
  const rule *r = &p->rule;
  int queries, keys;
  if (p->size[f] == r->factor[f].size) return false;
  if (sequence(p, &queries, &keys) && f == keys) return true;
  return ignores_lowest(p, f) || (r->factor[f].reduce && !in_results(r, f, true));
}

/* Operand x of the node, padded, with the identity in the padding of reduced factors. */
static val without_padding(padding *p, const rule_tensor *t, val old, val x, uint8_t zero) {
  ir_value type = *old_type(p, old);
  for (int d = 0; !t->absent && d < t->rank; d++) {
    int f = leading(&p->rule, t, d);
    if (f < 0 || !to_blank(p, f)) continue;
    bool least = ignores_lowest(p, f) || p->rule.factor[f].reduce == PARTIAL_MAX;
    if (least || !(zero >> d & 1))
      x = blanked(p, x, d, type.dim[d], least ? lowest(p, type.dtype) : 0);
  }
  return x;
}

/* Padding stays 0 in ops that only move elements: padding of the result if all operands have it. */
static uint8_t zeros_after(const padding *p, const uint8_t *zero) {
  int op = p->n->op;
  const rule *r = &p->rule;
  uint8_t after = 0;
  if (op_table[op].linearity != LIN_MOVE && op != OP_CAST && op != OP_UPDATE) return 0;
  for (int d = 0; d < r->out[0].rank; d++) {
    int f = leading(r, &r->out[0], d);
    bool all = true;
    for (int i = 0; i < r->n_in; i++)
      for (int k = 0; k < r->in[i].rank; k++)
        if (f >= 0 && leading(r, &r->in[i], k) == f) all &= zero[i] >> k & 1;
    after = (uint8_t)(after | all << d);
  }
  return after;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static hp_status operands(padding *p, val *in, uint8_t *zero) {
  const val *old = graph_in(p->r.from, p->n);
  for (int i = 0; i < p->n->n_in; i++) {
    const rule_tensor *t = &p->rule.in[i];
    int64_t dim[HP_MAX_RANK];
    padded_dims(p, t, old_type(p, old[i]), dim);
    zero[i] = p->zero[old[i]];
    in[i] = resized(p, p->r.map[old[i]], dim, &zero[i]);
    in[i] = without_padding(p, t, old[i], in[i], zero[i]);
  }
  if (p->n->op == OP_UPDATE) { /* an update of something that is 0 */
    in[1] = with_zeros(p, old[1], in[1], zero[1]);
    zero[1] = 0xff;
  }
  return graph_status(p->r.to);
}

static hp_status by_rule(padding *p) {
  const ir_node *n = p->n;
  const val *old = graph_in(p->r.from, n);
  val in[RULE_TENSORS];
  uint8_t zero[RULE_TENSORS];
  HP_TRY(rule_of_node(p->r.from, n, &p->rule));
  find_fixed(p);
  for (int i = 0; i < n->n_in; i++) grow(p, &p->rule.in[i], new_type(p, p->r.map[old[i]]));
  grow_sequence(p);
  grow_results(p);
  HP_TRY(operands(p, in, zero));
  ir_value out = *old_type(p, n->out0);
  padded_dims(p, &p->rule.out[0], old_type(p, n->out0), out.dim);
  attr_record a = rule_local_attrs(p->r.from, n, &out);
  val y = ops_add(p->r.to, n->op, in, n->n_in, &a);
  HP_TRY(graph_status(p->r.to));
  p->true_flops += op_meanings[n->op].cost(p->r.from, n).flops;
  p->all_flops += op_meanings[n->op].cost(p->r.to, graph_def(p->r.to, y)).flops;
  becomes(p, n->out0, y, zeros_after(p, zero));
  for (val k = 1; k < n->n_out; k++) becomes(p, n->out0 + k, y + k, 0);
  return HP_OK;
}

static hp_status leaf(padding *p, const ir_node *n) {
  ir_value t = *old_type(p, n->out0);
  const char *name = attr_str(p->r.from, n, "name");
  layout l;
  bool declared = shard_declared(p->r.from, p->plan, n, &l);
  for (int d = 0; declared && d < t.rank; d++)
    t.dim[d] = layout_padded_size(p->plan->mesh, &l, d, t.dim[d]);
  val y = ops_leaf(p->r.to, n->op, name, (hp_dtype)t.dtype, t.dim, t.rank);
  becomes(p, n->out0, y, n->op == OP_PARAM ? 0xff : 0);
  return graph_status(p->r.to);
}

/* Extends the type so that the layout that is declared for the name divides it. */
static hp_status visit_annotation(padding *p, const ir_node *n) {
  val old = graph_in(p->r.from, n)[0], x = p->r.map[old];
  ir_value t = *old_type(p, old), to = *new_type(p, x);
  uint8_t zero = p->zero[old];
  layout l;
  bool declared = shard_declared(p->r.from, p->plan, n, &l);
  for (int d = 0; declared && d < t.rank; d++)
    if (to.dim[d] % layout_shard_count(p->plan->mesh, &l, d) || l.shard_size[d])
      to.dim[d] = layout_padded_size(p->plan->mesh, &l, d, t.dim[d]);
  attr_record a = rule_local_attrs(p->r.from, n, &t);
  x = resized(p, x, to.dim, &zero);
  becomes(p, n->out0, ops_add(p->r.to, n->op, &x, 1, &a), zero);
  return graph_status(p->r.to);
}

/* The padding of a param is 0 after a run, too. */
static hp_status effect(padding *p, const ir_node *n) {
  const val *old = graph_in(p->r.from, n);
  if (n->op != OP_ASSIGN) {
    ops_output(p->r.to, attr_str(p->r.from, n, "name"), p->r.map[old[0]]);
    return graph_status(p->r.to);
  }
  uint8_t zero = p->zero[old[1]];
  ir_value to = *new_type(p, p->r.map[old[0]]);
  val x = resized(p, p->r.map[old[1]], to.dim, &zero);
  ops_assign(p->r.to, p->r.map[old[0]], with_zeros(p, old[1], x, zero));
  return graph_status(p->r.to);
}

/* --- nodes that are written in other ops ------------------------------------------------------ */

/* A norm counts its elements; query heads are in groups, which may not be split. */
static bool expands(const padding *p, const ir_node *n) {
  const val *in = graph_in(p->r.from, n);
  if (n->op == OP_RMS_NORM || n->op == OP_LAYER_NORM) {
    const ir_value *x = old_type(p, in[0]);
    return new_type(p, p->r.map[in[0]])->dim[x->rank - 1] != x->dim[x->rank - 1];
  }
  if (n->op != OP_ATTENTION && n->op != OP_ATTENTION_GRAD) return false;
  if (p->plan->no_partial_sums) return false; /* summing in groups has another order */
  int64_t group = old_type(p, in[0])->dim[2] / old_type(p, in[1])->dim[2];
  return new_type(p, p->r.map[in[0]])->dim[2] % group != 0;
}

static hp_status pad_begin(padding *p, const hp_graph *g) {
  p->r.from = g;
  p->r.map = mem_calloc(g->values.len, sizeof *p->r.map);
  p->zero = mem_calloc(g->values.len, sizeof *p->zero);
  HP_TRY(use_lists_build(g, &p->users));
  return p->r.map && p->zero ? HP_OK : HP_ERR_OOM;
}

static void pad_end(padding *p) {
  use_lists_free(&p->users);
  mem_free(p->zero);
  mem_free(p->r.map);
}

static hp_status pad_node(padding *p, const ir_node *n);

static hp_status pad_inner(padding *p, padding *inner, const val *outer) {
  const hp_graph *g = inner->r.from;
  for (uint32_t i = 0, k = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (n->op != OP_INPUT) {
      HP_TRY(pad_node(inner, n));
      continue;
    }
    inner->r.map[n->out0] = p->r.map[outer[k]];
    inner->zero[n->out0] = p->zero[outer[k++]];
  }
  return HP_OK;
}

static hp_status expanded(padding *p, const ir_node *n) {
  val out[OPS_OUT_MAX];
  hp_graph *g;
  HP_TRY(expand_node(p->r.from, n, &g, out));
  padding *inner = mem_calloc(1, sizeof *inner);
  hp_status st = inner ? HP_OK : HP_ERR_OOM;
  if (inner) {
    *inner = (padding){.r = {.to = p->r.to}, .plan = p->plan};
    st = pad_begin(inner, g);
    if (!st) st = pad_inner(p, inner, graph_in(p->r.from, n));
    for (val k = 0; !st && k < n->n_out; k++)
      becomes(p, n->out0 + k, inner->r.map[out[k]], inner->zero[out[k]]);
    p->true_flops += inner->true_flops;
    p->all_flops += inner->all_flops;
    pad_end(inner);
  }
  mem_free(inner);
  graph_free(g);
  return st;
}

static hp_status pad_node(padding *p, const ir_node *n) {
  p->n = n;
  rewrite_place(&p->r, n);
  if (n->op == OP_INPUT || n->op == OP_PARAM) return leaf(p, n);
  if (n->op == OP_ANNOTATE) return visit_annotation(p, n);
  if (!n->n_out) return effect(p, n);
  return expands(p, n) ? expanded(p, n) : by_rule(p);
}

/* --- the graph -------------------------------------------------------------------------------- */

/* Sets *out if the layout that is declared for the node does not divide its dims. */
static hp_status find_uneven(const hp_graph *g, const shard_plan *plan, const ir_node *n,
                             bool *out) {
  if (n->op != OP_INPUT && n->op != OP_PARAM && n->op != OP_ANNOTATE) return HP_OK;
  const ir_value *t = graph_value(g, n->out0);
  const char *name = attr_str(g, n, "name");
  layout l;
  if (!shard_declared(g, plan, n, &l)) return HP_OK;
  HP_TRY(shard_check_layout(plan->mesh, name, t, &l, n->op == OP_PARAM));
  for (int d = 0; d < t->rank; d++)
    *out |= layout_padded_size(plan->mesh, &l, d, t->dim[d]) != t->dim[d];
  return HP_OK;
}

static hp_status true_types(const hp_graph *g, padded *p) {
  p->was = mem_calloc(p->graph->values.len, sizeof *p->was);
  HP_TRY_MEM(p->was);
  for (val v = 1; v < g->values.len; v++) p->was[p->of[v]] = *graph_value(g, v);
  return HP_OK;
}

hp_status shard_pad(const hp_graph *g, const shard_plan *plan, padded *out) {
  bool uneven = false;
  *out = (padded){0};
  for (uint32_t i = 0; i < g->nodes.len; i++)
    HP_TRY(find_uneven(g, plan, graph_node(g, i), &uneven));
  if (!uneven) return HP_OK;
  padding *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  p->plan = plan;
  hp_status st = graph_create(g, &p->r.to);
  if (!st) st = pad_begin(p, g);
  for (uint32_t i = 0; i < g->nodes.len && !st; i++) st = pad_node(p, graph_node(g, i));
  *out = (padded){p->r.to, p->r.map, NULL, p->true_flops, p->all_flops};
  p->r.map = NULL;
  pad_end(p);
  mem_free(p);
  if (!st) st = true_types(g, out);
  if (st) padded_free(out);
  return st;
}

void padded_free(padded *p) {
  graph_free(p->graph);
  mem_free(p->of);
  mem_free(p->was);
  *p = (padded){0};
}
