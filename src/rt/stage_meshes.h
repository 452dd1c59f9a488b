/* A device that is a pipeline: meshes of the devices of one job, one for each group of stages.
 *
 * What is called the device then is a mesh of all of them, which holds the job's devices but no
 * tensors and no programs of its own: named tensors are on the meshes of their stages, and a
 * program has one for each mesh.  Functions for any device go through its meshes; a device that is
 * no pipeline has one, itself. */
#ifndef RT_STAGE_MESHES_H
#define RT_STAGE_MESHES_H

#include "rt/device_mesh.h"

/* A device of any kind.  Meshes of a pipeline have ";" between them, "(2)(dp);(3)(dp)"; without
 * ranks they have the next ones of the job.  o->pipeline, o->stages: see hyperparallel.h. */
hp_status stage_meshes_open(const hp_device_options *o, device_mesh **out);
void stage_meshes_close(device_mesh *dm);

/* The schedule of a pipeline, for training steps of n micro-batches: as pipe_generate, or
 * pipe_rows_parse, but for one micro-batch, which any schedule but rows takes stage by stage. */
hp_status stage_meshes_check_microbatches(const device_mesh *dm, int64_t n);

static inline bool is_pipeline(const device_mesh *dm) { return dm->meshes > 0; }
static inline int stage_meshes_count(const device_mesh *dm) { return dm->meshes ? dm->meshes : 1; }
static inline device_mesh *stage_mesh(const device_mesh *dm, int i) {
  return dm->meshes ? dm->stage_mesh[i] : (device_mesh *)dm;
}

enum { STAGE_ALL = -1, STAGE_UNKNOWN = -2 };
/* Names of tensors that are on a stage; STAGE_ALL: on all of them.  The last rule for a name
 * counts. */
hp_status stage_meshes_rule(device_mesh *dm, const char *name, int stage);
int stage_meshes_find(const device_mesh *dm, const char *name);
/* Is a tensor of that name created on the i-th mesh?  HP_ERR_ARG if no rule says its stage. */
hp_status stage_meshes_holds(const device_mesh *dm, const char *name, int i, bool *out);
/* The first mesh that has the tensor, and its index there; -1: none has it. */
int stage_meshes_where(const device_mesh *dm, const char *name, uint32_t *index);
/* As device_mesh_read, of the tensor with that index on the mesh number `on`: into the data of each
 * process that has some, also of those without a device of that mesh. */
hp_status stage_meshes_read(const device_mesh *dm, int on, uint32_t index, void *data);
/* Params of all meshes, each name once. */
int stage_meshes_params(const device_mesh *dm);
/* Of the param number i of the device, counted mesh by mesh; false: there are fewer. */
bool stage_meshes_param(const device_mesh *dm, int i, int *on, uint32_t *index);

#endif
