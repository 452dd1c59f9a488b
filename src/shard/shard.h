/* HyperShard: from the graph of one logical device and layouts of its inputs and params to the
 * graph of each device of a mesh, with the collectives between them as nodes. */
#ifndef SHARD_SHARD_H
#define SHARD_SHARD_H

#include "ops/ops.h"
#include "shard/path.h"
#include "topo/cluster.h"

typedef struct {
  const mesh *mesh;
  const cluster *cluster; /* what work and moves cost */
  /* Layout of an input or param of that name; false: whole on every device. */
  bool (*declared)(const void *model, const char *name, const ir_value *type, layout *out);
  const void *model;
  /* No sum is cut: every element is computed on one device, in the order of one device, so results
   * have the same bits on every mesh.  Operands are gathered, or cut along other dims. */
  bool no_partial_sums;
  /* By value of the graph: the type for which its layout is declared; NULL: its own. */
  const ir_value *type;
} shard_plan;

typedef struct {
  hp_graph *graph; /* the same for all devices; it shares the pool of the one that it was made of */
  layout *of;      /* by value of the old graph: how it lies on the mesh where it was made, with
                      the length of parts that are padded */
  uint8_t *row_axes; /* by value of the old graph, a bit an axis: some dim of it comes from a dim of
                        an input that the axis cuts, and no declared layout brings it together */
  double padded_work; /* share of the operations that are spent on padding */
} sharded;

/* A param has the layout that is declared before and after a run, an output what the computation
 * gives it, without partial reductions.  HP_ERR_LAYOUT for a layout that does not fit, by name. */
hp_status shard_graph(const hp_graph *g, const shard_plan *plan, sharded *out);
/* A layout that can be declared for an input or param of that name and type.  A param may be a sum
 * that is partial: what is added to it needs no reduction. */
hp_status shard_check_layout(const mesh *m, const char *name, const ir_value *v, const layout *l,
                             bool is_param);
void sharded_free(sharded *s);

#endif
