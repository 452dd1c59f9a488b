/* The compiler: from the graph of one logical device to the program of each device of a mesh, as
 * a function of a target.  stages.def lists the stages. */
#ifndef COMPILE_COMPILE_H
#define COMPILE_COMPILE_H

#include "compile/target.h"
#include "hyperparallel.h"
#include "mem/timeline.h"
#include "pass/pass.h"
#include "prog/link.h"
#include "shard/shard.h"

typedef enum { STAGE_SHARD, STAGE_LOWER, STAGE_LINK, STAGE_PLACE, STAGE_ORDER } stage_group;

typedef struct stage_state stage_state; /* compile/stage_state.h */
typedef struct {
  const char *name, *reads, *writes, *doc;
  stage_group group;
  hp_status (*run)(stage_state *s); /* NULL: a pass */
  hp_status (*pass)(const hp_graph *in, const pass_options *o, hp_graph **out);
} stage_row;
/* All stages in order; the last row has a NULL name. */
extern const stage_row stage_table[];

/* A piece of a linked step, whose compilation has it. */
typedef struct {
  const program *lowered;
  uint32_t kernel0; /* the first of its kernels in the step */
} linked_piece;

/* A graph that is being compiled, for one device after another. */
typedef struct {
  const hp_compile_options *options;
  const hp_graph *global; /* of one logical device: the caller's, or the result of sum_first */
  const hp_graph *local;  /* what each device runs: the sharded graph, or the global one */
  sharded shards;         /* .of: layouts by value of the global graph; NULL for one device */
  uint64_t model[MEM_CLASS_COUNT]; /* bytes of the global graph's named tensors */
  hp_graph *own_global;
  program *lowered;         /* in the order of the graph, without offsets; NULL: not yet */
  VEC(linked_piece) pieces; /* of a step */
} compilation;

/* What a device runs. */
typedef struct {
  program *p;
  void *kernels; /* of the target; NULL: none */
} compiled;

/* Runs the stages of group SHARD.  layouts NULL: one device.  g, layouts and options must
 * outlive the compilation.  Call compile_end also after a failure. */
hp_status compile_begin(const hp_graph *g, const shard_plan *layouts, const hp_compile_options *o,
                        compilation *out);
/* The program for a target; all devices of the mesh have the same capabilities.  The caller
 * frees *out by compile_free, also after a failure: if no order fits the memory limit
 * (HP_ERR_OOM, with the bytes that would be enough), out->p is the program in the minimum-memory
 * order, for inspection. */
hp_status compile_for(compilation *c, const target *t, compiled *out);
/* Runs the stages of group LOWER, unless they have run. */
hp_status compile_lower(compilation *c, const target *t);
/* Runs the stage of group LINK: one compilation from lowered pieces, by rows (prog/link.h), for
 * compile_for.  It has neither
 * graph nor layouts.  Call compile_end before that of the pieces, also after a failure. */
hp_status compile_link(compilation *const *piece, size_t pieces, const link_rows *rows,
                       const hp_compile_options *o, compilation *out);
void compile_free(const target *t, compiled *c);
void compile_end(compilation *c);

#endif
