/* The factor rule of a node, from the row of its op. */
#ifndef SHARD_RULE_NODE_H
#define SHARD_RULE_NODE_H

#include "ops/ops.h"
#include "shard/rule.h"

/* HP_ERR_LAYOUT if the node has more operands than a rule can hold. */
hp_status rule_of_node(const hp_graph *g, const ir_node *n, rule *out);
/* Attributes of a node whose result 0 has the type `out` instead: shapes, ends of slices and
 * rows are adapted. */
attr_record rule_local_attrs(const hp_graph *g, const ir_node *n, const ir_value *out);

#endif
