/* Live bytes of work memory over the time of a run, by tier and class. */
#ifndef RT_MEMORY_TIME_H
#define RT_MEMORY_TIME_H

#include "base/tier.h"
#include "mem/timeline.h"
#include "prog/program.h"

typedef struct {
  uint64_t of[TIER_COUNT][MEM_CLASS_COUNT];
} live_bytes;

/* In each of n >= 1 equal ranges of [0, full_s], where most is live in a tier; t: of the
 * instructions. */
hp_status memory_over_time(const program *p, const inst_times *t, double full_s, live_bytes *out,
                           int n);

#endif
