/* The shards of the devices of a mesh. */
#ifndef RT_EXPLAIN_LAYOUTS_H
#define RT_EXPLAIN_LAYOUTS_H

#include "base/json.h"
#include "rt/device_mesh.h"

/* A graph of one logical device, and the layouts of its values. */
typedef struct {
  const hp_graph *graph;
  const sharded *layouts;
} graph_layouts;

/* Inputs, params and outputs of n graphs with their layout, a device's shard and the padding.  A
 * tensor of several graphs, as the pieces of a step are, is shown once. */
hp_status explain_layouts(const device_mesh *d, const graph_layouts *g, size_t n, str *out);
/* The same as keys of the open map: "devices", "mesh", "tensors" and shares that are padding. */
hp_status explain_layouts_json(const device_mesh *d, const graph_layouts *g, size_t n,
                               json_writer *w);

#endif
