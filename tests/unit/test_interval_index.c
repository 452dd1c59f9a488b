#include "mem/interval_index.h"
#include "test.h"

#include <stdlib.h>

static int by_id(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* Is the index as a scan over `all`, without those removed, would have it? */
static void check_places(const interval_index *index, const interval *all, const bool *removed,
                         uint32_t places, uint32_t *ids) {
  for (uint32_t place = 0; place <= places; place++) {
    size_t found = interval_index_find(index, place, ids), at = 0;
    qsort(ids, found, sizeof *ids, by_id);
    for (uint32_t k = 0; k < index->n; k++)
      if (!removed[k] && all[k].from <= place && place < all[k].until)
        CHECK(at < found && ids[at++] == k);
    CHECK_EQ(at, found);
  }
}

/* Some intervals are empty, many begin at one place. */
TEST(the_intervals_that_cover_a_place_are_those_of_a_scan) {
  enum { MOST = 200, PLACES = 40 };
  interval all[MOST];
  uint32_t ids[MOST];
  for (uint32_t seed = 0, x = 12345; seed < 60; seed++) {
    interval_index index;
    bool removed[MOST] = {false};
    size_t n = seed % 10 ? seed * 7 % MOST : seed / 10;
    CHECK_OK(interval_index_create(n, &index));
    for (uint32_t k = 0; k < n; k++) {
      x = x * 1664525 + 1013904223;
      uint32_t from = (x >> 8) % PLACES, length = (x >> 20) % (seed % 3 ? 4 : PLACES);
      index.at[k] = all[k] = (interval){from, from + length, k};
    }
    interval_index_build(&index);
    check_places(&index, all, removed, 2 * PLACES, ids);
    for (uint32_t k = seed % 2; k < n; k += 2) {
      interval_index_remove(&index, all[k].from, k);
      removed[k] = true;
      if (k % 16 < 2) check_places(&index, all, removed, 2 * PLACES, ids);
    }
    if (n)
      interval_index_remove(&index, all[seed % 2].from, seed % 2); /* once more, or not there */
    check_places(&index, all, removed, 2 * PLACES, ids);
    interval_index_free(&index);
  }
}
