/* The shards of each device, as a picture. */
#ifndef RT_EXPLAIN_SVG_H
#define RT_EXPLAIN_SVG_H

#include "rt/device_mesh.h"

/* An SVG file of inputs, params, outputs and annotated values of graph g: each tensor divided
 * into its shards, each shard in the colours of the devices that hold it.  Tensors whose names
 * differ only in numbers (layers) are drawn once if their layouts are equal; `of` is by value
 * (NULL: one device). */
void explain_layouts_svg(const device_mesh *d, const hp_graph *g, const layout *of, str *out);

#endif
