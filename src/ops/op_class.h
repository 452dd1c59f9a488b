/* Which kind of work an op is, as its cost is looked up. */
#ifndef OPS_OP_CLASS_H
#define OPS_OP_CLASS_H

#include "ir/op.h"
#include "topo/cost_table.h"

/* Of a fused loop COST_LOOP_MAP: its body says which of the three it is. */
cost_class op_class(op_id op);

#endif
