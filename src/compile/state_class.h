/* To whom the tensors that outlive runs belong: the model, its gradients, the optimizer, or none of
 * them, as caches and tables do.
 *
 * No name is looked at: what reads and assigns a tensor tells.  A step of training reads params in
 * its forward, adds to sums of gradients in its backward, and touches the optimizer's state in the
 * update only; a cache is read and assigned in the forward; a table is only read where an op takes
 * tables (rotary embedding). */
#ifndef COMPILE_STATE_CLASS_H
#define COMPILE_STATE_CLASS_H

#include "ir/graph.h"
#include "mem/timeline.h"
#include "prog/program.h"

/* class[v], of as many as the graph has values: the mem_class of a param, MEM_PARAM for others. */
hp_status state_classes(const hp_graph *g, uint8_t *class);
/* The classes of the graph's params to the program's buffers of these names, and the bytes of all
 * params by class, each once, to bytes[]. */
hp_status state_classes_set(const hp_graph *g, program *p, uint64_t bytes[MEM_CLASS_COUNT]);

#endif
