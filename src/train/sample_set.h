/* Samples of one kind, as tokens, in one piece of memory. */
#ifndef TRAIN_SAMPLE_SET_H
#define TRAIN_SAMPLE_SET_H

#include "train/train_config.h"

enum { LABEL_NONE = -100 }; /* no loss at this token */

/* Samples of one kind: those to train on, or one evaluation set. */
typedef struct {
  const char *name; /* of a separate evaluation set (eval_on_each_dataset); else "" */
  int32_t *ids;     /* all samples, one after another */
  /* Of each token: its label (NULL: itself, unless it is the pad token); its position (NULL: that
   * in the sample); the first token that it sees (NULL: the sample's first). */
  int32_t *labels, *position, *first;
  int64_t *start; /* of each row, and the end: samples x each + 1 entries */
  int64_t samples;
  int each;         /* rows of a sample: 0 and 1: one; 2: preferences */
  float *ref;       /* of each row: its log-probability by the reference model; NULL: none */
  bool *good;       /* stage kto: of each sample; else NULL */
  int64_t longest;  /* tokens of the longest sample, and of padding after it */
  int64_t multiple; /* a batch is as long as a multiple of so many tokens; 0: of one */
} sample_set;
void sample_set_free(sample_set *s);
/* Tokens of the row in front of its first label: the prompt of a sample to be answered. */
int64_t sample_set_prompt(const sample_set *s, int64_t row);

/* Samples that are packed together, [first, last): groups of
 * preprocessing_batch_size, counted anew for each of the preprocessing_num_workers equal parts of
 * the data.  sample_group_first(c, n) is in front of the first of n samples' groups. */
typedef struct {
  int64_t n, workers, group;
  int64_t worker, first, last;
} sample_group;
sample_group sample_group_first(const train_config *c, int64_t n);
bool sample_group_next(sample_group *g);

#endif
