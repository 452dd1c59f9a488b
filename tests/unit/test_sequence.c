/* Blocks of a sequence, and which of them others may find. */
#include "serve/sequence.h"
#include "test.h"

enum { BLOCKS = 8 };

/* Tokens first..first + n - 1 at the end of the sequence. */
static void add(sequence *s, block_pool *p, int32_t first, int64_t n, bool share) {
  CHECK_OK(sequence_grow(s, p, n));
  for (int64_t i = 0; i < n; i++) sequence_commit(s, p, &(int32_t){first + (int32_t)i}, 1, share);
}

static int32_t find_first(const block_pool *p, int32_t first) {
  int32_t tokens[CACHE_BLOCK];
  for (int i = 0; i < CACHE_BLOCK; i++) tokens[i] = first + i;
  return block_pool_find(p, -1, tokens);
}

/* A sequence that begins with tokens that were skipped (session_skip) has blocks whose content
 * nobody knows: what follows them is not found by others. */
TEST(blocks_behind_skipped_ones_are_not_found) {
  block_pool *p;
  sequence s = {.copy = -1}, other = {.copy = -1};
  CHECK_OK(block_pool_create(BLOCKS, CACHE_BLOCK, &p));
  add(&s, p, 0, 2 * CACHE_BLOCK, false);
  add(&s, p, 100, 2 * CACHE_BLOCK, true);
  CHECK_EQ(s.length, 4 * CACHE_BLOCK);
  for (int k = 0; k < 4; k++) CHECK(!block_pool_is_filled(p, s.block.at[k]));
  CHECK_EQ(find_first(p, 100), -1);
  add(&other, p, 100, 2 * CACHE_BLOCK, true); /* nothing is skipped: both are */
  CHECK(block_pool_is_filled(p, other.block.at[0]) && block_pool_is_filled(p, other.block.at[1]));
  CHECK_EQ(find_first(p, 100), other.block.at[0]);
  sequence_clear(&s, p);
  sequence_clear(&other, p);
  block_pool_free(p);
}
