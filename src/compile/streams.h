/* Waits between the streams of a program. */
#ifndef COMPILE_STREAMS_H
#define COMPILE_STREAMS_H

#include "prog/program.h"
#include "sched/list.h"

/* Fills the waits of every instruction: for what it reads, and, where it writes over memory that
 * others read or wrote (state), for those; and for edge.before, where it is edge.after.  Redundant
 * waits are left out. */
hp_status place_waits(program *p, const list_edge *edge, size_t n_edges);
/* The same once buffers have offsets: waits for what used their memory before take the place of the
 * edges, of which some were for room that the plan did not need. */
hp_status trim_waits(program *p);

#endif
