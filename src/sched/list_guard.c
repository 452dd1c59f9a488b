#include "sched/list_guard.h"

#include "base/mem.h"

#include <string.h>

#define NEVER_MOST (INT64_MIN / 2) /* the leaf of a node that has run; ranges still add to it */

void list_guard_free(list_guard *w) {
  mem_free(w->at);
  mem_free(w->done);
  for (int t = 0; t < LIST_TIERS; t++) {
    mem_free(w->tier[t].add);
    mem_free(w->tier[t].most);
  }
  mem_free(w->reader);
  mem_free(w->earlier);
  mem_free(w->later);
  mem_free(w->slot);
  mem_free(w->last);
  *w = (list_guard){0};
}

/* Adds bytes to the places [from, to] below a node of the tree that spans [lo, hi]. */
static void add_range(list_guard_tier *w, uint32_t node, uint32_t lo, uint32_t hi, uint32_t from,
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

static void add_bytes(list_guard *w, uint32_t tier, uint32_t from, uint32_t to, int64_t bytes) {
  list_guard_tier *t = &w->tier[tier];
  if (t->most && from <= to && bytes) add_range(t, 1, 0, w->leaves - 1, from, to, bytes);
}

static void add_to_all(list_guard *w, uint32_t at, int64_t bytes) {
  for (uint32_t t = 0; t < LIST_TIERS; t++) add_bytes(w, t, at, at, bytes);
}

/* The effect on the remaining nodes of running a node early (sign 1), or of undoing that (-1),
 * as if the node came before the first of them. */
static void shift(list_guard *w, uint32_t node, int64_t sign) {
  const list_graph *g = w->g;
  uint32_t x = w->at[node];
  for (uint32_t k = g->made0[node]; k < g->made0[node + 1]; k++) {
    uint32_t v = g->made[k];
    if (x && list_is_held(g, v))
      add_bytes(w, list_tier(g, v), 0, x - 1, sign * (int64_t)g->p->bytes[v]);
  }
  for (uint32_t k = g->read0[node]; k < g->read0[node + 1]; k++) {
    uint32_t v = g->read[k], s = w->slot[k];
    if (s != w->last[v] || list_is_kept(g, v)) continue; /* others hold it as long anyway */
    uint32_t from = w->earlier[s] == LIST_NO_SLOT ? 0 : w->at[w->reader[w->earlier[s]]] + 1;
    add_bytes(w, list_tier(g, v), from, x, -sign * (int64_t)g->p->bytes[v]);
  }
}

/* Is there room for the node now? */
static bool has_room(const list_guard *w, uint32_t node) {
  for (int t = 0; t < LIST_TIERS; t++) {
    const list_guard_tier *m = &w->tier[t];
    uint64_t need = w->g->need[t][node];
    if (m->most && (need > m->cap || m->now > m->cap - need)) return false;
  }
  return true;
}

/* Do all remaining nodes fit, in base order? */
static bool rest_fits(const list_guard *w) {
  for (int t = 0; t < LIST_TIERS; t++)
    if (w->tier[t].most && w->tier[t].most[1] > (int64_t)w->tier[t].cap) return false;
  return true;
}

static void unlink_reader(list_guard *w, uint32_t v, uint32_t s) {
  uint32_t before = w->earlier[s], after = w->later[s];
  if (before != LIST_NO_SLOT) w->later[before] = after;
  if (after != LIST_NO_SLOT) w->earlier[after] = before;
  if (w->last[v] == s) w->last[v] = before;
}

bool list_guard_run(list_guard *w, uint32_t node, bool sure) {
  const list_graph *g = w->g;
  uint32_t x = w->at[node];
  if (!sure && !has_room(w, node)) return false;
  shift(w, node, 1);
  add_to_all(w, x, NEVER_MOST);
  if (!sure && !rest_fits(w)) {
    add_to_all(w, x, -NEVER_MOST);
    shift(w, node, -1);
    return false;
  }
  for (uint32_t k = g->made0[node]; k < g->made0[node + 1]; k++) {
    uint32_t v = g->made[k];
    if (list_is_held(g, v)) w->tier[list_tier(g, v)].now += g->p->bytes[v];
  }
  for (uint32_t k = g->read0[node]; k < g->read0[node + 1]; k++) {
    uint32_t v = g->read[k];
    unlink_reader(w, v, w->slot[k]);
    if (w->last[v] == LIST_NO_SLOT && !list_is_kept(g, v))
      w->tier[list_tier(g, v)].now -= g->p->bytes[v];
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

/* Bytes in use of a tier while each node of the base order runs. */
static void fill_tree(const list_guard *w, uint32_t tier) {
  const list_graph *g = w->g;
  const list_guard_tier *t = &w->tier[tier];
  uint64_t now = t->now;
  for (uint32_t i = w->leaves; i < 2 * w->leaves; i++) t->most[i] = NEVER_MOST;
  for (uint32_t i = 0; i < g->p->n; i++) {
    uint32_t x = w->order[i];
    t->most[w->leaves + i] = (int64_t)(now + g->need[tier][x]);
    for (uint32_t k = g->made0[x]; k < g->made0[x + 1]; k++) {
      uint32_t v = g->made[k];
      if (list_tier(g, v) == tier && list_is_held(g, v)) now += g->p->bytes[v];
    }
    for (uint32_t k = g->read0[x]; k < g->read0[x + 1]; k++) {
      uint32_t v = g->read[k];
      if (list_tier(g, v) == tier && w->slot[k] == w->last[v] && !list_is_kept(g, v))
        now -= g->p->bytes[v];
    }
  }
  for (uint32_t i = w->leaves; i-- > 1;)
    t->most[i] = t->most[2 * i] > t->most[2 * i + 1] ? t->most[2 * i] : t->most[2 * i + 1];
}

static hp_status create_tree(list_guard *w, uint32_t tier) {
  list_guard_tier *t = &w->tier[tier];
  t->add = mem_calloc(2 * (size_t)w->leaves, sizeof *t->add);
  t->most = mem_calloc(2 * (size_t)w->leaves, sizeof *t->most);
  if (!t->add || !t->most) return HP_ERR_OOM;
  fill_tree(w, tier);
  return HP_OK;
}

hp_status list_guard_create(const list_graph *g, const uint32_t *order,
                            const uint64_t cap[LIST_TIERS], list_guard *out) {
  size_t n = g->p->n, reads = g->read0[n];
  list_guard w = {.g = g, .order = order, .leaves = 1};
  uint64_t now[LIST_TIERS];
  while (w.leaves < n) w.leaves *= 2;
  w.at = mem_calloc(n, sizeof *w.at);
  w.done = mem_calloc(n, sizeof *w.done);
  w.reader = mem_calloc(reads, sizeof *w.reader);
  w.earlier = mem_calloc(reads, sizeof *w.earlier);
  w.later = mem_calloc(reads, sizeof *w.later);
  w.slot = mem_calloc(reads, sizeof *w.slot);
  w.last = mem_calloc(g->p->n_values, sizeof *w.last);
  hp_status st =
      w.at && w.done && w.reader && w.earlier && w.later && w.slot && w.last ? HP_OK : HP_ERR_OOM;
  if (!st) {
    for (uint32_t i = 0; i < n; i++) w.at[order[i]] = i;
    link_readers(&w);
    list_bytes_at_start(g, now);
  }
  for (uint32_t t = 0; !st && t < LIST_TIERS; t++) {
    w.tier[t].cap = cap[t];
    w.tier[t].now = now[t];
    if (cap[t] != UINT64_MAX) st = create_tree(&w, t);
  }
  if (st) list_guard_free(&w);
  else *out = w;
  return st;
}
