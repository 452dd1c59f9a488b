#include "rt/recent_runs.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

hp_status recent_runs_create(size_t n, recent_runs *out) {
  *out = (recent_runs){.n = n, .inst = mem_calloc(n, RUNS_KEPT * sizeof *out->inst)};
  return out->inst ? HP_OK : HP_ERR_OOM;
}

void recent_runs_free(recent_runs *r) { mem_free(r->inst); }

void recent_runs_add(recent_runs *r, double seconds, const inst_times *times) {
  size_t at = r->runs++ % RUNS_KEPT;
  if (r->n) memcpy(r->inst + at * r->n, times, r->n * sizeof *times);
  r->seconds[at] = seconds;
}

typedef struct {
  double seconds;
  const inst_times *inst;
} kept_run;

static int by_seconds(const void *a, const void *b) {
  const kept_run *x = a, *y = b;
  return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

void recent_runs_mean(const recent_runs *r, inst_times *out) {
  size_t runs = r->runs < RUNS_KEPT ? (size_t)r->runs : RUNS_KEPT, half = (runs + 1) / 2;
  kept_run run[RUNS_KEPT];
  for (size_t k = 0; k < runs; k++) run[k] = (kept_run){r->seconds[k], r->inst + k * r->n};
  qsort(run, runs, sizeof *run, by_seconds);
  for (size_t i = 0; i < r->n; i++) {
    out[i] = (inst_times){0};
    for (size_t k = 0; k < half; k++) {
      out[i].start_s += run[k].inst[i].start_s / (double)half;
      out[i].arrived_s += run[k].inst[i].arrived_s / (double)half;
      out[i].end_s += run[k].inst[i].end_s / (double)half;
      out[i].received += run[k].inst[i].received;
    }
    out[i].received /= half ? (double)half : 1;
  }
}
