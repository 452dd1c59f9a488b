/* The shards of the devices of a group. */
#ifndef RT_EXPLAIN_LAYOUTS_H
#define RT_EXPLAIN_LAYOUTS_H

#include "base/json.h"
#include "rt/group.h"

/* Inputs, params and outputs of graph g with layout, shard and share of padding. */
void explain_layouts(const group *d, const hp_graph *g, const sharded *s, str *out);
/* The same as keys of the open map: "devices", "mesh", "tensors" and shares of padding. */
void explain_layouts_json(const group *d, const hp_graph *g, const sharded *s, json_writer *w);

#endif
