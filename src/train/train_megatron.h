/* The parallel keys of Megatron and LlamaFactory, as other spellings of a strategy and of the
 * pipeline: block.
 *
 * Sizes have the meaning that they have there: data parallelism takes what `devices` leaves, and
 * experts are sharded by expert_tensor_parallel_size, or like the rest by
 * tensor_model_parallel_size. */
#ifndef TRAIN_TRAIN_MEGATRON_H
#define TRAIN_TRAIN_MEGATRON_H

#include "base/str.h"
#include "train/train_config.h"

/* The first of the keys that forms a strategy; NULL: none is set. */
const tree_node *train_megatron_at(const train_config *c);
/* The strategy that they form, in *text; devices: 0 if they are not given.  *out NULL: no key is
 * set. */
hp_status train_megatron_strategy(train_config *c, int64_t devices, str *text, const char **out);
/* pp_schedule, into c->is.pipe_schedule; after the pipeline: block. */
hp_status train_megatron_schedule(train_config *c);
/* Compares them with the strategy, device_matrix and stages; virtual stages are the stages of
 * the pipeline. */
hp_status train_megatron_check(train_config *c);

#endif
