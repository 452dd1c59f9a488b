/* The graphs of an optimizer step.  A step with one micro-batch is one graph: forward, loss,
 * backward, clipping and update, with gradients in work memory.  In a step with several, each
 * micro-batch has a graph of forward, loss and backward, which adds its gradients in place to named
 * tensors of the device; clipping and update are one more graph.
 *
 * Under a memory limit the update may be left to the next step, whose forward it precedes: its
 * graph is then in two, the norm of the gradients and what applies them. */
#ifndef TRAIN_STEP_GRAPH_H
#define TRAIN_STEP_GRAPH_H

#include "model/lm.h"
#include "train/optimizer.h"
#include "train/preference.h"

/* When the update runs: at the end of its step, or in the next step, where each param is updated
 * just before its first use, so that optimizer state moves while the model computes; AUTO: there if
 * a step under the memory limit is predicted to be faster.  The same bits. */
typedef enum { UPDATE_AUTO, UPDATE_AT_END, UPDATE_NEXT_STEP } step_update_when;

typedef struct {
  int stage;             /* decides the loss: the row of losses.def, from STAGE_pt on */
  preference preference; /* of stages that learn preferences */
  bool accuracy;         /* evaluations tell how many tokens are found */
  optimizer_options optimizer;
  double clip;                /* largest global norm of the gradients; 0 = no clipping */
  hp_compile_options compile; /* of all its programs */
  bool remat_auto;            /* recompute activations where that is faster than offloading, or
                                 the only way to keep to the memory limit */
  step_update_when update;
  bool ahead;   /* on a pipeline, in steps of several micro-batches: where it is predicted to be
                   faster, forwards of the next step run before the update (step_place.ahead) */
  bool limited; /* the device has a memory limit */
  bool dropout; /* apply the model's dropout; its masks follow from the seed, the number of the
                   update and that of the micro-batch */
  double noise; /* on the embeddings: neftune_noise_alpha; 0: none.  Drawn as the masks are */
  uint64_t seed;
  int64_t interleave; /* split a micro-batch into so many chunks, so that communication of one
                         overlaps with computation of another; 0 and 1: no split.  Ignored with
                         dropout or noise, and if it does not divide the sequences of a replica */
  int64_t replicas;   /* that share the sequences of a micro-batch; 0: one */
} step_options;

typedef enum {
  STEP_ALONE, /* forward, backward and update of the only micro-batch */
  STEP_FIRST, /* forward and backward of the first micro-batch, which stores the gradients */
  STEP_NEXT,  /* of a later one, which adds its gradients to the stored ones */
  STEP_UPDATE,
  STEP_NORM, /* the first half of the update: the gradients' norm, and the factor of clipping, */
  STEP_APPLY /* and the second, with that factor */
} step_part;

/* Is it a forward and backward? */
static inline bool step_part_is_micro(step_part p) { return p <= STEP_NEXT; }

/* Graphs with the same place are equal.  A micro-batch is [B,T]; the update has B = T = 0. */
typedef struct {
  step_part part;
  int64_t B, T;
  /* The gradient of a tied head has a sum of its own besides that of the lookup, until the update
   * adds the two: so in a pipeline it crosses once a step, and bits do not depend on stages.  In
   * steps of several micro-batches, of models with an lm_tied_param. */
  bool head_sum;
  /* The update begins with the params' new values as they are if nothing is clipped, outputs
   * ahead.NAME, by which rows of the next step may run before it. */
  bool ahead;
} step_place;

/* Builds the graph.  Inputs of a micro-batch: ids, positions, labels i32[B,T], weight f32[] (factor
 * on the sum of token losses), dropout_seed i64[] if step_draws, lengths i32[B] if step_balances,
 * and those of preference_losses with its outputs; output: loss f32[].  Inputs of the update: the
 * numbers of the optimizer, f32[]; outputs: grad_norm f32[] and grad_sq f32[params].  With `ahead`
 * also the input ahead_clip f32[], which is 1, and the output clip_factor f32[], which is 1 too if
 * the values of ahead.NAME are those of NAME afterwards.
 * The norm alone has the output next_clip f32[] besides these, which is the input clip of
 * STEP_APPLY.  Call lm_graph_end, also after a failure.
 */
hp_status step_graph_begin(const lm *m, const step_options *o, const step_place *v, model_build *b);
/* Warns of what was asked for and cannot be done for such a micro-batch; false: there is nothing.
 */
bool step_graph_tell(const lm *m, const step_options *o, const step_place *v);

/* Does a step draw random numbers: masks of dropout, or noise? */
bool step_draws(const lm *m, const step_options *o);
/* Does the loss contain the load-balancing loss of a router? */
bool step_balances(const lm *m, const step_options *o);

#endif
