/* Nodes that need no instruction, because their result is a run of an operand's memory, or their
 * operands are runs of their result's. */
#ifndef OPS_VIEWS_H
#define OPS_VIEWS_H

#include "ir/graph.h"

/* n is a slice whose elements stand together in its operand, from byte *at on. */
bool views_part(const hp_graph *g, const ir_node *n, uint64_t *at);
/* n is a concat whose operands stand one after the other in its result. */
bool views_join(const hp_graph *g, const ir_node *n);

#endif
