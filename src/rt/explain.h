/* Readers of a loaded program: what was decided, where time went, the trace. */
#ifndef RT_EXPLAIN_H
#define RT_EXPLAIN_H

#include "rt/exec.h"

/* "memory", "schedule" or "ops" as text for people; HP_ERR_ARG for another word.  Before a program
 * has run, e is NULL and "ops" tells work without times. */
hp_status explain_print(const program *p, const exec *e, const char *what, str *out);
/* Time and work per op of the last run, longest first; how many rows were filled. */
int explain_times(const exec *e, hp_op_time *out, int max);
/* Bytes of device work memory live at each of n evenly spaced instructions. */
void explain_timeline(const program *p, uint64_t *live, int n);
/* The last run as Chrome trace events. */
hp_status explain_trace(const exec *e, str *out);

#endif
