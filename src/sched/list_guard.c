#include "sched/list_guard.h"

#include "base/mem.h"

#include <string.h>

#define NEVER_MOST (INT64_MIN / 2) /* the leaf of a node that has run; ranges still add to it */

void list_guard_free(list_guard *w) {
  mem_free(w->at);
  mem_free(w->done);
  mem_free(w->add);
  mem_free(w->most);
  mem_free(w->reader);
  mem_free(w->earlier);
  mem_free(w->later);
  mem_free(w->slot);
  mem_free(w->last);
  *w = (list_guard){0};
}

/* Adds bytes to the places [from, to] below a node of the tree that spans [lo, hi]. */
static void add_range(list_guard *w, uint32_t node, uint32_t lo, uint32_t hi, uint32_t from,
                      uint32_t to, int64_t bytes) {
  if (to < lo || hi < from) return;
  if (from <= lo && hi <= to) {
    w->add[node] += bytes;
    w->most[node] += bytes;
    return;
  }
  uint32_t mid = lo + (hi - lo) / 2, l = 2 * node, r = l + 1;
  add_range(w, l, lo, mid, from, to, bytes);
  add_range(w, r, mid + 1, hi, from, to, bytes);
  w->most[node] = w->add[node] + (w->most[l] > w->most[r] ? w->most[l] : w->most[r]);
}

static void add_bytes(list_guard *w, uint32_t from, uint32_t to, int64_t bytes) {
  if (from <= to && bytes) add_range(w, 1, 0, w->leaves - 1, from, to, bytes);
}

/* What running a node early (sign 1), or taking that back (-1), does to the remaining ones.  All
 * places are as if the node stood before the first of them. */
static void shift(list_guard *w, uint32_t node, int64_t sign) {
  const list_graph *g = w->g;
  uint32_t x = w->at[node];
  for (uint32_t k = g->made0[node]; k < g->made0[node + 1]; k++) {
    uint32_t v = g->made[k];
    if (x && list_is_held(g, v)) add_bytes(w, 0, x - 1, sign * (int64_t)g->p->bytes[v]);
  }
  for (uint32_t k = g->read0[node]; k < g->read0[node + 1]; k++) {
    uint32_t v = g->read[k], s = w->slot[k];
    if (s != w->last[v] || list_is_kept(g, v)) continue; /* others still hold it as long */
    uint32_t from = w->earlier[s] == LIST_NO_SLOT ? 0 : w->at[w->reader[w->earlier[s]]] + 1;
    add_bytes(w, from, x, -sign * (int64_t)g->p->bytes[v]);
  }
}

static void unlink_reader(list_guard *w, uint32_t v, uint32_t s) {
  uint32_t before = w->earlier[s], after = w->later[s];
  if (before != LIST_NO_SLOT) w->later[before] = after;
  if (after != LIST_NO_SLOT) w->earlier[after] = before;
  if (w->last[v] == s) w->last[v] = before;
}

bool list_guard_run(list_guard *w, uint32_t node, bool sure) {
  const list_graph *g = w->g;
  bool capped = w->cap != UINT64_MAX;
  uint32_t x = w->at[node];
  if (capped) {
    if (!sure && (g->need[node] > w->cap || w->now > w->cap - g->need[node])) return false;
    shift(w, node, 1);
    add_bytes(w, x, x, NEVER_MOST);
    if (!sure && w->most[1] > (int64_t)w->cap) {
      add_bytes(w, x, x, -NEVER_MOST);
      shift(w, node, -1);
      return false;
    }
  }
  for (uint32_t k = g->made0[node]; k < g->made0[node + 1]; k++)
    if (list_is_held(g, g->made[k])) w->now += g->p->bytes[g->made[k]];
  for (uint32_t k = g->read0[node]; k < g->read0[node + 1]; k++) {
    uint32_t v = g->read[k];
    unlink_reader(w, v, w->slot[k]);
    if (w->last[v] == LIST_NO_SLOT && !list_is_kept(g, v)) w->now -= g->p->bytes[v];
  }
  w->done[node] = true;
  while (w->next < g->p->n && w->done[w->order[w->next]]) w->next++;
  return true;
}

/* Rows of readers in base order, linked. */
static void link_readers(list_guard *w) {
  const list_graph *g = w->g;
  for (uint32_t v = 0; v < g->p->n_values; v++) w->last[v] = LIST_NO_SLOT;
  for (size_t i = 0; i < g->p->n; i++) {
    uint32_t node = w->order[i];
    for (uint32_t k = g->read0[node]; k < g->read0[node + 1]; k++) {
      uint32_t v = g->read[k], before = w->last[v];
      uint32_t s = before == LIST_NO_SLOT ? g->reader0[v] : before + 1;
      w->reader[s] = node;
      w->slot[k] = s;
      w->earlier[s] = before;
      w->later[s] = LIST_NO_SLOT;
      if (before != LIST_NO_SLOT) w->later[before] = s;
      w->last[v] = s;
    }
  }
}

/* Bytes in use while each node of the base order runs. */
static void fill_tree(list_guard *w) {
  const list_graph *g = w->g;
  uint64_t now = w->now;
  for (uint32_t i = w->leaves; i < 2 * w->leaves; i++) w->most[i] = NEVER_MOST;
  for (uint32_t i = 0; i < g->p->n; i++) {
    uint32_t x = w->order[i];
    w->most[w->leaves + i] = (int64_t)(now + g->need[x]);
    for (uint32_t k = g->made0[x]; k < g->made0[x + 1]; k++)
      if (list_is_held(g, g->made[k])) now += g->p->bytes[g->made[k]];
    for (uint32_t k = g->read0[x]; k < g->read0[x + 1]; k++) {
      uint32_t v = g->read[k];
      if (w->slot[k] == w->last[v] && !list_is_kept(g, v)) now -= g->p->bytes[v];
    }
  }
  for (uint32_t i = w->leaves; i-- > 1;)
    w->most[i] = w->most[2 * i] > w->most[2 * i + 1] ? w->most[2 * i] : w->most[2 * i + 1];
}

hp_status list_guard_create(const list_graph *g, const uint32_t *order, uint64_t cap,
                            list_guard *out) {
  size_t n = g->p->n, reads = g->read0[n];
  list_guard w = {.g = g, .cap = cap, .order = order, .leaves = 1, .now = list_bytes_at_start(g)};
  while (w.leaves < n) w.leaves *= 2;
  w.at = mem_calloc(n, sizeof *w.at);
  w.done = mem_calloc(n, sizeof *w.done);
  w.add = mem_calloc(2 * (size_t)w.leaves, sizeof *w.add);
  w.most = mem_calloc(2 * (size_t)w.leaves, sizeof *w.most);
  w.reader = mem_calloc(reads, sizeof *w.reader);
  w.earlier = mem_calloc(reads, sizeof *w.earlier);
  w.later = mem_calloc(reads, sizeof *w.later);
  w.slot = mem_calloc(reads, sizeof *w.slot);
  w.last = mem_calloc(g->p->n_values, sizeof *w.last);
  if (!w.at || !w.done || !w.add || !w.most || !w.reader || !w.earlier || !w.later || !w.slot ||
      !w.last) {
    list_guard_free(&w);
    return HP_ERR_OOM;
  }
  for (uint32_t i = 0; i < n; i++) w.at[order[i]] = i;
  link_readers(&w);
  fill_tree(&w);
  *out = w;
  return HP_OK;
}
