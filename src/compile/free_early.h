/* The order of the graph, but for instructions that free memory. */
#ifndef COMPILE_FREE_EARLY_H
#define COMPILE_FREE_EARLY_H

#include "prog/program.h"

/* Moves instructions that free more work memory than they take up to what they need, in a program
 * without offsets (lower_graph): a gradient is reduced when it is complete, not after the backward.
 * Every other instruction keeps its place, and so do all where no device waits for another: there
 * the graph's order is that of its results.  Time grows with the operands. */
hp_status free_early(program *p);

#endif
