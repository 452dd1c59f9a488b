#include "sched/list_clock.h"

#include "base/mem.h"

#include <string.h>

void list_clock_free(list_clock *w) {
  mem_free(w->seq[0]); /* one block, divided among the streams */
  mem_free(w->place);
  mem_free(w->clock);
  mem_free(w->unknown);
  *w = (list_clock){0};
}

hp_status list_clock_create(const list_graph *g, list_clock *out) {
  const list_problem *p = g->p;
  list_clock w = {.g = g, .streams = p->streams};
  uint32_t size[LIST_STREAMS] = {0};
  w.seq[0] = mem_calloc(p->n, sizeof *w.seq[0]);
  w.place = mem_calloc(p->n, sizeof *w.place);
  w.clock = mem_calloc(p->n * p->streams, sizeof *w.clock);
  w.unknown = mem_calloc(p->n_values * p->streams, sizeof *w.unknown);
  if (!w.seq[0] || !w.place || !w.clock || !w.unknown) {
    list_clock_free(&w);
    return HP_ERR_OOM;
  }
  for (size_t i = 0; i < p->n; i++) size[p->stream[i]]++;
  for (uint32_t s = 1; s < p->streams; s++) w.seq[s] = w.seq[s - 1] + size[s - 1];
  for (size_t v = 0; v < p->n_values; v++) {
    uint32_t n = g->reader0[v + 1] - g->reader0[v] + (p->def[v] != LIST_INPUT);
    for (uint32_t s = 0; s < p->streams; s++) w.unknown[v * p->streams + s] = n;
  }
  for (uint32_t s = 0; s < p->streams; s++) list_bytes_at_start(g, w.held[s]);
  *out = w;
  return HP_OK;
}

static void let_go(list_clock *w, uint32_t s, uint32_t v) {
  if (--w->unknown[(size_t)v * w->streams + s] == 0 && !list_is_kept(w->g, v))
    w->held[s][list_tier(w->g, v)] -= w->g->p->bytes[v];
}

/* Advances what s knows of t to `count` nodes. */
static void advance(list_clock *w, uint32_t s, uint32_t t, uint32_t count) {
  const list_graph *g = w->g;
  for (; w->known[s][t] < count; w->known[s][t]++) {
    uint32_t x = w->seq[t][w->known[s][t]];
    if (g->p->workspace) w->held[s][0] -= g->p->workspace[x];
    for (uint32_t k = g->made0[x]; k < g->made0[x + 1]; k++) let_go(w, s, g->made[k]);
    for (uint32_t k = g->read0[x]; k < g->read0[x + 1]; k++) let_go(w, s, g->read[k]);
  }
}

void list_clock_hear(list_clock *w, uint32_t s, uint32_t node) {
  uint32_t t = w->g->p->stream[node];
  if (w->known[s][t] > w->place[node]) return; /* s knows the node, and so all that the node knew */
  for (uint32_t u = 0; u < w->streams; u++)
    advance(w, s, u, w->clock[(size_t)node * w->streams + u]);
}

void list_clock_issue(list_clock *w, uint32_t node) {
  uint32_t s = w->g->p->stream[node];
  w->place[node] = w->count[s];
  w->seq[s][w->count[s]++] = node;
  for (uint32_t t = 0; t < w->streams; t++)
    for (int m = 0; m < LIST_TIERS; m++) w->held[t][m] += w->g->need[m][node];
  advance(w, s, s, w->count[s]);
  memcpy(w->clock + (size_t)node * w->streams, w->known[s], w->streams * sizeof *w->clock);
}
