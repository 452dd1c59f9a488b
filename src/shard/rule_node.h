/* The factor rule of a node, from the row of its op. */
#ifndef SHARD_RULE_NODE_H
#define SHARD_RULE_NODE_H

#include "ops/ops.h"
#include "shard/rule.h"

/* HP_ERR_LAYOUT when the node has more operands than a rule holds. */
hp_status rule_of_node(const hp_graph *g, const ir_node *n, rule *out);
/* Attributes of a node that makes result 0 in another size: shapes, ends of slices and rows become
 * those of `out`. */
attr_record rule_local_attrs(const hp_graph *g, const ir_node *n, const ir_value *out);

#endif
