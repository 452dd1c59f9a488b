/* Named tensors that a program accesses by disjoint slices alone.  Each slice is then memory of its
 * own: it may be on the device without the others, and what uses one does not wait for what uses
 * another. */
#ifndef PROG_PROGRAM_SLICES_H
#define PROG_PROGRAM_SLICES_H

#include "prog/program.h"

/* whole[b]: of a view of such a tensor the first view of the same bytes, of every other buffer its
 * root. */
hp_status program_slices(const program *p, uint32_t *whole);

#endif
