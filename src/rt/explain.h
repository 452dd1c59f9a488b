/* Readers of a loaded program: what was decided, where time went, the trace. */
#ifndef RT_EXPLAIN_H
#define RT_EXPLAIN_H

#include "rt/op_times.h"

/* "memory", "schedule", "comm", "ops" or "ops.json" as text; HP_ERR_ARG for another word.  Before a
 * program has run, e is NULL: "ops" tells what each kind of work takes at the limits of device d,
 * "comm" what d's cluster makes of it. */
hp_status explain_print(const program *p, device *d, const exec *e, const char *what, str *out);
/* Where the time of the last runs went; e NULL: rows have no times.  Measures d when it has no
 * limits yet.  Ended by vec_free. */
hp_status explain_times(const program *p, device *d, const exec *e, op_times *out);
/* Bytes of device work memory live at each of n evenly spaced instructions. */
void explain_timeline(const program *p, uint64_t *live, int n);
/* The last run of a device as Chrome trace events, behind those of the devices before it. */
void explain_trace(const exec *e, int number, str *out);

#endif
