#include "mem/offsets.h"

#include "base/mem.h"
#include "base/str.h"
#include "mem/offsets_greedy.h"
#include "mem/offsets_search.h"

#include <string.h>

/* Within its limit, or without one less than a part in NEAR above the bound, a plan is improved
 * with a part of the effort: the last few bytes do not matter. */
enum { UNLIMITED = 16, NEAR = 100 };
/* So many steps of the search cost as much as one of the greedy passes. */
enum { SEARCH_STEPS = 4 };
/* Without a limit, a plan within one part in CLOSE of the bound is good; of so many items that a
 * pass takes a fifth of a second, one within a part in CLOSE_OF_MANY: of the stages of a 405B model
 * the first pass is within one in 22 to 140, and no later one is better. */
enum { CLOSE = 1024, CLOSE_OF_MANY = 32, MANY = 20000 };

/* Per tier: a lower bound, greedy plans and, while the best one is not good enough, exact search
 * (few items) and repair of the greedy order. */

typedef struct {
  offsets_items t;
  greedy g;
} planner;

static void planner_free(planner *w) {
  offsets_space_free(w->g.space);
  mem_free(w->g.offset);
  mem_free(w->g.best);
  mem_free(w->g.order);
  offsets_items_free(&w->t);
}

static hp_status planner_create(const offsets_problem *p, planner *w) {
  HP_TRY(offsets_items_build(p, &w->t));
  HP_TRY(offsets_space_create(&w->t, &w->g.space));
  w->g.items = &w->t;
  w->g.offset = mem_calloc(w->t.n, sizeof *w->g.offset);
  w->g.best = mem_calloc(w->t.n, sizeof *w->g.best);
  w->g.order = mem_calloc(w->t.n, sizeof *w->g.order);
  return w->g.offset && w->g.best && w->g.order ? HP_OK : HP_ERR_OOM;
}

/* Adds the sizes of a tier's items to sum[points + 1], modulo 2^64: at birth, minus at death.
 * `only` is a stream whose definitions alone count, up to what it knows to be dead; or
 * OFFSETS_NEVER: all count, until the first stream finds them dead.  In both cases all items
 * alive at one time conflict. */
static void add_lives(const planner *w, uint8_t tier, uint32_t only, uint64_t *sum) {
  const offsets_items *t = &w->t;
  for (uint32_t k = 0; k < t->n; k++) {
    uint32_t from = OFFSETS_NEVER, to = OFFSETS_NEVER;
    if (t->item[k].tier != tier) continue;
    for (uint32_t s = 0; s < t->streams; s++) {
      size_t c = (size_t)k * t->streams + s;
      if (only != OFFSETS_NEVER && s != only) continue;
      if (t->first[c] < from) from = t->first[c];
      if (t->dead[c] < to) to = t->dead[c];
    }
    if (from == OFFSETS_NEVER) continue;
    sum[from] += t->item[k].size;
    sum[to] -= t->item[k].size;
  }
}

/* Most bytes of items that all conflict with each other, and the position at which they are
 * alive. */
static hp_status lower_bound(const planner *w, uint8_t tier, uint64_t *bytes, uint32_t *at) {
  const offsets_items *t = &w->t;
  uint64_t *sum = mem_calloc((size_t)t->points + 1, sizeof *sum);
  HP_TRY_MEM(sum);
  *bytes = 0, *at = 0;
  for (uint32_t k = 0; k <= (t->streams > 1 ? t->streams : 0); k++) {
    memset(sum, 0, ((size_t)t->points + 1) * sizeof *sum);
    add_lives(w, tier, k ? k - 1 : OFFSETS_NEVER, sum);
    for (uint32_t x = 0; x < t->points; x++) {
      if (x) sum[x] += sum[x - 1];
      if (sum[x] > *bytes) *bytes = sum[x], *at = t->position[x];
    }
  }
  mem_free(sum);
  for (uint32_t i = 0; w->g.n > w->g.n_fixed && i < w->g.n_fixed; i++) {
    const offsets_item *m = &t->item[w->g.order[i].item];
    if (m->offset + m->size > *bytes) *bytes = m->offset + m->size;
  }
  return HP_OK;
}

static hp_status fail_fixed(const planner *w, uint32_t b) {
  const offsets_item *y = &w->t.item[b];
  for (uint32_t i = 0; i < w->g.n_fixed; i++) {
    uint32_t a = w->g.order[i].item;
    const offsets_item *x = &w->t.item[a];
    if (a != b && x->offset < y->offset + y->size && y->offset < x->offset + x->size &&
        offsets_items_conflict(&w->t, a, b))
      HP_FAIL(HP_ERR_ARG,
              "buffers %u and %u are live together but fixed at offsets %llu and %llu, where they "
              "overlap (%llu and %llu bytes)",
              x->name, y->name, (unsigned long long)x->offset, (unsigned long long)y->offset,
              (unsigned long long)x->size, (unsigned long long)y->size);
  }
  HP_FAIL(HP_ERR_INTERNAL, "buffer %u does not fit where it is fixed", y->name);
}

/* The items of a tier, fixed ones first, and the check of those. */
static hp_status select_tier(planner *w, uint8_t tier) {
  greedy *g = &w->g;
  g->n = g->n_fixed = 0;
  g->tied = false;
  for (int fixed = 1; fixed >= 0; fixed--)
    for (uint32_t k = 0; k < w->t.n; k++)
      if (w->t.item[k].tier == tier && w->t.item[k].size && w->t.item[k].fixed == fixed) {
        g->tied |= w->t.item[k].follows;
        if (w->t.item[k].follows) continue;
        g->order[g->n++] = (greedy_place){.item = k};
        g->n_fixed += (uint32_t)fixed;
      }
  if (g->n_fixed) offsets_space_clear(g->space, &g->work);
  for (uint32_t i = 0; i < g->n_fixed; i++) {
    uint32_t k = g->order[i].item;
    if (!offsets_space_is_free(g->space, k, w->t.item[k].offset)) return fail_fixed(w, k);
    HP_TRY(offsets_space_add(g->space, k, w->t.item[k].offset, &g->work));
  }
  return HP_OK;
}

/* Exact search between what is proved impossible and the best plan. */
typedef struct {
  greedy *g;
  offsets_search *s;
  uint64_t unit;   /* all offsets and sizes are multiples of it */
  uint64_t low;    /* the smallest target worth trying */
  uint64_t effort; /* steps left */
} exact;

static void keep_found(greedy *g) {
  g->peak = 0;
  for (uint32_t i = 0; i < g->n; i++) {
    uint32_t k = g->order[i].item;
    const offsets_item *m = &g->items->item[k];
    g->best[k] = m->fixed ? m->offset : g->offset[k];
    if (g->best[k] + m->size > g->peak) g->peak = g->best[k] + m->size;
  }
}

/* Searches a plan of at most `target` bytes with `share` steps.  A proof that there is none raises
 * the lower bound. */
static search_result try_target(exact *e, uint64_t target, uint64_t share) {
  greedy *g = e->g;
  uint64_t left = share * SEARCH_STEPS;
  search_result r = offsets_search_run(e->s, target, &left, g->offset);
  uint64_t used = share - left / SEARCH_STEPS;
  g->work += used;
  e->effort -= used < e->effort ? used : e->effort;
  if (r == SEARCH_FOUND) {
    keep_found(g);
  } else {
    e->low = target + e->unit;
    if (r == SEARCH_NONE && !g->n_fixed && g->bound <= target) g->bound = e->low;
    if (g->good < g->bound) g->good = g->bound;
  }
  return r;
}

/* Bisects between the bound and the best plan until the effort is down to `floor`, with `share`
 * steps per try and, in each round, twice as many: loose targets need few. */
static void bisect_gap(exact *e, uint64_t share, uint64_t floor) {
  const greedy *g = e->g;
  for (; share && g->peak > g->good && g->bound < g->peak; share *= 2) {
    if (e->effort < floor + share) return;
    for (e->low = g->bound; g->peak > g->good && e->low < g->peak && e->effort >= floor + share;) {
      uint64_t steps = (g->peak - e->unit - e->low) / e->unit;
      try_target(e, e->low + steps / 2 * e->unit, share);
    }
  }
}

static hp_status improve_few(greedy *g, uint64_t effort) {
  exact e = {.g = g, .unit = UINT64_MAX, .effort = effort};
  hp_status st = HP_OK;
  if (!effort) return HP_OK;
  uint32_t *item = mem_calloc(g->n, sizeof *item);
  HP_TRY_MEM(item);
  for (uint32_t i = 0; i < g->n; i++) {
    item[i] = g->order[i].item;
    if (g->items->item[item[i]].align < e.unit) e.unit = g->items->item[item[i]].align;
  }
  HP_TRY_GOTO(offsets_search_create(g->items, item, g->n, g->n_fixed, &e.s), st);
  try_target(&e, g->bound, effort / 16 * 5);
  bisect_gap(&e, effort / 24, effort / 16 * 5);
  uint64_t repair = effort / 16;
  if (g->peak > g->good) HP_TRY_GOTO(greedy_improve(g, repair), st);
  e.effort -= e.effort < repair ? e.effort : repair;
  bisect_gap(&e, effort / 16, effort / 8);
  /* Last, so that all before it is the same for each limit. */
  if (g->peak > g->good) try_target(&e, g->good / e.unit * e.unit, e.effort);
done:
  offsets_search_free(e.s);
  mem_free(item);
  return st;
}

/* Takes the offsets of the n largest items to place, which a search has found, to those that are
 * tied to them. */
static void spread_offsets(greedy *g, const uint32_t *item, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = item[i]; k != OFFSETS_NEVER; k = g->items->item[k].tied)
      g->offset[k] = g->offset[item[i]];
}

/* Exact search for the n largest items, next to which the others are then placed. */
static hp_status place_largest(greedy *g, uint32_t *item, uint32_t n, uint64_t effort) {
  hp_status st = HP_OK;
  uint64_t unit = OFFSETS_ALIGN, left = effort / 2 * SEARCH_STEPS, before = left;
  offsets_search *s = NULL;
  for (uint32_t i = 0; i < g->n_fixed + n; i++) {
    item[i] = g->order[i].item;
    if (g->items->item[item[i]].align < unit) unit = g->items->item[item[i]].align;
  }
  HP_TRY_GOTO(offsets_search_create(g->items, item, g->n_fixed + n, g->n_fixed, &s), st);
  search_result r = offsets_search_run(s, (g->bound + unit - 1) / unit * unit, &left, g->offset);
  g->work += (before - left) / SEARCH_STEPS;
  if (r != SEARCH_FOUND) goto done;
  spread_offsets(g, item + g->n_fixed, n);
  st = greedy_complete(g, n, effort / 2);
done:
  offsets_search_free(s);
  return st;
}

/* The largest items are few, and it is they that leave memory between them unused.  More of them
 * take a longer search, and no number is best for all programs.  The plans that are made do not
 * depend on the limit: one that a refusal names is accepted. */
static hp_status improve_many(greedy *g, uint64_t effort) {
  static const uint32_t most[] = {300, 450, 150};
  enum { ROUNDS = sizeof most / sizeof *most };
  hp_status st = HP_OK;
  uint32_t *item = mem_calloc(g->n, sizeof *item), n = g->n - g->n_fixed;
  HP_TRY_MEM(item);
  greedy_largest_first(g);
  for (int k = 0; !st && k < ROUNDS && g->peak > g->good; k++)
    st = place_largest(g, item, most[k] < n ? most[k] : n, effort / ROUNDS);
  mem_free(item);
  return st;
}

/* search: steps besides those that are left, since greedy passes, which are worse here, may have
 * taken all; 0: none. */
static hp_status improve_orders(greedy *g, uint64_t search, uint64_t left) {
  if (search) HP_TRY(improve_many(g, search));
  return g->peak > g->good ? greedy_improve(g, left) : HP_OK;
}

/* Of these steps no more than the bytes are worth; each: 0 = no matter. */
static uint64_t cap_effort(uint64_t left, uint64_t each, uint64_t bytes) {
  return each && left / each > bytes ? each * bytes : left;
}

/* Improves the first plan within the steps that are left. */
static hp_status improve(greedy *g, const offsets_problem *p, uint8_t tier, uint64_t used) {
  bool few = g->n - g->n_fixed <= SEARCH_ITEMS_MAX && !g->tied;
  uint64_t limit = p->limit[tier], left = used < p->effort ? p->effort - used : 0;
  bool within = !limit || g->peak <= limit;
  bool near = limit || !few || g->peak - g->bound <= g->bound / NEAR;
  if (within) left /= near ? UNLIMITED : 1;
  else if (p->must_fit[tier] && g->bound > limit) return HP_OK;
  else if (g->good < limit) g->good = limit;
  if (!limit) left = cap_effort(left, p->byte_effort, g->peak - g->bound);
  if (g->peak <= g->good || g->n == g->n_fixed) return HP_OK;
  if (!limit && !few && left > used) left = used;
  return few ? improve_few(g, left) : improve_orders(g, within ? 0 : p->effort, left);
}

static hp_status plan_tier(planner *w, const offsets_problem *p, uint8_t tier,
                           offsets_summary *out) {
  greedy *g = &w->g;
  HP_TRY(select_tier(w, tier));
  if (!g->n) return HP_OK;
  HP_TRY(lower_bound(w, tier, &g->bound, &out->bound_at[tier]));
  uint64_t limit = p->limit[tier], start = g->work;
  uint64_t close = g->bound + g->bound / (g->n > MANY ? CLOSE_OF_MANY : CLOSE);
  g->good = !limit || (p->tight[tier] && close < limit) ? close : limit;
  if (g->good < g->bound) g->good = g->bound;
  HP_TRY(greedy_plan(g, p->effort));
  HP_TRY(improve(g, p, tier, g->work - start));
  if (g->peak > OFFSETS_MAX_BYTES)
    HP_FAIL(HP_ERR_OOM, "tier %u needs %llu bytes; an arena has at most 2^62", tier,
            (unsigned long long)g->peak);
  out->peak[tier] = g->peak;
  out->bound[tier] = g->bound;
  return HP_OK;
}

hp_status offsets_assign(const offsets_problem *p, uint64_t *offset, offsets_summary *out) {
  planner w = {0};
  offsets_summary s = {0};
  hp_status st;
  HP_TRY_GOTO(planner_create(p, &w), st);
  for (uint8_t tier = 0; tier < OFFSETS_TIERS; tier++) HP_TRY_GOTO(plan_tier(&w, p, tier, &s), st);
  for (size_t i = 0; i < p->n; i++) {
    const offsets_item *m = &w.t.item[w.t.of[i]];
    offset[i] = m->size ? w.g.best[w.t.of[i]] : m->fixed ? m->offset : 0;
  }
  s.steps = w.g.work;
  *out = s;
done:
  planner_free(&w);
  return st;
}
