/* Memory of a device in words and as JSON: what is taken in all, and what fills work memory. */
#ifndef RT_EXPLAIN_MEMORY_H
#define RT_EXPLAIN_MEMORY_H

#include "base/json.h"
#include "prog/program.h"
#include "topo/mesh.h"

/* A few lines, each behind `indent` blanks: what a device takes, what that is of the whole model,
 * and whether it fits what a device has. */
void memory_print(const hp_memory *m, int indent, str *out);
/* The same as keys of the open map. */
void memory_put(json_writer *w, const hp_memory *m);
/* Reads back what memory_put wrote, for what memory_print tells. */
hp_status memory_read(const tree_node *from, hp_memory *out);
/* What is live at the peak, by class, by layer and the largest of it by name, and what the plan
 * gave up; m NULL: without the tensors that outlive runs. */
hp_status explain_memory(const program *p, const mesh *on, const hp_memory *m, str *out);
/* The same as one JSON object: the keys of memory_put, unless m is NULL, "live_at_instruction",
 * "live_by_layer" and "largest". */
hp_status explain_memory_json(const program *p, const mesh *on, const hp_memory *m, str *out);

#endif
