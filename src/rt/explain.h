/* Readers of a loaded program: what was decided, where time went, the trace. */
#ifndef RT_EXPLAIN_H
#define RT_EXPLAIN_H

#include "rt/exec.h"

/* "memory", "schedule", "comm" or "ops" as text for people; HP_ERR_ARG for another word.  Before a
 * program has run, e is NULL: "ops" tells work without times, "comm" what device d's cluster makes
 * of it. */
hp_status explain_print(const program *p, const device *d, const exec *e, const char *what,
                        str *out);
/* Time and work per op of the last run, longest first; how many rows were filled. */
int explain_times(const exec *e, hp_op_time *out, int max);
/* Bytes of device work memory live at each of n evenly spaced instructions. */
void explain_timeline(const program *p, uint64_t *live, int n);
/* The last run of a device as Chrome trace events, behind those of the devices before it. */
void explain_trace(const exec *e, int number, str *out);

#endif
