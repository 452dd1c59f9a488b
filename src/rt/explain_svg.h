/* Who holds what, as a picture. */
#ifndef RT_EXPLAIN_SVG_H
#define RT_EXPLAIN_SVG_H

#include "rt/group.h"

/* An SVG file of inputs, params, outputs and marked values of graph g: each tensor cut as it lies,
 * each part in the colours of the devices that hold it.  Tensors whose names differ in numbers
 * alone (layers) are drawn once where they lie alike; of is by value (NULL: one device). */
void explain_layouts_svg(const group *d, const hp_graph *g, const layout *of, str *out);

#endif
