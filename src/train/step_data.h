/* The micro-batches of a step, drawn from the data at once: they are run as one program. */
#ifndef TRAIN_STEP_DATA_H
#define TRAIN_STEP_DATA_H

#include "train/step.h"
#include "train/train_data.h"

/* Of a micro-batch of preferences: inputs of samples, and what its rows give. */
typedef struct {
  float *sign, *gain, *own; /* of samples */
  float *logps, *logits;    /* of rows */
  int64_t *counts;          /* of rows: tokens that are learned */
  int32_t *beyond;          /* of rows: preference_find_rest */
} step_answers;
/* For so many rows; step_answers_free, also after a failure. */
hp_status step_answers_create(int64_t rows, step_answers *out);
void step_answers_free(step_answers *a);

typedef struct {
  int64_t n, most;       /* micro-batches of the step at hand, and room */
  train_batch *batch;    /* [most] */
  int32_t **shifted;     /* [most] labels moved one to the left, for the graph */
  step_micro *micro;     /* [most] */
  step_answers *answers; /* [most] of preferences; NULL: none */
  preference preference;
  bool smooths; /* label smoothing: each micro-batch is divided by its own labels, as Transformers
                   has it, whose losses then are sums over the micro-batches */
  int64_t tokens, texts, padded; /* of the step: computed, without padding, with that of replicas */
} step_data;

/* Room for steps of `micros` micro-batches of so many tokens of d; step_data_free, also on failure.
 */
hp_status step_data_create(int64_t micros, int64_t tokens, const train_data *d, const preference *p,
                           step_data *out);
void step_data_free(step_data *s);
/* Each loss is weighted by the labels of the whole step that count; those of preferences by the
 * samples of their micro-batch and its share of the step. */
void step_data_draw(step_data *s, train_data *d, const sampler_step *at);
/* Adds what the step's micro-batches of preferences gave; words: of the vocabulary. */
void step_data_measure(const step_data *s, int64_t words, preference_metrics *m);
/* Labels of b moved one to the left, row by row: position t is to predict token t + 1. */
void step_data_shift(const train_batch *b, int32_t *out);

#endif
