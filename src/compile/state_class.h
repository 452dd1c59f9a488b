/* The classes of tensors that outlive runs: params, gradients, optimizer state, or others such as
 * caches and tables.
 *
 * The class follows from the ops that read and assign a tensor, not from its name.  A training
 * step reads params in its forward, adds to sums of gradients in its backward, and uses
 * optimizer state in the update only; a cache is read and assigned in the forward; a table is
 * only read by ops that take tables (rotary embedding). */
#ifndef COMPILE_STATE_CLASS_H
#define COMPILE_STATE_CLASS_H

#include "ir/graph.h"
#include "mem/timeline.h"
#include "prog/program.h"

/* class[v] for all values of the graph: the mem_class of a param, MEM_PARAM for others. */
hp_status state_classes(const hp_graph *g, uint8_t *class);
/* Sets the classes of the program's named tensors, and bytes[]: the bytes of all params of the n
 * graphs by class, each once.  A param of several graphs, as the pieces of a step are, has the
 * class of the earliest phase that uses it in any of them. */
hp_status state_classes_set(const hp_graph *const *g, size_t n, program *p,
                            uint64_t bytes[MEM_CLASS_COUNT]);

#endif
