/* The last run as a trace of all devices by one clock. */
#ifndef API_API_TRACE_H
#define API_API_TRACE_H

#include "api/api_program.h"

/* When the first device of this process began the last run (time_now_s). */
double api_trace_origin(const hp_program *p);

#endif
