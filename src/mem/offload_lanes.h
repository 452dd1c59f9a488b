/* Internal to mem/offload: the time that a lane has left during each step.  Copies take it from one
 * step on, the earliest first, or back from a step, the latest first. */
#ifndef MEM_OFFLOAD_LANES_H
#define MEM_OFFLOAD_LANES_H

#include "mem/index_set.h"

typedef struct {
  double *free_s; /* [n] by step */
  index_set some; /* the steps that have some left */
} offload_lane;

hp_status offload_lane_create(const double *duration_s, size_t n, offload_lane *lane);
void offload_lane_free(offload_lane *lane);

/* The step by whose end a copy has had *left_s seconds of steps from..until-1, and 0 is left, or
 * `until`.  take: they are gone. */
uint32_t offload_lane_forward(offload_lane *lane, uint32_t from, uint32_t until, bool take,
                              double *left_s);
/* The step in which a copy begins that has ended before `until` and begins not before `from`;
 * *left_s > 0: the time of all of them is not enough. */
uint32_t offload_lane_back(offload_lane *lane, uint32_t from, uint32_t until, bool take,
                           double *left_s);
/* Step i takes that much longer. */
void offload_lane_add(offload_lane *lane, uint32_t i, double seconds);

#endif
