/* Rules of other systems by which it can be decided what leaves the device, and when it comes back,
 * in place of the planner's own decisions: to compare with them (HP_PLAN_*, `offload_policy`).
 *
 * A rule has levels.  The first says what leaves at least; where that does not fit the limit, the
 * next one lets more leave. */
#ifndef COMPILE_OFFLOAD_POLICY_H
#define COMPILE_OFFLOAD_POLICY_H

#include "mem/timeline.h"
#include "prog/program.h"

int offload_policy_levels(int policy); /* 0 of HP_PLAN_BEST */
/* HP_OFFLOAD_* by mem_class on a level; `own` where the policy leaves it to the planner. */
void offload_policy_modes(int policy, int level, const uint8_t *own, uint8_t *mode);
/* The first instruction during which a value may be fetched for instruction i. */
uint32_t offload_policy_fetch_from(int policy, const program *p, uint32_t i);

#endif
