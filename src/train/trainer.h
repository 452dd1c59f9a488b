/* `hyper train`: a run of stage pt from its configuration to its exported model. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "train/step.h"
#include "train/train_config.h"

/* Runs it.  HP_OK also if a signal ended it after a checkpoint.  Messages and progress go to
 * stderr; the files of the run are in output_dir (docs/internals/train.md). */
hp_status trainer_run(const train_config *c);
/* The model and devices of its steps. */
step_options trainer_step_options(const train_config *c);
/* The model of a configuration, as it is trained, without weights, on its devices; with `plan`
 * devices and model have no memory, for compiling only.  The caller frees both; after an error
 * one may exist, so the caller sets them to NULL before.  The groups of c->is.place get their
 * layers. */
hp_status trainer_open_model(train_config *c, bool plan, hp_device **d, lm **m);

#endif
