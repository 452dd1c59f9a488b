/* Which kernels may overwrite an operand with a result. */
#ifndef COMPILE_INPLACE_H
#define COMPILE_INPLACE_H

#include "prog/program.h"

/* Loop kernel: is operand `in` read only at the elements where result `out` is written? */
bool inplace_loop(const char *body, int in, int out);
/* Other ops: result 0 over the operand named in the op's row. */
bool inplace_op(op_id op, int in, int out);
/* An instruction of either kind. */
bool inplace_inst(const program *p, const prog_inst *n, int in, int out);

#endif
