/* The cost class of an op: its row in the table of costs (topo/cost_table.h). */
#ifndef OPS_OP_CLASS_H
#define OPS_OP_CLASS_H

#include "ir/op.h"
#include "topo/cost_table.h"

/* For `fused` COST_LOOP_MAP; whether a loop is a map, row reduction or column reduction depends on
 * its body (sim/cost.h). */
cost_class op_class(op_id op);

#endif
