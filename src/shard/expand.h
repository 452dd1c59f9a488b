/* Composite nodes in other ops, as small graphs of their own, for passes that walk a graph and meet
 * a node whose rule does not allow what its operands are. */
#ifndef SHARD_EXPAND_H
#define SHARD_EXPAND_H

#include "ops/ops.h"

/* What node n of g is made of: a graph whose inputs are its operands, in order, and the values that
 * are its results.  A row with flag D is decomposed; attention whose heads are groups is written
 * with a head of keys for each head of queries.  The caller frees *out. */
hp_status expand_node(const hp_graph *g, const ir_node *n, hp_graph **out,
                      val results[OPS_OUT_MAX]);

#endif
