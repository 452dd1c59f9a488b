/* Activations that are not sharded along the batch. */
#ifndef RT_EXPLAIN_ROWS_H
#define RT_EXPLAIN_ROWS_H

#include "base/json.h"
#include "rt/device_mesh.h"

/* Values of g with rows of an input's batch or sequence that are replicated over an axis,
 * although the axis shards these rows in the input and no declared layout gathers them.  A line
 * for each kind, the largest first; nothing if there are none. */
hp_status explain_rows(const device_mesh *d, const hp_graph *g, const sharded *s, str *out);
/* The same, all kinds, as the key "replicated_rows" of the open map. */
hp_status explain_rows_json(const device_mesh *d, const hp_graph *g, const sharded *s,
                            json_writer *w);

#endif
