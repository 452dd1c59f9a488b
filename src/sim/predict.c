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
    out[i] = (inst_times){start, start, start + cost_inst(c, m, p, n), cost_received(p, n)};
    free_s[n->stream] = out[i].end_s;
    at[n->stream * p->insts.len + length[n->stream]++] = i;
  }
  mem_free(at);
  return HP_OK;
}

/* --- exposed copies -----------------------------------------------------------------------------
 */

typedef struct {
  double start_s, end_s;
  uint32_t inst;
} interval;

static int by_start(const void *a, const void *b) {
  const interval *x = a, *y = b;
  if (x->start_s != y->start_s) return x->start_s < y->start_s ? -1 : 1;
  return x->inst < y->inst ? -1 : x->inst > y->inst;
}

/* Time of the sorted copies during which nothing is computed; what two copies expose at one time
 * is the first one's.  Computations are listed in the order of their times. */
static double find_exposed(const program *p, const inst_times *t, const interval *copy, size_t n,
                           double *by_inst) {
  double all = 0, done = 0; /* until then all is accounted for */
  size_t next = 0;          /* computations before it have ended by then */
  for (size_t i = 0; i < n; i++) {
    double from = fmax(copy[i].start_s, done), to = copy[i].end_s;
    if (to <= from) continue;
    double exposed = to - from;
    for (size_t k = next; k < p->insts.len; k++) {
      if (program_inst(p, k)->stream != STREAM_COMPUTE) continue;
      if (t[k].start_s >= to) break;
      exposed -= fmax(fmin(t[k].end_s, to) - fmax(t[k].start_s, from), 0);
      if (t[k].end_s <= from) next = k + 1;
    }
    if (by_inst) by_inst[copy[i].inst] = fmax(exposed, 0);
    all += exposed;
    done = to;
  }
  return fmax(all, 0);
}

hp_status exposed_copies(const program *p, const inst_times *t, double *by_inst, double *all) {
  size_t n = 0;
  interval *copy = mem_calloc(p->insts.len, sizeof *copy);
  HP_TRY_MEM(copy);
  for (uint32_t i = 0; i < p->insts.len; i++) {
    if (by_inst) by_inst[i] = 0;
    if (stream_copies(program_inst(p, i)->stream))
      copy[n++] = (interval){t[i].start_s, t[i].end_s, i};
  }
  if (n) qsort(copy, n, sizeof *copy, by_start);
  *all = find_exposed(p, t, copy, n, by_inst);
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
  if (!st) st = exposed_copies(p, t, NULL, exposed_copy_s);
  mem_free(t);
  return st;
}
