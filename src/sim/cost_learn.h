/* Learns efficiencies from the times of a run, to improve the next prediction.  An efficiency is a
 * row of c->costs (topo/cost_table.h): the time at the machine's limit over the time measured. */
#ifndef SIM_COST_LEARN_H
#define SIM_COST_LEARN_H

#include "sim/cost.h"

/* Groups the instructions of p, without collectives, by kind, dtype and size class, and sets the
 * row of each group from the sums of its times t[] (by instruction).  The bounds of size classes
 * grow by a constant factor.  An existing row becomes the geometric mean of its old and its new
 * value. */
void cost_learn(cluster *c, const program *p, const inst_times *t);

#endif
