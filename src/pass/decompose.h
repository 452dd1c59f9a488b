/* Composite ops in other ops, one node at a time. */
#ifndef PASS_DECOMPOSE_H
#define PASS_DECOMPOSE_H

#include "ops/ops.h"

/* Appends to `to` what node n of `from` means, on operands `in` of `to`; its row has flag D. */
void decompose_node(hp_graph *to, const hp_graph *from, const ir_node *n, const val *in,
                    val out[OPS_OUT_MAX]);

#endif
