/* Internal to sched/pipe_generate: makes a schedule with split backward out of the order of its
 * forwards and backwards, by simulating it.
 *
 * A device takes the row whose turn it is, if it can begin; otherwise another one whose inputs have
 * arrived, or W.  A forward may overtake only if all rows that it overtakes still fit under the
 * limits (the banker's algorithm), so a device never comes to a state in which nothing fits. */
#ifndef SCHED_PIPE_FILL_H
#define SCHED_PIPE_FILL_H

#include "sched/pipe_costs.h"

typedef struct {
  bool weights_first; /* W before rows that would overtake */
  bool even;          /* for the caller: the costs are F = B = W, and transfers take no time */
  double patience;    /* W waits for a row that can begin within this share of its own time */
} pipe_fill_policy;

typedef struct {
  double step_s, span_s; /* as pipe_times */
} pipe_fill_times;

/* turns: F and B of all micro-batches by device, micro-batches of a stage in order, and such that
 * they can run in this order (pipe_check).  *fits is false, and nothing else is set, if a device
 * needs more than the limits even with W right after each B.  O(rows * log rows), or rows * the
 * micro-batches in flight.  pipe_rows_free(out). */
hp_status pipe_fill(const pipe_rows *turns, const pipe_costs *c, pipe_limits limits,
                    pipe_fill_policy policy, bool *fits, pipe_rows *out, pipe_fill_times *times);

#endif
