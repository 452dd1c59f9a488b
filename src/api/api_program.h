/* What the parts of the API that make programs share. */
#ifndef API_API_PROGRAM_H
#define API_API_PROGRAM_H

#include "api/api_call.h"
#include "compile/compile.h"
#include "rt/explain_layouts.h"
#include "rt/run.h"

struct hp_program {
  runs r; /* of a pipeline no more than its device: */
  struct pipeline_program *pipeline;
  double compile_s;
  uint64_t model[MEM_CLASS_COUNT]; /* bytes of the global model's tensors */
};

/* Begins to compile g for the devices of d; c is to be ended, also after a failure. */
hp_status api_compile_begin(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                            compilation *c);
/* The same with layouts of names that d has not: `declared` as in shard_plan, of `model`. */
hp_status api_compile_begin_with(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                                 shard_declared_fn *declared, const void *model, compilation *c);
/* The program of the i-th device of this process, and its memory, also of one for which there is
 * too little. */
hp_status api_make_program(compilation *c, hp_device *d, int i, compiled *out, hp_memory *memory);
/* The program of each device of this process, loaded. */
hp_status api_compile_devices(compilation *c, hp_device *d, hp_program *h);
/* Work and kernels of a program, and what the cluster makes of it; its memory is known. */
hp_status api_count(const device *d, const program *p, hp_program_stats *s);

/* Of a program of one mesh, as hp_program_stats_get. */
hp_status api_mesh_stats(const hp_program *p, hp_program_stats *out);
/* Frees a program of one mesh, which is held. */
void api_unload(hp_program *p);

/* api_plan.c */
/* What is asked of a plan, as for hp_plan_explain, and its text. */
typedef struct {
  const char *what;
  const graph_layouts *graph; /* [graphs] which "layouts" shows */
  size_t graphs;
  str *text;
} plan_view;
/* As hp_plan, of a compilation that has begun at `start`; it is not ended.  v NULL: numbers alone.
 */
hp_status api_plan(compilation *c, hp_device *d, double start, const plan_view *v,
                   hp_program_stats *out);
/* As hp_plan_explain. */
hp_status api_plan_explain(compilation *c, hp_device *d, const plan_view *v);

#endif
