/* The C printer: a plan as one C function, for the system compiler and dlopen. */
#ifndef CODEGEN_LOOP_C_H
#define CODEGEN_LOOP_C_H

#include "codegen/loop_plan.h"

enum { LOOP_C_CHUNK = 512 }; /* elements that a kernel works on at a time */

/* Runs parts from..to-1 of phase `phase`.  p: the numbers of loop_c_params.  Bit k of stream:
 * output k is stored past the caches. */
typedef void (*loop_c_fn)(const void *const *in, void *const *out, const int64_t *p, void *scratch,
                          int64_t phase, int64_t stream, int64_t from, int64_t to);

/* The numbers that differ between kernels of equal structure: sizes, then offset and strides of
 * every access. */
typedef VEC(int64_t) loop_params;
hp_status loop_c_params(const loop_plan *p, loop_params *out);

/* Parameter list and body of the function, everything after its name.  Plans that print the same
 * text have the same structure. */
void loop_c_print(const loop_plan *p, str *out);
/* The beginning of a translation unit. */
void loop_c_preamble(str *out);

#endif
