/* finetuning_type freeze: the last layers, or the first, or some of their modules are trained. */
#ifndef TRAIN_TRAIN_FREEZE_H
#define TRAIN_TRAIN_FREEZE_H

#include "model/lm.h"
#include "train/train_config.h"

hp_status train_freeze_apply(const train_config *c, lm *m);

#endif
