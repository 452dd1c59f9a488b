/* Waits between the streams of a program. */
#ifndef COMPILE_STREAMS_H
#define COMPILE_STREAMS_H

#include "prog/program.h"
#include "sched/list.h"

/* Sets the waits of every instruction: for the writers of its operands; for earlier readers and
 * writers of state that it overwrites; and, if it is edge.after, for edge.before.  Redundant
 * waits are left out. */
hp_status place_waits(program *p, const list_edge *edge, size_t n_edges);
/* The same once buffers have offsets: waits for earlier users of the same memory replace the
 * edges, some of which were for memory that the plan did not need. */
hp_status trim_waits(program *p);

#endif
