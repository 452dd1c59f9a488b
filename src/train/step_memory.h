/* Memory that a device needs for an optimizer step with all its micro-batches, found by planning
 * them: nothing runs. */
#ifndef TRAIN_STEP_MEMORY_H
#define TRAIN_STEP_MEMORY_H

#include "train/step.h"

enum { STEP_PLACES = 4 }; /* of a batch: first of a step, between, last; in an evaluation */
/* The micro-batches of a step, those between the first and the last as one, for they are alike, and
 * the batch of an evaluation, where there is one. */
typedef struct {
  step_micro at[STEP_PLACES];
  int64_t times[STEP_PLACES]; /* that it comes in a step */
  int n;
} step_places;
/* So many micro-batches [B,T]; rows: of an evaluation, 0: none. */
step_places step_places_of(int64_t B, int64_t T, int64_t micros, int64_t rows);

typedef struct {
  hp_program_stats stats; /* of the micro-batch that needs most; memory.state: of the whole step */
  int fullest;            /* its place */
  uint64_t planned_bytes; /* of a device, evaluations too */
  double step_s, exposed_copy_s; /* of the whole step, predicted */
} step_memory;
/* What a step takes under the memory limit of d. */
hp_status step_memory_plan(lm *m, const step_options *o, const step_places *b, hp_device *d,
                           step_memory *out);

/* What any limit makes of it.  least: the least that is not refused; one byte less is.  The search
 * for it ends after about `seconds`: then least is 0, and enough is a limit that is not refused, or
 * 0 where a single plan under a limit would take longer. */
typedef struct {
  uint64_t resident; /* what step and evaluation take without any limit */
  uint64_t least, enough;
} step_limits;
/* d is to have the limit `limit`, which it keeps. */
hp_status step_memory_limits(lm *m, const step_options *o, const step_places *b, hp_device *d,
                             uint64_t limit, double seconds, step_limits *out);

#endif
