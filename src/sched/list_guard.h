/* Internal to sched/list: may this node run now?  Only if all remaining nodes, run one after the
 * other in a base order, still fit under the cap (the banker's algorithm).
 *
 * A tree over the base order, one per tier with a cap, holds the bytes in use while each
 * remaining node would run.  Running a node early holds its results for longer and frees its
 * operands sooner: both are sums over a range of the order. */
#ifndef SCHED_LIST_GUARD_H
#define SCHED_LIST_GUARD_H

#include "sched/list_graph.h"

typedef struct {
  uint64_t cap;        /* UINT64_MAX: none, and only `now` is kept */
  uint64_t now;        /* bytes held by finished nodes */
  int64_t *add, *most; /* [2 * leaves] added to all below; greatest sum below */
} list_guard_tier;

typedef struct {
  const list_graph *g;
  list_guard_tier tier[LIST_TIERS];
  const uint32_t *order; /* [n] the base order */
  uint32_t *at;          /* [n] place of a node in it */
  bool *done;            /* [n] by node */
  uint32_t next;         /* place of the first node that has not run */
  uint32_t leaves;       /* of the trees */
  /* readers of each value in base order, those to come linked: as list_graph.reader0 */
  uint32_t *reader, *earlier, *later;
  uint32_t *slot; /* [read0[n]] index in reader[] of each read */
  uint32_t *last; /* [n_values] slot of the last remaining reader */
} list_guard;

#define LIST_NO_SLOT UINT32_MAX

/* The base order must fit under the caps (UINT64_MAX: none); it is not copied. */
hp_status list_guard_create(const list_graph *g, const uint32_t *order,
                            const uint64_t cap[LIST_TIERS], list_guard *out);
void list_guard_free(list_guard *w);
/* Runs the node if the rest then still fits; false: nothing has changed.  `sure` skips the
 * check: for the next node of the base order, which may always run. */
bool list_guard_run(list_guard *w, uint32_t node, bool sure);

#endif
