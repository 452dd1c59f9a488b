/* remat: gradient checkpointing.  Inside a block (a layer), forward values that only its backward
 * reads are not kept: their nodes are cloned into the backward, right before its first node of the
 * block.  What enters a block from outside is kept.  The clones do the same arithmetic on the same
 * values, so no bit changes. */
#include "ops/ops.h"
#include "pass/pass.h"

typedef struct {
  rewrite r;
  val *clone; /* new id of the clone of an old value, 0 = none */
} remat;

/* May the value of node d be computed again in the backward of block `block`? */
static bool may_clone(const ir_node *d, int block) {
  return d->block == block && d->phase == PHASE_FORWARD && d->n_in > 0;
}

/* The value to be used in the backward of a block: a clone of forward values of the same block. */
static val operand(remat *m, val old, int block) {
  const hp_graph *from = m->r.from;
  const ir_node *d = graph_def(from, old);
  if (!may_clone(d, block)) return m->r.map[old];
  if (m->clone[old]) return m->clone[old];
  val in[255];
  for (int i = 0; i < d->n_in; i++) in[i] = operand(m, graph_in(from, d)[i], block);
  ir_node like = *d;
  like.phase = PHASE_BACKWARD;
  val v = graph_add_like(m->r.to, from, &like, in);
  for (int i = 0; i < d->n_out; i++) m->clone[d->out0 + (val)i] = v ? v + (val)i : 0;
  return m->clone[old];
}

hp_status pass_remat(const hp_graph *in, const pass_options *o, hp_graph **out) {
  remat m = {0};
  HP_TRY(rewrite_begin(&m.r, in));
  hp_status st = HP_OK;
  m.clone = mem_calloc(in->values.len, sizeof *m.clone);
  if (!m.clone) st = HP_ERR_OOM;
  for (uint32_t i = 0; !st && i < in->nodes.len; i++) {
    const ir_node *n = graph_node(in, i);
    if (!o->remat || n->phase != PHASE_BACKWARD || !n->block) {
      rewrite_copy(&m.r, i);
      continue;
    }
    val ops[255];
    for (int k = 0; k < n->n_in; k++) ops[k] = operand(&m, graph_in(in, n)[k], n->block);
    val v = graph_add_like(m.r.to, in, n, ops);
    for (int k = 0; k < n->n_out; k++) m.r.map[n->out0 + (val)k] = v ? v + (val)k : 0;
  }
  mem_free(m.clone);
  return rewrite_end_live(&m.r, st, out);
}
