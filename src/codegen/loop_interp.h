/* The interpreter: runs a plan without a compiler.  Slow, always available, and the reference
 * for compiled code: the same bits. */
#ifndef CODEGEN_LOOP_INTERP_H
#define CODEGEN_LOOP_INTERP_H

#include "codegen/loop_plan.h"

/* Parts from..to-1 of a phase of a plan that is not split.  Uses up to 160 KB of stack, allocates
 * nothing. */
void loop_interpret(const loop_plan *p, int phase, const void *const *in, void *const *out,
                    void *scratch, int64_t from, int64_t to);

#endif
