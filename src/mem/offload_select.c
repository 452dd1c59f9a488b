#include "mem/offload_select.h"

#include "base/mem.h"
#include "mem/interval_index.h"
#include "mem/offload_lanes.h"
#include "mem/offload_peaks.h"
#include "mem/offload_queue.h"

#include <string.h>

/* Where a gap lies: between two touches, behind the last one up to the end of the run, from its
 * beginning up to the first one, or both, over the end of the run. */
enum { BETWEEN, AT_END, AT_BEGIN, OVER_END };
enum { IN, OUT };

typedef struct {
  uint32_t item;
  uint32_t from, until; /* steps of the gap; OVER_END: from..n-1 and 0..until-1 */
  uint32_t place;       /* of its choice */
  uint8_t kind;
  bool taken;
  double copy_s[2]; /* of its copies, if the item has to be offloaded */
} gap;

typedef struct {
  uint32_t gone, back; /* it is away from the beginning of step `gone` to that of step `back` */
  double wait_s[2];    /* for its copies to be in time */
  double score;
} candidate;

typedef struct {
  const offload_problem *p;
  offload_lane lane[OFFLOAD_TIERS][2];
  uint64_t *need; /* [n + 1] bytes that are live during each step if nothing leaves; until they are
                     added up, so many more than during the step before */
  double *step_s; /* [n] of steps, with waits before the next one */
  double all_s;   /* of the run */
  offload_peaks peaks;
  bool *clean; /* by place: its tier holds what is on the device */
  gap *gap;
  size_t gaps;
  uint32_t *end_gap;        /* [items] the first of its gaps at the ends of the run, or behind it */
  interval_index steps_of;  /* the gaps that are open, by the steps that they cover */
  uint32_t *covering;       /* gaps that cover a step */
  offload_queue candidates; /* of a peak, the best first */
  uint8_t *choice;
  bool *carried;
} selector;

static const offload_item *item_of(const selector *s, const gap *g) { return &s->p->item[g->item]; }

/* --- the problem --------------------------------------------------------------------------------
 */

static void add_need(selector *s, uint32_t from, uint32_t until, uint64_t bytes) {
  s->need[from] += bytes;
  s->need[until] -= bytes;
}

static bool is_written(const offload_problem *p, const offload_item *it) {
  for (uint32_t k = 0; k < it->touches; k++)
    if (p->touch[it->touch0 + k].access & OFFLOAD_WRITE) return true;
  return false;
}

/* Where the tier holds the content of x, with the gaps that are taken. */
static void find_clean(selector *s, uint32_t x) {
  const offload_item *it = &s->p->item[x];
  size_t begin = s->p->touches + x;
  bool clean = it->flags & OFFLOAD_STORED && !(s->carried[x] && is_written(s->p, it));
  s->clean[begin] = clean;
  clean |= s->choice[begin] == OFFLOAD_LEAVE;
  for (uint32_t k = it->touch0; k < it->touch0 + it->touches; k++) {
    if (s->p->touch[k].access & OFFLOAD_WRITE) clean = false;
    s->clean[k] = clean;
    clean |= s->choice[k] == OFFLOAD_LEAVE;
  }
}

static void add_gap(selector *s, gap g) {
  uint32_t n = (uint32_t)s->p->n;
  const offload_item *it = item_of(s, &g);
  const offload_link *l = &s->p->link[it->tier];
  if (g.kind == OVER_END ? g.from >= n && !g.until : g.from >= g.until) return;
  g.copy_s[IN] = l->latency_s + (double)it->bytes / l->in_bytes_s;
  g.copy_s[OUT] = l->latency_s + (double)it->bytes / l->out_bytes_s;
  s->gap[s->gaps++] = g;
}

static void list_gaps(selector *s, uint32_t x) {
  const offload_problem *p = s->p;
  const offload_item *it = &p->item[x];
  const offload_touch *t = &p->touch[it->touch0];
  uint32_t last = it->touches - 1, n = (uint32_t)p->n, end = it->touch0 + last;
  for (uint32_t k = 0; k < last && !(it->flags & OFFLOAD_PINNED); k++)
    if (t[k + 1].access & OFFLOAD_READ && !(t[k].access & OFFLOAD_HELD))
      add_gap(s, (gap){x, t[k].step + 1, t[k + 1].step, it->touch0 + k, BETWEEN, false, {0}});
  s->end_gap[x] = (uint32_t)s->gaps;
  if (!s->carried[x]) return;
  add_gap(s, (gap){x, t[last].step + 1, t->step, end, OVER_END, false, {0}});
  add_gap(s, (gap){x, t[last].step + 1, n, end, AT_END, false, {0}});
  add_gap(s, (gap){x, 0, t->step, (uint32_t)p->touches + x, AT_BEGIN, false, {0}});
}

/* Live from the first touch to the last, or all of the time, but where it is written anew. */
static void add_item(selector *s, uint32_t x) {
  const offload_item *it = &s->p->item[x];
  const offload_touch *t = &s->p->touch[it->touch0], *last = t + it->touches - 1;
  s->carried[x] = it->flags & OFFLOAD_CARRIES;
  if (s->carried[x]) add_need(s, 0, (uint32_t)s->p->n, it->bytes);
  else add_need(s, t->step, last->step + 1, it->bytes);
  for (; t < last; t++)
    if (!(t[1].access & OFFLOAD_READ)) add_need(s, t[1].step, t->step + 1, it->bytes);
  list_gaps(s, x);
  find_clean(s, x);
}

/* --- candidates ---------------------------------------------------------------------------------
 */

static double copy_s(const selector *s, const gap *g, int way) {
  return way == OUT && s->clean[g->place] ? 0 : g->copy_s[way];
}

/* Does step `at` belong to the gap's part before the end of the run, its own? */
static bool is_behind_end(const gap *g, uint32_t at) {
  return g->kind == OVER_END && at < g->until;
}

/* Only one of the gaps of an item at the ends of a run is taken. */
static bool is_open(const selector *s, const gap *g) {
  const offload_item *it = item_of(s, g);
  if (g->taken || (g->kind != BETWEEN && !s->carried[g->item])) return false;
  if (g->kind != OVER_END) return true;
  return s->choice[s->p->touches + g->item] != OFFLOAD_LEAVE &&
         s->choice[it->touch0 + it->touches - 1] != OFFLOAD_LEAVE;
}

/* Its copies in the time that lanes have left, so that it is away at step `at`. */
static void place_copies(selector *s, const gap *g, uint32_t at, bool take, candidate *c) {
  offload_lane *lane = s->lane[item_of(s, g)->tier];
  double out = copy_s(s, g, OUT), in = copy_s(s, g, IN);
  bool behind = is_behind_end(g, at);
  uint32_t out_until = behind ? (uint32_t)s->p->n : at;
  uint32_t in_from = g->kind == OVER_END && !behind ? 0 : at + 1;
  c->gone = g->from;
  if (out > 0) {
    c->gone = offload_lane_forward(&lane[OUT], g->from, out_until, take, &out);
    if (c->gone < out_until) c->gone++;
  }
  c->back = offload_lane_back(&lane[IN], in_from, g->until, take, &in);
  c->wait_s[OUT] = out > 0 ? out : 0;
  c->wait_s[IN] = in > 0 ? in : 0;
}

static double away_s(selector *s, const gap *g, const candidate *c) {
  offload_peaks *p = &s->peaks;
  double gone_s = offload_peaks_over_s(p, c->gone), back_s = offload_peaks_over_s(p, c->back);
  if (g->kind != OVER_END) return back_s - gone_s;
  return offload_peaks_over_s(p, (uint32_t)s->p->n) - gone_s + back_s;
}

static bool is_late(const candidate *c) { return c->wait_s[IN] + c->wait_s[OUT] > 0; }

/* How good it is to send it away in this gap; those that are late are behind all others. */
static void rate(selector *s, uint32_t at, double excess, const gap *g, candidate *c) {
  double bytes = (double)item_of(s, g)->bytes;
  place_copies(s, g, at, false, c);
  double spent = copy_s(s, g, OUT) + copy_s(s, g, IN) + c->wait_s[IN] + c->wait_s[OUT];
  c->score = away_s(s, g, c) * (bytes < excess ? bytes : excess) / spent;
  if (is_late(c)) c->score = -1 / c->score;
}

/* The run waits so long before the step behind step i. */
static void wait_behind(selector *s, uint32_t i, double seconds) {
  seconds *= 1 + 1e-9;
  s->step_s[i] += seconds;
  s->all_s += seconds;
  offload_peaks_longer(&s->peaks, i);
  for (int t = 0; t < OFFLOAD_TIERS; t++)
    for (int way = IN; way <= OUT; way++) offload_lane_add(&s->lane[t][way], i, seconds);
}

static void remove_interval(selector *s, uint32_t k) {
  interval_index_remove(&s->steps_of, s->gap[k].from, k);
  if (s->gap[k].kind == OVER_END) interval_index_remove(&s->steps_of, 0, k);
}

/* The gap is taken, and so others of its item may not be open any more. */
static void close_gaps(selector *s, uint32_t taken) {
  uint32_t x = s->gap[taken].item;
  remove_interval(s, taken);
  for (uint32_t k = s->end_gap[x]; k < s->gaps && s->gap[k].item == x; k++)
    if (k != taken && !is_open(s, &s->gap[k])) remove_interval(s, k);
}

static void take_gap(selector *s, uint32_t at, uint32_t taken, const candidate *c) {
  gap *g = &s->gap[taken];
  uint64_t bytes = item_of(s, g)->bytes;
  uint32_t n = (uint32_t)s->p->n, before = is_behind_end(g, at) ? n : at;
  candidate placed;
  if (c->wait_s[OUT] > 0) wait_behind(s, before ? before - 1 : 0, c->wait_s[OUT]);
  if (c->wait_s[IN] > 0) wait_behind(s, g->until ? g->until - 1 : n - 1, c->wait_s[IN]);
  place_copies(s, g, at, true, &placed);
  if (g->kind == OVER_END) {
    offload_peaks_drop(&s->peaks, c->gone, n, bytes);
    offload_peaks_drop(&s->peaks, 0, c->back, bytes);
    s->carried[g->item] = false;
  } else offload_peaks_drop(&s->peaks, c->gone, c->back, bytes);
  g->taken = true;
  s->choice[g->place] = OFFLOAD_LEAVE;
  find_clean(s, g->item);
  close_gaps(s, taken);
}

/* --- peaks --------------------------------------------------------------------------------------
 */

/* Rates the gaps that cover the step. */
static hp_status list_candidates(selector *s, uint32_t at, double excess) {
  size_t n = interval_index_find(&s->steps_of, at, s->covering);
  offload_queue_clear(&s->candidates);
  for (size_t k = 0; k < n; k++) {
    candidate c;
    rate(s, at, excess, &s->gap[s->covering[k]], &c);
    HP_TRY(offload_queue_push(&s->candidates, -c.score, s->covering[k], 0));
  }
  return HP_OK;
}

static hp_status clear_peak(selector *s, uint32_t at) {
  int64_t excess = offload_peaks_excess(&s->peaks, at);
  bool any = false;
  HP_TRY(list_candidates(s, at, (double)excess));
  while (excess > 0 && offload_queue_top(&s->candidates)) {
    candidate c;
    uint32_t k = offload_queue_top(&s->candidates)->item;
    offload_queue_pop(&s->candidates);
    if (!is_open(s, &s->gap[k])) continue;
    rate(s, at, (double)excess, &s->gap[k], &c);
    if (any && is_late(&c)) break;
    take_gap(s, at, k, &c);
    excess = offload_peaks_excess(&s->peaks, at);
    any = true;
  }
  if (!any) offload_peaks_give_up(&s->peaks, at);
  return HP_OK;
}

static hp_status create(const offload_problem *p, selector *s) {
  size_t n = p->n, places = p->touches + p->items, gaps = p->touches + 2 * p->items;
  s->need = mem_calloc(n + 1, sizeof *s->need);
  s->step_s = mem_calloc(n + 1, sizeof *s->step_s);
  s->clean = mem_calloc(places, sizeof *s->clean);
  s->gap = mem_calloc(gaps, sizeof *s->gap);
  s->end_gap = mem_calloc(p->items, sizeof *s->end_gap);
  HP_TRY_MEM(s->need && s->step_s && s->clean && s->gap && s->end_gap);
  return HP_OK;
}

/* A gap over the end of the run covers steps at both ends. */
static hp_status index_gaps(selector *s) {
  size_t n = s->gaps;
  for (size_t k = 0; k < s->gaps; k++) n += s->gap[k].kind == OVER_END;
  HP_TRY(interval_index_create(n, &s->steps_of));
  s->covering = mem_calloc(n, sizeof *s->covering);
  HP_TRY_MEM(s->covering);
  interval *to = s->steps_of.at;
  for (uint32_t k = 0; k < s->gaps; k++) {
    const gap *g = &s->gap[k];
    bool split = g->kind == OVER_END;
    *to++ = (interval){g->from, split ? (uint32_t)s->p->n : g->until, k};
    if (split) *to++ = (interval){0, g->until, k};
  }
  interval_index_build(&s->steps_of);
  return HP_OK;
}

static hp_status find_needs(selector *s) {
  uint64_t live = 0;
  for (size_t i = 0; i < s->p->n; i++) {
    live += s->need[i];
    s->need[i] = live + (s->p->workspace ? s->p->workspace[i] : 0);
  }
  return offload_peaks_create(s->need, s->step_s, (uint32_t)s->p->n, s->p->cap, &s->peaks);
}

static hp_status set_up(selector *s, const double *wait_s) {
  const offload_problem *p = s->p;
  HP_TRY(create(p, s));
  for (size_t i = 0; i < p->n; i++) {
    s->step_s[i] = p->duration_s[i] + wait_s[i + 1] + (i ? 0 : wait_s[0]);
    s->all_s += s->step_s[i];
  }
  for (int t = 0; t < OFFLOAD_TIERS; t++)
    for (int way = IN; way <= OUT; way++)
      HP_TRY(offload_lane_create(s->step_s, p->n, &s->lane[t][way]));
  memset(s->choice, OFFLOAD_STAY, p->touches + p->items);
  for (uint32_t x = 0; x < p->items; x++) add_item(s, x);
  HP_TRY(index_gaps(s));
  return find_needs(s);
}

static void free_all(selector *s) {
  mem_free(s->need);
  mem_free(s->step_s);
  mem_free(s->end_gap);
  offload_peaks_free(&s->peaks);
  mem_free(s->clean);
  mem_free(s->gap);
  interval_index_free(&s->steps_of);
  mem_free(s->covering);
  offload_queue_free(&s->candidates);
  for (int t = 0; t < OFFLOAD_TIERS; t++)
    for (int way = IN; way <= OUT; way++) offload_lane_free(&s->lane[t][way]);
}

hp_status offload_select(const offload_problem *p, double most_s, offload_selection *out) {
  selector s = {.p = p, .choice = out->choice, .carried = out->carried};
  hp_status st = set_up(&s, out->wait_s);
  uint32_t at = 0;
  while (!st && s.all_s <= most_s && (at = offload_peaks_find(&s.peaks)) < p->n)
    st = clear_peak(&s, at);
  out->made = !st && s.all_s <= most_s;
  for (size_t i = 0; !st && i < p->n; i++) out->start_s[i + 1] = out->start_s[i] + s.step_s[i];
  free_all(&s);
  return st;
}

hp_status offload_selection_create(const offload_problem *p, offload_selection *s) {
  *s = (offload_selection){.wait_s = mem_calloc(p->n + 1, sizeof *s->wait_s),
                           .choice = mem_calloc(p->touches + p->items, 1),
                           .carried = mem_calloc(p->items, sizeof *s->carried),
                           .start_s = mem_calloc(p->n + 1, sizeof *s->start_s)};
  HP_TRY_MEM(s->wait_s && s->choice && s->carried && s->start_s);
  return HP_OK;
}

void offload_selection_free(offload_selection *s) {
  mem_free(s->wait_s);
  mem_free(s->choice);
  mem_free(s->carried);
  mem_free(s->start_s);
}
