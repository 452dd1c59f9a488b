/* Runs of a program on all meshes of a pipeline at once: inputs and outputs go to the meshes that
 * have them. */
#ifndef RT_PIPELINE_RUNS_H
#define RT_PIPELINE_RUNS_H

#include "rt/run.h"

typedef struct pipeline_runs pipeline_runs;
hp_status pipeline_runs_create(device_mesh *d, pipeline_runs **out);
/* The loaded program of the i-th mesh, which outlives the runs. */
hp_status pipeline_runs_add(pipeline_runs *r, int i, runs *of);
/* how: EXEC_*, the same on all processes. */
hp_status pipeline_runs_run(pipeline_runs *r, const hp_io *io, int n, unsigned how);
/* exec_can_continue of all devices of this process. */
bool pipeline_runs_can_continue(const pipeline_runs *r);
/* An input or output of a mesh, in the same order on all processes.  What a process has no device
 * for is known there by this; outputs are sent to all processes. */
hp_status pipeline_runs_name(pipeline_runs *r, int i, const char *name, const ir_value *type,
                             bool is_output);
void pipeline_runs_free(pipeline_runs *r);

#endif
