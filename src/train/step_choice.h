/* Under a memory limit a step may keep its activations on the device or on slower tiers, or compute
 * them again in its backward, in all layers or in some, and it may leave its update to the next
 * step: these ways are planned, and the one that is predicted to be fastest is taken.  None changes
 * a bit. */
#ifndef TRAIN_STEP_CHOICE_H
#define TRAIN_STEP_CHOICE_H

#include "train/step_pieces.h"

enum { STEP_AS_ASKED, STEP_WITH_REMAT, STEP_WITH_SOME, STEP_WAYS };
enum { STEP_BY_STAGE = STEP_WAYS }; /* a way with the pieces of the first two */
enum { STEP_CHOSEN_STAGES = 1024 }; /* the most with a choice of their own */

typedef struct {
  int way;
  int blocks;                            /* STEP_WITH_SOME: layers of each stage with remat */
  bool leaves;                           /* its update, to the next step */
  uint8_t remat[STEP_CHOSEN_STAGES / 8]; /* STEP_BY_STAGE: a bit for each stage with remat */
} step_choice;

static inline bool step_choice_remats(const step_choice *c, int stage) {
  return c->remat[stage / 8] >> (stage % 8) & 1;
}

/* The pieces of steps, by each way. */
typedef struct {
  step_pieces way[STEP_WAYS];
  const char *what; /* of the next choices, as hp_link_plan; NULL: nothing */
  char *text;       /* what it says of the plan that was chosen last */
} step_ways;

/* Are the pieces of a way, from STEP_AS_ASKED on, part of this choice? */
static inline bool step_choice_has(const step_choice *c, int way) {
  return c->way == way || (c->way == STEP_BY_STAGE && way <= STEP_WITH_REMAT);
}

/* pieces: those of STEP_AS_ASKED, without any yet. */
void step_ways_init(step_ways *w, const step_pieces *pieces);
void step_ways_free(step_ways *w);
/* Later pieces leave so many bytes of the limit for params of other programs. */
void step_ways_reserve(step_ways *w, uint64_t bytes);
/* The text of the last choice, for the caller; hp_free. */
char *step_ways_take_text(step_ways *w);
/* For later choices. */
void step_ways_set_update(step_ways *w, step_update_when when);

typedef struct {
  hp_program_stats stats;
  bool refused; /* the limit is too small; stats.memory is what would do */
} step_plan;

/* Does it keep anything on slower tiers? */
bool step_plan_offloads(const step_plan *p);
/* A step of n micro-batches of these shapes between others, by a choice: with the update that the
 * one before has left, if it leaves its own. */
step_spec step_spec_of(const micro_shape *shape, int64_t n, const step_choice *c);
/* The arguments of hp_link for a step by a choice; as step_pieces_link. */
hp_status step_ways_link(step_ways *w, const step_spec *spec, const step_choice *c, step_link *out);
/* What that link gave. */
void step_ways_linked(step_ways *w, const step_choice *c, int64_t n,
                      const hp_program_stats *linked);
/* The plan of a step by a choice, and, unless `what` is NULL, what hp_link_plan says of it. */
hp_status step_plan_make(step_ways *w, const micro_shape *shape, int64_t n, const step_choice *c,
                         step_plan *out, const char *what, char **text);
/* The fastest way of those that the limit allows, and its plan; of those that are refused, the one
 * that needs least. */
hp_status step_choose(step_ways *w, const micro_shape *shape, int64_t n, step_choice *c,
                      step_plan *out);

#endif
