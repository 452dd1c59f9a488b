/* Checks a program that was read from text of any source.  A program that passes touches only
 * its own buffers when it runs, with any inputs. */
#ifndef COMPILE_PROGRAM_CHECK_H
#define COMPILE_PROGRAM_CHECK_H

#include "prog/program.h"

/* HP_ERR_INPUT with file and line, or HP_ERR_UNSUPPORTED for a program of several devices,
 * unless: names are distinct; operands and results of each op have types that its rule allows;
 * values are written before they are read; waits can be satisfied, and order all uses of the
 * same bytes; results overwrite operands only if the kernel allows it; buffers that are live at
 * the same time do not overlap.  The target checks loop kernels. */
hp_status program_check(program *p, const char *name, const program_lines *lines);

#endif
