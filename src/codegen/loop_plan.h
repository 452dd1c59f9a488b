/* What the printers and the interpreter share: facts about a loop, and its normal form. */
#ifndef CODEGEN_LOOP_PLAN_H
#define CODEGEN_LOOP_PLAN_H

#include "codegen/loop.h"

extern const char *const loop_reduction_name[LOOP_REDUCE_COUNT];
extern const char *const loop_kind_name[3];

/* The dim that reductions run over; -1 for a map. */
int loop_reduced_dim(const loop *l);
/* False when the value is one per row (column): it does not move along the reduced dim.  All
 * values of a map vary. */
bool loop_varies(const loop *l, int value);

#endif
