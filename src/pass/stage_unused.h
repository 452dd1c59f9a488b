/* Stages of a pipeline whose forward has no effect: no output, no assign and no other stage depends
 * on it, so that its params would never learn. */
#ifndef PASS_STAGE_UNUSED_H
#define PASS_STAGE_UNUSED_H

#include "ir/graph.h"

/* The first op of such a stage, in the graph of a mesh (stage_cut); nodes.len: there is none. */
hp_status stage_unused_find(const hp_graph *g, uint32_t *node);

#endif
