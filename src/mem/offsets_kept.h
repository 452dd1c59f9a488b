/* Plans that are kept: a problem that comes again has the offsets of its first time. */
#ifndef MEM_OFFSETS_KEPT_H
#define MEM_OFFSETS_KEPT_H

#include "base/hash.h"
#include "base/vec.h"
#include "mem/offsets.h"

typedef struct {
  size_t at, n; /* its offsets */
  offsets_summary sum;
} kept_plan;

typedef struct {
  map plan_of; /* hash of all numbers of the problem -> index of its plan */
  VEC(kept_plan) plan;
  VEC(uint64_t) offset;
} offsets_kept;

void offsets_kept_free(offsets_kept *k);
/* offsets_assign, verified; k NULL: nothing is kept. */
hp_status offsets_kept_assign(offsets_kept *k, const offsets_problem *p, uint64_t *offset,
                              offsets_summary *sum);

#endif
