/* Reverse-mode differentiation of a graph, by appending the backward to it.
 *
 * Runs before sharding, on global shapes, so that backward collectives are derived and never
 * written.  Nodes are walked in reverse; each row's gradient emits ordinary ops; gradients of a
 * value with several uses are added in the order in which the walk meets them. */
#ifndef PASS_AUTODIFF_H
#define PASS_AUTODIFF_H

#include "ir/graph.h"

/* loss: one float element.  grads[i] becomes the gradient of wrt[i], of its shape and dtype; a
 * value that the loss does not depend on gets a gradient of zeros.  Appended nodes carry the
 * block, stage and loc of the forward node they come from. */
hp_status pass_autodiff(hp_graph *g, val loss, const val *wrt, int n, val *grads);

#endif
