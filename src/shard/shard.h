/* HyperShard: from the graph of one logical device and the layouts of its inputs and params to
 * the graph of each device of a mesh, with collectives as nodes. */
#ifndef SHARD_SHARD_H
#define SHARD_SHARD_H

#include "ops/ops.h"
#include "shard/path.h"
#include "topo/cluster.h"

/* Layout of an input or param of that name; false: replicated. */
typedef bool shard_declared_fn(const void *model, const char *name, const ir_value *type,
                               layout *out);

typedef struct {
  const mesh *mesh;
  const cluster *cluster; /* costs of work and communication */
  shard_declared_fn *declared;
  const void *model;
  /* No sum is split: every element is computed on one device, in the order of one device, so
   * results have the same bits on every mesh.  Operands are gathered, or sharded along other
   * dims. */
  bool no_partial_sums;
  /* By value of the graph: the type for which its layout is declared; NULL: its own type. */
  const ir_value *type;
} shard_plan;

typedef struct {
  hp_graph *graph;    /* the same for all devices; shares the pool of the original graph */
  layout *of;         /* by value of the original graph: its layout where it is computed,
                        with the length of shards that are padded */
  uint8_t *row_axes;  /* by value of the original graph, a bit per axis: some dim of it comes from a
                         dim of an input that the axis shards, and no declared layout gathers it */
  double padded_work; /* share of the operations that is spent on padding */
} sharded;

/* A param has its declared layout before and after a run; an output has the layout of its
 * computation, without partial reductions.  HP_ERR_LAYOUT, with the name, for a layout that does
 * not fit. */
hp_status shard_graph(const hp_graph *g, const shard_plan *plan, sharded *out);
/* Checks a declared layout of an input or param with that name and type.  A param may be a
 * partial sum: values added to it need no reduction. */
hp_status shard_check_layout(const mesh *m, const char *name, const ir_value *v, const layout *l,
                             bool is_param);
void sharded_free(sharded *s);

#endif
