#include "sim/predict.h"

#include "sim/cost.h"

#include <math.h>
#include <stdlib.h>

hp_status predict_run(const cluster *c, const mesh *m, const program *p, inst_times *out) {
  double free_s[STREAM_COUNT] = {0};
  uint32_t length[STREAM_COUNT] = {0}, *at = mem_calloc(p->insts.len * STREAM_COUNT, sizeof *at);
  HP_TRY_MEM(at);
  for (uint32_t i = 0; i < p->insts.len; i++) { /* a wait names what is listed before */
    const prog_inst *n = program_inst(p, i);
    double start = free_s[n->stream];
    for (uint32_t k = 0; k < n->n_wait; k++) {
      const vclock_wait *w = &p->waits.at[n->wait0 + k];
      double end = out[at[w->stream * p->insts.len + w->position]].end_s;
      if (end > start) start = end;
    }
    out[i] = (inst_times){start, start, start + cost_inst(c, m, p, n)};
    free_s[n->stream] = out[i].end_s;
    at[n->stream * p->insts.len + length[n->stream]++] = i;
  }
  mem_free(at);
  return HP_OK;
}

static int by_start(const void *a, const void *b) {
  const inst_times *x = a, *y = b;
  return (x->start_s > y->start_s) - (x->start_s < y->start_s);
}

/* Time of the sorted copies during which nothing is computed; what two copies expose at one time
 * counts once.  Computations are listed in the order of their times. */
static double exposed_copies(const program *p, const inst_times *t, const inst_times *copy,
                             size_t n) {
  double exposed = 0, done = 0; /* until then all is accounted for */
  size_t next = 0;              /* computations before it have ended by then */
  for (size_t i = 0; i < n; i++) {
    double from = fmax(copy[i].start_s, done), to = copy[i].end_s;
    if (to <= from) continue;
    exposed += to - from;
    for (size_t k = next; k < p->insts.len; k++) {
      if (program_inst(p, k)->stream != STREAM_COMPUTE) continue;
      if (t[k].start_s >= to) break;
      exposed -= fmax(fmin(t[k].end_s, to) - fmax(t[k].start_s, from), 0);
      if (t[k].end_s <= from) next = k + 1;
    }
    done = to;
  }
  return exposed;
}

static hp_status find_exposed(const program *p, const inst_times *t, double *out) {
  size_t n = 0;
  inst_times *copy = mem_calloc(p->insts.len, sizeof *copy);
  HP_TRY_MEM(copy);
  for (size_t i = 0; i < p->insts.len; i++)
    if (stream_copies(program_inst(p, i)->stream)) copy[n++] = t[i];
  if (n) qsort(copy, n, sizeof *copy, by_start);
  *out = n ? exposed_copies(p, t, copy, n) : 0;
  mem_free(copy);
  return HP_OK;
}

hp_status predict_totals(const cluster *c, const mesh *m, const program *p, double *run_s,
                         double *exposed_copy_s) {
  inst_times *t = mem_calloc(p->insts.len, sizeof *t);
  HP_TRY_MEM(t);
  hp_status st = predict_run(c, m, p, t);
  *run_s = 0;
  for (size_t i = 0; !st && i < p->insts.len; i++)
    if (t[i].end_s > *run_s) *run_s = t[i].end_s;
  if (!st) st = find_exposed(p, t, exposed_copy_s);
  mem_free(t);
  return st;
}
