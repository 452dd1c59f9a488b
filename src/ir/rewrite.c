#include "ir/rewrite.h"

#include "base/mem.h"

#include <string.h>

hp_status rewrite_begin(rewrite *r, const hp_graph *from) {
  *r = (rewrite){.from = from};
  HP_TRY(graph_create(from, &r->to));
  r->map = mem_calloc(from->values.len, sizeof *r->map);
  if (!r->map) {
    graph_free(r->to);
    return HP_ERR_OOM;
  }
  return HP_OK;
}

void rewrite_place(rewrite *r, const ir_node *n) {
  r->to->loc = n->loc;
  r->to->block = n->block;
  r->to->phase = n->phase;
  r->to->group = n->group;
  r->to->stage = n->stage;
  r->to->recomputed = n->recomputed != 0;
}

void rewrite_copy(rewrite *r, uint32_t index) {
  const ir_node *n = graph_node(r->from, index);
  const val *old = graph_in(r->from, n);
  val in[255];
  for (int i = 0; i < n->n_in; i++) in[i] = r->map[old[i]];
  val v = graph_add_like(r->to, r->from, n, in);
  for (int i = 0; i < n->n_out; i++) r->map[n->out0 + (val)i] = v ? v + (val)i : 0;
}

hp_status rewrite_end(rewrite *r, hp_status st, hp_graph **out) {
  if (!st) st = graph_status(r->to);
  mem_free(r->map);
  if (st) graph_free(r->to);
  else *out = r->to;
  return st;
}

/* live[n]: an output or assign depends on node n, or it is an input, which callers give. */
static void mark_live(const hp_graph *g, bool *live) {
  for (size_t i = g->nodes.len; i-- > 0;) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    if (n->op == OP_OUTPUT || n->op == OP_ASSIGN || n->op == OP_INPUT) live[i] = true;
    if (!live[i]) continue;
    for (int k = 0; k < n->n_in; k++) live[graph_value(g, graph_in(g, n)[k])->def] = true;
  }
}

hp_status rewrite_end_live(rewrite *r, hp_status st, hp_graph **out) {
  hp_graph *all;
  HP_TRY(rewrite_end(r, st, &all));
  bool *live = mem_calloc(all->nodes.len, 1);
  st = live ? rewrite_begin(r, all) : HP_ERR_OOM;
  if (!st) {
    mark_live(all, live);
    for (uint32_t i = 0; i < all->nodes.len; i++)
      if (live[i]) rewrite_copy(r, i);
    st = rewrite_end(r, HP_OK, out);
  }
  mem_free(live);
  graph_free(all);
  return st;
}

hp_status use_lists_build(const hp_graph *g, use_lists *u) {
  *u = (use_lists){0};
  u->use0 = mem_calloc(g->values.len + 1, sizeof *u->use0);
  u->use = mem_calloc(g->ins.len + 1, sizeof *u->use);
  if (!u->use0 || !u->use) {
    use_lists_free(u);
    return HP_ERR_OOM;
  }
  for (size_t i = 0; i < g->ins.len; i++) u->use0[g->ins.at[i] + 1]++;
  for (size_t v = 0; v < g->values.len; v++) u->use0[v + 1] += u->use0[v];
  /* fill backwards from the ends, so that each list is in node order */
  for (size_t i = g->nodes.len; i-- > 0;) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    const val *in = graph_in(g, n);
    for (int k = n->n_in; k-- > 0;) u->use[--u->use0[in[k] + 1]] = (uint32_t)i;
  }
  /* every start has been moved one list down: move them back */
  memmove(u->use0, u->use0 + 1, g->values.len * sizeof *u->use0);
  u->use0[g->values.len] = (uint32_t)g->ins.len;
  return HP_OK;
}

void use_lists_free(use_lists *u) {
  mem_free(u->use0);
  mem_free(u->use);
  *u = (use_lists){0};
}
