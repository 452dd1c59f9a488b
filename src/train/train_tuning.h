/* What of the model is trained: finetuning_type and its keys, with LlamaFactory's meaning. */
#ifndef TRAIN_TRAIN_TUNING_H
#define TRAIN_TRAIN_TUNING_H

#include "model/lm.h"
#include "train/train_config.h"

/* Refuses a type that is not built, and keys of adapters with another type than lora: of every
 * command that reads the configuration. */
hp_status train_tuning_check(const train_config *c);
/* A rule of the configuration: refuses what is not built, and keys of another type. */
hp_status train_tuning_decide(train_config *c);
/* Applies it to the model, before its layouts are declared. */
hp_status train_tuning_apply(const train_config *c, lm *m);
/* The folder of the i-th adapter. */
hp_status train_tuning_folder(const train_config *c, size_t i, str *out);

#endif
