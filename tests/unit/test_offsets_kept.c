/* Plans of offsets that are kept (mem/offsets_kept.h). */
#include "mem/offsets_kept.h"

#include "test.h"

#include <string.h>

enum { BUFFERS = 40, TIMES = 60, PROBLEMS = 20 };

static void make(offsets_buffer *b, uint64_t seed) {
  for (uint32_t i = 0; i < BUFFERS; i++) {
    uint32_t first = (uint32_t)(seed * 31 + i * 7) % TIMES;
    b[i] = (offsets_buffer){.size = 256 * (1 + (seed + i * 5) % 9),
                            .tier = i % 5 == 0,
                            .first = first,
                            .last = first + (uint32_t)(seed + i) % 12};
  }
}

TEST(a_problem_that_comes_again_has_the_offsets_of_its_first_time) {
  offsets_kept kept = {.plan = {0}};
  offsets_buffer buffer[BUFFERS];
  const offsets_problem p = {.buffer = buffer, .n = BUFFERS, .effort = 1};
  for (int round = 0; round < 2; round++)
    for (uint64_t seed = 0; seed < PROBLEMS; seed++) {
      uint64_t own[BUFFERS], offset[BUFFERS];
      offsets_summary s, again;
      make(buffer, seed);
      CHECK_OK(offsets_assign(&p, own, &s));
      CHECK_OK(offsets_kept_assign(&kept, &p, offset, &again));
      CHECK(!memcmp(own, offset, sizeof own));
      CHECK(!memcmp(&s, &again, sizeof s));
      CHECK_EQ(kept.plan.len, round ? PROBLEMS : seed + 1);
    }
  offsets_kept_free(&kept);
}

/* Every number of the problem and of a buffer counts. */
TEST(a_problem_that_differs_in_one_number_is_planned_anew) {
  offsets_kept kept = {.plan = {0}};
  offsets_buffer buffer[BUFFERS];
  static uint32_t dead[2 * BUFFERS];
  uint64_t offset[BUFFERS];
  offsets_summary s;
  for (int k = 0; k < 16; k++) {
    offsets_problem p = {.buffer = buffer, .n = BUFFERS, .streams = 2, .dead = dead, .effort = 1};
    make(buffer, 1);
    for (uint32_t i = 0; i < 2 * BUFFERS; i++) dead[i] = buffer[i / 2].last + 1;
    if (k == 1) buffer[7].size += 256;
    if (k == 2) buffer[7].last++, dead[14]++, dead[15]++;
    if (k == 3) buffer[7].first--;
    if (k == 4) buffer[7].tier = 2;
    if (k == 5) buffer[7].alias = buffer[8].alias = 1;
    if (k == 6) buffer[7].align = 512;
    if (k == 7) buffer[7].fixed = true;
    if (k == 8) buffer[7].fixed = true, buffer[7].offset = 1 << 20;
    if (k == 9) buffer[7].stream = 1;
    if (k == 10) dead[15]++;
    if (k == 11) p.limit[1] = 1;
    if (k == 12) p.limit[1] = 1, p.tight[1] = true;
    if (k == 13) p.effort = 2;
    if (k == 14) p.must_fit[1] = true;
    if (k == 15) p.streams = 1, p.dead = NULL;
    CHECK_OK(offsets_kept_assign(&kept, &p, offset, &s));
    CHECK_OK(offsets_verify(&p, offset));
    CHECK_EQ(kept.plan.len, (size_t)k + 1);
  }
  offsets_kept_free(&kept);
}

TEST(plans_are_forgotten_when_there_are_too_many) {
  enum { LARGE = 4096, MANY = 300 };
  offsets_kept kept = {.plan = {0}};
  static offsets_buffer buffer[LARGE];
  static uint64_t offset[LARGE];
  offsets_summary s;
  size_t most = 0;
  const offsets_problem p = {.buffer = buffer, .n = LARGE, .effort = 1};
  for (uint32_t k = 0; k < MANY; k++) {
    for (uint32_t i = 0; i < LARGE; i++)
      buffer[i] = (offsets_buffer){.size = 256 + k, .first = i, .last = i};
    CHECK_OK(offsets_kept_assign(&kept, &p, offset, &s));
    CHECK_EQ(s.peak[0], 256u * ((k + 511) / 256));
    if (kept.offset.len > most) most = kept.offset.len;
  }
  CHECK_EQ(most, 1 << 20);
  CHECK(kept.offset.len < most);
  offsets_kept_free(&kept);
}
