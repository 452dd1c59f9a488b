/* Updates of large params in slices.
 *
 * The update of an embedding with AdamW takes 16 bytes for each of its weights at once, which no
 * memory limit can be below, and is often twice what any other instruction needs.  Optimizer state
 * has no other use: of it a slice at a time need be on the device.  The bits are the same. */
#ifndef COMPILE_SLICE_UPDATES_H
#define COMPILE_SLICE_UPDATES_H

#include "prog/program.h"

/* Each loop over the elements of a param that needs more memory than all other instructions becomes
 * as many of slices as are needed so that it does not, 16 at most.  Tensors that only it uses are
 * then accessed by views of slices, which may be in memory one without the other
 * (compile/offload_items.h); what others use, too, is still there as a whole.
 *
 * p is in the order of the graph, without waits, offsets and workspaces. */
hp_status slice_updates(program *p);

#endif
