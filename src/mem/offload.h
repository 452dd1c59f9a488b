/* Which values leave the device's memory, when, and when they come back: a plan made before the
 * program runs, on plain arrays.
 *
 * The device's memory is a cache of `cap` bytes of larger, slower tiers.  Steps (instructions) run
 * in index order, each touches items (values), which must be on the device while it runs.  Between
 * two touches an item may be offloaded to its tier and fetched again; copies run on lanes, one for
 * each tier and direction, at the same time as steps.  An item that its tier already holds as it is
 * leaves without a copy.
 *
 * The processors of the near tier may work, too, on what is there: at the beginning of the run, on
 * what the run before has left, or behind its last step.
 *
 * The plan is found by simulating the run with the whole future known: the item whose next touch is
 * furthest away leaves first (Belady's rule, with bytes and times), items are offloaded as soon as
 * they were last written, and fetched as late as the lane allows.  The simulation is repeated with
 * what the one before has found, under several policies, and the fastest plan is returned.
 *
 * The plan holds under any timing: each copy and each step names what must be finished before it
 * starts, so that memory is free then.  Nothing here knows graphs, programs or devices. */
#ifndef MEM_OFFLOAD_H
#define MEM_OFFLOAD_H

#include "base/status.h"

enum { OFFLOAD_TIERS = 2 }; /* that items may go to: near and far */
/* HELD: the item stays on the device until its next touch, for what the step has started is still
 * running. */
enum { OFFLOAD_READ = 1, OFFLOAD_WRITE = 2, OFFLOAD_HELD = 4 };

/* How an item begins and ends.  KEPT items are the device's from one run to the next: they are
 * stored when the run begins, and must be stored again at its end or, if they may stay on the
 * device until the next run (`plan->carried`), be there. */
enum {
  OFFLOAD_STORED =
      1, /* its tier holds it when the run begins; otherwise its first touch makes it */
  OFFLOAD_RETURNS = 2, /* its tier must hold it at the end */
  OFFLOAD_CARRIES = 4, /* may stay on the device from one run to the next */
  OFFLOAD_STREAMS = 8, /* leaves after each use, and comes back for the next one */
  OFFLOAD_PINNED = 16  /* does not leave before its last touch */
};

typedef struct {
  uint64_t bytes;
  uint32_t touch0, touches; /* problem->touch[touch0] .., by step; at least one, steps differ */
  uint8_t flags, tier;      /* tier < OFFLOAD_TIERS: where it goes */
  uint32_t from_host;       /* of STORED: 1 + the host_work at whose end its tier holds it, one of
                               those `before`; 0: when the run begins */
} offload_item;

typedef struct {
  uint32_t step;
  uint8_t access; /* OFFLOAD_READ, WRITE and HELD; WRITE without READ replaces all of it */
} offload_touch;
#define OFFLOAD_FREE UINT32_MAX /* when a fetch begins is the plan's choice */

typedef struct {
  double in_bytes_s, out_bytes_s, latency_s; /* towards the device, and away from it */
} offload_link;

/* Work of the near tier's processors, which takes no time of the device. */
typedef struct {
  double duration_s;
  uint32_t need0, needs; /* items problem->need[need0] .., RETURNS, whose last content it reads */
} offload_host_work;

typedef struct {
  size_t n;                 /* steps, < 2^30 */
  const double *duration_s; /* [n] */
  const double *wait_s; /* [n] of the duration: seconds in which a step waits for what earlier ones
                           have started, less if it has waited for copies; NULL: none */
  const uint64_t *workspace; /* [n] bytes while a step runs; NULL: none */
  size_t items;              /* < 2^30 */
  const offload_item *item;
  const offload_touch *touch;
  size_t touches;
  /* [touches] the first step during which it may be fetched, which then begins as soon as the lane
   * allows, or OFFLOAD_FREE; NULL: all are free.  A later step never has an earlier one. */
  const uint32_t *from;
  offload_link link[OFFLOAD_TIERS];
  uint64_t cap; /* bytes of the device */
  /* One after the other: the first `before` from the beginning of the run, the others behind its
   * last step, and behind the offloads of what they need. */
  const offload_host_work *host;
  size_t hosts, before;
  const uint32_t *need;
  size_t needs;
} offload_problem;

typedef struct {
  uint32_t item;
  uint32_t touch;                /* of the item, from 0: the next one after this copy; as many as it
                                    has: none, it is for the end of the run */
  bool in;                       /* a fetch */
  double start_s, end_s;         /* predicted */
  uint32_t after_step;           /* so many steps must be finished, */
  uint32_t after[OFFLOAD_TIERS]; /* and so many offloads of each tier */
} offload_copy;

typedef struct {
  offload_copy *copy; /* in the order of their starts, which is that of each lane */
  size_t copies;
  double *start_s;                  /* [n] of steps */
  uint32_t (*after)[OFFLOAD_TIERS]; /* [n] offloads that must be finished before a step starts */
  uint32_t *stay; /* [touches] number of the item's stay on the device in which it is touched, from
                     0 if carried, else from 1: each begins with a fetch or with what makes it */
  bool *carried;  /* [items] on the device when the run begins and when it ends */
  double time_s;  /* of the run */
  double compute_s; /* of the steps alone, without wait_s */
  double bound_s;   /* no plan is faster */
  uint64_t peak;    /* bytes of the device */
  uint64_t in_bytes[OFFLOAD_TIERS], out_bytes[OFFLOAD_TIERS];
} offload_plan;

/* The bytes that the step *at needs, which needs most: what it touches, its workspace, and what is
 * PINNED there. */
hp_status offload_floor(const offload_problem *p, uint64_t *bytes, uint32_t *at);
/* HP_ERR_ARG on malformed input, HP_ERR_OOM with the step if the cap is below offload_floor.
 * offload_plan_free(out). */
hp_status offload_plan_make(const offload_problem *p, offload_plan *out);
void offload_plan_free(offload_plan *plan);

#endif
