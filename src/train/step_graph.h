/* The graphs that an optimizer step is made of.  A step of one micro-batch is one graph: forward,
 * loss, backward, clipping, update; its gradients live in work memory.  With several micro-batches
 * each has a graph of forward, loss and backward, which adds its gradients in place to tensors of
 * the device, and clipping and update are a graph of their own. */
#ifndef TRAIN_STEP_GRAPH_H
#define TRAIN_STEP_GRAPH_H

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
  int64_t interleave; /* chunks of a micro-batch: one is sent while another is computed; 0
                         and 1: whole; without dropout, where it divides the sequences */
} step_options;

typedef enum {
  STEP_ALONE, /* forward, backward and update of the only micro-batch */
  STEP_FIRST, /* forward and backward, whose gradients are stored, */
  STEP_NEXT,  /* or added to those of the micro-batches before */
  STEP_UPDATE
} step_part;

/* What decides a graph: micro-batches are [B,T]; an update has B = T = 0. */
typedef struct {
  step_part part;
  int64_t B, T;
} step_place;

/* Inputs of a micro-batch: ids, positions, labels i32[B,T], weight f32[] (factor on the sum of
 * token losses); dropout_seed i64[] and lengths i32[B] where step_drops and step_balances say so;
 * output: loss f32[].  Inputs of the update: lr f32[] and, for AdamW, lr_over_bc1 and sqrt_bc2;
 * outputs: grad_norm f32[] and grad_sq f32[params].  Ended by lm_graph_end, also after a failure.
 */
hp_status step_graph_begin(const lm *m, const step_options *o, const step_place *v, model_build *b);
/* Told once: activations are recomputed, though nobody asked for it. */
void step_tell_remat(void);
/* Warns of what was asked for and cannot be done for such a micro-batch. */
void step_graph_tell(const lm *m, const step_options *o, const step_place *v);

bool step_drops(const lm *m, const step_options *o);
bool step_balances(const lm *m);
/* Tensors of the optimizer for a parameter: "m.NAME", "v.NAME" (AdamW), "m.NAME" (SGD). */
int step_states(const step_options *o);

#endif
