/* Megatron's keys for the layers of stages: pipeline_model_parallel_layout,
 * decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers,
 * num_layers_per_virtual_pipeline_stage and microbatch_group_size_per_virtual_pipeline_stage.
 *
 * A layout is a cut.  The other three numbers of layers say how many stages or layers of stages
 * there are only with the number of layers of the model, so they are decided in two steps. */
#ifndef TRAIN_TRAIN_MEGATRON_LAYERS_H
#define TRAIN_TRAIN_MEGATRON_LAYERS_H

#include "train/train_config.h"

/* pipeline_model_parallel_layout, into c->is.pipe_cut; after the pipeline: block. */
hp_status train_megatron_layout(train_config *c);
/* The keys against each other and the strategy, which is decided; the interleaved schedule where
 * devices have several stages and none is given. */
hp_status train_megatron_layers(train_config *c);
/* What follows from the number of layers: stages, and layers of each; before a device is opened. */
hp_status train_megatron_fit(train_config *c, int64_t layers);

#endif
