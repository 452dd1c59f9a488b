/* Internal to mem/offload: one simulated run of the steps, which decides which items leave and when
 * copies start.  What it finds guides the next sweep. */
#ifndef MEM_OFFLOAD_SWEEP_H
#define MEM_OFFLOAD_SWEEP_H

#include "mem/offload.h"
#include "mem/offload_queue.h"

typedef struct {
  double slack;        /* fetches start this many times their own duration before the latest time */
  double prefer_clean; /* how much nearer the next touch of an item may be whose tier holds it
                          already, to leave before one that must be offloaded; 1: not at all */
  double carry;        /* share of the cap that carried items may take at the ends of a run */
  /* By gap between touches, as history.leave_s: what the item does there; NULL: AUTO for all. */
  const uint8_t *choice;
  const bool *carried; /* by item; NULL: the sweep chooses */
  /* [n + 1] when steps should start, and the run end: fetches are in time for that.  NULL: when
   * they did in the sweep before. */
  const double *start_s;
} offload_policy;
enum { OFFLOAD_AUTO, OFFLOAD_STAY, OFFLOAD_LEAVE }; /* STAY: if others can leave instead */

/* What a sweep leaves for the next one. */
typedef struct {
  double *start_s;                 /* [n + 1] of steps; the last: the end of the run */
  double *latest_s[OFFLOAD_TIERS]; /* [n + 2] when the lane must begin with the fetches for this
                                      step and all later ones */
  double *leave_s; /* [touches + items] when the item leaves after a touch, and, behind those,
                      before its first; INFINITY: it stays */
} offload_history;

hp_status offload_history_create(const offload_problem *p, offload_history *out);
void offload_history_free(offload_history *h);

typedef struct {
  uint8_t where;  /* see offload_sweep.c */
  bool stored;    /* its tier holds it, from out_s on */
  bool used;      /* touched in its present stay */
  uint32_t touch; /* the next; behind its last: the end */
  uint32_t stay, version, copy;
  double ready_s; /* when it arrives, or its memory is free */
  double out_s;
} item_state;

typedef struct {
  const offload_problem *p;
  const offload_policy *policy;
  offload_history *h;
  item_state *item;
  uint32_t *touch0, *touched; /* by step: touched[touch0[i]] ..: indices in problem->touch */
  uint32_t *item_of;          /* by touch */
  uint64_t cap, used, leaving_bytes, peak;
  double now;
  double in_free_s[OFFLOAD_TIERS], out_free_s[OFFLOAD_TIERS];
  uint32_t step;
  offload_queue clean, dirty;          /* on the device, by minus the step of the next touch */
  offload_queue staying;               /* the same of those that leave only if no other can */
  offload_queue leaving;               /* by the time at which memory is free */
  offload_queue idle;                  /* fetched and not touched yet: by minus the step */
  offload_queue wanted[OFFLOAD_TIERS]; /* stored and not on the device, by the step */
  offload_queue owed[OFFLOAD_TIERS];   /* to be offloaded early, by the time when they leave */
  double *left_s;                      /* of this sweep, as history.leave_s */
  double *host_end_s;                  /* [before] of the host's work */
  uint32_t *carried; /* items that may be carried, the shortest time between two runs first */
  size_t may_carry;
  VEC(offload_copy) copy;
  VEC(double) out_end[OFFLOAD_TIERS]; /* ends of the offloads of each tier, in order */
  offload_plan *plan;
} offload_sweep;

/* Buffers for sweeps over p; offload_sweep_free(w), also after a failure. */
hp_status offload_sweep_create(const offload_problem *p, offload_history *h, offload_sweep *w);
void offload_sweep_free(offload_sweep *w);
/* Runs once; the plan, with room for all its arrays but the copies, is overwritten.  *fits false:
 * the items of a step did not fit next to those that could not leave. */
hp_status offload_sweep_run(offload_sweep *w, const offload_policy *policy, offload_plan *plan,
                            bool *fits);

#endif
