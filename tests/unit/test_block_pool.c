#include "test.h"

#include "base/mem.h"
#include "base/philox.h"
#include "serve/block_pool.h"

#include <string.h>

enum { TOKENS = 4 };
static const int32_t a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8};

TEST(blocks_are_taken_until_there_are_none_and_come_back) {
  block_pool *p;
  CHECK_OK(block_pool_create(3, TOKENS, &p));
  int32_t x = block_pool_take(p), y = block_pool_take(p), z = block_pool_take(p);
  CHECK(x >= 0 && y >= 0 && z >= 0 && x != y && y != z && x != z);
  CHECK_EQ(block_pool_take(p), -1);
  CHECK_EQ(block_pool_available(p), 0);
  block_pool_hold(p, y);
  CHECK_EQ(block_pool_holders(p, y), 2);
  block_pool_release(p, y);
  CHECK_EQ(block_pool_take(p), -1); /* it still has a holder */
  block_pool_release(p, y);
  CHECK_EQ(block_pool_available(p), 1);
  CHECK_EQ(block_pool_take(p), y);
  block_pool_free(p);
}

TEST(a_pool_may_have_no_blocks) {
  block_pool *p;
  CHECK_OK(block_pool_create(0, TOKENS, &p));
  CHECK_EQ(block_pool_take(p), -1);
  CHECK_EQ(block_pool_find(p, -1, a), -1);
  block_pool_free(p);
  block_pool_free(NULL);
}

TEST(a_full_block_is_found_by_its_tokens_and_what_precedes_them) {
  block_pool *p;
  CHECK_OK(block_pool_create(4, TOKENS, &p));
  int32_t x = block_pool_take(p), y = block_pool_take(p);
  CHECK_EQ(block_pool_find(p, -1, a), -1);
  block_pool_fill(p, x, -1, a);
  block_pool_fill(p, y, x, a);
  CHECK_EQ(block_pool_find(p, -1, a), x);
  CHECK_EQ(block_pool_find(p, x, a), y);
  CHECK_EQ(block_pool_find(p, y, a), -1);
  CHECK_EQ(block_pool_find(p, -1, b), -1);
  CHECK_EQ(block_pool_find(p, x, b), -1);
  block_pool_free(p);
}

TEST(a_released_block_is_found_until_it_is_taken_the_longest_released_first) {
  block_pool *p;
  CHECK_OK(block_pool_create(2, TOKENS, &p));
  int32_t x = block_pool_take(p), y = block_pool_take(p);
  block_pool_fill(p, x, -1, a);
  block_pool_fill(p, y, x, b);
  block_pool_release(p, x);
  block_pool_release(p, y);
  CHECK_EQ(block_pool_find(p, -1, a), x);
  block_pool_hold(p, x); /* and is not taken while it is held */
  CHECK_EQ(block_pool_take(p), y);
  CHECK_EQ(block_pool_find(p, x, b), -1);
  block_pool_release(p, x);
  CHECK_EQ(block_pool_take(p), x);
  CHECK_EQ(block_pool_find(p, -1, a), -1);
  block_pool_free(p);
}

/* What follows a content is not found after another block that happens to have its number. */
TEST(what_follows_a_forgotten_block_is_forgotten) {
  block_pool *p;
  CHECK_OK(block_pool_create(2, TOKENS, &p));
  int32_t x = block_pool_take(p), y = block_pool_take(p);
  block_pool_fill(p, x, -1, a);
  block_pool_fill(p, y, x, a);
  block_pool_release(p, x);
  CHECK_EQ(block_pool_take(p), x);
  block_pool_fill(p, x, -1, b);
  CHECK_EQ(block_pool_find(p, x, a), -1);
  block_pool_free(p);
}

/* Two sequences may fill a block each with the same tokens: both go on as one. */
TEST(equal_contents_are_one_content) {
  block_pool *p;
  CHECK_OK(block_pool_create(4, TOKENS, &p));
  int32_t x = block_pool_take(p), y = block_pool_take(p), z = block_pool_take(p);
  block_pool_fill(p, x, -1, a);
  block_pool_fill(p, y, -1, a);
  block_pool_fill(p, z, y, b);
  CHECK_EQ(block_pool_find(p, x, b), z);
  CHECK_EQ(block_pool_find(p, y, b), z);
  block_pool_release(p, x); /* the one that was found goes; the other is not found: no harm */
  CHECK_EQ(block_pool_take(p), 3);
  CHECK_EQ(block_pool_take(p), x);
  CHECK_EQ(block_pool_find(p, -1, a), -1);
  block_pool_free(p);
}

/* Against a list of what every block should contain. */
TEST(random_holders_and_contents_agree_with_a_plain_list) {
  enum { N = 13, STEPS = 20000 };
  block_pool *p;
  int64_t holders[N] = {0}, free_blocks = N;
  CHECK_OK(block_pool_create(N, TOKENS, &p));
  for (uint64_t i = 0; i < STEPS; i++) {
    uint32_t r = (uint32_t)(philox_uniform(1, 2, i) * 0x1p24f);
    int32_t k = (int32_t)(r / 8 % N), t[TOKENS] = {(int32_t)(r / 128 % 5), 1, 2, 3};
    if (r % 4 == 0) {
      int32_t x = block_pool_take(p);
      CHECK_EQ(x < 0, free_blocks == 0);
      if (x < 0) continue;
      CHECK_EQ(holders[x], 0);
      holders[x] = 1, free_blocks--;
      if (r & 8) block_pool_fill(p, x, -1, t);
    } else if (r % 4 == 1 && holders[k]) {
      block_pool_hold(p, k);
      holders[k]++;
    } else if (r % 4 == 2 && holders[k]) {
      block_pool_release(p, k);
      free_blocks += !--holders[k];
    } else {
      int32_t x = block_pool_find(p, -1, t);
      if (x < 0) continue;
      block_pool_hold(p, x);
      free_blocks -= !holders[x]++;
    }
    CHECK_EQ(block_pool_available(p), free_blocks);
    CHECK_EQ(block_pool_holders(p, k), holders[k]);
  }
  block_pool_free(p);
}
