/* Internal to sched/list: the problem, checked, with its edges in both directions. */
#ifndef SCHED_LIST_GRAPH_H
#define SCHED_LIST_GRAPH_H

#include "sched/list.h"

typedef struct {
  const list_problem *p;
  uint32_t *read0, *read;     /* [n + 1] values that a node reads, each once */
  uint32_t *made0, *made;     /* [n + 1] values that a node makes */
  uint32_t *reader0, *reader; /* [n_values + 1] nodes that read a value, each once, ascending */
  uint32_t *pred0, *pred;     /* [n + 1] nodes to come before: data and other dependencies */
  uint32_t *succ0, *succ;     /* [n + 1] the same edges the other way */
  uint64_t *need[LIST_TIERS]; /* [n] bytes that a node adds while it runs */
  double *tail_s;             /* [n] longest path from its start to the end of all */
  double *lead_s;             /* [n] the same from its successors on other streams on; 0: none */
  double *near_s;             /* [n] from its start to the first of these, on its own stream */
} list_graph;

hp_status list_graph_build(const list_problem *p, list_graph *out);
void list_graph_free(list_graph *g);

/* Does a value take memory after its maker has finished? */
static inline bool list_is_held(const list_graph *g, uint32_t v) {
  return g->reader0[v] < g->reader0[v + 1] || (g->p->keep && g->p->keep[v]);
}
static inline bool list_is_kept(const list_graph *g, uint32_t v) {
  return g->p->keep && g->p->keep[v];
}

static inline uint32_t list_tier(const list_graph *g, uint32_t v) {
  return g->p->tier ? g->p->tier[v] : 0;
}

/* Bytes of the inputs of each tier before the first node. */
void list_bytes_at_start(const list_graph *g, uint64_t bytes[LIST_TIERS]);
/* Most bytes of each tier when the nodes run one after another.  left[n_values] is scratch. */
void list_order_peak(const list_graph *g, const uint32_t *order, uint32_t *left,
                     uint64_t peak[LIST_TIERS]);
/* An order that always takes the ready node that frees most (or adds least) in the tiers with a
 * cap. */
hp_status list_minimum_memory_order(const list_graph *g, uint32_t *order);

#endif
