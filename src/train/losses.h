/* The losses for training: a row each, in losses.def.
 *
 * A row is what a stage of training adds to the rest: how texts become samples, the losses that are
 * added up, and the figure that the results of an evaluation have beside their loss.  Batches,
 * steps and checkpoints know no stage.  The choices of the key `stage` and its help come from the
 * rows too. */
#ifndef TRAIN_LOSSES_H
#define TRAIN_LOSSES_H

#include "model/lm_eval.h"
#include "train/train_data.h"

/* The samples of the texts of d; shown: their name in messages. */
typedef hp_status loss_samples(const train_config *c, const token_rules *r, const char *shown,
                               const dataset *d, pool *p, sample_set *out);
/* The losses of a micro-batch or of a batch of an evaluation: labels [B,T] are shifted, LABEL_NONE
 * = no loss.  A step's loss is the sum over all its micro-batches, and that of an evaluation the
 * sum over its samples, divided by the labels that count. */

typedef struct {
  const char *stage; /* value of the key `stage`; the other fields are NULL if it is not built */
  loss_samples *samples;
  lm_losses *each;
  /* The figure of an evaluation that is made from its loss; NULL: none. */
  const char *metric;
  double (*metric_of)(double loss);
} train_loss;

/* By stage: losses[STAGE_pt]. */
extern const train_loss losses[];

#define NOT_BUILT(stage)
#define LOSS(stage, samples, each, metric, metric_of, help)                                        \
  loss_samples samples;                                                                            \
  lm_losses each;
#include "train/losses.def"
#undef LOSS
#undef NOT_BUILT

#endif
