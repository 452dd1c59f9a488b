/* A lower bound of the time of any offload plan (mem/offload.h). */
#ifndef MEM_OFFLOAD_BOUND_H
#define MEM_OFFLOAD_BOUND_H

#include "mem/offload.h"

/* Writes plan->compute_s and plan->bound_s. */
hp_status offload_bound(const offload_problem *p, offload_plan *plan);

#endif
