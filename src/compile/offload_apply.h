/* Internal to the offload stage: a program with the copies of a plan. */
#ifndef COMPILE_OFFLOAD_APPLY_H
#define COMPILE_OFFLOAD_APPLY_H

#include "compile/offload_items.h"

/* Rewrites p, of which x was made, by the plan. */
hp_status offload_apply(program *p, const offload_items *x, const offload_plan *plan);

#endif
