/* The order of micro-batches of unequal cost in which a pipeline is least idle.
 *
 * Micro-batches of text and pictures take different times on each stage.  In a bad order a stage
 * waits for a long one while short ones would have kept it busy.  A caller puts the micro-batches
 * of a step into this order before it runs, for gradients are added up in the order of the rows. */
#ifndef SCHED_PIPE_ORDER_H
#define SCHED_PIPE_ORDER_H

#include "sched/pipe_generate.h"

/* order[microbatches]: the micro-batch of q->costs that runs k-th under the schedule of that name,
 * and step_s of pipe_simulate in this order, with one stream of transfers.  Looks for it by
 * simulation: the same request gives the same order, which takes no longer than that of the costs.
 * HP_ERR_ARG, HP_ERR_OOM as pipe_generate.  O(microbatches) simulations. */
hp_status pipe_order(const char *name, const pipe_request *q, uint32_t *order, double *step_s);

#endif
