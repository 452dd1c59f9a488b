/* The graph of one micro-batch of an optimizer step: forward, loss, backward; the last one of a
 * step clips and updates, too.  Gradients live in the work memory when a step has one micro-batch;
 * with several they are tensors of the device, to which each micro-batch adds its own in place. */
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

/* What decides the graph of a micro-batch [B,T]. */
typedef struct {
  int64_t B, T;
  bool first, last; /* of the step */
} step_place;

/* Inputs: ids, positions, labels i32[B,T], weight f32[] (factor on the sum of token losses);
 * dropout_seed i64[] and lengths i32[B] where step_drops and step_balances say so; of the last lr
 * f32[] and, for AdamW, lr_over_bc1 and sqrt_bc2.  Outputs: loss f32[]; of the last grad_norm f32[]
 * and grad_sq f32[params].  Ended by lm_graph_end, also after a failure. */
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
