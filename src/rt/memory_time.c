#include "rt/memory_time.h"

#include "rt/memory_use.h"

#include <stdlib.h>
#include <string.h>

/* A buffer begins to be live, or ends. */
typedef struct {
  double s;
  uint64_t bytes;
  uint8_t tier, class;
  bool ends;
} event;

/* At one time ends come first: memory is free then. */
static int by_time(const void *a, const void *b) {
  const event *x = a, *y = b;
  if (x->s != y->s) return x->s < y->s ? -1 : 1;
  return (int)y->ends - (int)x->ends;
}

typedef struct {
  double from_s, to_s;
} period;

static void widen(period *x, bool first, double from_s, double to_s) {
  if (first || from_s < x->from_s) x->from_s = from_s;
  if (first || to_s > x->to_s) x->to_s = to_s;
}

/* When buffers are live.  One that a result overwrites ends where the instruction begins that makes
 * the result: its span ends before its last use. */
static void find_periods(const program *p, const inst_times *t, const timeline_span *s,
                         double run_s, period *live, bool *seen) {
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k <= n->n_in + n->n_out; k++) {
      uint32_t b = k < n->n_in + n->n_out ? program_args(p, n)[k] : n->workspace;
      if (b == PROG_NONE || !s[b = p->buffers.at[b].root].bytes) continue;
      bool overwritten = i > s[b].last;
      widen(&live[b], !seen[b], t[i].start_s, overwritten ? t[i].start_s : t[i].end_s);
      seen[b] = true;
    }
  }
  for (size_t b = 0; b < p->buffers.len; b++) {
    uint8_t flags = p->buffers.at[b].flags;
    bool at_start = flags & (BUFFER_INPUT | BUFFER_CARRIED_IN);
    bool at_end = flags & (BUFFER_OUTPUT | BUFFER_CARRIED_OUT);
    if (!s[b].bytes || !(at_start || at_end)) continue;
    if (at_start) widen(&live[b], !seen[b], 0, 0);
    if (at_end) widen(&live[b], !seen[b] && !at_start, run_s, run_s);
  }
}

static void apply(const event *e, live_bytes *now, uint64_t *sum) {
  uint64_t *bytes = &now->of[e->tier][e->class];
  *bytes = e->ends ? *bytes - e->bytes : *bytes + e->bytes;
  sum[e->tier] = e->ends ? sum[e->tier] - e->bytes : sum[e->tier] + e->bytes;
}

/* Adds up events; each range keeps, for each tier, the classes at its most. */
static void sweep(const event *e, size_t events, double full_s, live_bytes *out, int n) {
  live_bytes now = {{{0}}};
  uint64_t sum[TIER_COUNT] = {0}, most[TIER_COUNT];
  size_t k = 0;
  for (int i = 0; i < n; i++) {
    double start = full_s * i / n, end = full_s * (i + 1) / n;
    for (; k < events && e[k].s <= start; k++) apply(&e[k], &now, sum);
    out[i] = now;
    memcpy(most, sum, sizeof most);
    for (; k < events && e[k].s < end; k++) {
      int t = e[k].tier;
      apply(&e[k], &now, sum);
      if (sum[t] <= most[t]) continue;
      most[t] = sum[t];
      memcpy(out[i].of[t], now.of[t], sizeof now.of[t]);
    }
  }
}

static size_t list_events(const program *p, const timeline_span *s, const period *live, event *e) {
  size_t n = 0;
  for (size_t b = 0; b < p->buffers.len; b++) {
    if (!s[b].bytes || live[b].to_s <= live[b].from_s) continue;
    uint8_t class = s[b].class < MEM_CLASS_COUNT ? s[b].class : MEM_OTHER;
    e[n++] = (event){live[b].from_s, s[b].bytes, s[b].tier, class, false};
    e[n++] = (event){live[b].to_s, s[b].bytes, s[b].tier, class, true};
  }
  if (n) qsort(e, n, sizeof *e, by_time);
  return n;
}

hp_status memory_over_time(const program *p, const inst_times *t, double full_s, live_bytes *out,
                           int n) {
  timeline_span *s;
  size_t buffers = p->buffers.len;
  HP_TRY(memory_spans(p, &s));
  period *live = mem_calloc(buffers, sizeof *live);
  bool *seen = mem_calloc(buffers, sizeof *seen);
  event *e = mem_calloc(2 * buffers, sizeof *e);
  hp_status st = live && seen && e ? HP_OK : HP_ERR_OOM;
  if (!st) {
    find_periods(p, t, s, inst_times_end(t, p->insts.len), live, seen);
    sweep(e, list_events(p, s, live, e), full_s, out, n);
  }
  mem_free(s);
  mem_free(live);
  mem_free(seen);
  mem_free(e);
  return st;
}
