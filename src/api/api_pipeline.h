/* Programs of a device that is a pipeline: one for each of its meshes. */
#ifndef API_API_PIPELINE_H
#define API_API_PIPELINE_H

#include "api/api_program.h"
#include "compile/pipeline_rows.h"
#include "rt/pipeline_runs.h"
#include "rt/transfer.h"

typedef struct pipeline_program {
  hp_device *d;
  hp_program **part; /* [d->meshes]; NULL: the mesh has nothing to do */
  transfer_row *row; /* of values that cross */
  pipeline_runs *runs;
  pipeline_plan plan;
} pipeline_program;

/* The program of a graph on all meshes, one after the other; and its plan, as hp_plan and, with
 * `what`, hp_plan_explain. */
hp_status api_pipeline_program(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                               hp_program *h);
hp_status api_pipeline_plan_graph(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                                  hp_program_stats *out, const char *what, str *text);
void api_pipeline_free(pipeline_program *p);
/* Numbers of the meshes together: memory of the fullest device, work of all. */
hp_status api_pipeline_stats(const pipeline_program *p, hp_program_stats *out);
/* The k-th mesh with a program, from 0; NULL: there are fewer. */
hp_program *api_pipeline_part(const pipeline_program *p, int k);

#endif
