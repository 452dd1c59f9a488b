/* A graph that was cut by stages, as one again. */
#ifndef STAGE_JOIN_H
#define STAGE_JOIN_H

#include "pass/stage_cut.h"

/* Cuts by the stages of the nodes, checks that params and assigns are on one stage each, and joins:
 * crossings, which go to x, are values again. */
hp_graph *stage_cut_and_join(const hp_graph *g, int stages, stage_crossings *x);
/* The same with random stages, which the seed decides; g has none. */
hp_graph *stage_join_random(hp_graph *g, int stages, uint64_t seed);

#endif
