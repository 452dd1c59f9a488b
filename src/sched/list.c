#include "sched/list.h"

#include "base/vec.h"
#include "sched/list_clock.h"
#include "sched/list_guard.h"
#include "sched/list_queue.h"

#include <math.h>
#include <string.h>

/* Event-driven: repeatedly the stream that can start a node first (a transfer before a
 * computation) takes its best node.  See list.h for the rules and list_guard.h for why a cap can
 * always be kept. */

enum { TRIES = 4 }; /* nodes tried with the guard before the stream waits for memory */

typedef struct {
  const list_graph *g;
  uint64_t cap[LIST_TIERS]; /* UINT64_MAX: none */
  list_guard guard;
  list_clock clock;
  list_queue queue[LIST_STREAMS];
  double free_s[LIST_STREAMS];
  bool stuck[LIST_STREAMS]; /* none of its nodes fits until memory is freed */
  double *ready_s;          /* [n] latest end of the predecessors issued so far */
  uint32_t *rank, *before;  /* [n] rank on its stream; predecessors to come */
  uint32_t *aside;          /* [n] nodes that the guard refused */
  uint32_t n_aside, issued;
  list_schedule out;
  VEC(list_edge) edges;
} scheduler;

void list_schedule_free(list_schedule *s) {
  mem_free(s->order);
  mem_free(s->start_s);
  mem_free(s->end_s);
  mem_free(s->edge);
  *s = (list_schedule){0};
}

static void scheduler_free(scheduler *w) {
  list_guard_free(&w->guard);
  list_clock_free(&w->clock);
  for (uint32_t s = 0; s < LIST_STREAMS; s++) list_queue_free(&w->queue[s]);
  mem_free(w->ready_s);
  mem_free(w->rank);
  mem_free(w->before);
  mem_free(w->aside);
  list_schedule_free(&w->out);
  vec_free(&w->edges);
}

/* What the choice of the next node needs. */
static hp_status create_choice(const list_graph *g, const uint32_t *base, scheduler *w) {
  HP_TRY(list_guard_create(g, base, w->cap, &w->guard));
  for (uint32_t s = 0; s < g->p->streams; s++)
    HP_TRY(list_queue_create(g, s, w->ready_s, w->rank, &w->queue[s]));
  for (uint32_t i = 0; i < g->p->n; i++) {
    w->before[i] = g->pred0[i + 1] - g->pred0[i];
    if (!w->before[i]) list_queue_wait(&w->queue[g->p->stream[i]], w->rank[i]);
  }
  return HP_OK;
}

static hp_status scheduler_create(const list_graph *g, const uint32_t *base, scheduler *w) {
  size_t n = g->p->n;
  w->g = g;
  w->ready_s = mem_calloc(n, sizeof *w->ready_s);
  w->rank = mem_calloc(n, sizeof *w->rank);
  w->before = mem_calloc(n, sizeof *w->before);
  w->aside = mem_calloc(n, sizeof *w->aside);
  w->out.order = mem_calloc(n, sizeof *w->out.order);
  w->out.start_s = mem_calloc(n, sizeof *w->out.start_s);
  w->out.end_s = mem_calloc(n, sizeof *w->out.end_s);
  if (!w->ready_s || !w->rank || !w->before || !w->aside || !w->out.order || !w->out.start_s ||
      !w->out.end_s)
    return HP_ERR_OOM;
  HP_TRY(list_clock_create(g, &w->clock));
  list_bytes_at_start(g, w->out.peak);
  return g->p->keep_order ? HP_OK : create_choice(g, base, w);
}

static bool has_room(const scheduler *w, uint32_t s, uint32_t node) {
  for (int t = 0; t < LIST_TIERS; t++)
    if (w->cap[t] != UINT64_MAX && w->clock.held[s][t] > w->cap[t] - w->g->need[t][node])
      return false;
  return true;
}

/* The stream of a node hears of other streams' nodes, those that end first, until it knows of room
 * for the node; *start_s moves to the end of the last.  The ones to wait for become edges. */
static hp_status make_room(scheduler *w, uint32_t node, double *start_s) {
  list_clock *c = &w->clock;
  uint32_t s = w->g->p->stream[node], heard[LIST_STREAMS];
  for (uint32_t t = 0; t < c->streams; t++) heard[t] = UINT32_MAX;
  while (!has_room(w, s, node)) {
    uint32_t first = UINT32_MAX;
    for (uint32_t t = 0; t < c->streams; t++) {
      if (c->known[s][t] == c->count[t]) continue;
      uint32_t x = c->seq[t][c->known[s][t]];
      if (first == UINT32_MAX || w->out.end_s[x] < w->out.end_s[first]) first = x;
    }
    HP_ASSERT(first != UINT32_MAX); /* the guard has admitted it */
    list_clock_hear(c, s, first);
    heard[w->g->p->stream[first]] = first;
    if (w->out.end_s[first] > *start_s) *start_s = w->out.end_s[first];
  }
  for (uint32_t t = 0; t < c->streams; t++)
    if (heard[t] != UINT32_MAX && !vec_push(&w->edges, ((list_edge){heard[t], node})))
      return HP_ERR_OOM;
  return HP_OK;
}

/* Runs a node that the guard has admitted. */
static hp_status issue(scheduler *w, uint32_t node) {
  const list_graph *g = w->g;
  list_clock *c = &w->clock;
  uint32_t s = g->p->stream[node];
  double start = w->ready_s[node] > w->free_s[s] ? w->ready_s[node] : w->free_s[s];
  for (uint32_t k = g->pred0[node]; k < g->pred0[node + 1]; k++) list_clock_hear(c, s, g->pred[k]);
  HP_TRY(make_room(w, node, &start));
  for (int t = 0; t < LIST_TIERS; t++) {
    uint64_t held = c->held[s][t] + g->need[t][node];
    if (held > w->out.peak[t]) w->out.peak[t] = held;
  }
  list_clock_issue(c, node);
  double end = start + g->p->duration_s[node];
  w->out.order[w->issued++] = node;
  w->out.start_s[node] = start;
  w->out.end_s[node] = w->free_s[s] = end;
  if (end > w->out.makespan_s) w->out.makespan_s = end;
  for (uint32_t k = g->succ0[node]; k < g->succ0[node + 1]; k++) {
    uint32_t x = g->succ[k], t = g->p->stream[x];
    if (end > w->ready_s[x]) w->ready_s[x] = end;
    if (g->p->keep_order || --w->before[x]) continue;
    list_queue_wait(&w->queue[t], w->rank[x]);
    w->stuck[t] = false;
  }
  return HP_OK;
}

/* The stream that can start a node first; UINT32_MAX when all are stuck or empty. */
static uint32_t first_stream(const scheduler *w, double *time_s) {
  uint32_t best = UINT32_MAX;
  *time_s = INFINITY;
  for (uint32_t k = 1; k <= w->g->p->streams; k++) {
    uint32_t s = k % w->g->p->streams; /* stream 0 computes: of equals it comes last */
    double t = w->stuck[s] ? INFINITY : list_queue_time(&w->queue[s], w->free_s[s]);
    if (t < *time_s) *time_s = t, best = s;
  }
  return best;
}

/* The best node of a stream that fits and that the guard has admitted; UINT32_MAX: none. */
static uint32_t choose(scheduler *w, uint32_t s) {
  list_queue *q = &w->queue[s];
  for (int i = 0; i < TRIES; i++) {
    uint64_t cap = w->cap[0], room = cap == UINT64_MAX ? cap - 1 : cap - w->guard.tier[0].now;
    uint32_t rank = list_queue_first(q, room);
    if (rank == UINT32_MAX) return UINT32_MAX;
    uint32_t node = q->node[rank];
    list_queue_take(q, rank);
    if (list_guard_run(&w->guard, node, false)) return node;
    w->aside[w->n_aside++] = node;
  }
  return UINT32_MAX;
}

/* The next node of the base order, on any stream. */
static uint32_t force_next(scheduler *w) {
  uint32_t node = w->guard.order[w->guard.next], s = w->g->p->stream[node];
  list_queue_wake(&w->queue[s], w->ready_s[node]);
  list_queue_take(&w->queue[s], w->rank[node]);
  HP_ASSERT(list_guard_run(&w->guard, node, true));
  return node;
}

static hp_status run(scheduler *w) {
  while (w->issued < w->g->p->n) {
    double time_s;
    uint64_t held[LIST_TIERS];
    for (int t = 0; t < LIST_TIERS; t++) held[t] = w->guard.tier[t].now;
    uint32_t s = first_stream(w, &time_s), node;
    if (s == UINT32_MAX) {
      node = force_next(w);
    } else {
      list_queue_wake(&w->queue[s], time_s);
      node = choose(w, s);
      if (node == UINT32_MAX) {
        w->stuck[s] = true;
        continue;
      }
    }
    for (; w->n_aside; w->n_aside--) {
      uint32_t x = w->aside[w->n_aside - 1];
      if (x != node) list_queue_put(&w->queue[w->g->p->stream[x]], w->rank[x]);
    }
    HP_TRY(issue(w, node));
    for (int t = 0; t < LIST_TIERS; t++)
      if (w->guard.tier[t].now < held[t]) memset(w->stuck, 0, sizeof w->stuck);
  }
  return HP_OK;
}

static hp_status run_in_order(scheduler *w) {
  for (uint32_t i = 0; i < w->g->p->n; i++) {
    HP_TRY(issue(w, i));
  }
  return HP_OK;
}

static bool fits(const uint64_t peak[LIST_TIERS], const uint64_t cap[LIST_TIERS]) {
  for (int t = 0; t < LIST_TIERS; t++)
    if (peak[t] > cap[t]) return false;
  return true;
}

/* An order of all nodes that fits under the caps: the index order or the minimum-memory one.  If
 * neither fits, `needed` is that of the one that needs less of the first tier. */
static hp_status choose_base(const list_graph *g, const uint64_t cap[LIST_TIERS], uint32_t *base,
                             uint32_t *left, uint64_t needed[LIST_TIERS], bool *found) {
  uint64_t other[LIST_TIERS];
  for (uint32_t i = 0; i < g->p->n; i++) base[i] = i;
  list_order_peak(g, base, left, needed);
  *found = fits(needed, cap);
  if (*found || g->p->keep_order) return HP_OK;
  HP_TRY(list_minimum_memory_order(g, base));
  list_order_peak(g, base, left, other);
  *found = fits(other, cap);
  if (*found || other[0] < needed[0]) memcpy(needed, other, sizeof other);
  return HP_OK;
}

static void set_caps(scheduler *w, const list_problem *p) {
  for (int t = 0; t < LIST_TIERS; t++)
    w->cap[t] = p->cap[t] && p->cap[t] <= INT64_MAX / 2 ? p->cap[t] : UINT64_MAX;
}

static hp_status make(scheduler *w, const list_graph *g, uint32_t *base, uint32_t *left,
                      uint64_t needed[LIST_TIERS]) {
  const list_problem *p = g->p;
  HP_TRY(choose_base(g, w->cap, base, left, needed, &w->out.fits));
  if (!w->out.fits) return HP_OK;
  HP_TRY(scheduler_create(g, base, w));
  HP_TRY(p->keep_order ? run_in_order(w) : run(w));
  w->out.edge = w->edges.at;
  w->out.n_edges = w->edges.len;
  w->edges.at = NULL;
  return HP_OK;
}

hp_status list_schedule_make(const list_problem *p, list_schedule *out,
                             uint64_t needed[LIST_TIERS]) {
  list_graph g = {0};
  scheduler w = {0};
  uint64_t need[LIST_TIERS] = {0};
  HP_TRY(list_graph_build(p, &g));
  uint32_t *base = mem_calloc(p->n, sizeof *base);
  uint32_t *left = mem_calloc(p->n_values, sizeof *left);
  hp_status st = base && left ? HP_OK : HP_ERR_OOM;
  set_caps(&w, p);
  if (!st && out) st = make(&w, &g, base, left, need);
  else if (!st) st = choose_base(&g, w.cap, base, left, need, &w.out.fits);
  if (needed) memcpy(needed, need, sizeof need);
  if (!st && out) {
    *out = w.out;
    w.out = (list_schedule){0};
  }
  scheduler_free(&w);
  mem_free(base);
  mem_free(left);
  list_graph_free(&g);
  return st;
}
