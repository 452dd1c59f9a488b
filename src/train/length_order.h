/* train_sampling_strategy: group_by_length.  The samples of a step are of similar length, in the
 * order of Transformers' LengthGroupedSampler; evaluations are ordered so, too.
 *
 * All orders of a run come from one generator, torch's, seeded once: every pass over a set draws
 * the seed of its data loader, then its permutation.  So the order of a pass depends on the passes
 * before it, evaluations included, and is a function of the seed and of these alone. */
#ifndef TRAIN_LENGTH_ORDER_H
#define TRAIN_LENGTH_ORDER_H

#include "base/mt19937.h"
#include "train/sample_set.h"
#include "train/train_flow.h"

typedef struct {
  int64_t length, place, sample; /* place: in the permutation */
} length_item;

typedef struct {
  bool on;
  uint64_t seed;
  int64_t batch, eval_batch; /* samples that are grouped: of a step, of an evaluation batch */
  sampler steps;
  train_flow flow;
  const sample_set *eval; /* evals of them */
  int64_t evals;
  int64_t **eval_order; /* of each of them, for the evaluation that was asked for last */
  length_item *room;    /* for the largest set */
  mt19937 random;       /* `drawn` numbers after its seed */
  int64_t drawn;
} length_order;

/* For a run of c with these steps (zeros: none) and sets; c and eval must outlive it.  Without the
 * key it is off, and allocates nothing.  Free with length_order_free, also after a failure. */
hp_status length_order_create(const train_config *c, const sampler *steps, const sample_set *train,
                              const sample_set *eval, int64_t evals, length_order *out);
void length_order_free(length_order *o);

/* order[0..samples): the samples of epoch `epoch` in order. */
void length_order_epoch(length_order *o, const sample_set *train, int64_t epoch, int64_t *order);
/* Evaluations of the run, that after training included. */
int64_t length_order_evaluations(const length_order *o);
/* Fills eval_order for evaluation `i`, from 0. */
void length_order_evaluation(length_order *o, int64_t i);

/* The next pass over s: order[0..samples).  room: for as many items. */
void length_order_draw(mt19937 *random, const sample_set *s, int64_t batch, length_item *room,
                       int64_t *order);

#endif
