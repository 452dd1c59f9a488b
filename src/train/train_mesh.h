/* The user's own mesh: device_matrix, alias_name and tensor_map of the hyper_parallel block. */
#ifndef TRAIN_TRAIN_MESH_H
#define TRAIN_TRAIN_MESH_H

#include "train/train_config.h"

/* Checks the three keys, and their consistency with devices and strategy; writes c->is.mesh ("":
 * none), and c->devices if there is a mesh. */
hp_status train_mesh_decide(train_config *c);
/* Does the configuration use several devices? */
bool train_mesh_is_many(const train_config *c);
/* Data-parallel replicas: shards of the samples of a batch on the mesh. */
int64_t train_mesh_replicas(const train_config *c);
/* "(2,2)(dp,tp)", for hp_device_options, which may be in *text; NULL: one device. */
hp_status train_mesh_text(const train_config *c, str *text, const char **out);
/* Opens the device of the configuration: its mesh, else those of its strategy or groups, whose
 * layers are found; plan_only as in hp_device_options. */
hp_status train_mesh_open(const train_config *c, bool plan_only, hp_device **out);
/* Fails at the key that says the schedule of the pipeline d if it has no steps of so many
 * micro-batches; which: begins the message, "" or why they are so many. */
hp_status train_mesh_check_microbatches(const train_config *c, const hp_device *d, int64_t n,
                                        const char *which);
/* Declares the layouts on d: those of tensor_map, else those of the placement for the model. */
hp_status train_mesh_apply(const train_config *c, lm *m, hp_device *d);

#endif
