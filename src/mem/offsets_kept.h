/* Plans that are kept: a problem that comes again has the offsets of its first time.  Only for
 * problems of one stream without limit or fixed offsets. */
#ifndef MEM_OFFSETS_KEPT_H
#define MEM_OFFSETS_KEPT_H

#include "base/hash.h"
#include "base/vec.h"
#include "mem/offsets.h"

typedef struct {
  size_t at; /* of its first offset */
  uint64_t peak[OFFSETS_TIERS];
} kept_plan;

typedef struct {
  map plan_of; /* the problem as numbers -> index of its plan */
  VEC(kept_plan) plan;
  VEC(uint64_t) offset;
} offsets_kept;

void offsets_kept_free(offsets_kept *k);
/* Offsets of p, verified, and bytes of each tier; k NULL: nothing is kept. */
hp_status offsets_kept_assign(offsets_kept *k, const offsets_problem *p, uint64_t *offset,
                              uint64_t peak[OFFSETS_TIERS]);

#endif
