/* Under a memory limit a step may keep its activations on the device or on slower tiers, or compute
 * them again in its backward: both are planned, and the one that is predicted to be faster is
 * taken.  Neither changes a bit. */
#ifndef TRAIN_STEP_CHOICE_H
#define TRAIN_STEP_CHOICE_H

#include "train/step_pieces.h"

typedef enum { STEP_AS_ASKED, STEP_WITH_REMAT, STEP_WAYS } step_way;

/* The pieces of steps, by each way. */
typedef struct {
  step_pieces way[STEP_WAYS];
} step_ways;

/* pieces: those of STEP_AS_ASKED, without any yet. */
void step_ways_init(step_ways *w, const step_pieces *pieces);
void step_ways_free(step_ways *w);
/* Later pieces leave so many bytes of the limit for params of other programs. */
void step_ways_reserve(step_ways *w, uint64_t bytes);

typedef struct {
  hp_program_stats stats;
  bool refused; /* the limit is too small; stats.memory is what would do */
} step_plan;

/* Does it keep anything on slower tiers? */
bool step_plan_offloads(const step_plan *p);
/* The plan of a step by one way, and, unless `what` is NULL, what hp_link_plan says of it. */
hp_status step_plan_make(step_pieces *s, const micro_shape *shape, int64_t n, step_plan *out,
                         const char *what, char **text);
/* The faster way of those that the limit allows, and its plan; of two that are refused, the one
 * that needs less. */
hp_status step_choose(step_ways *w, const micro_shape *shape, int64_t n, step_way *way,
                      step_plan *out);

#endif
