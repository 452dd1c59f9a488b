#include "mem/offsets_greedy.h"

#include <stdlib.h>
#include <string.h>

/* Offline placement in a fixed order.  By size is the cheapest and usually the best: it reaches
 * the lower bound on training steps of models; by end reaches it on small ones with
 * recomputation. */

/* BY_SIZE_MIXED: items of one size are in no order of time.  TIES_FIRST: those with others tied to
 * them, the first to be free first, and then by size. */
typedef enum { BY_LIFE, BY_SIZE, BY_SIZE_MIXED, BY_AREA, BY_START, BY_END, TIES_FIRST } order_kind;

typedef struct {
  order_kind kind;
  offsets_fit fit;
} recipe;

enum {
  /* For a pass with any effort, since there must be a first plan: in all, and per item.  What is
   * left over goes into empty layers: 1.7 times the bytes in use, in steps of 32 micro-batches. */
  LEAST_STEPS = 1 << 24,
  LEAST_STEPS_EACH = 2048,
  SORT_STEPS = 16, /* to sort, per item */
  LAYERS = 16      /* parts of the effort, one per layer */
};
#define MIX 2654435761u /* 2^32 / golden ratio: its multiples are spread evenly */

static uint64_t key_of(order_kind kind, uint64_t size, uint32_t born, uint32_t gone) {
  uint64_t area, life = gone - born;
  switch (kind) {
  case BY_LIFE: return life;
  case BY_SIZE:
  case TIES_FIRST:
  case BY_SIZE_MIXED: return size;
  case BY_AREA: return __builtin_mul_overflow(size, life, &area) ? UINT64_MAX : area;
  case BY_START: return UINT32_MAX - born;
  case BY_END: return gone;
  }
  return 0;
}

static int by_key(const void *a, const void *b) {
  const greedy_place *x = a, *y = b;
  if (x->key != y->key) return x->key > y->key ? -1 : 1;
  if (x->size != y->size) return x->size > y->size ? -1 : 1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x->item > y->item) - (x->item < y->item);
}

/* Sorts the order from position `begin` on. */
static void sort_order(greedy *w, order_kind kind, uint32_t begin) {
  const offsets_items *t = w->items;
  for (uint32_t i = begin; i < w->n; i++) {
    uint32_t k = w->order[i].item, born = OFFSETS_NEVER, gone = 0;
    uint64_t size = t->item[k].size;
    uint32_t free = 0; /* when its first life ends */
    for (uint32_t x = k; x != OFFSETS_NEVER; x = t->item[x].tied)
      for (size_t c = (size_t)x * t->streams; c < ((size_t)x + 1) * t->streams; c++) {
        if (t->first[c] < born) born = t->first[c];
        if (t->dead[c] > gone) gone = t->dead[c];
        if (x == k) free = gone;
      }
    uint64_t key = key_of(kind, size, born, gone);
    if (kind == TIES_FIRST && t->item[k].tied != OFFSETS_NEVER) key = UINT64_MAX - free;
    w->order[i] = (greedy_place){key, size, kind == BY_SIZE_MIXED ? k * MIX : born, k};
  }
  w->work += (uint64_t)SORT_STEPS * (w->n - begin);
  qsort(w->order + begin, w->n - begin, sizeof *w->order, by_key);
}

/* Above all bytes below `end`, for items of any alignment. */
static uint64_t find_floor(const greedy *w, uint64_t end) {
  uint64_t mask = 0;
  for (uint32_t i = 0; i < w->n; i++) mask |= w->items->item[w->order[i].item].align - 1;
  return (end + mask) & ~mask;
}

/* Places all items in order.  Gives up if the plan is no better than the best, or after `effort`
 * steps; if a plan is required, the rest is then placed in empty layers, one above the other, in
 * each of which searching is cheap. */
static hp_status run_pass(greedy *w, offsets_fit fit, uint64_t effort, bool must) {
  uint64_t peak = 0, base = 0, end = w->work + effort;
  offsets_space_clear(w->space, &w->work);
  w->failed = w->n;
  for (uint32_t i = 0; i < w->n; i++) {
    if (w->work > end) {
      if (!must) return HP_OK;
      if (!base) sort_order(w, BY_SIZE_MIXED, i);
      base = find_floor(w, peak);
      offsets_space_clear(w->space, &w->work);
      end = w->work + effort / LAYERS;
    }
    uint32_t k = w->order[i].item;
    const offsets_item *m = &w->items->item[k];
    uint64_t at = i < w->n_fixed                ? m->offset
                  : i < w->n_fixed + w->n_given ? w->offset[k]
                                                : offsets_space_find(w->space, k, fit, &w->work);
    if (base + at + m->size > peak) peak = base + at + m->size;
    if (peak >= w->peak) {
      w->failed = i;
      return HP_OK;
    }
    for (; k != OFFSETS_NEVER; k = w->items->item[k].tied) {
      w->offset[k] = base + at;
      HP_TRY(offsets_space_add(w->space, k, at, &w->work));
    }
  }
  w->peak = peak;
  for (uint32_t i = 0; i < w->n; i++)
    for (uint32_t k = w->order[i].item; k != OFFSETS_NEVER; k = w->items->item[k].tied)
      w->best[k] = w->offset[k];
  return HP_OK;
}

hp_status greedy_plan(greedy *w, uint64_t effort) {
  static const recipe table[] = {{BY_SIZE, SPACE_FIRST}, {TIES_FIRST, SPACE_FIRST},
                                 {BY_END, SPACE_BEST},   {BY_AREA, SPACE_FIRST},
                                 {BY_LIFE, SPACE_BEST},  {BY_START, SPACE_BEST},
                                 {BY_SIZE, SPACE_BEST}};
  uint64_t start = w->work;
  if (effort < LEAST_STEPS) effort = LEAST_STEPS;
  if (effort < (uint64_t)LEAST_STEPS_EACH * w->n) effort = (uint64_t)LEAST_STEPS_EACH * w->n;
  w->peak = UINT64_MAX;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (w->peak <= w->good || w->work - start >= effort) return HP_OK;
    if (table[i].kind == TIES_FIRST && !w->tied) continue;
    sort_order(w, table[i].kind, w->n_fixed);
    HP_TRY(run_pass(w, table[i].fit, effort - (w->work - start), i == 0));
  }
  return HP_OK;
}

void greedy_largest_first(greedy *w) { sort_order(w, BY_SIZE, w->n_fixed); }

hp_status greedy_complete(greedy *w, uint32_t n, uint64_t effort) {
  w->n_given = n;
  hp_status st = run_pass(w, SPACE_FIRST, effort, false);
  if (!st && w->peak > w->good) st = run_pass(w, SPACE_BEST, effort, false);
  w->n_given = 0;
  return st;
}

hp_status greedy_improve(greedy *w, uint64_t effort) {
  static const order_kind begin[] = {BY_SIZE, BY_START, BY_LIFE};
  enum { BEGINS = sizeof begin / sizeof *begin };
  for (size_t b = 0; b < BEGINS; b++) {
    uint64_t start = w->work, share = effort / BEGINS;
    sort_order(w, begin[b], w->n_fixed);
    while (w->peak > w->good && w->work - start < share) {
      HP_TRY(run_pass(w, SPACE_FIRST, share - (w->work - start), false));
      uint32_t i = w->failed;
      if (i == w->n) continue; /* a better plan, or the end of the share */
      if (i <= w->n_fixed) break;
      uint32_t j = w->n_fixed + (i - w->n_fixed) / 2;
      greedy_place x = w->order[i];
      memmove(w->order + j + 1, w->order + j, (i - j) * sizeof x);
      w->order[j] = x;
    }
  }
  return HP_OK;
}
