/* Cuts a graph into one for each stage of a pipeline, by the stages of its nodes (ir_node.stage).
 *
 * A value that another stage reads is an output of its own stage's graph and an input of the
 * other's, of the same name: a crossing.  What is computed of inputs and constants alone is
 * computed by every stage that reads it, and tables (of rotary angles) are on each of them: neither
 * crosses. Another param lives on the stage of its first node, and is assigned there.
 *
 * The stages' graphs together compute what the graph does, with the same bits. */
#ifndef PASS_STAGE_CUT_H
#define PASS_STAGE_CUT_H

#include "ir/graph.h"

enum { STAGE_VALUE_NAME = 40 };

typedef struct {
  uint16_t from, to; /* stages */
  uint8_t phase;     /* of the node that makes the value, ir_phase */
  bool is_param;     /* a param: of one value in all micro-batches of a step */
  val value;         /* of the graph that is cut */
  char name[STAGE_VALUE_NAME];
} stage_crossing;
typedef VEC(stage_crossing) stage_crossings;

/* out[stages], each to be freed; nodes keep their order.  Crossings are in the order of their
 * values, then of the stages that read them.  HP_ERR_ARG, with the node's place, if one is of no
 * such stage; vec_free(x), also after a failure. */
hp_status stage_cut(const hp_graph *g, int stages, hp_graph **out, stage_crossings *x);

#endif
