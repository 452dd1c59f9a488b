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
/* The model that a configuration names, as it trains it, without weights, on its devices; with
 * `plan` devices and model have no memory, for what is only compiled.  Both are the caller's to
 * free; after an error one may be there, which the caller has set to NULL before. */
hp_status trainer_open_model(const train_config *c, bool plan, hp_device **d, lm **m);

#endif
