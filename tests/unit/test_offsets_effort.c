/* What a plan of offsets may cost by the bytes that are at stake. */
#include "mem/offsets.h"
#include "test.h"

enum { N = 120, SPAN = 60, LONGEST = 20, SIZES = 40, TRIES = 100 };

/* Lives and sizes without a pattern: the first plan of most such problems is above the bound. */
static void make_problem(uint32_t seed, offsets_buffer b[N]) {
  uint32_t x = seed * 2654435761u + 1;
  for (int i = 0; i < N; i++) {
    uint32_t part[3];
    for (int k = 0; k < 3; k++) x = x * 1664525u + 1013904223u, part[k] = x >> 16;
    b[i] = (offsets_buffer){.size = OFFSETS_ALIGN * (1 + part[0] % SIZES), .first = part[1] % SPAN};
    b[i].last = b[i].first + part[2] % LONGEST;
  }
}

TEST(a_search_takes_no_more_steps_than_its_bytes_are_worth) {
  enum { WORTH = 3 };
  offsets_buffer b[N];
  uint64_t offset[N];
  int shortened = 0;
  for (uint32_t seed = 0; seed < TRIES && shortened < 5; seed++) {
    make_problem(seed, b);
    offsets_problem p = {.buffer = b, .n = N};
    offsets_summary first, all, some, limited;
    CHECK_OK(offsets_assign(&p, offset, &first));
    p.effort = OFFSETS_EFFORT / 20;
    CHECK_OK(offsets_assign(&p, offset, &all));
    uint64_t most = first.steps + (first.peak[0] - first.bound[0]) * WORTH;
    if (all.steps < 2 * most) continue;
    shortened++;
    p.byte_effort = WORTH;
    CHECK_OK(offsets_assign(&p, offset, &some));
    CHECK_OK(offsets_verify(&p, offset));
    CHECK(some.steps < 2 * most && some.peak[0] <= first.peak[0]);
    p.byte_effort = UINT64_MAX;
    CHECK_OK(offsets_assign(&p, offset, &some));
    CHECK_EQ(some.steps, all.steps);
    p.byte_effort = WORTH;
    p.limit[0] = all.bound[0]; /* what must fit is worth all */
    CHECK_OK(offsets_assign(&p, offset, &limited));
    CHECK(limited.steps >= all.steps / 2);
  }
  CHECK(shortened == 5);
}
