#include "compile/offload_overlap.h"

#include "compile/host_update.h"
#include "compile/order.h"
#include "ops/ops.h"

#include <math.h>

static bool is_beside(const program *p, uint32_t i) {
  return program_inst(p, i)->stream == STREAM_COMM;
}

/* --- the order ----------------------------------------------------------------------------------
 */

typedef struct {
  program *p;
  uint32_t n;
  inst_times *t;   /* in the order of the list schedule */
  uint32_t *order; /* the new one */
} arranging;

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
static void merge(arranging *a, inst_times *sorted) {
  uint32_t c = next_of(a, 0, true), k = next_of(a, 0, false);
  for (uint32_t at = 0; at < a->n; at++) {
    bool first = c < a->n && (k == a->n || c < k || a->t[c].start_s < a->t[k].end_s);
    uint32_t i = first ? c : k;
    a->order[at] = i;
    sorted[at] = a->t[i];
    if (first) c = next_of(a, c + 1, true);
    else k = next_of(a, k + 1, false);
  }
}

hp_status offload_overlap_order(program *p, const schedule_options *o, inst_times **times) {
  arranging a = {.p = p, .n = (uint32_t)p->insts.len};
  *times = NULL;
  if (!may_overlap(p)) return HP_OK;
  inst_times *sorted = mem_calloc(a.n, sizeof *sorted);
  a.t = mem_calloc(a.n, sizeof *a.t);
  a.order = mem_calloc(a.n, sizeof *a.order);
  hp_status st = sorted && a.t && a.order ? schedule_times(p, o, a.t) : HP_ERR_OOM;
  if (!st) {
    merge(&a, sorted);
    st = order_apply(p, a.order);
  }
  mem_free(a.t);
  mem_free(a.order);
  if (st) mem_free(sorted);
  else *times = sorted;
  return st;
}

/* --- ends and durations -------------------------------------------------------------------------
 */

typedef struct {
  const program *p;
  uint32_t n;
  const inst_times *t;
  const uint8_t *on_host;
  double *ended_s; /* by collective that runs beside others, as find_durations finds it */
} finding;

static bool is_of_device(const finding *f, uint32_t i) {
  return !f->on_host || f->on_host[i] == HOST_NONE;
}

/* The first computation from k on that starts when collective i has ended, or later; n: none. */
static uint32_t find_computation(const finding *f, uint32_t k, uint32_t i) {
  while (k < f->n && (is_beside(f->p, k) || !is_of_device(f, k) || f->t[k].start_s < f->t[i].end_s))
    k++;
  return k;
}

/* For collective i no computation waits: the collective behind the computations that follow, or the
 * last of them; PROG_NONE: there are none. */
static uint32_t find_last(const finding *f, uint32_t i) {
  uint32_t last = PROG_NONE, k = i + 1;
  for (; k < f->n && !is_beside(f->p, k); k++)
    if (is_of_device(f, k)) last = k;
  return k < f->n && last != PROG_NONE ? k : last;
}

static void find_ends(const finding *f, offload_overlap *x) {
  uint32_t k = 0, most = 0; /* collectives end one after the other */
  for (uint32_t i = 0; i < f->n; i++) {
    x->until[i] = PROG_NONE;
    if (!is_beside(f->p, i) || x->ends0[i + 1]) continue;
    k = find_computation(f, k < i ? i : k, i);
    uint32_t until = k < f->n ? k : find_last(f, i);
    if (until == PROG_NONE) continue;
    if (until > most) most = until;
    x->until[i] = most;
    x->ends0[most + 1]++;
  }
  for (uint32_t i = 0; i < f->n; i++) x->ends0[i + 1] += x->ends0[i];
  uint32_t used = 0; /* they end in the order of their steps */
  for (uint32_t i = 0; i < f->n; i++)
    if (x->until[i] != PROG_NONE) x->ends[used++] = i;
}

/* Computations follow one another.  A collective follows the one before it and the computation
 * before it. */
static void find_durations(const finding *f, offload_overlap *x) {
  double end = 0, collectives_end = 0;
  for (uint32_t i = 0; i < f->n; i++) {
    double takes = f->t[i].end_s - f->t[i].start_s, from = end;
    uint32_t ends;
    const uint32_t *ended = offload_ends_at(x, i, &ends);
    if (!is_of_device(f, i)) continue;
    if (ends) from = fmax(from, f->ended_s[ended[ends - 1]]);
    if (is_beside(f->p, i)) from = fmax(from, collectives_end);
    if (is_beside(f->p, i)) collectives_end = from + takes;
    if (offload_runs_beside(x, i)) {
      f->ended_s[i] = collectives_end;
      continue;
    }
    x->wait_s[i] = from - end;
    x->duration_s[i] = from - end + takes;
    end = from + takes;
  }
}

hp_status offload_overlap_make(const program *p, const inst_times *times, const uint8_t *on_host,
                               offload_overlap *out) {
  finding f = {.p = p, .n = (uint32_t)p->insts.len, .t = times, .on_host = on_host};
  *out = (offload_overlap){.until = mem_calloc(f.n, sizeof *out->until),
                           .ends0 = mem_calloc(f.n + 1, sizeof *out->ends0),
                           .ends = mem_calloc(f.n, sizeof *out->ends),
                           .duration_s = mem_calloc(f.n, sizeof *out->duration_s),
                           .wait_s = mem_calloc(f.n, sizeof *out->wait_s)};
  f.ended_s = mem_calloc(f.n, sizeof *f.ended_s);
  bool made = out->until && out->ends0 && out->ends && out->duration_s && out->wait_s && f.ended_s;
  if (made) {
    find_ends(&f, out);
    find_durations(&f, out);
  }
  mem_free(f.ended_s);
  return made ? HP_OK : HP_ERR_OOM;
}

void offload_overlap_free(offload_overlap *x) {
  mem_free(x->until);
  mem_free(x->ends0);
  mem_free(x->ends);
  mem_free(x->duration_s);
  mem_free(x->wait_s);
  *x = (offload_overlap){0};
}
