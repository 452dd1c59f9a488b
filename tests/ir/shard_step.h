/* The sharding pass, and that of rows of experts behind it, as steps of text cases. */
#ifndef IR_SHARD_STEP_H
#define IR_SHARD_STEP_H

#include "hyperparallel.h"
#include "ir/graph.h"

/* *g becomes the graph of one device.  layouts: lines "NAME: (dp,None)", of inputs, params and
 * sharding annotations, and "mesh: (2,2)(dp,tp)".  no_partial_sums: no sum is cut. */
hp_status shard_step_run(hp_graph **g, const char *layouts, bool no_partial_sums);
/* Then rows of experts of that graph go by `dispatch`: rows, or where that is faster. */
hp_status dispatch_step_run(hp_graph **g, const char *layouts, hp_dispatch how);

#endif
