/* Internal to mem/offsets: plans made by placing one item after the other where it fits best. */
#ifndef MEM_OFFSETS_GREEDY_H
#define MEM_OFFSETS_GREEDY_H

#include "mem/offsets_items.h"
#include "mem/offsets_space.h"

typedef struct {
  uint64_t key, size; /* greater first */
  uint32_t first;     /* then earlier first */
  uint32_t item;
} greedy_place;

typedef struct {
  const offsets_items *items;
  offsets_space *space;
  uint64_t *offset, *best; /* [items] the plan being made; the best so far */
  greedy_place *order;     /* [n] items of the tier: fixed ones first, then those to place */
  uint32_t n, n_fixed;     /* items that follow another one, to which they are tied, not counted */
  uint32_t n_given;        /* of those to place, the first ones have their offsets already */
  bool tied;               /* some do */
  uint32_t failed;         /* position in the order of the item that ended the last pass; n: none */
  uint64_t peak, bound;    /* bytes of the best plan (UINT64_MAX: none yet); lower bound */
  uint64_t good;           /* a plan of at most this many bytes ends the search */
  uint64_t work;           /* steps done, a few ns each */
} greedy;

/* Tries several orders until a plan is good or `effort` steps are spent; makes at least one
 * plan, with any effort. */
hp_status greedy_plan(greedy *w, uint64_t effort);
/* Orders the items to place by size. */
void greedy_largest_first(greedy *w);
/* Places all others next to the first n to place, whose offsets are in offset[]. */
hp_status greedy_complete(greedy *w, uint32_t n, uint64_t effort);
/* Repeatedly moves the item that raises the peak forward in the order, for `effort` steps. */
hp_status greedy_improve(greedy *w, uint64_t effort);

#endif
