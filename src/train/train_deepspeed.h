/* The `deepspeed` key: a file of DeepSpeed's own, or its keys as a map.
 *
 * zero_optimization.stage is `zero` of the strategy; offload_optimizer and offload_param are
 * offload.optimizer and offload.weights (device cpu: host, nvme: flash in nvme_path).  Numbers that
 * the training file says too must be the same, or "auto".  All other keys are without effect, and
 * told once. */
#ifndef TRAIN_TRAIN_DEEPSPEED_H
#define TRAIN_TRAIN_DEEPSPEED_H

#include "train/train_config.h"

/* Reads it into c->is.deepspeed; before the mesh and the tiers are decided. */
hp_status train_deepspeed_read(train_config *c);
/* The stage, into the strategy that `text` says. */
hp_status train_deepspeed_apply_stage(const train_config *c, const char *text, strategy *s);
/* Numbers that both say. */
hp_status train_deepspeed_check(train_config *c);

#endif
