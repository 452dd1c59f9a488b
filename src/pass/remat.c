/* remat: gradient checkpointing.  Inside a block (a layer), forward values that only its backward
 * reads are not kept: their nodes are cloned into the backward, right before its first node of the
 * block.  What enters a block from outside is kept.  The clones do the same arithmetic on the same
 * values, so no bit changes. */
#include "ops/ops.h"
#include "pass/pass.h"

/* A node that is being cloned, once its operands from `next` on are. */
typedef struct {
  uint32_t node;
  int next;
} pending;

typedef struct {
  rewrite r;
  val *clone;         /* new id of the clone of an old value, 0 = none */
  VEC(pending) stack; /* a chain may be as long as the graph: no recursion */
} remat;

/* May the value of node d be computed again in the backward of block `block`? */
static bool may_clone(const ir_node *d, int block) {
  return d->block == block && d->phase == PHASE_FORWARD && d->n_in > 0;
}

/* The value to be used in the backward of a block: a clone of forward values of the same block. */
static val operand(const remat *m, val old, int block) {
  return may_clone(graph_def(m->r.from, old), block) ? m->clone[old] : m->r.map[old];
}

/* Pushes the node of a value that must be cloned first. */
static hp_status want(remat *m, val old, int block) {
  uint32_t node = graph_value(m->r.from, old)->def;
  if (!may_clone(graph_node(m->r.from, node), block) || m->clone[old]) return HP_OK;
  return vec_push(&m->stack, ((pending){node, 0})) ? HP_OK : HP_ERR_OOM;
}

/* Appends node d with operands for the backward of `block`; returns its first result. */
static val append(remat *m, const ir_node *d, const ir_node *like, int block) {
  val in[255];
  for (int i = 0; i < d->n_in; i++) in[i] = operand(m, graph_in(m->r.from, d)[i], block);
  return graph_add_like(m->r.to, m->r.from, like, in);
}

/* Clones all that value `old` is computed from in its block, operands first. */
static hp_status clone_chain(remat *m, val old, int block) {
  HP_TRY(want(m, old, block));
  while (m->stack.len) {
    pending *top = &m->stack.at[m->stack.len - 1];
    const ir_node *d = graph_node(m->r.from, top->node);
    if (top->next < d->n_in) {
      HP_TRY(want(m, graph_in(m->r.from, d)[top->next++], block));
      continue;
    }
    m->stack.len--;
    if (m->clone[d->out0]) continue; /* an operand twice */
    ir_node like = *d;
    like.phase = PHASE_BACKWARD;
    val v = append(m, d, &like, block);
    HP_TRY(graph_status(m->r.to));
    for (int i = 0; i < d->n_out; i++) m->clone[d->out0 + (val)i] = v + (val)i;
  }
  return HP_OK;
}

/* A node of a block's backward: it reads clones. */
static hp_status rewrite_backward(remat *m, uint32_t index) {
  const ir_node *n = graph_node(m->r.from, index);
  for (int k = 0; k < n->n_in; k++) HP_TRY(clone_chain(m, graph_in(m->r.from, n)[k], n->block));
  val v = append(m, n, n, n->block);
  for (int k = 0; k < n->n_out; k++) m->r.map[n->out0 + (val)k] = v ? v + (val)k : 0;
  return HP_OK;
}

hp_status pass_remat(const hp_graph *in, const pass_options *o, hp_graph **out) {
  remat m = {0};
  HP_TRY(rewrite_begin(&m.r, in));
  hp_status st = HP_OK;
  m.clone = mem_calloc(in->values.len, sizeof *m.clone);
  if (!m.clone) st = HP_ERR_OOM;
  for (uint32_t i = 0; !st && i < in->nodes.len; i++) {
    const ir_node *n = graph_node(in, i);
    if (o->remat && n->phase == PHASE_BACKWARD && n->block) st = rewrite_backward(&m, i);
    else rewrite_copy(&m.r, i);
  }
  mem_free(m.clone);
  vec_free(&m.stack);
  return rewrite_end_live(&m.r, st, out);
}
