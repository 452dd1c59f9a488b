/* A program read back from its text, checked and made ready to run on a target. */
#ifndef COMPILE_LOAD_H
#define COMPILE_LOAD_H

#include "compile/compile.h"

/* name: of the file, for messages.  Order, waits, engines and offsets are those of the text; where
 * kernels of this target need more workspace than it has, offsets are planned again, and a line
 * of out->p->notes and of the log tells.  HP_ERR_INPUT with file and line for a text that is no
 * program or is not safe to run, HP_ERR_UNSUPPORTED for one of several devices, HP_ERR_OOM where it
 * does not fit the target's limits.  The caller frees *out by compile_free. */
hp_status compile_load(const char *text, size_t n, const char *name, const target *t,
                       compiled *out);

#endif
