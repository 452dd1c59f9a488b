/* The losses for training: one row of losses.def for each value of the key `stage`.
 *
 * A row has all that is specific to the stage: how texts become samples, the losses of a
 * micro-batch, and a metric that evaluations report besides their loss.  Batches, steps and
 * checkpoints do not depend on the stage.  The choices and the help of `stage` are generated from
 * the rows. */
#ifndef TRAIN_LOSSES_H
#define TRAIN_LOSSES_H

#include "model/lm_eval.h"
#include "train/step_graph.h"
#include "train/train_data.h"

/* Makes samples of those of d.  shown: the name of d in messages. */
typedef hp_status loss_samples(const train_config *c, const token_rules *r, const char *shown,
                               const dataset *d, pool *p, sample_set *out);
/* `each` adds the losses of a micro-batch, or of a batch of an evaluation, to the graph: labels
 * [B,T] are shifted; LABEL_NONE = no loss.  The loss of a step is the sum over all micro-batches,
 * that of an evaluation the sum over all samples; both are divided by the number of labels other
 * than LABEL_NONE. */

typedef struct {
  const char *stage; /* value of the key `stage`; the other fields are NULL if it is not built */
  dataset_kind data; /* what it trains on */
  loss_samples *samples;
  lm_losses *each;
  preference_kind preference; /* how samples are compared; `each` is then for evaluations alone */
  /* Name of the metric that evaluations report, and its value for a loss; NULL: none. */
  const char *metric;
  double (*metric_of)(double loss);
} train_loss;

/* Samples of an evaluation by predict_with_generate: the prompt, whose labels are LABEL_NONE, then
 * the expected answer. */
loss_samples answer_samples;

/* What evaluations compute of a batch, and how many numbers of each token. */
lm_losses *losses_of_evaluation(const step_options *o);
int64_t losses_each(const step_options *o);

/* By stage: losses[STAGE_pt]. */
extern const train_loss losses[];

#define NOT_BUILT(stage)
#define LOSS(stage, data, samples, each, metric, metric_of, help)                                  \
  loss_samples samples;                                                                            \
  lm_losses each;
#define PREFERENCE(stage, data, samples, ...) loss_samples samples;
#include "train/losses.def"
#undef LOSS
#undef PREFERENCE
#undef NOT_BUILT

#endif
