#include "mem/index_set.h"
#include "test.h"

static uint32_t scan_next(const bool *in, uint32_t n, uint32_t i) {
  while (i < n && !in[i]) i++;
  return i < n ? i : n;
}

static uint32_t scan_last(const bool *in, uint32_t i) {
  while (i--)
    if (in[i]) return i;
  return INDEX_SET_NONE;
}

/* Of up to three levels, mostly empty or mostly full. */
TEST(the_neighbors_of_a_place_are_those_of_a_scan) {
  static const uint32_t sizes[] = {0, 1, 2, 63, 64, 65, 127, 128, 129, 1000, 4096, 4097, 9001};
  enum { MOST = 9001, CHANGES = 400 };
  static bool in[MOST];
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    index_set s;
    uint32_t n = sizes[k], x = 7;
    CHECK_OK(index_set_create(n, &s));
    for (uint32_t i = 0; i < n; i++) {
      in[i] = k % 2;
      if (in[i]) index_set_add(&s, i);
    }
    for (int change = 0; change < CHANGES; change++) {
      x = x * 1664525 + 1013904223;
      uint32_t i = n ? (x >> 8) % n : 0, to = n ? (x >> 4) % (n + 1) : 0;
      if (n) in[i] = change % 400 < 200 ? x >> 31 : !(k % 2);
      if (n && in[i]) index_set_add(&s, i);
      if (n && !in[i]) index_set_remove(&s, i);
      if (n) CHECK_EQ(index_set_has(&s, i), in[i]);
      CHECK_EQ(index_set_next(&s, to), scan_next(in, n, to));
      CHECK_EQ(index_set_last(&s, to), scan_last(in, to));
      CHECK_EQ(index_set_next(&s, n), n);
    }
    for (uint32_t i = 0; i < n; i++) index_set_remove(&s, i);
    CHECK_EQ(index_set_next(&s, 0), n);
    CHECK_EQ(index_set_last(&s, n), INDEX_SET_NONE);
    index_set_free(&s);
  }
}
