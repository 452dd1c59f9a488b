/* Collectives beside the computations of an offloaded program.
 *
 * The planner (mem/offload.h) knows one step after the other.  Collectives are put where they
 * overlap with computation before it is asked: the step of a collective only starts it and takes no
 * time, what it reads and writes stays on the device until the step that waits for its end, and
 * that step takes so much longer as it waits.  Steps of the host take no time of the device and
 * wait for none. */
#ifndef COMPILE_OFFLOAD_OVERLAP_H
#define COMPILE_OFFLOAD_OVERLAP_H

#include "compile/prog_schedule.h"

/* By instruction; all NULL: one after the other. */
typedef struct {
  uint32_t *until;    /* of a collective: the step behind it that waits for its end, which is a
                         computation or a collective that runs beside nothing; PROG_NONE: the next
                         step does, or it is no collective */
  uint32_t *ends0;    /* [instructions + 1] */
  uint32_t *ends;     /* the collectives whose `until` instruction i is: ends[ends0[i]] .. */
  double *duration_s; /* of its step */
  double *wait_s;     /* of that: until collectives have ended */
} offload_overlap;

/* Reorders p, which is in the order of the graph; transfers between stages keep their place between
 * computations.  *times, which the caller frees with mem_free: when each starts and ends without a
 * limit.  NULL: it has no collectives, or fetches blocks of a cache, and keeps its order. */
hp_status offload_overlap_order(program *p, const schedule_options *o, inst_times **times);
/* on_host: by instruction, HOST_* of compile/host_update.h; NULL: all are of the device.
 * offload_overlap_free(out), also after a failure. */
hp_status offload_overlap_make(const program *p, const inst_times *times, const uint8_t *on_host,
                               offload_overlap *out);
void offload_overlap_free(offload_overlap *x);

/* Does it run beside the steps that follow it? */
static inline bool offload_runs_beside(const offload_overlap *x, uint32_t i) {
  return x->until && x->until[i] != PROG_NONE;
}

/* The step from which on its memory is free for others. */
static inline uint32_t offload_last_step(const offload_overlap *x, uint32_t i) {
  return offload_runs_beside(x, i) ? x->until[i] : i;
}

/* The collectives whose end step i waits for: *n from the result on. */
static inline const uint32_t *offload_ends_at(const offload_overlap *x, uint32_t i, uint32_t *n) {
  *n = x->until ? x->ends0[i + 1] - x->ends0[i] : 0;
  return x->until ? x->ends + x->ends0[i] : NULL;
}

#endif
