/* Composite rows in other ops, one node at a time: softmax, norms, dropout and optimizers become
 * elementwise ops and reductions, which the fuse pass turns into loops.  Reductions are brought to
 * the two forms that loops have: over the last dim, or over all dims but the last.  A node whose
 * results have no elements becomes a constant. */
#ifndef OPS_COMPOSITE_H
#define OPS_COMPOSITE_H

#include "ops/ops.h"

/* Can node n of g be written in other ops? */
bool composite_has_form(const hp_graph *g, const ir_node *n);
/* Appends to `to` what node n of `from` means, on operands `in` of `to`; n has such a form. */
void composite_decompose(hp_graph *to, const hp_graph *from, const ir_node *n, const val *in,
                         val out[OPS_OUT_MAX]);

#endif
