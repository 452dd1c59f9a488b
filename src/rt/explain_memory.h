/* Memory of a device as text and JSON: totals, and the contents of work memory. */
#ifndef RT_EXPLAIN_MEMORY_H
#define RT_EXPLAIN_MEMORY_H

#include "base/json.h"
#include "rt/device.h"

/* A few lines, each indented by `indent` blanks: the memory of a device and of the global model,
 * and whether it fits. */
void memory_print(const hp_memory *m, int indent, str *out);
/* The same as keys of the open map. */
void memory_put(json_writer *w, const hp_memory *m);
/* Reads back what memory_put wrote, for memory_print. */
hp_status memory_read(const tree_node *from, hp_memory *out);
/* Live buffers at the peak, by class, by layer, and the largest by name; and what the plan gave
 * up for the limit; m NULL: without the tensors that outlive runs. */
hp_status explain_memory(const program *p, const mesh *on, const hp_memory *m, str *out);
/* The same as one JSON object: the keys of memory_put, unless m is NULL, "live_at_instruction",
 * "live_by_layer", "largest", and those of put_moved by the times of a run. */
hp_status explain_memory_json(const program *p, const device *d, const hp_memory *m,
                              const inst_times *t, str *out);

#endif
