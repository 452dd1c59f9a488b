/* What the devices of a group hold, and what goes between them. */
#ifndef RT_EXPLAIN_LAYOUTS_H
#define RT_EXPLAIN_LAYOUTS_H

#include "rt/group.h"

/* Inputs, params and outputs of graph g with layout and part; of is by value (NULL: one device). */
void explain_layouts(const group *d, const hp_graph *g, const layout *of, str *out);
/* The collectives of a device's graph: by op and axes, with bytes received in a run. */
void explain_comm(const group *d, const hp_graph *part, str *out);

#endif
