/* Pipeline schedules by name, for any number of stages and micro-batches, costs and memory limit.
 *
 * A schedule is one row of the table in pipe_generate.c and one function (pipe_kinds.h).  Those
 * that split the backward are made by simulating them with the costs; the others do not depend on
 * costs. */
#ifndef SCHED_PIPE_GENERATE_H
#define SCHED_PIPE_GENERATE_H

#include "sched/pipe_costs.h"

typedef struct {
  uint32_t stages, devices, microbatches;
  const pipe_costs *costs; /* NULL: {0} */
  pipe_limits limits;      /* in_flight 0: as much as the schedule by that name holds */
  uint32_t group;          /* set by pipe_generate: of interleaved, micro-batches of a group */
  bool steady; /* of schedules that split the backward, the one with the least span_s (pipe_times),
                  for steps that begin on each device as it is done with the one before */
} pipe_request;

/* Names: gpipe, 1f1b, interleaved, zb-h1, zb-2p, zbv, v-half, v-min, dualpipe-v; interleaved:N has
 * groups of N micro-batches, at least as many as devices, in place of as many.
 * HP_ERR_ARG if there is no such schedule (with the nearest name), or none for so many stages or
 * micro-batches; HP_ERR_OOM if it does not fit under the limits.  pipe_rows_free(out). */
hp_status pipe_generate(const char *name, const pipe_request *q, pipe_rows *out);
/* Its usual number of stages: those of a device, times devices.  HP_ERR_ARG as pipe_generate. */
hp_status pipe_schedule_stages(const char *name, uint32_t devices, uint32_t *stages);
/* Does a schedule by that name run the backward to weights by itself?  Rows, or a file of them,
 * may.
 */
bool pipe_schedule_splits(const char *name);
/* The i-th name and what it is, for help; NULL: no more. */
const char *pipe_schedule_name(size_t i, const char **what);

#endif
