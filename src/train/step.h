/* One optimizer step: forward, loss, backward over its micro-batches, clip, update.
 *
 * A program is compiled for every shape of micro-batch and place in the step (first, last) that
 * comes up, and kept.  Gradients live in the work memory when a step has one micro-batch; with
 * several they are tensors of the device, to which each micro-batch adds its own in place. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "model/lm.h"

typedef enum { STEP_ADAMW, STEP_SGD } step_optimizer;

typedef struct {
  int stage; /* whose loss it is: a row of losses.def, STAGE_pt first */
  step_optimizer optimizer;
  double beta1, beta2, eps, decay, momentum;
  double clip;                /* largest norm of all gradients together; 0 = no clipping */
  hp_compile_options compile; /* of all its programs */
  bool remat_auto;            /* recompute activations when the memory limit asks for it */
  bool dropout; /* apply the model's dropout; its masks follow from the seed, the number of the
                   update and that of the micro-batch */
  uint64_t seed;
  int64_t interleave; /* parts of a micro-batch, of which one is sent while another is computed; 0
                         and 1: whole; without dropout, where it divides the sequences */
  bool quiet;         /* plans are not told of */
} step_options;

typedef struct stepper stepper;

hp_status stepper_create(lm *m, const step_options *o, stepper **out);
void stepper_free(stepper *s);

/* A micro-batch; labels are shifted (labels[t] is to be predicted at t), -100 = not counted. */
typedef struct {
  int64_t B, T;
  const int32_t *ids, *labels;
  const int32_t *lengths; /* [B] tokens of a row that are not padding; NULL: all of them */
  double weight;  /* factor on the sum of token losses: 1 / labels counted in the whole step */
  int64_t number; /* in the step, from 0 */
  bool first, last;
  bool scores; /* of a plan: it is a batch of an evaluation, of no step */
} step_micro;

/* What the last micro-batch of a step needs. */
typedef struct {
  double lr;
  int64_t t; /* number of the update, from 1 */
} step_update;

typedef struct {
  double loss;      /* of this micro-batch, weighted */
  double grad_norm; /* of the step, before clipping; set by the last micro-batch */
} step_result;

/* Compiles what stepper_run needs for b, of which only sizes and place are read. */
hp_status stepper_prepare(stepper *s, const step_micro *b);
/* HP_ERR_NUMERIC when loss or a gradient is not finite: names the tensor. */
hp_status stepper_run(stepper *s, const step_micro *b, const step_update *u, step_result *out);

/* What a micro-batch, of which sizes and place are read, would plan on device d, without running
 * it; the model may have no parameters on a device (lm_create with d NULL).  text, unless NULL, is
 * the plan in words (`what` as for hp_explain, hp_free). */
hp_status stepper_plan(lm *m, const step_options *o, const step_micro *b, hp_device *d,
                       hp_program_stats *out, const char *what, char **text);
/* Would the memory of d hold each of these micro-batches of a step, and batches of evaluations, of
 * which only sizes and places are read, and beside it all parameters and states of the step?
 * HP_ERR_OOM names the least that holds all n. */
hp_status stepper_check(lm *m, const step_options *o, const step_micro *b, int n, hp_device *d);

/* Names of the optimizer's tensors of a parameter: "m.NAME", "v.NAME" (AdamW), "m.NAME" (SGD). */
int stepper_states(const step_options *o);
/* The program that ran last, for reports; NULL before the first. */
const hp_program *stepper_program(const stepper *s);
/* Most work memory that a program planned, and seconds spent compiling. */
uint64_t stepper_work_bytes(const stepper *s);
double stepper_compile_seconds(const stepper *s);

#endif
