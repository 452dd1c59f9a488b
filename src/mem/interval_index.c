#include "mem/interval_index.h"

#include "base/mem.h"

#include <stdlib.h>

hp_status interval_index_create(size_t n, interval_index *x) {
  *x = (interval_index){.at = mem_calloc(n, sizeof *x->at), .most = mem_calloc(n, sizeof *x->most)};
  HP_TRY_MEM(x->at && x->most);
  x->n = n;
  return HP_OK;
}

void interval_index_free(interval_index *x) {
  mem_free(x->at);
  mem_free(x->most);
  *x = (interval_index){0};
}

static int by_beginning(const void *a, const void *b) {
  const interval *x = a, *y = b;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  return (x->id > y->id) - (x->id < y->id);
}

static size_t root_of(size_t low, size_t high) { return low + (high - low) / 2; }

static uint32_t most_of(const interval_index *x, size_t low, size_t high) {
  return low < high ? x->most[root_of(low, high)] : 0;
}

/* Of the range, when the ranges to the left and right of its root know theirs. */
static void update_most(interval_index *x, size_t low, size_t high) {
  size_t root = root_of(low, high);
  uint32_t left = most_of(x, low, root), right = most_of(x, root + 1, high);
  uint32_t most = x->at[root].until;
  if (left > most) most = left;
  if (right > most) most = right;
  x->most[root] = most;
}

static void find_most(interval_index *x, size_t low, size_t high) {
  if (low >= high) return;
  size_t root = root_of(low, high);
  find_most(x, low, root);
  find_most(x, root + 1, high);
  update_most(x, low, high);
}

void interval_index_build(interval_index *x) {
  if (x->n) qsort(x->at, x->n, sizeof *x->at, by_beginning);
  find_most(x, 0, x->n);
}

static void take_out(interval_index *x, size_t low, size_t high, const interval *gone) {
  if (low >= high) return;
  size_t root = root_of(low, high);
  int side = by_beginning(gone, &x->at[root]);
  if (side < 0) take_out(x, low, root, gone);
  else if (side > 0) take_out(x, root + 1, high, gone);
  else x->at[root].until = 0;
  update_most(x, low, high);
}

void interval_index_remove(interval_index *x, uint32_t from, uint32_t id) {
  take_out(x, 0, x->n, &(interval){.from = from, .id = id});
}

static size_t find(const interval_index *x, size_t low, size_t high, uint32_t place,
                   uint32_t *ids) {
  size_t n = 0;
  while (low < high) {
    size_t root = root_of(low, high);
    const interval *r = &x->at[root];
    if (x->most[root] <= place) break;
    n += find(x, low, root, place, ids + n);
    if (r->from > place) break;
    if (place < r->until) ids[n++] = r->id;
    low = root + 1;
  }
  return n;
}

size_t interval_index_find(const interval_index *x, uint32_t place, uint32_t *ids) {
  return find(x, 0, x->n, place, ids);
}
