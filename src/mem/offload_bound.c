/* The bound follows from windows of steps.  Whatever the plan, when a window begins the device
 * holds at most `cap` bytes; all other contents from before it that the window reads are fetched
 * within it.  So it takes at least as long as its steps, and as these copies.  Windows that do not
 * overlap follow one another: the least end of a step is the largest sum over chains of windows up
 * to it, found by dynamic programming.
 *
 * With one window, the whole run, this is max(compute, mandatory bytes / bandwidth).  Shorter ones
 * see what has to happen between two points of a run, as in the update after the last gradient. */
#include "mem/offload_bound.h"

#include "base/mem.h"

#include <math.h>

enum { WORK_MOST = 20000000 }; /* steps and touches that are looked at: about 0.1 s */

typedef struct {
  const offload_problem *p;
  uint32_t *touch0, *touched; /* by step: touched[touch0[i]] .. */
  uint32_t *item_of;          /* by touch */
  uint32_t *seen;             /* by item: 1 + the window in which it was met last */
  double *end_s;              /* [n + 1] the least end of the steps before it */
} bound_work;

/* Bytes of a window by tier. */
typedef struct {
  double in[OFFLOAD_TIERS], out[OFFLOAD_TIERS];
} window_bytes;

/* What step i takes by itself: a wait may be hidden by one for copies. */
static double busy_s(const offload_problem *p, size_t i) {
  return p->duration_s[i] - (p->wait_s ? p->wait_s[i] : 0);
}

/* Seconds in which all of `bytes` but `kept` are moved, each tier's by its own link. */
static double least_s(const double bytes[OFFLOAD_TIERS], const double per_s[OFFLOAD_TIERS],
                      double kept) {
  double all = -kept, both = 0;
  for (int t = 0; t < OFFLOAD_TIERS; t++) {
    all += bytes[t];
    if (bytes[t] > 0) both += per_s[t];
  }
  if (all <= 0) return 0;
  double least = all / both;
  for (int t = 0; t < OFFLOAD_TIERS; t++) { /* a tier's link is idle once its bytes are moved */
    double rest = all - bytes[t], other = both - (bytes[t] > 0 ? per_s[t] : 0);
    if (bytes[t] > 0 && least > bytes[t] / per_s[t] && other > 0) return rest / other;
  }
  return least;
}

static hp_status list_touches(bound_work *w) {
  const offload_problem *p = w->p;
  w->touch0 = mem_calloc(p->n + 2, sizeof *w->touch0);
  w->touched = mem_calloc(p->touches, sizeof *w->touched);
  w->item_of = mem_calloc(p->touches, sizeof *w->item_of);
  w->seen = mem_calloc(p->items, sizeof *w->seen);
  w->end_s = mem_calloc(p->n + 1, sizeof *w->end_s);
  HP_TRY_MEM(w->touch0 && w->touched && w->item_of && w->seen && w->end_s);
  for (uint32_t x = 0; x < p->items; x++)
    for (uint32_t k = 0; k < p->item[x].touches; k++) {
      w->item_of[p->item[x].touch0 + k] = x;
      w->touch0[p->touch[p->item[x].touch0 + k].step + 2]++;
    }
  for (size_t i = 0; i < p->n; i++) w->touch0[i + 2] += w->touch0[i + 1];
  for (uint32_t k = 0; k < p->touches; k++) w->touched[w->touch0[p->touch[k].step + 1]++] = k;
  return HP_OK;
}

/* Adds what a touch means for a window that it is the first of its item in. */
static void add_first(const bound_work *w, uint32_t touch, window_bytes *b) {
  const offload_item *it = &w->p->item[w->item_of[touch]];
  bool first = touch == it->touch0;
  if (!(w->p->touch[touch].access & OFFLOAD_READ) || (first && !(it->flags & OFFLOAD_STORED)))
    return;
  b->in[it->tier] += (double)it->bytes;
}

/* The least end of every step over the windows that begin with step i. */
static void add_windows(bound_work *w, uint32_t i) {
  const offload_problem *p = w->p;
  window_bytes b = {{0}, {0}};
  double per_s[OFFLOAD_TIERS], compute_s = 0, begin_s = w->end_s[i];
  for (int t = 0; t < OFFLOAD_TIERS; t++) per_s[t] = p->link[t].in_bytes_s;
  for (uint32_t j = i; j < p->n; j++) {
    compute_s += busy_s(p, j);
    for (uint32_t k = w->touch0[j]; k < w->touch0[j + 1]; k++) {
      uint32_t x = w->item_of[w->touched[k]];
      if (w->seen[x] == i + 1) continue;
      w->seen[x] = i + 1;
      add_first(w, w->touched[k], &b);
    }
    double copy_s = least_s(b.in, per_s, (double)p->cap);
    double end_s = begin_s + (copy_s > compute_s ? copy_s : compute_s);
    if (end_s > w->end_s[j + 1]) w->end_s[j + 1] = end_s;
  }
}

/* The host's work behind the last step that makes what it needs, and all that follows it. */
static double host_bound_s(const offload_problem *p, const double *end_s) {
  double bound = 0, rest = 0;
  for (size_t i = p->hosts; i-- > 0;) {
    const offload_host_work *h = &p->host[i];
    double ready = 0;
    rest += h->duration_s;
    for (uint32_t k = h->need0; k < h->need0 + h->needs; k++) {
      const offload_item *it = &p->item[p->need[k]];
      ready = fmax(ready, end_s[p->touch[it->touch0 + it->touches - 1].step + 1]);
    }
    bound = fmax(bound, ready + rest);
  }
  return bound;
}

hp_status offload_bound(const offload_problem *p, offload_plan *plan) {
  bound_work w = {.p = p};
  hp_status st = list_touches(&w);
  double all = (double)p->n * ((double)p->touches + (double)p->n);
  uint32_t stride = 1 + (uint32_t)fmin(all / WORK_MOST, 1e9);
  for (uint32_t i = 0; !st && i < p->n; i += stride) add_windows(&w, i);
  plan->compute_s = 0;
  for (size_t i = 0; i < p->n; i++) plan->compute_s += busy_s(p, i);
  plan->bound_s = st ? 0 : fmax(w.end_s[p->n], host_bound_s(p, w.end_s));
  mem_free(w.touch0);
  mem_free(w.touched);
  mem_free(w.item_of);
  mem_free(w.seen);
  mem_free(w.end_s);
  return st;
}
