/* Internal to sched/pipe_*: what devices hold while they run their rows in order. */
#ifndef SCHED_PIPE_MEMORY_H
#define SCHED_PIPE_MEMORY_H

#include "sched/pipe_costs.h"
#include "sched/pipe_index.h"

typedef struct {
  uint32_t in_flight;
  uint64_t bytes;
} pipe_peak;

/* Peak of a device, whatever the times.  HP_ERR_INPUT, with the row, if it is above the limits. */
hp_status pipe_memory(const pipe_index *x, uint32_t device, const pipe_costs *c, pipe_limits limits,
                      pipe_peak *out);

#endif
