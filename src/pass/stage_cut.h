/* Cuts a graph into one for each mesh of a pipeline, by the stages of its nodes (ir_node.stage) and
 * the meshes of the stages.
 *
 * A value that another mesh reads is an output of its own mesh's graph and an input of the other's,
 * of the same name: a crossing.  What is computed of inputs and constants alone is computed by
 * every mesh that reads it, and tables (of rotary angles) are on each of them: neither crosses.
 * Another param lives on the mesh of its first node, and is assigned there.
 *
 * The meshes' graphs together compute what the graph does, with the same bits. */
#ifndef PASS_STAGE_CUT_H
#define PASS_STAGE_CUT_H

#include "ir/graph.h"

enum { STAGE_VALUE_NAME = 40 };

/* Where stages run. */
typedef struct {
  int stages, meshes;
  const uint16_t *mesh_of; /* [stages]; NULL: each stage has its own mesh */
} stage_placement;

typedef struct {
  uint16_t from, to; /* meshes */
  uint8_t phase;     /* of the node that makes the value, ir_phase */
  /* A param that need not be copied: of one value in all micro-batches of a step, or first read by
   * the update, which does not assign it. */
  bool is_param;
  val value; /* of the graph that is cut */
  char name[STAGE_VALUE_NAME];
} stage_crossing;
typedef VEC(stage_crossing) stage_crossings;

/* Stage `to` reads in its forward what `from` makes; or one of them reads in the backward what the
 * other makes, and from < to. */
typedef struct {
  uint16_t from, to;
  uint32_t node; /* the first that reads, of the graph that is cut */
} stage_edge;
typedef VEC(stage_edge) stage_edges;

/* out[meshes], each to be freed; nodes keep their order.  What a mesh computes of inputs and
 * constants is of its first stage, in the backward of its last.  Crossings are in the order of
 * their values, then of the meshes that read them; edges in that of their nodes, each once,
 * whatever the meshes of their stages.  HP_ERR_ARG, with the node's place, if one is of no such
 * stage; vec_free(x) and vec_free(edges), also after a failure. */
hp_status stage_cut(const hp_graph *g, const stage_placement *p, hp_graph **out, stage_crossings *x,
                    stage_edges *edges);

#endif
