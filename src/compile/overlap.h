/* Communication beside computation: collectives on a stream of their own, and an order of all
 * instructions in which they run while something else is computed. */
#ifndef COMPILE_OVERLAP_H
#define COMPILE_OVERLAP_H

#include "prog/program.h"
#include "topo/cluster.h"

typedef struct {
  const cluster *cluster; /* what collectives and work cost */
  const mesh *mesh;
  const uint64_t *workspace; /* bytes by instruction; NULL: none */
  uint64_t limit;            /* bytes of work memory; 0 = none */
  uint64_t prefetch;         /* bytes of params that may be gathered ahead of their use; 0: those of
                                the largest block, and the largest param */
} overlap_options;

/* Moves the collectives for which devices meet to STREAM_COMM, orders the instructions and places
 * the waits.  The order is a function of the program alone, which is the same on every device: so
 * collectives come in one order everywhere and cannot wait for each other crosswise.  Without
 * collectives, or when no such order fits the limit, instructions stay on one stream. */
hp_status overlap_schedule(program *p, const overlap_options *o);
/* Are there instructions on STREAM_COMM? */
bool overlap_is(const program *p);
/* All of them back to STREAM_COMPUTE; waits are to be placed anew. */
void overlap_undo(program *p);

#endif
