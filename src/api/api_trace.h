/* The last run of a program on all devices, by one clock. */
#ifndef API_API_TRACE_H
#define API_API_TRACE_H

#include "api/api_program.h"

/* When the first device of all processes began the last run, by the clock of this one (time_now_s).
 * In a job every process calls it. */
hp_status api_trace_origin(const hp_program *p, double *out);
/* Appends to `all` on the first process what the others have there, `between` before each; every
 * process calls it. */
hp_status api_trace_gather(const hp_program *p, const char *between, str *all);

#endif
