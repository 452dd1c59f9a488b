/* How far fetches of cache blocks run ahead of their use.  They depend on the lists of a run alone,
 * so all of them could start at once, and would take the memory of the whole cache. */
#ifndef COMPILE_FETCH_BOUND_H
#define COMPILE_FETCH_BOUND_H

#include "prog/program.h"
#include "sched/list.h"

typedef VEC(list_edge) fetch_edges;

/* Of p in the order of the graph: each fetch after the last use of the fourth before it, so that
 * the keys and values of one part of attention are on the device, and those of the next. */
hp_status fetch_bound(const program *p, fetch_edges *out);

#endif
