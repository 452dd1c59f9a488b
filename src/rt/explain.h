/* Readers of a loaded program: what was decided, where time went, the trace. */
#ifndef RT_EXPLAIN_H
#define RT_EXPLAIN_H

#include "rt/op_times.h"

/* One of the views of hp_explain: text for people, "X.json" as one object, "X.svg" a picture for a
 * page; HP_ERR_ARG with a list of all for another word.  Before a program has run, e is NULL: "ops"
 * tells what each kind of work takes at the limits of device d, "comm" and "schedule.json" what d's
 * cluster makes of it.  m: what the program takes of d; NULL: the views of memory go without the
 * tensors that outlive runs. */
hp_status explain_print(const program *p, device *d, const exec *e, const hp_memory *m,
                        const char *what, str *out);
/* Where the time of recent runs (exec_recent) went; e NULL: rows have no times.  Measures d when it
 * has no limits yet.  Ended by vec_free. */
hp_status explain_times(const program *p, device *d, const exec *e, op_times *out);
/* The last run of a device as Chrome trace events, behind those of the devices before it. */
void explain_trace(const exec *e, const mesh *m, int number, str *out);

#endif
