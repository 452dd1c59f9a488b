/* What this machine was seen to reach of its limits in runs before: a cluster file with `costs`, in
 * the folder of compiled kernels, one for each processor, instruction set and number of threads.
 *
 * Predictions for `this` on one device read it and nothing else does: order, layouts and memory
 * are planned by the figures of the cluster file or the built-in ones, which all devices of a job
 * have in common.  So a record can change no bit, no plan, and no order of collectives. */
#ifndef RT_COST_RECORD_H
#define RT_COST_RECORD_H

#include "topo/cluster.h"

/* The record of this machine with so many threads into *c; c stays as it is where there is none, or
 * one that is damaged, which is told for debugging. */
void cost_record_read(int threads, cluster *c);
/* Writes it, whole or not at all; failing is no failure of the run. */
void cost_record_write(int threads, const cluster *c);
/* Forgets it. */
void cost_record_remove(int threads);

#endif
