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

static uint32_t find_most(interval_index *x, size_t low, size_t high) {
  if (low >= high) return 0;
  size_t root = low + (high - low) / 2;
  uint32_t left = find_most(x, low, root), right = find_most(x, root + 1, high);
  uint32_t most = x->at[root].until;
  if (left > most) most = left;
  if (right > most) most = right;
  return x->most[root] = most;
}

void interval_index_build(interval_index *x) {
  if (x->n) qsort(x->at, x->n, sizeof *x->at, by_beginning);
  find_most(x, 0, x->n);
}

static size_t find(const interval_index *x, size_t low, size_t high, uint32_t place,
                   uint32_t *ids) {
  size_t n = 0;
  while (low < high) {
    size_t root = low + (high - low) / 2;
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
