/* Plans that are kept: a problem that comes again has the plan of its first time. */
#ifndef MEM_OFFLOAD_KEPT_H
#define MEM_OFFLOAD_KEPT_H

#include "base/hash.h"
#include "base/vec.h"
#include "mem/offload.h"

typedef struct {
  map plan_of; /* hash of all numbers of the problem -> index of its plan */
  VEC(offload_plan) plan;
  size_t bytes; /* of all plans */
} offload_kept;

void offload_kept_free(offload_kept *k);
/* offload_plan_make; k NULL: nothing is kept. */
hp_status offload_kept_make(offload_kept *k, const offload_problem *p, offload_plan *out);

#endif
