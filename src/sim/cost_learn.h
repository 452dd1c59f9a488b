/* Shares of the limit from the times of a run, so that the next prediction is nearer. */
#ifndef SIM_COST_LEARN_H
#define SIM_COST_LEARN_H

#include "sim/cost.h"

/* Sets the rows of c->costs for the kinds of work that p has, in sizes a factor apart: the time at
 * the limit over the time measured, of all such instructions together.  A row that is there moves
 * half of the way, in ratios.  t: by instruction; collectives are left out. */
void cost_learn(cluster *c, const program *p, const inst_times *t);
/* The bound of the sizes to which this one belongs. */
double cost_size_bound(cost_class op, double size);

#endif
