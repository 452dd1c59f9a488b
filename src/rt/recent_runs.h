/* Times of the last runs of a program, by instruction. */
#ifndef RT_RECENT_RUNS_H
#define RT_RECENT_RUNS_H

#include "prog/program.h"

enum { RUNS_KEPT = 8 };
typedef struct {
  size_t n;                  /* instructions */
  double seconds[RUNS_KEPT]; /* of each run, */
  inst_times *inst;          /* [RUNS_KEPT][n] and of its instructions */
  uint64_t runs;             /* so far */
} recent_runs;

hp_status recent_runs_create(size_t n, recent_runs *out);
void recent_runs_free(recent_runs *r);
/* times[n] of a run, in place of those of the oldest that is kept. */
void recent_runs_add(recent_runs *r, double seconds, const inst_times *times);
/* Means over the faster half of the runs that are kept, to out[n]. */
void recent_runs_mean(const recent_runs *r, inst_times *out);

#endif
