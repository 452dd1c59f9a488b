/* Reports about a loaded program: decisions, times, the trace. */
#ifndef RT_EXPLAIN_H
#define RT_EXPLAIN_H

#include "rt/op_times.h"

/* One of the views of hp_explain: text for people, "X.json" as one object, "X.svg" a picture for
 * a page; HP_ERR_ARG with a list of all views for another name.  Before a program has run, e is
 * NULL: "ops" gives the time of each kind of work at the limits of device d, "comm" and
 * "schedule.json" the prediction for d's cluster.  m: the memory that the program takes of d;
 * NULL: the views of memory omit the tensors that outlive runs.  "memory PATTERN" and
 * "memory.json PATTERN" are the lifetimes of the values that match (rt/explain_chain.h). */
hp_status explain_print(const program *p, device *d, const exec *e, const hp_memory *m,
                        const char *what, str *out);
/* Where the time of recent runs (exec_recent) went; e NULL: rows have no times.  Measures d if
 * it has no limits yet.  Free it with vec_free. */
hp_status explain_times(const program *p, device *d, const exec *e, op_times *out);
/* The last run of a device as Chrome trace events, appended to those of earlier devices.  It began
 * from_s after the time 0 of the trace. */
void explain_trace(const exec *e, const mesh *m, int number, double from_s, str *out);

#endif
