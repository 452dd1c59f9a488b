/* accumulate: sums into a tensor of the device are computed as soon as the summand exists.
 *
 * An addition of a param and a value moves directly behind the value; if the value is a
 * contraction that no other node reads, its chains start from the param instead.  So gradients
 * of a micro-batch never exist next to the sums that they are added to.  In the same way the
 * gradient of an embedding is added row by row to its sum, such as the gradient of a tied head.
 * This is the first pass: later ones recompute, split and reorder, and change no bit of these
 * chains. */
#include "ops/ops.h"
#include "pass/pass.h"

typedef struct {
  rewrite r;
  use_lists uses;
  uint32_t *sum_of; /* by value: 1 + the addition that follows it directly; 0: none */
  /* by node, an addition of rows: the sum with a param that the rows also belong to; 0: none */
  val *becomes;
} accumulation;

static bool is_param(const hp_graph *g, val v) { return graph_def(g, v)->op == OP_PARAM; }

/* The value that addition n sums into a param; 0: it is another addition. */
static val term_of(const hp_graph *g, const ir_node *n) {
  if (n->op != OP_ADD) return 0;
  const val *in = graph_in(g, n);
  val x = in[is_param(g, in[0])], param = in[!is_param(g, in[0])];
  bool made = graph_def(g, x)->n_in > 0 && is_param(g, param);
  const ir_value *t = graph_value(g, x), *p = graph_value(g, param);
  return made && t->dtype == p->dtype && value_same_shape(t, p) ? x : 0;
}

static val param_of(const hp_graph *g, const ir_node *sum) {
  const val *in = graph_in(g, sum);
  return in[!is_param(g, in[0])];
}

static bool read_once(const accumulation *a, val v) {
  return a->uses.use0[v + 1] - a->uses.use0[v] == 1;
}

/* May the sums of node n, whose result is added to something, start from that? */
static bool starts_from_other(const accumulation *a, const ir_node *n) {
  return (n->op == OP_EINSUM || n->op == OP_EMBEDDING_GRAD) && n->n_in == 2 &&
         graph_value(a->r.from, n->out0)->dtype == HP_F32 && read_once(a, n->out0);
}

/* The gradient of an embedding that addition n adds to another value, *other; NULL: none. */
static const ir_node *rows_of(const accumulation *a, const ir_node *n, val *other) {
  const hp_graph *g = a->r.from;
  for (int k = 0; n->op == OP_ADD && k < 2; k++) {
    const val *in = graph_in(g, n);
    const ir_node *rows = graph_def(g, in[k]);
    const ir_value *x = graph_value(g, in[k]), *y = graph_value(g, in[1 - k]);
    *other = in[1 - k];
    if (rows->op == OP_EMBEDDING_GRAD && starts_from_other(a, rows) && !is_param(g, *other) &&
        x->dtype == y->dtype && value_same_shape(x, y))
      return rows;
  }
  return NULL;
}

/* The result of node n, summed onto `start`, a value of the new graph. */
static val emit_onto(accumulation *a, const ir_node *n, val start) {
  const hp_graph *g = a->r.from;
  const val x = a->r.map[graph_in(g, n)[0]], y = a->r.map[graph_in(g, n)[1]];
  HP_ASSERT(start || a->r.to->failure.code);
  rewrite_place(&a->r, n);
  if (n->op == OP_EINSUM) return ops_einsum_onto(a->r.to, attr_str(g, n, "eq"), x, y, start);
  return ops_embedding_grad(a->r.to, x, y, start, attr_int(g, n, "rows"));
}

/* The sum of the param and x: x exists already, or its sums may start from the param. */
static void emit_sum(accumulation *a, val x, uint32_t sum) {
  const hp_graph *g = a->r.from;
  const ir_node *def = graph_def(g, x), *add = graph_node(g, sum);
  val param = param_of(g, add);
  if (!a->r.map[param]) rewrite_copy(&a->r, graph_value(g, param)->def);
  if (starts_from_other(a, def)) {
    a->r.map[add->out0] = emit_onto(a, def, a->r.map[param]);
    return;
  }
  bool first = is_param(g, graph_in(g, add)[0]);
  const val pair[2] = {a->r.map[first ? param : x], a->r.map[first ? x : param]};
  a->r.map[add->out0] = graph_add_like(a->r.to, g, add, pair);
}

/* An addition of an embedding's gradient: its rows are added to the other value or, if that was
 * summed into a param before, to their sum. */
static void emit_rows(accumulation *a, uint32_t i, const ir_node *rows, val other) {
  val sum = a->becomes[i] ? a->becomes[i] : graph_node(a->r.from, i)->out0;
  a->r.map[sum] = emit_onto(a, rows, a->r.map[a->becomes[i] ? sum : other]);
}

/* Is node n the gradient of an embedding that an addition computes, onto the other value? */
static bool is_added(const accumulation *a, const ir_node *n) {
  val other;
  if (n->op != OP_EMBEDDING_GRAD || !starts_from_other(a, n)) return false;
  const ir_node *user = graph_node(a->r.from, a->uses.use[a->uses.use0[n->out0]]);
  return rows_of(a, user, &other) == n;
}

static void emit(accumulation *a, uint32_t i) {
  const ir_node *n = graph_node(a->r.from, i);
  bool early = n->n_out && a->r.map[n->out0]; /* a param, or a sum */
  uint32_t sum = n->n_out ? a->sum_of[n->out0] : 0;
  val other;
  const ir_node *rows = rows_of(a, n, &other);
  if (early || is_added(a, n)) return;
  if (rows) emit_rows(a, i, rows, other);
  else if (!sum || !starts_from_other(a, n)) rewrite_copy(&a->r, i);
  for (int k = 0; k < n->n_out; k++) {
    val x = n->out0 + (val)k;
    if (a->sum_of[x]) emit_sum(a, x, a->sum_of[x] - 1);
  }
}

/* Is x the result of an addition of rows that only one sum reads?  *other: the value to which
 * the rows are added.  Not where that is made on another stage of a pipeline: rows of other
 * micro-batches run between the two, and would miss what the sum has got so far. */
static bool is_rows_sum(const accumulation *a, val x, uint16_t stage, val *other) {
  const hp_graph *g = a->r.from;
  if (!read_once(a, x) || !rows_of(a, graph_def(g, x), other)) return false;
  const ir_node *made = graph_def(g, *other);
  return made->n_in && made->stage == stage;
}

/* Addition i of a param and x: it follows x or, if x is an addition of rows, the value to which
 * the rows are added, unless that precedes a sum of its own. */
static void place_sum(accumulation *a, uint32_t i, val x) {
  const hp_graph *g = a->r.from;
  const uint16_t stage = graph_node(g, i)->stage;
  val first = x, other;
  while (is_rows_sum(a, first, stage, &other)) first = other;
  if (a->sum_of[first]) first = x;
  if (a->sum_of[first]) return;
  a->sum_of[first] = i + 1;
  for (; x != first && is_rows_sum(a, x, stage, &other); x = other)
    a->becomes[graph_value(g, x)->def] = graph_node(g, i)->out0;
}

hp_status pass_accumulate(const hp_graph *in, const pass_options *o, hp_graph **out) {
  accumulation a = {0};
  (void)o;
  HP_TRY(rewrite_begin(&a.r, in));
  hp_status st = use_lists_build(in, &a.uses);
  a.sum_of = mem_calloc(in->values.len, sizeof *a.sum_of);
  a.becomes = mem_calloc(in->nodes.len, sizeof *a.becomes);
  if (!st && (!a.sum_of || !a.becomes)) st = HP_ERR_OOM;
  for (uint32_t i = 0; !st && i < in->nodes.len; i++) {
    val x = term_of(in, graph_node(in, i));
    if (x) place_sum(&a, i, x);
  }
  for (uint32_t i = 0; !st && i < in->nodes.len; i++) emit(&a, i);
  use_lists_free(&a.uses);
  mem_free(a.sum_of);
  mem_free(a.becomes);
  return rewrite_end(&a.r, st, out);
}
