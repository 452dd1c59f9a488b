#include "compile/offload_overlap.h"

#include "compile/order.h"
#include "ops/ops.h"

#include <math.h>

typedef struct {
  program *p;
  uint32_t n;
  inst_times *t;   /* in the order of the list schedule */
  uint32_t *order; /* the new one */
  inst_times *sorted;
} arranging;

static bool is_beside(const program *p, uint32_t i) {
  return program_inst(p, i)->stream == STREAM_COMM;
}

static bool may_overlap(const program *p) {
  bool any = false;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    uint32_t flags = op_flags((op_id)program_inst(p, i)->op);
    if (flags & OPF_MOVE) return false;
    any |= (flags & OPF_RENDEZVOUS) != 0;
  }
  return any;
}

static uint32_t next_of(const arranging *a, uint32_t i, bool beside) {
  while (i < a->n && is_beside(a->p, i) != beside) i++;
  return i;
}

/* A collective comes before the computation during which it starts: that is not what it waits
 * for. */
static void merge(arranging *a) {
  uint32_t c = next_of(a, 0, true), k = next_of(a, 0, false);
  for (uint32_t at = 0; at < a->n; at++) {
    bool first = c < a->n && (k == a->n || c < k || a->t[c].start_s < a->t[k].end_s);
    uint32_t i = first ? c : k;
    a->order[at] = i;
    a->sorted[at] = a->t[i];
    if (first) c = next_of(a, c + 1, true);
    else k = next_of(a, k + 1, false);
  }
}

/* The first computation behind a collective that starts when it has ended, or later. */
static void find_ends(const arranging *a, offload_overlap *x) {
  uint32_t k = 0;
  for (uint32_t i = 0; i < a->n; i++) {
    x->until[i] = PROG_NONE;
    if (!is_beside(a->p, i)) continue;
    if (k < i) k = i; /* collectives end one after the other */
    while (k < a->n && (is_beside(a->p, k) || a->sorted[k].start_s < a->sorted[i].end_s)) k++;
    if (k == a->n) continue;
    x->until[i] = k;
    x->ends0[k + 1]++;
  }
  for (uint32_t i = 0; i < a->n; i++) x->ends0[i + 1] += x->ends0[i];
  uint32_t used = 0; /* they end in the order of their steps */
  for (uint32_t i = 0; i < a->n; i++)
    if (x->until[i] != PROG_NONE) x->ends[used++] = i;
}

/* Steps follow one another; the last collectives, for which no computation waits, do as well. */
static void find_durations(const arranging *a, offload_overlap *x) {
  double end = 0;
  for (uint32_t i = 0; i < a->n; i++) {
    const inst_times *t = &a->sorted[i];
    if (x->until[i] != PROG_NONE) continue;
    double from = fmax(end, fmin(t->start_s, t->end_s));
    x->wait_s[i] = from - end;
    x->duration_s[i] = fmax(end, t->end_s) - end;
    end = fmax(end, t->end_s);
  }
}

static hp_status arrange(arranging *a, const schedule_options *o, offload_overlap *x) {
  a->t = mem_calloc(a->n, sizeof *a->t);
  a->order = mem_calloc(a->n, sizeof *a->order);
  a->sorted = mem_calloc(a->n, sizeof *a->sorted);
  x->until = mem_calloc(a->n, sizeof *x->until);
  x->ends0 = mem_calloc(a->n + 1, sizeof *x->ends0);
  x->ends = mem_calloc(a->n, sizeof *x->ends);
  x->duration_s = mem_calloc(a->n, sizeof *x->duration_s);
  x->wait_s = mem_calloc(a->n, sizeof *x->wait_s);
  HP_TRY_MEM(a->t && a->order && a->sorted && x->until && x->ends0 && x->ends && x->duration_s &&
             x->wait_s);
  HP_TRY(schedule_times(a->p, o, a->t));
  merge(a);
  HP_TRY(order_apply(a->p, a->order));
  find_ends(a, x);
  find_durations(a, x);
  return HP_OK;
}

hp_status offload_overlap_make(program *p, const schedule_options *o, offload_overlap *out,
                               bool *any) {
  arranging a = {.p = p, .n = (uint32_t)p->insts.len};
  *out = (offload_overlap){0};
  *any = may_overlap(p);
  hp_status st = *any ? arrange(&a, o, out) : HP_OK;
  mem_free(a.t);
  mem_free(a.order);
  mem_free(a.sorted);
  return st;
}

void offload_overlap_free(offload_overlap *x) {
  mem_free(x->until);
  mem_free(x->ends0);
  mem_free(x->ends);
  mem_free(x->duration_s);
  mem_free(x->wait_s);
  *x = (offload_overlap){0};
}
