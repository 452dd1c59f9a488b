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

enum { AT_ONCE = 64 }; /* windows that one walk over the program finds, a bit each */

typedef struct {
  const order_problem *q;
  const inst_times *t;
  double *work;             /* [n] seconds of computation; 0: other work */
  double all;               /* their sum */
  uint64_t *ahead, *behind; /* [n] the collectives that need it, and that it needs */
} window_search;

/* Which of the collectives at[n] need each instruction, and which it needs. */
static void find_relatives(window_search *s, const uint32_t *at, int n) {
  const order_problem *q = s->q;
  memset(s->ahead, 0, q->n * sizeof *s->ahead);
  memset(s->behind, 0, q->n * sizeof *s->behind);
  for (int i = 0; i < n; i++) s->ahead[at[i]] = s->behind[at[i]] = 1ull << i;
  for (uint32_t k = at[n - 1] + 1; k-- > 0;)
    for (uint32_t e = q->dep0[k]; s->ahead[k] && e < q->dep0[k + 1]; e++)
      s->ahead[q->dep[e]] |= s->ahead[k];
  for (uint32_t k = at[0] + 1; k < q->n; k++)
    for (uint32_t e = q->dep0[k]; e < q->dep0[k + 1]; e++) s->behind[k] |= s->behind[q->dep[e]];
}

/* The windows of the collectives at[n], n <= AT_ONCE, between the computation that each needs and
 * that needs it. */
static void find_some(window_search *s, const uint32_t *at, int n, window *w) {
  find_relatives(s, at, n);
  for (int i = 0; i < n; i++) w[i] = (window){.to = s->all, .left = seconds(&s->t[at[i]])};
  for (size_t k = 0; k < s->q->n; k++) {
    if (s->work[k] <= 0) continue;
    for (uint64_t x = s->ahead[k]; x; x &= x - 1) w[__builtin_ctzll(x)].from += s->work[k];
    for (uint64_t x = s->behind[k]; x; x &= x - 1) w[__builtin_ctzll(x)].to -= s->work[k];
  }
}

static int by_from(const void *a, const void *b) {
  const window *x = a, *y = b;
  return (x->from > y->from) - (x->from < y->from);
}

/* A heap of the windows that have opened, the one on top that closes first. */
typedef struct {
  const window *w;
  size_t *at, n;
} open_windows;

static bool closes_sooner(const open_windows *h, size_t a, size_t b) {
  return h->w[a].to != h->w[b].to ? h->w[a].to < h->w[b].to : a < b;
}

static void open_window(open_windows *h, size_t k) {
  size_t i = h->n++;
  for (; i && closes_sooner(h, k, h->at[(i - 1) / 2]); i = (i - 1) / 2)
    h->at[i] = h->at[(i - 1) / 2];
  h->at[i] = k;
}

static void close_window(open_windows *h) {
  size_t last = h->at[--h->n], i = 0;
  for (size_t k; (k = 2 * i + 1) < h->n; i = k) {
    if (k + 1 < h->n && closes_sooner(h, h->at[k + 1], h->at[k])) k++;
    if (!closes_sooner(h, h->at[k], last)) break;
    h->at[i] = h->at[k];
  }
  h->at[i] = last;
}

/* Seconds that can be assigned: at every moment the window that closes first is served.  at[n]:
 * scratch. */
static double fit(window *w, size_t n, size_t *at) {
  open_windows h = {.w = w, .at = at};
  double now = 0, sum = 0;
  size_t open = 0;
  qsort(w, n, sizeof *w, by_from);
  for (;;) {
    while (open < n && w[open].from <= now) open_window(&h, open++);
    while (h.n && (w[h.at[0]].left <= 0 || w[h.at[0]].to <= now)) close_window(&h);
    window *first = h.n ? &w[h.at[0]] : NULL;
    if (!first && open == n) return sum;
    double next = open < n ? w[open].from : INFINITY;
    double run = first ? lesser(lesser(first->left, first->to - now), next - now) : next - now;
    if (first) first->left -= run, sum += run;
    now = first && run < next - now ? now + run : next;
  }
}

static hp_status begin_search(window_search *s, order_problem *q, const program *p) {
  s->q = q;
  s->work = mem_calloc(p->insts.len, sizeof *s->work);
  s->ahead = mem_calloc(p->insts.len, sizeof *s->ahead);
  s->behind = mem_calloc(p->insts.len, sizeof *s->behind);
  HP_TRY(order_build(p, q));
  HP_TRY(order_list(q));
  if (!s->work || !s->ahead || !s->behind) return HP_ERR_OOM;
  for (size_t i = 0; i < p->insts.len; i++) {
    if (computes(program_inst(p, i))) s->work[i] = seconds(&s->t[i]);
    s->all += s->work[i];
  }
  return HP_OK;
}

static hp_status find_windows(const program *p, const inst_times *t, comm_time *each, window *w,
                              size_t *n) {
  order_problem q;
  window_search s = {.t = t};
  uint32_t at[AT_ONCE], len = (uint32_t)p->insts.len;
  hp_status st = begin_search(&s, &q, p);
  for (uint32_t i = 0; !st && i < len;) {
    int some = 0;
    for (; some < AT_ONCE && i < len; i++)
      if (comm_is_collective(program_inst(p, i))) at[some++] = i;
    if (!some) break;
    find_some(&s, at, some, w + *n);
    for (int k = 0; k < some; k++, ++*n)
      each[at[k]].can_overlap_s = lesser(w[*n].left, greater(w[*n].to - w[*n].from, 0));
  }
  order_free(&q);
  mem_free(s.work);
  mem_free(s.ahead);
  mem_free(s.behind);
  return st;
}

hp_status comm_times(const program *p, const inst_times *t, comm_time *each, comm_time *sum) {
  size_t n = 0;
  comm_time *all = mem_calloc(p->insts.len, sizeof *all);
  window *w = mem_calloc(p->insts.len, sizeof *w);
  size_t *opened = mem_calloc(p->insts.len, sizeof *opened);
  hp_status st = all && w && opened ? HP_OK : HP_ERR_OOM;
  *sum = (comm_time){0};
  if (!st) find_overlapped(p, t, all);
  if (!st) st = find_windows(p, t, all, w, &n);
  for (size_t i = 0; !st && i < p->insts.len; i++) {
    sum->comm_s += all[i].comm_s;
    sum->overlapped_s += all[i].overlapped_s;
  }
  if (!st) sum->can_overlap_s = fit(w, n, opened);
  if (!st && each) memcpy(each, all, p->insts.len * sizeof *each);
  mem_free(all);
  mem_free(w);
  mem_free(opened);
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
  all[k].moved += one->moved;
  all[k].time.comm_s += one->time.comm_s;
  all[k].time.overlapped_s += one->time.overlapped_s;
  all[k].time.can_overlap_s += one->time.can_overlap_s;
}

int comm_kinds(const program *p, const mesh *m, const inst_times *t, const comm_time *each,
               comm_kind out[COMM_KINDS]) {
  int kinds = 0;
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    if (!comm_is_collective(n)) continue;
    comm_kind one = {.op = n->op, .bytes = cost_received(p, n), .moved = t[i].received};
    one.time = each[i];
    comm_name_axes(p, m, n, one.axes);
    add(out, &kinds, &one);
  }
  return kinds;
}
