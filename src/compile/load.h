/* Checks a program that was read from text, and prepares it for a target. */
#ifndef COMPILE_LOAD_H
#define COMPILE_LOAD_H

#include "compile/compile.h"

/* name: of the file, for messages.  Order, waits, engines and offsets are those of the text; if
 * kernels of this target need more workspace, offsets are planned again, and out->p->notes and
 * the log say so.  HP_ERR_INPUT with file and line for a text that is not a program or is not
 * safe to run, HP_ERR_UNSUPPORTED for one of several devices, HP_ERR_OOM if it does not fit the
 * target's limits.  The caller frees *out by compile_free. */
hp_status compile_load(const char *text, size_t n, const char *name, const target *t,
                       compiled *out);

#endif
