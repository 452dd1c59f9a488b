/* From the graph to the program: instructions, aliases, streams and waits, then memory. */
#ifndef COMPILE_LOWER_H
#define COMPILE_LOWER_H

#include "ir/graph.h"
#include "mem/offsets_kept.h"
#include "prog/program.h"

/* Instructions and buffers of the graph, in node order, without offsets.  Reshapes, outputs and
 * assigns share buffers where possible; otherwise they are copies. */
hp_status lower_graph(const hp_graph *g, program **out);

typedef struct {
  uint64_t limit;     /* target for the bytes of the arena of TIER_DEVICE; 0 = none */
  bool tight;         /* a plan within the limit is improved, too */
  bool must_fit;      /* a plan above the limit is of no use */
  uint64_t effort;    /* search steps of the offset planner; 0 = the usual */
  offsets_kept *kept; /* plans so far; NULL: none */
} memory_options;

/* Adds workspace buffers (workspace[k] bytes for the instructions of kernel k), decides which
 * results overwrite operands, and gives every work buffer its offset.  The search for offsets
 * ends when the limit is reached; exceeding it is not an error: p->arena has the bytes. */
hp_status plan_memory(program *p, const uint64_t *workspace, const memory_options *o);
/* HP_ERR_INTERNAL, naming two buffers, if buffers that are live at the same time overlap.  p is
 * in an order that agrees with its waits. */
hp_status verify_memory(program *p);

#endif
