/* accumulate: what is summed into a tensor of the device is summed as soon as it is made.
 *
 * An addition of a param and a value comes right after the value; where the value is a contraction
 * that nothing else reads, its chains start from the param instead.  So gradients of a micro-batch
 * are nowhere beside those that they are added to.  It is the first pass: what recomputes, cuts or
 * orders comes later and changes no bit of these chains. */
#include "ops/ops.h"
#include "pass/pass.h"

typedef struct {
  rewrite r;
  use_lists uses;
  uint32_t *sum_of; /* by value: the addition that comes right after it + 1; 0: none */
} accumulation;

static bool is_param(const hp_graph *g, val v) { return graph_def(g, v)->op == OP_PARAM; }

/* The value that addition n sums into a param, 0: it is no such addition. */
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

/* May the chains of node n, whose result is summed, start from the param? */
static bool starts_from_param(const accumulation *a, const ir_node *n) {
  return n->op == OP_EINSUM && n->n_in == 2 && graph_value(a->r.from, n->out0)->dtype == HP_F32 &&
         a->uses.use0[n->out0 + 1] - a->uses.use0[n->out0] == 1;
}

/* Node n, which makes `x`, and its sum with the param. */
static void emit_sum(accumulation *a, uint32_t n, uint32_t sum) {
  const hp_graph *g = a->r.from;
  const ir_node *def = graph_node(g, n), *add = graph_node(g, sum);
  const val *in = graph_in(g, def);
  val param = param_of(g, add);
  if (!a->r.map[param]) rewrite_copy(&a->r, graph_value(g, param)->def);
  if (!starts_from_param(a, def)) {
    rewrite_copy(&a->r, sum);
    return;
  }
  rewrite_place(&a->r, def);
  a->r.map[add->out0] = ops_einsum_onto(a->r.to, attr_str(g, def, "eq"), a->r.map[in[0]],
                                        a->r.map[in[1]], a->r.map[param]);
}

static void emit(accumulation *a, uint32_t i) {
  const ir_node *n = graph_node(a->r.from, i);
  bool early = n->n_out && a->r.map[n->out0]; /* a param, or a sum */
  uint32_t sum = n->n_out ? a->sum_of[n->out0] : 0;
  if (early) return;
  if (!sum || !starts_from_param(a, n)) rewrite_copy(&a->r, i);
  for (int k = 0; k < n->n_out; k++) {
    sum = a->sum_of[n->out0 + (val)k];
    if (sum) emit_sum(a, i, sum - 1);
  }
}

hp_status pass_accumulate(const hp_graph *in, const pass_options *o, hp_graph **out) {
  accumulation a = {0};
  (void)o;
  HP_TRY(rewrite_begin(&a.r, in));
  hp_status st = use_lists_build(in, &a.uses);
  a.sum_of = mem_calloc(in->values.len, sizeof *a.sum_of);
  if (!st && !a.sum_of) st = HP_ERR_OOM;
  for (uint32_t i = 0; !st && i < in->nodes.len; i++) {
    val x = term_of(in, graph_node(in, i));
    if (x && !a.sum_of[x]) a.sum_of[x] = i + 1;
  }
  for (uint32_t i = 0; !st && i < in->nodes.len; i++) emit(&a, i);
  use_lists_free(&a.uses);
  mem_free(a.sum_of);
  return rewrite_end(&a.r, st, out);
}
