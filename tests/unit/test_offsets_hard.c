#include "test.h"

#include "mem/offsets.h"

#include <stdlib.h>

/* Problems whose least peak is known but hard to reach. */

enum { MAX = 500, CAPACITY = 1 << 20 };

typedef struct {
  uint32_t from, to; /* times */
  uint32_t low, high;
} block;

static uint32_t draw(unsigned *seed, uint32_t below) { return (uint32_t)rand_r(seed) % below; }

/* Cuts a rectangle of times and bytes into blocks without a gap: as buffers, they fit exactly. */
static uint32_t cut_blocks(unsigned *seed, block *b, uint32_t count) {
  uint32_t n = 1;
  b[0] = (block){0, 4000, 0, CAPACITY / 1024};
  for (uint32_t tries = 0; n < count && tries < 100 * count; tries++) {
    block *x = &b[draw(seed, n)];
    bool in_time = draw(seed, 2);
    uint32_t from = in_time ? x->from : x->low, to = in_time ? x->to : x->high;
    if (to - from < (in_time ? 40 : 16)) continue;
    uint32_t at = from + (to - from) / 4 + draw(seed, (to - from) / 2);
    b[n] = *x;
    if (in_time) x->to = b[n].from = at;
    else x->high = b[n].low = at;
    n++;
  }
  return n;
}

TEST(blocks_cut_from_a_rectangle_fit_into_it_again) {
  enum { ROUNDS = 24 };
  unsigned seed = 3;
  for (int round = 0; round < ROUNDS; round++) {
    block b[MAX];
    offsets_buffer buffer[MAX];
    uint64_t offset[MAX];
    offsets_summary s;
    uint32_t n = cut_blocks(&seed, b, 100 + 16 * (uint32_t)round);
    for (uint32_t i = n; i-- > 1;) { /* in no order that would help */
      uint32_t k = draw(&seed, i + 1);
      block x = b[k];
      b[k] = b[i], b[i] = x;
    }
    for (uint32_t i = 0; i < n; i++)
      buffer[i] = (offsets_buffer){.size = 1024 * (uint64_t)(b[i].high - b[i].low),
                                   .align = 1024,
                                   .first = b[i].from,
                                   .last = b[i].to - 1};
    offsets_problem p = {.buffer = buffer, .n = n, .effort = OFFSETS_EFFORT, .limit = {CAPACITY}};
    CHECK_OK(offsets_assign(&p, offset, &s));
    CHECK_OK(offsets_verify(&p, offset));
    CHECK_EQ(s.bound[0], CAPACITY);
    CHECK_EQ(s.peak[0], CAPACITY);
  }
}

/* Bytes that the search did not find a plan for in its time are not below the bound. */
TEST(a_search_that_is_given_up_proves_nothing) {
  enum { ROUNDS = 12 };
  unsigned seed = 8;
  int given_up = 0;
  for (int round = 0; round < ROUNDS; round++) {
    block b[MAX];
    offsets_buffer buffer[MAX];
    uint64_t offset[MAX];
    offsets_summary s;
    uint32_t n = cut_blocks(&seed, b, 300);
    for (uint32_t i = 0; i < n; i++)
      buffer[i] = (offsets_buffer){.size = 1024 * (uint64_t)(b[i].high - b[i].low),
                                   .first = b[i].from,
                                   .last = b[i].to - 1};
    offsets_problem p = {.buffer = buffer, .n = n, .effort = 2000000, .limit = {CAPACITY}};
    CHECK_OK(offsets_assign(&p, offset, &s));
    CHECK_OK(offsets_verify(&p, offset));
    CHECK_EQ(s.bound[0], CAPACITY);
    given_up += s.peak[0] > CAPACITY;
  }
  CHECK(given_up > 0);
}

/* Blocks one after the other at the same bytes become tied: they are one tensor that comes back. */
static void tie_blocks(const block *b, offsets_buffer *buffer, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < i && !buffer[i].tie; k++) {
      bool same = b[i].low == b[k].low && b[i].high == b[k].high;
      if (!same || buffer[k].tie || (b[i].from < b[k].to && b[k].from < b[i].to)) continue;
      buffer[i].tie = buffer[k].tie = i + 1;
    }
}

TEST(large_buffers_with_ties_are_placed_so_that_many_small_ones_fit_too) {
  enum { LARGE = 90, SMALL = 1400, N = LARGE + SMALL, ROUNDS = 6, EFFORT = 16000000 };
  unsigned seed = 5;
  uint32_t tied = 0;
  for (int round = 0; round < ROUNDS; round++) {
    static block b[N];
    static offsets_buffer buffer[N];
    static uint64_t offset[N];
    offsets_summary s;
    uint32_t n = cut_blocks(&seed, b, LARGE);
    for (uint32_t i = 0; i < n; i++)
      buffer[i] = (offsets_buffer){.size = 1024 * (uint64_t)(b[i].high - b[i].low),
                                   .first = b[i].from,
                                   .last = b[i].to - 1};
    tie_blocks(b, buffer, n);
    for (uint32_t i = 0; i < n; i++) tied += buffer[i].tie > 0;
    for (uint32_t i = n; i < N; i++) {
      uint32_t from = draw(&seed, 3990);
      buffer[i] =
          (offsets_buffer){.size = 256 * (1 + draw(&seed, 8)), .first = from, .last = from + 3};
    }
    uint64_t limit = CAPACITY + CAPACITY / 64;
    offsets_problem p = {.buffer = buffer, .n = N, .effort = EFFORT, .limit = {limit}};
    CHECK_OK(offsets_assign(&p, offset, &s));
    CHECK_OK(offsets_verify(&p, offset));
    CHECK(s.bound[0] >= CAPACITY && s.peak[0] <= limit);
  }
  CHECK(tied > 0);
}

/* Lines "id,lower,upper,size" after a header; the upper time is the first one without the buffer.
 */
static uint32_t read_buffers(const char *path, offsets_buffer *b) {
  char line[128];
  unsigned long from, to, size;
  uint32_t n = 0;
  FILE *f = fopen(path, "r");
  CHECK(f != NULL);
  while (n < MAX && fgets(line, sizeof line, f))
    if (sscanf(line, "%*[^,],%lu,%lu,%lu", &from, &to, &size) == 3)
      b[n++] = (offsets_buffer){.size = size,
                                .align = 1,
                                .first = (uint32_t)from,
                                .last = (uint32_t)to - 1};
  fclose(f);
  return n;
}

/* benchmarks/challenging of github.com/google/minimalloc: each fits into 1 MiB. */
TEST(most_of_the_hard_problems_of_minimalloc_fit_into_their_memory) {
  int fit = 0;
  for (char name = 'A'; name <= 'K'; name++) {
    char path[64];
    static offsets_buffer b[MAX];
    uint64_t offset[MAX];
    offsets_summary s;
    snprintf(path, sizeof path, "minimalloc/%c.1048576.csv", name);
    uint32_t n = read_buffers(test_data(path), b);
    offsets_problem p = {.buffer = b, .n = n, .effort = OFFSETS_EFFORT, .limit = {CAPACITY}};
    CHECK_OK(offsets_assign(&p, offset, &s));
    CHECK_OK(offsets_verify(&p, offset));
    fit += s.peak[0] <= CAPACITY;
  }
  CHECK(fit >= 9);
}
