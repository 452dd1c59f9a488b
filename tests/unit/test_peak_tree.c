#include "mem/peak_tree.h"
#include "test.h"

/* The position of the largest number that counts, the first of equal ones; n: none does. */
static uint32_t scan(const int64_t *value, const bool *gone, uint32_t n) {
  uint32_t first = n;
  for (uint32_t i = 0; i < n; i++)
    if (!gone[i] && (first == n || value[i] > value[first])) first = i;
  return first;
}

TEST(the_largest_number_is_that_of_a_scan) {
  enum { MOST = 70, CHANGES = 300 };
  for (uint32_t n = 1, x = 99; n < MOST; n += 1 + n / 3) {
    int64_t value[MOST];
    bool gone[MOST] = {false};
    peak_tree t;
    for (uint32_t i = 0; i < n; i++) value[i] = i % 5;
    CHECK_OK(peak_tree_create(value, n, &t));
    for (int change = 0; change < CHANGES; change++) {
      x = x * 1664525 + 1013904223;
      uint32_t from = (x >> 8) % n, until = from + (x >> 20) % (n - from + 1);
      int64_t more = (int64_t)(x >> 4 & 7) - 4;
      if (change % 50 == 49) { /* of large sums, too */
        more = change % 100 == 99 ? -(INT64_C(1) << 60) : INT64_C(1) << 60;
        from = 0, until = n;
      }
      peak_tree_add(&t, from, until, more);
      for (uint32_t i = from; i < until; i++) value[i] += more;
      if (change % 7 == 6 && change > CHANGES / 2) {
        peak_tree_remove(&t, from);
        gone[from] = true;
      }
      uint32_t first = scan(value, gone, n);
      CHECK_EQ(peak_tree_first(&t), first);
      if (first < n) CHECK(peak_tree_most(&t) == value[first]);
      else CHECK(peak_tree_most(&t) < -PEAK_TREE_MOST);
      if (!gone[from]) CHECK(peak_tree_at(&t, from) == value[from]);
    }
    peak_tree_free(&t);
  }
}

TEST(a_tree_of_nothing_has_no_peak) {
  peak_tree t;
  CHECK_OK(peak_tree_create(NULL, 0, &t));
  CHECK_EQ(peak_tree_first(&t), 0);
  peak_tree_free(&t);
}
