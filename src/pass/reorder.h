/* Another order of a program's instructions, one that needs less memory. */
#ifndef PASS_REORDER_H
#define PASS_REORDER_H

#include "prog/program.h"

/* Puts the instructions into an order whose values, with workspace[i] bytes for instruction i,
 * never take more than `cap` bytes at once; workspace is put into the same order.  No result
 * changes: every instruction still comes after what it reads.  *done false, and nothing changed,
 * when no such order was found.  Waits are to be placed anew afterwards. */
hp_status reorder_under(program *p, uint64_t *workspace, uint64_t cap, bool *done);

#endif
