/* `hyper train`: a run of stage pt from its configuration to its exported model. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "train/step.h"
#include "train/train_config.h"

/* Runs it.  HP_OK also when a signal ended it after a checkpoint.  Messages and progress go to
 * stderr; what the run leaves behind lies in output_dir (docs/internals/train.md). */
hp_status trainer_run(const train_config *c);
/* What its steps are made of. */
step_options trainer_step_options(const train_config *c);
/* What the configuration says of experts, into the model's; refuses what is not built of theirs. */
hp_status trainer_decide_experts(const train_config *c, lm *m);

#endif
