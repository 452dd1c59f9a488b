/* Internal to sched/pipe_fill: times at which a device may begin a row, the earliest first. */
#ifndef SCHED_PIPE_EVENTS_H
#define SCHED_PIPE_EVENTS_H

#include "base/vec.h"

typedef struct {
  double time_s;
  uint32_t device;
} pipe_event;
typedef VEC(pipe_event) pipe_events; /* a binary heap; vec_free */

hp_status pipe_events_add(pipe_events *e, double time_s, uint32_t device);
/* Removes the earliest, of equals that of the lower device; there must be one. */
pipe_event pipe_events_take(pipe_events *e);

#endif
