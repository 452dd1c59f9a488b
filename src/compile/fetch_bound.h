/* How far fetches of cache blocks run ahead of their use.  They depend on the lists of a run alone,
 * so all of them could start at once, and would take the memory of the whole cache. */
#ifndef COMPILE_FETCH_BOUND_H
#define COMPILE_FETCH_BOUND_H

#include "prog/program.h"
#include "sched/list.h"

typedef VEC(list_edge) fetch_edges;

/* Of p in the order of the graph, which says how far they may be ahead: each fetch after those last
 * uses of fetched blocks that stand before it. */
hp_status fetch_bound(const program *p, fetch_edges *out);

#endif
