/* Collectives beside the computations of an offloaded program.
 *
 * The planner (mem/offload.h) knows one step after the other.  Collectives are put where they
 * overlap with computation before it is asked: the step of a collective only starts it and takes no
 * time, what it reads and writes stays on the device until the step that waits for its end, and
 * that step takes so much longer as it waits. */
#ifndef COMPILE_OFFLOAD_OVERLAP_H
#define COMPILE_OFFLOAD_OVERLAP_H

#include "compile/prog_schedule.h"

/* By instruction. */
typedef struct offload_overlap {
  uint32_t *until;    /* of a collective: the computation that waits for its end; PROG_NONE: none
                         does, or it is no collective */
  uint32_t *ends0;    /* [instructions + 1] */
  uint32_t *ends;     /* the collectives whose end instruction i waits for: ends[ends0[i]] .. */
  double *duration_s; /* of its step */
  double *wait_s;     /* of that: until collectives have ended */
} offload_overlap;

/* Reorders p, which is in the order of the graph; transfers between stages keep their place between
 * computations.  *any false: it has no collectives, or fetches blocks of a cache, and keeps its
 * order; out is empty.
 * offload_overlap_free(out), also after a failure. */
hp_status offload_overlap_make(program *p, const schedule_options *o, offload_overlap *out,
                               bool *any);
void offload_overlap_free(offload_overlap *x);

/* Does it run beside the steps that follow it? */
static inline bool offload_runs_beside(const offload_overlap *x, uint32_t i) {
  return x && x->until[i] != PROG_NONE;
}

#endif
