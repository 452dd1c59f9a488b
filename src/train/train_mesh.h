/* A mesh of one's own: device_matrix, alias_name and tensor_map of the hyper_parallel block. */
#ifndef TRAIN_TRAIN_MESH_H
#define TRAIN_TRAIN_MESH_H

#include "train/train_config.h"

/* Checks the three keys, and devices and strategy beside them; writes c->is.mesh, "" for none, and
 * c->devices where there is one. */
hp_status train_mesh_decide(train_config *c);
/* Does the configuration ask for several devices? */
bool train_mesh_is_many(const train_config *c);
/* Data-parallel replicas: shards into which the mesh cuts the samples of a batch. */
int64_t train_mesh_replicas(const train_config *c);
/* Opens the device that the configuration asks for: its mesh, else that of its strategy; plan_only
 * as in hp_device_options. */
hp_status train_mesh_open(const train_config *c, bool plan_only, hp_device **out);
/* Declares the layouts on d: those of tensor_map, else those of the strategy for the model. */
hp_status train_mesh_apply(const train_config *c, const lm *m, hp_device *d);

#endif
