/* The losses that a model can be trained with: a row each, in losses.def.
 *
 * A row is what a stage of training adds to the rest: how texts become samples, what a micro-batch
 * sums over, and the figure that the results of an evaluation have beside their loss.  Batches,
 * steps and checkpoints know no stage.  The choices of the key `stage` and its help come from the
 * rows too. */
#ifndef TRAIN_LOSSES_H
#define TRAIN_LOSSES_H

#include "train/train_data.h"

/* The samples of the texts of d; shown: what they are, for messages. */
typedef hp_status loss_samples(const train_config *c, const token_rules *r, const char *shown,
                               const dataset *d, pool *p, sample_set *out);
/* The sum of the losses of a micro-batch, a scalar; the step's loss is that of all its
 * micro-batches over the labels that count in them.  logits [B,T,V]; labels [B,T], shifted,
 * LABEL_NONE = no loss. */
typedef hp_tensor loss_sum(hp_graph *g, hp_tensor logits, hp_tensor labels);

typedef struct {
  const char *stage; /* as the key `stage` names it; all else is NULL where it is not built */
  loss_samples *samples;
  loss_sum *sum;
  /* The figure of an evaluation that is made from its loss; NULL: none. */
  const char *metric;
  double (*metric_of)(double loss);
} train_loss;

/* By stage: losses[STAGE_pt]. */
extern const train_loss losses[];

#define NOT_BUILT(stage)
#define LOSS(stage, samples, sum, metric, metric_of, help)                                         \
  loss_samples samples;                                                                            \
  loss_sum sum;
#include "train/losses.def"
#undef LOSS
#undef NOT_BUILT

#endif
