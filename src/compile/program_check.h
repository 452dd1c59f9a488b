/* Checks a program that was read from text: it may come from anywhere.  A program that passes
 * touches nothing but its own buffers when it runs, whatever its inputs are. */
#ifndef COMPILE_PROGRAM_CHECK_H
#define COMPILE_PROGRAM_CHECK_H

#include "prog/program.h"

/* HP_ERR_INPUT with file and line, or HP_ERR_UNSUPPORTED for a program of several devices, unless:
 * names are distinct; each op has operands and results of types that its rule allows; instructions
 * read what is written before; waits can be satisfied, and put uses of the same bytes in order;
 * results lie over operands only where the kernel allows it; buffers that are live together lie
 * apart.  Loop kernels are checked by the target, which reads them. */
hp_status program_check(program *p, const char *name, const program_lines *lines);

#endif
