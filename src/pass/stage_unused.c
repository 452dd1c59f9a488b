#include "pass/stage_unused.h"

#include "base/mem.h"

static void mark_live(const hp_graph *g, bool *live) {
  for (uint32_t i = g->nodes.len; i-- > 0;) {
    const ir_node *n = graph_node(g, i);
    live[i] = live[i] || n->op == OP_OUTPUT || n->op == OP_ASSIGN;
    for (int k = 0; live[i] && k < n->n_in; k++)
      live[graph_value(g, graph_in(g, n)[k])->def] = true;
  }
}

static bool is_forward(const ir_node *n) {
  return n->phase == PHASE_FORWARD && n->n_in && n->n_out;
}

static bool is_used(const hp_graph *g, const bool *live, uint16_t stage) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (n->stage == stage && is_forward(n) && live[i]) return true;
  }
  return false;
}

hp_status stage_unused_find(const hp_graph *g, uint32_t *node) {
  bool *live = mem_calloc((size_t)g->nodes.len + 1, sizeof *live);
  HP_TRY_MEM(live);
  mark_live(g, live);
  for (*node = 0; *node < g->nodes.len; ++*node) {
    const ir_node *n = graph_node(g, *node);
    if (is_forward(n) && !live[*node] && !is_used(g, live, n->stage)) break;
  }
  mem_free(live);
  return HP_OK;
}
