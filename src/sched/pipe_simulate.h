/* When the rows of a pipeline schedule run, where devices are idle and why, and the one global
 * order of all transfers.
 *
 * Transfers with free queues begin when their row ends.  Sorted by the end that they have then (of
 * equals, the one that comes first in pipe_walk), they are the global order.  A transfer comes
 * after all those that its row needs, so if each device sends and receives in this order, none
 * waits for a later one, and no device deadlocks even if a send blocks until its receive. */
#ifndef SCHED_PIPE_SIMULATE_H
#define SCHED_PIPE_SIMULATE_H

#include "sched/pipe_costs.h"

typedef enum {
  PIPE_FREE_QUEUES, /* any number of transfers at once */
  PIPE_ONE_STREAM   /* a device runs its sends and receives one by one, in the global order */
} pipe_queues;

/* The result of a row that a row of another device reads: an activation or its gradient. */
typedef struct {
  uint32_t row, reader; /* indices in pipe_rows.row */
  uint32_t edge;        /* of the graph of stages */
  uint32_t from, to;    /* devices */
  double start_s, end_s;
} pipe_transfer;

typedef struct {
  double begin_s, end_s; /* of its first and last row */
  double busy_s;
  /* idle_s is step_s - busy_s, and the sum of three causes: what is idle if all stages take the
   * mean time and transfers none; what unequal stages and micro-batches add (negative on a device
   * that the others wait for); what transfers add. */
  double idle_s, warmup_s, imbalance_s, transfer_s;
  uint32_t peak_in_flight; /* (stage, micro-batch) pairs from F to the end of W */
  uint64_t peak_bytes;
} pipe_device;

typedef struct {
  double *start_s, *end_s; /* [rows] */
  pipe_transfer *transfer; /* in the global order */
  size_t transfers;
  pipe_device *device;  /* [devices] */
  double step_s;        /* end of the last row */
  double span_s;        /* longest begin_s to end_s of a device: the time of a step if the next one
                           begins on each device when that device is done */
  double bubble;        /* idle share of all devices in step_s */
  double steady_bubble; /* and in span_s */
} pipe_times;

/* HP_ERR_INPUT as pipe_check, but without limits.  O(rows log rows); pipe_times_free. */
hp_status pipe_simulate(const pipe_rows *p, const char *source, const pipe_costs *costs,
                        pipe_queues queues, pipe_times *out);
void pipe_times_free(pipe_times *t);

#endif
