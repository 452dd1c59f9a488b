/* The shares of its limits that this machine reached in earlier runs: a cluster file with `costs`,
 * in the folder of compiled kernels, one for each processor, instruction set and number of threads.
 *
 * Only predictions for `this` on one device read it.  Order, layouts and memory are planned with
 * the figures of the cluster file or the built-in ones, which all devices of a job share.  So a
 * record changes no bit, no plan, and no order of collectives. */
#ifndef RT_COST_RECORD_H
#define RT_COST_RECORD_H

#include "topo/cluster.h"

/* Loads the record of this machine with this many threads into *c.  A missing or damaged one
 * leaves *c unchanged; damage is logged for debugging. */
void cost_record_read(int threads, cluster *c);
/* Writes it atomically; a failure does not fail the run. */
void cost_record_write(int threads, const cluster *c);
/* Deletes it. */
void cost_record_remove(int threads);

#endif
