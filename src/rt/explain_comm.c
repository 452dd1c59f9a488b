#include "rt/explain_comm.h"

#include "compile/order.h"
#include "sim/cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool computes(const prog_inst *n) {
  return n->stream == STREAM_COMPUTE && !comm_is_collective(n);
}

static double seconds(const inst_times *t) { return t->end_s - t->arrived_s; }

static double lesser(double a, double b) { return a < b ? a : b; }
static double greater(double a, double b) { return a > b ? a : b; }

/* --- overlap
 * --------------------------------------------------------------------------------------
 *
 * Instructions of a stream are in sequence, so one walk over both streams finds the computation
 * during each collective. */

static void find_overlapped(const program *p, const inst_times *t, comm_time *each) {
  size_t first = 0; /* computation before it ended before the collective begins */
  for (size_t i = 0; i < p->insts.len; i++) {
    if (!comm_is_collective(program_inst(p, i))) continue;
    each[i].comm_s = seconds(&t[i]);
    while (first < p->insts.len &&
           (!computes(program_inst(p, first)) || t[first].end_s <= t[i].arrived_s))
      first++;
    for (size_t k = first; k < p->insts.len; k++) {
      if (!computes(program_inst(p, k))) continue;
      if (t[k].start_s >= t[i].end_s) break;
      each[i].overlapped_s +=
          greater(lesser(t[k].end_s, t[i].end_s) - greater(t[k].start_s, t[i].arrived_s), 0);
    }
  }
}

/* --- largest possible overlap
 * -----------------------------------------------------------------------
 *
 * All computation in sequence; a collective comes after what it needs and before what needs it, and
 * can overlap with the computation between.  One second of computation overlaps one second of
 * communication. */

typedef struct {
  double from, to, left; /* of the sequence; seconds of the collective not yet assigned */
} window;

enum { NEEDED = 1, NEEDS = 2 };

/* The computation that instruction i needs, and the computation that needs it; tied[] is
 * scratch. */
static window window_of(const order_problem *q, const inst_times *t, uint32_t i, double work,
                        uint8_t *tied) {
  window w = {.to = work, .left = seconds(&t[i])};
  memset(tied, 0, q->n);
  tied[i] = NEEDED | NEEDS;
  for (uint32_t k = i + 1; k-- > 0;)
    for (uint32_t e = q->dep0[k]; tied[k] & NEEDED && e < q->dep0[k + 1]; e++)
      tied[q->dep[e]] |= NEEDED;
  for (uint32_t k = i + 1; k < q->n; k++)
    for (uint32_t e = q->dep0[k]; e < q->dep0[k + 1]; e++) tied[k] |= tied[q->dep[e]] & NEEDS;
  for (uint32_t k = 0; k < q->n; k++) {
    if (!computes(program_inst(q->p, k))) continue;
    if (tied[k] & NEEDED) w.from += seconds(&t[k]);
    if (tied[k] & NEEDS) w.to -= seconds(&t[k]);
  }
  return w;
}

static int by_from(const void *a, const void *b) {
  const window *x = a, *y = b;
  return (x->from > y->from) - (x->from < y->from);
}

/* Seconds that can be assigned: at every moment the window that closes first is served. */
static double fit(window *w, size_t n) {
  double now = 0, sum = 0;
  size_t open = 0;
  qsort(w, n, sizeof *w, by_from);
  for (;;) {
    window *first = NULL;
    while (open < n && w[open].from <= now) open++;
    for (size_t k = 0; k < open; k++)
      if (w[k].left > 0 && w[k].to > now && (!first || w[k].to < first->to)) first = &w[k];
    if (!first && open == n) return sum;
    double next = open < n ? w[open].from : INFINITY;
    double run = first ? lesser(lesser(first->left, first->to - now), next - now) : next - now;
    if (first) first->left -= run, sum += run;
    now = first && run < next - now ? now + run : next;
  }
}

static hp_status find_windows(const program *p, const inst_times *t, comm_time *each, window *w,
                              size_t *n) {
  order_problem q;
  double work = 0;
  uint8_t *tied = mem_calloc(p->insts.len, 1);
  hp_status st = order_build(p, &q);
  if (!st) st = tied ? order_list(&q) : HP_ERR_OOM;
  for (size_t i = 0; i < p->insts.len; i++)
    if (computes(program_inst(p, i))) work += seconds(&t[i]);
  for (uint32_t i = 0; !st && i < p->insts.len; i++) {
    if (!comm_is_collective(program_inst(p, i))) continue;
    w[*n] = window_of(&q, t, i, work, tied);
    each[i].can_overlap_s = lesser(w[*n].left, greater(w[*n].to - w[*n].from, 0));
    ++*n;
  }
  order_free(&q);
  mem_free(tied);
  return st;
}

hp_status comm_times(const program *p, const inst_times *t, comm_time *each, comm_time *sum) {
  size_t n = 0;
  comm_time *all = mem_calloc(p->insts.len, sizeof *all);
  window *w = mem_calloc(p->insts.len, sizeof *w);
  hp_status st = all && w ? HP_OK : HP_ERR_OOM;
  *sum = (comm_time){0};
  if (!st) find_overlapped(p, t, all);
  if (!st) st = find_windows(p, t, all, w, &n);
  for (size_t i = 0; !st && i < p->insts.len; i++) {
    sum->comm_s += all[i].comm_s;
    sum->overlapped_s += all[i].overlapped_s;
  }
  if (!st) sum->can_overlap_s = fit(w, n);
  if (!st && each) memcpy(each, all, p->insts.len * sizeof *each);
  mem_free(all);
  mem_free(w);
  return st;
}

/* --- by kind ---------------------------------------------------------------------------------- */

void comm_name_axes(const program *p, const mesh *m, const prog_inst *n, char out[64]) {
  int64_t axes[ATTR_LIST_MAX];
  int count = inst_list(p, n, "axes", axes);
  size_t at = 0;
  *out = 0;
  for (int i = 0; i < count && at < 64; i++)
    at += (size_t)snprintf(out + at, 64 - at, i ? ",%s" : "%s", m->name[axes[i]]);
}

/* Adds it to the kind with the same op and axes. */
static void add(comm_kind *all, int *kinds, const comm_kind *one) {
  int k = 0;
  while (k < *kinds && (all[k].op != one->op || strcmp(all[k].axes, one->axes))) k++;
  if (k == COMM_KINDS) k--;
  if (k == *kinds) all[(*kinds)++] = (comm_kind){.op = one->op};
  memcpy(all[k].axes, one->axes, sizeof one->axes);
  all[k].count++;
  all[k].bytes += one->bytes;
  all[k].time.comm_s += one->time.comm_s;
  all[k].time.overlapped_s += one->time.overlapped_s;
  all[k].time.can_overlap_s += one->time.can_overlap_s;
}

int comm_kinds(const program *p, const mesh *m, const comm_time *each, comm_kind out[COMM_KINDS]) {
  int kinds = 0;
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    if (!comm_is_collective(n)) continue;
    comm_kind one = {.op = n->op, .bytes = cost_received(p, n), .time = each[i]};
    comm_name_axes(p, m, n, one.axes);
    add(out, &kinds, &one);
  }
  return kinds;
}
