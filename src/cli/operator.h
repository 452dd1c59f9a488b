/* Layout rules of operators by name and attributes, as the original HyperShard's questions name
 * them.  Those of our op table are taken from its rows; the others have a rule and no kernel. */
#ifndef CLI_OPERATOR_H
#define CLI_OPERATOR_H

#include "base/tree.h"
#include "shard/rule.h"

/* The rule of operator `name` with these attributes for operands of these shapes; rank -1: absent.
 * HP_ERR_SHAPE when they do not fit, HP_ERR_UNSUPPORTED for a name that is not known. */
hp_status operator_rule(const char *name, const tree_node *attrs, const dims *in, int n, rule *out);

#endif
