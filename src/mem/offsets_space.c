#include "mem/offsets_space.h"

#include "base/vec.h"

#include <string.h>

typedef struct {
  uint64_t from, to;
} run;

/* Disjoint runs in ascending order, none adjacent. */
typedef struct {
  uint32_t at, len, cap; /* in the pool */
} run_set;

typedef struct {
  uint32_t points;       /* leaves in use */
  uint32_t leaves;       /* a power of two */
  uint32_t *rank;        /* [points of the items + 1] definitions on the two streams before a time;
                            NULL: the same time.  Shared by (t, s) and (s, t) */
  run_set *whole, *some; /* [2 * leaves], root at 1 */
} tree;

enum { SETS_MAX = 8 * 33 * OFFSETS_STREAMS * OFFSETS_STREAMS };

/* A set that conflicts with an item, and the search position in its runs. */
typedef struct {
  uint32_t at, left;
} cursor;

struct offsets_space {
  const offsets_items *items;
  tree *pair; /* [streams][streams] */
  VEC(run) pool;
  cursor *met; /* [SETS_MAX] */
  uint32_t n_met;
  uint64_t work; /* steps done */
};

/* Costs in steps of about 5 ns: a tree node is a cache miss, and cache lines are moved and
 * cleared. */
enum { NODE_STEPS = 3, RUNS_A_STEP = 8, NODES_A_STEP = 16 };

void offsets_space_free(offsets_space *p) {
  if (!p) return;
  uint32_t streams = p->items->streams;
  for (uint32_t t = 0; p->pair && t < streams; t++)
    for (uint32_t s = 0; s < streams; s++) {
      tree *k = &p->pair[t * streams + s];
      if (t <= s) mem_free(k->rank);
      mem_free(k->whole);
      mem_free(k->some);
    }
  mem_free(p->pair);
  vec_free(&p->pool);
  mem_free(p->met);
  mem_free(p);
}

/* The number of definitions on streams t and s before each time. */
static hp_status rank_pair(offsets_space *p, uint32_t t, uint32_t s) {
  const offsets_items *items = p->items;
  tree *ts = &p->pair[t * items->streams + s], *st = &p->pair[s * items->streams + t];
  ts->points = items->points;
  if (items->streams > 1) {
    ts->rank = mem_calloc((size_t)items->points + 1, sizeof *ts->rank);
    HP_TRY_MEM(ts->rank);
    for (size_t k = 0; k < items->n; k++) {
      const uint32_t *first = items->first + k * items->streams;
      if (first[t] != OFFSETS_NEVER) ts->rank[first[t] + 1] = 1;
      if (first[s] != OFFSETS_NEVER) ts->rank[first[s] + 1] = 1;
    }
    for (uint32_t x = 0; x < items->points; x++) ts->rank[x + 1] += ts->rank[x];
    ts->points = ts->rank[items->points];
  }
  ts->leaves = 1;
  while (ts->leaves < ts->points) ts->leaves *= 2;
  *st = *ts;
  return HP_OK;
}

hp_status offsets_space_create(const offsets_items *items, offsets_space **out) {
  uint32_t streams = items->streams;
  hp_status st = HP_ERR_OOM;
  offsets_space *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  p->items = items;
  p->pair = mem_calloc((size_t)streams * streams, sizeof *p->pair);
  p->met = mem_calloc(SETS_MAX, sizeof *p->met);
  if (!p->pair || !p->met) goto done;
  for (uint32_t t = 0; t < streams; t++)
    for (uint32_t s = t; s < streams; s++) HP_TRY_GOTO(rank_pair(p, t, s), st);
  for (uint32_t k = 0; k < streams * streams; k++) {
    tree *x = &p->pair[k];
    x->whole = mem_calloc(2 * (size_t)x->leaves, sizeof *x->whole);
    x->some = mem_calloc(2 * (size_t)x->leaves, sizeof *x->some);
    if (!x->whole || !x->some) {
      st = HP_ERR_OOM;
      goto done;
    }
  }
  *out = p;
  return HP_OK;
done:
  offsets_space_free(p);
  return st;
}

void offsets_space_clear(offsets_space *p, uint64_t *work) {
  for (uint32_t k = 0; k < p->items->streams * p->items->streams; k++) {
    tree *x = &p->pair[k];
    memset(x->whole, 0, 2 * (size_t)x->leaves * sizeof *x->whole);
    memset(x->some, 0, 2 * (size_t)x->leaves * sizeof *x->some);
    *work += 4 * (uint64_t)x->leaves / NODES_A_STEP;
  }
  p->pool.len = 0;
}

/* Room for one more run; a set that moves leaves its old space unused until the next clear. */
static bool grow_set(offsets_space *p, run_set *set) {
  if (set->len < set->cap) return true;
  uint32_t cap = set->cap ? set->cap * 2 : 1;
  if (p->pool.len > UINT32_MAX - cap || !vec_reserve(&p->pool, cap)) return false;
  if (set->len) memcpy(p->pool.at + p->pool.len, p->pool.at + set->at, set->len * sizeof(run));
  set->at = (uint32_t)p->pool.len;
  set->cap = cap;
  p->pool.len += cap;
  return true;
}

/* The first run that ends at or after x (adjacent counts). */
static uint32_t find_first_reaching(const run *r, uint32_t n, uint64_t x) {
  uint32_t lo = 0;
  while (n) {
    uint32_t half = n / 2;
    if (r[lo + half].to < x) lo += half + 1, n -= half + 1;
    else n = half;
  }
  return lo;
}

/* Adds a run; *changed says whether any of it was free. */
static bool set_add(offsets_space *p, run_set *set, uint64_t from, uint64_t to, bool *changed) {
  run *r = set->len ? p->pool.at + set->at : NULL;
  uint32_t i = find_first_reaching(r, set->len, from), j = i;
  if (i < set->len && r[i].from <= from && to <= r[i].to) return true;
  *changed = true;
  while (j < set->len && r[j].from <= to) j++;
  if (i == j) { /* adjacent to none */
    if (!grow_set(p, set)) return false;
    r = p->pool.at + set->at;
    p->work += (set->len - i) / RUNS_A_STEP;
    memmove(r + i + 1, r + i, (set->len - i) * sizeof *r);
    r[i] = (run){from, to};
    set->len++;
    return true;
  }
  r[i].from = r[i].from < from ? r[i].from : from;
  r[i].to = r[j - 1].to > to ? r[j - 1].to : to;
  p->work += (set->len - i) / RUNS_A_STEP;
  memmove(r + i + 1, r + j, (set->len - j) * sizeof *r);
  set->len -= j - i - 1;
  return true;
}

typedef struct {
  uint32_t lo, hi; /* times, hi not in it */
} span;

static bool add_below(offsets_space *p, tree *x, uint32_t node, span all, span of, run r,
                      bool *changed) {
  bool below = false;
  p->work += 2 * NODE_STEPS;
  if (of.lo <= all.lo && all.hi <= of.hi) {
    if (!set_add(p, &x->whole[node], r.from, r.to, &below)) return false;
    below = true;
  } else {
    uint32_t mid = all.lo + (all.hi - all.lo) / 2;
    if (of.lo < mid && !add_below(p, x, 2 * node, (span){all.lo, mid}, of, r, &below)) return false;
    if (of.hi > mid && !add_below(p, x, 2 * node + 1, (span){mid, all.hi}, of, r, &below))
      return false;
  }
  return !below || set_add(p, &x->some[node], r.from, r.to, changed);
}

/* The live range of an item, defined on t, as seen by stream s; empty if it has no definition on
 * t. */
static span find_live_range(const offsets_space *p, const tree *x, uint32_t item, uint32_t t,
                            uint32_t s) {
  size_t row = (size_t)item * p->items->streams;
  uint32_t first = p->items->first[row + t], dead = p->items->dead[row + s];
  if (first == OFFSETS_NEVER) return (span){0, 0};
  return x->rank ? (span){x->rank[first], x->rank[dead]} : (span){first, dead};
}

hp_status offsets_space_add(offsets_space *p, uint32_t item, uint64_t offset, uint64_t *work) {
  uint32_t streams = p->items->streams;
  run r = {offset, offset + p->items->item[item].size};
  for (uint32_t t = 0; t < streams; t++)
    for (uint32_t s = 0; s < streams; s++) {
      tree *x = &p->pair[t * streams + s];
      span of = find_live_range(p, x, item, t, s);
      bool changed = false;
      if (of.lo < of.hi && !add_below(p, x, 1, (span){0, x->leaves}, of, r, &changed))
        return HP_ERR_OOM;
    }
  *work += p->work;
  p->work = 0;
  return HP_OK;
}

static void add_overlap(offsets_space *p, const run_set *set) {
  if (set->len) p->met[p->n_met++] = (cursor){set->at, set->len};
}

/* The sets of all items that live at some time of the span: `whole` of the nodes above, and
 * `some` of the nodes inside. */
static void collect_overlaps_below(offsets_space *p, const tree *x, uint32_t node, span all,
                                   span of) {
  p->work += NODE_STEPS;
  if (!x->some[node].len) return;
  if (of.lo <= all.lo && all.hi <= of.hi) {
    add_overlap(p, &x->some[node]);
    return;
  }
  add_overlap(p, &x->whole[node]);
  uint32_t mid = all.lo + (all.hi - all.lo) / 2;
  if (of.lo < mid) collect_overlaps_below(p, x, 2 * node, (span){all.lo, mid}, of);
  if (of.hi > mid) collect_overlaps_below(p, x, 2 * node + 1, (span){mid, all.hi}, of);
}

/* The next free range at or above y: its start, and its end in *to (UINT64_MAX: open). */
static uint64_t next_gap(offsets_space *p, uint64_t y, uint64_t *to) {
  const run *pool = p->pool.at;
  bool moved;
  do {
    moved = false;
    p->work += p->n_met;
    for (uint32_t i = 0; i < p->n_met;) {
      cursor *c = &p->met[i];
      while (c->left && pool[c->at].to <= y) c->at++, c->left--, p->work++;
      if (!c->left) { /* finished: the last takes its place */
        p->met[i] = p->met[--p->n_met];
        continue;
      }
      if (pool[c->at].from <= y) y = pool[c->at].to, moved = true;
      i++;
    }
  } while (moved);
  *to = UINT64_MAX;
  for (uint32_t i = 0; i < p->n_met; i++)
    if (pool[p->met[i].at].from < *to) *to = pool[p->met[i].at].from;
  return y;
}

/* Adds the sets of all items whose live ranges overlap that of the item. */
static void collect_overlaps(offsets_space *p, uint32_t item) {
  uint32_t streams = p->items->streams;
  for (uint32_t t = 0; t < streams; t++)
    for (uint32_t s = 0; s < streams; s++) {
      const tree *x = &p->pair[t * streams + s];
      span of =
          find_live_range(p, x, item, s, t); /* this item is on s, those that overlap it are on t */
      if (of.lo < of.hi) collect_overlaps_below(p, x, 1, (span){0, x->leaves}, of);
    }
}

bool offsets_space_is_free(offsets_space *p, uint32_t item, uint64_t offset) {
  uint64_t end = offset + p->items->item[item].size;
  p->n_met = 0;
  collect_overlaps(p, item);
  for (uint32_t i = 0; i < p->n_met; i++) {
    const run *r = p->pool.at + p->met[i].at;
    uint32_t k = find_first_reaching(r, p->met[i].left, offset + 1);
    if (k < p->met[i].left && r[k].from < end) return false;
  }
  return true;
}

/* The offset of an item in a gap between the runs of these sets. */
static uint64_t find_gap(offsets_space *p, uint64_t size, uint64_t mask, offsets_fit fit) {
  uint64_t best = UINT64_MAX, best_room = UINT64_MAX, y = 0, to;
  for (;;) {
    y = next_gap(p, y, &to);
    uint64_t at = (y + mask) & ~mask;
    if (to == UINT64_MAX) return best == UINT64_MAX ? at : best;
    if (at < to && to - at >= size && to - y < best_room) {
      best = at, best_room = to - y;
      if (fit == SPACE_FIRST || best_room == size) return best;
    }
    y = to;
  }
}

uint64_t offsets_space_find(offsets_space *p, uint32_t item, offsets_fit fit, uint64_t *work) {
  p->n_met = 0;
  for (uint32_t k = item; k != OFFSETS_NEVER; k = p->items->item[k].tied) collect_overlaps(p, k);
  p->work += p->n_met;
  uint64_t at = find_gap(p, p->items->item[item].size, p->items->item[item].align - 1, fit);
  *work += p->work;
  p->work = 0;
  return at;
}
