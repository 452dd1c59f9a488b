/* A graph that was cut by stages, as one again. */
#ifndef STAGE_JOIN_H
#define STAGE_JOIN_H

#include "ir/graph.h"

/* Gives the nodes random stages, cuts, checks that params and assigns are on one stage each, and
 * joins: crossings are values again.  The seed decides. */
hp_graph *stage_cut_and_join(hp_graph *g, int stages, uint64_t seed);

#endif
