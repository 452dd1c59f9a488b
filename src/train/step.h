/* Optimizer steps: forward, loss, backward over micro-batches, clip, update, as one program a step.
 *
 * The program is linked from pieces (train/step_pieces.h) for the shapes of the step's
 * micro-batches, and kept with those of a few other steps: a shape that comes again costs nothing,
 * one that is new costs its pieces.
 *
 * A step may leave its update to the next one (step_options.update).  Until that has run, or
 * stepper_settle, params and optimizer state are those of the step before. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/step_graph.h"

typedef struct stepper stepper;

/* m is on a device, and outlives the stepper. */
hp_status stepper_create(lm *m, const step_options *o, stepper **out);
void stepper_free(stepper *s);

/* A micro-batch; labels are shifted (labels[t] is to be predicted at t), -100 = not counted. */
typedef struct {
  int64_t B, T;
  const int32_t *ids, *labels;
  const int32_t *lengths;   /* [B] tokens of a row that are not padding; NULL: all of them */
  const int32_t *positions; /* [B,T]; NULL: those in the row */
  const int32_t *span;      /* [B,T,2] of a model with spans: the tokens that each sees */
  /* Of preferences: inputs and outputs of preference_losses; NULL: not needed. */
  const float *ref, *sign, *gain, *own; /* [B], and [B/2] of samples */
  const int32_t *beyond;                /* [B] */
  int32_t width;                        /* tokens of a row whose logits are summed */
  float *logps, *logits;
  double weight; /* factor on the sum of token losses: 1 / labels counted in the whole step */
} step_micro;

typedef struct {
  double lr;
  int64_t t; /* number of the update, from 1 */
} step_update;

typedef struct {
  double loss;      /* of all micro-batches, weighted, added up in f32 */
  double grad_norm; /* before clipping */
} step_result;

/* Makes what stepper_run needs for these n micro-batches, after a step that left its update and
 * after none; only their sizes are read. */
hp_status stepper_prepare(stepper *s, const step_micro *b, int64_t n);
/* Micro-batches, and the update after them. */
typedef struct {
  const step_micro *micro; /* [n] */
  int64_t n;
  step_update update;
} step_following;
/* One step, of n micro-batches.  next: what the next call will run, some of whose forwards this one
 * may run (stepper_looks_ahead); NULL: not known.  HP_ERR_NUMERIC when a loss or a gradient is not
 * finite: names the tensor. */
hp_status stepper_run(stepper *s, const step_micro *b, int64_t n, const step_update *u,
                      const step_following *next, step_result *out);
/* Is there any use in knowing the next step? */
bool stepper_looks_ahead(const stepper *s);

/* Applies the update that the last step has left, if any: call it before anything else reads params
 * or optimizer state. */
hp_status stepper_settle(stepper *s);

/* The program that ran last, for reports; NULL before the first. */
const hp_program *stepper_program(const stepper *s);
/* Most work memory that a program planned, and seconds spent compiling. */
uint64_t stepper_work_bytes(const stepper *s);
double stepper_compile_seconds(const stepper *s);

#endif
