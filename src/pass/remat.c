/* remat: forward values of a block (a layer) that its backward recomputes instead of keeping them:
 * their nodes are cloned into the backward, directly before the first node of the block that reads
 * them.  The clones do the same arithmetic on the same values, so no bit changes.
 *
 * Cheap values always: elementwise ops of values that the backward has anyway.  With gradient
 * checkpointing, all values of a block: only its inputs are kept.  It may be limited to some
 * places of the model, and to the first blocks of each stage, whose values are kept longest. */
#include "base/place.h"
#include "ops/ops.h"
#include "pass/pass.h"

/* A value with this many times fewer bytes than the values computed from it is kept for this
 * purpose: the per-row numbers of a norm. */
enum { LITTLE = 16 };

/* A node that is being cloned; operands before `next` are done. */
typedef struct {
  uint32_t node;
  int next;
} pending;

typedef struct {
  rewrite r;
  bool *again;        /* by original node: the backward recomputes its values */
  val *clone;         /* new id of the clone of an original value, 0 = none */
  VEC(pending) stack; /* a chain may be as long as the graph: no recursion */
} remat;

/* read[v]: the backward reads original value v. */
static void mark_read(const hp_graph *g, bool *read) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    for (int k = 0; n->phase == PHASE_BACKWARD && k < n->n_in; k++) read[graph_in(g, n)[k]] = true;
  }
}

/* Can a loop of the backward recompute node n without anything large being kept for it?  Its
 * operands are kept for other nodes, or recomputed in the same way.  From params alone it is not
 * worthwhile: a param would be read completely once more. */
static bool is_cheap(const remat *m, const bool *read, const ir_node *n) {
  const hp_graph *g = m->r.from;
  bool inner = false;
  if (!(op_flags((op_id)n->op) & OPF_ELEMENTWISE)) return false;
  int64_t bytes = value_bytes(graph_value(g, n->out0));
  for (int k = 0; k < n->n_in; k++) {
    const ir_value *x = graph_value(g, graph_in(g, n)[k]);
    if (!graph_node(g, x->def)->n_in) continue;
    bool there = read[graph_in(g, n)[k]] || m->again[x->def];
    if (!there && value_bytes(x) > bytes / LITTLE) return false;
    inner |= there;
  }
  return inner;
}

/* Which nodes are recomputed whatever they cost. */
typedef struct {
  const hp_compile_options *o;
  uint32_t *rank;  /* [UINT16_MAX + 1] of a block among those of its stage, from 1 */
  uint32_t *count; /* [UINT16_MAX + 1] blocks of a stage so far */
  uint32_t loc;    /* the last place that was compared, */
  bool matches;    /* and whether it does */
} wanted;

static bool is_wanted(wanted *w, const hp_graph *g, const ir_node *n) {
  if (!w->o->remat) return false;
  if (!w->rank[n->block]) w->rank[n->block] = ++w->count[n->stage];
  if (w->o->remat_blocks && w->rank[n->block] > (uint32_t)w->o->remat_blocks) return false;
  if (!w->o->remat_places) return true;
  if (n->loc != w->loc) w->matches = place_matches_any(w->o->remat_places, graph_str(g, n->loc));
  w->loc = n->loc;
  return w->matches;
}

static void mark_again(remat *m, wanted *w, const bool *read) {
  const hp_graph *g = m->r.from;
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (n->block && n->phase == PHASE_FORWARD && n->n_in)
      m->again[i] = is_wanted(w, g, n) || is_cheap(m, read, n);
  }
}

static hp_status choose(remat *m, const hp_compile_options *o) {
  const hp_graph *g = m->r.from;
  bool *read = mem_calloc(g->values.len, sizeof *read);
  wanted w = {.o = o,
              .rank = mem_calloc(UINT16_MAX + 1, sizeof *w.rank),
              .count = mem_calloc(UINT16_MAX + 1, sizeof *w.count)};
  hp_status st = read && w.rank && w.count ? HP_OK : HP_ERR_OOM;
  if (!st) {
    mark_read(g, read);
    mark_again(m, &w, read);
  }
  mem_free(read);
  mem_free(w.rank);
  mem_free(w.count);
  return st;
}

/* Does the backward of block `block` recompute the value of node d? */
static bool is_cloned(const remat *m, uint32_t d, int block) {
  return m->again[d] && graph_node(m->r.from, d)->block == block;
}

/* The value for use in the backward of a block. */
static val operand(const remat *m, val old, int block) {
  return is_cloned(m, graph_value(m->r.from, old)->def, block) ? m->clone[old] : m->r.map[old];
}

/* Pushes the node of a value that must be cloned first. */
static hp_status want(remat *m, val old, int block) {
  uint32_t node = graph_value(m->r.from, old)->def;
  if (!is_cloned(m, node, block) || m->clone[old]) return HP_OK;
  return vec_push(&m->stack, ((pending){node, 0})) ? HP_OK : HP_ERR_OOM;
}

/* Appends node d with operands for the backward of `block`; returns its first result. */
static val append(remat *m, const ir_node *d, const ir_node *like, int block) {
  val in[255];
  for (int i = 0; i < d->n_in; i++) in[i] = operand(m, graph_in(m->r.from, d)[i], block);
  return graph_add_like(m->r.to, m->r.from, like, in);
}

/* Clones all that value `old`, which node n of the backward reads, is computed from, operands
 * first. The clones are of n's stage: what layers of several stages share was made by the first of
 * them, whose backward is the last. */
static hp_status clone_chain(remat *m, val old, const ir_node *n) {
  const int block = n->block;
  HP_TRY(want(m, old, block));
  while (m->stack.len) {
    pending *top = &m->stack.at[m->stack.len - 1];
    const ir_node *d = graph_node(m->r.from, top->node);
    if (top->next < d->n_in) {
      HP_TRY(want(m, graph_in(m->r.from, d)[top->next++], block));
      continue;
    }
    m->stack.len--;
    if (m->clone[d->out0]) continue; /* the same operand twice */
    ir_node like = *d;
    like.phase = PHASE_BACKWARD;
    like.stage = n->stage;
    like.recomputed = graph_all_results(d->n_out);
    val v = append(m, d, &like, block);
    HP_TRY(graph_status(m->r.to));
    for (int i = 0; i < d->n_out; i++) m->clone[d->out0 + (val)i] = v + (val)i;
  }
  return HP_OK;
}

/* A node of a block's backward reads the clones. */
static hp_status rewrite_backward(remat *m, uint32_t index) {
  const ir_node *n = graph_node(m->r.from, index);
  for (int k = 0; k < n->n_in; k++) HP_TRY(clone_chain(m, graph_in(m->r.from, n)[k], n));
  val v = append(m, n, n, n->block);
  for (int k = 0; k < n->n_out; k++) m->r.map[n->out0 + (val)k] = v ? v + (val)k : 0;
  return HP_OK;
}

hp_status pass_remat(const hp_graph *in, const pass_options *o, hp_graph **out) {
  remat m = {0};
  if (o->options->remat_blocks < 0)
    HP_FAIL(HP_ERR_ARG, "remat_blocks is %d; expected a number of blocks of each stage, 0: all",
            o->options->remat_blocks);
  HP_TRY(rewrite_begin(&m.r, in));
  m.again = mem_calloc(in->nodes.len, sizeof *m.again);
  m.clone = mem_calloc(in->values.len, sizeof *m.clone);
  hp_status st = m.again && m.clone ? choose(&m, o->options) : HP_ERR_OOM;
  for (uint32_t i = 0; !st && i < in->nodes.len; i++) {
    const ir_node *n = graph_node(in, i);
    if (n->phase == PHASE_BACKWARD && n->block) st = rewrite_backward(&m, i);
    else rewrite_copy(&m.r, i);
  }
  mem_free(m.again);
  mem_free(m.clone);
  vec_free(&m.stack);
  return rewrite_end_live(&m.r, st, out);
}
