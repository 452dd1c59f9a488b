/* Composite nodes as small graphs of simpler ops, for passes in which the layouts of a node's
 * operands do not fit the node's rule. */
#ifndef SHARD_EXPAND_H
#define SHARD_EXPAND_H

#include "ops/ops.h"

/* Node n of g as a graph: its inputs are the operands, in order, and `results` are its results.
 * A row with flag D is decomposed; attention with grouped heads is written with one key head for
 * each query head.  The caller frees *out. */
hp_status expand_node(const hp_graph *g, const ir_node *n, hp_graph **out,
                      val results[OPS_OUT_MAX]);

#endif
