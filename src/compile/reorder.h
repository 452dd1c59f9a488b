/* Another order of a program's instructions, one that needs less memory. */
#ifndef COMPILE_REORDER_H
#define COMPILE_REORDER_H

#include "prog/program.h"

/* Puts the instructions into the order found whose values, with workspace[i] bytes for instruction
 * i, take the fewest bytes at once; workspace is put into the same order.  No result changes: every
 * instruction still comes after what it reads, and state is overwritten when it was.  Waits are to
 * be placed anew afterwards. */
hp_status reorder_minimum_memory(program *p, uint64_t *workspace);

#endif
