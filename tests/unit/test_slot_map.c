/* Which blocks of a cache on another tier a chunk has in which slots. */
#include "serve/slot_map.h"
#include "test.h"

#include <string.h>

enum { WIDTH = 64, SLOTS = 128, ROWS = 3 };

static sequence with_blocks(int64_t length, int64_t blocks, int32_t first) {
  sequence q = {.used = true, .length = length, .copy = -1};
  for (int64_t i = 0; i < blocks; i++) CHECK(vec_push(&q.block, first + (int32_t)i));
  return q;
}

typedef struct {
  int32_t table[ROWS * WIDTH], fetch[SLOTS], store[SLOTS];
} lists;

static void fill(const sequence *const in_row[ROWS], const model_cache *c, lists *x) {
  memset(x, -1, sizeof *x);
  const slot_map m = {c, ROWS, in_row, x->table, x->fetch, x->store};
  slot_map_fill(&m);
}

TEST(numbers_of_slots_and_parts_are_rounded_up) {
  static const int64_t want[][4] = {/* blocks, at most; slots, parts */
                                    {0, 64, 8, 0},    {8, 64, 8, 1},    {9, 64, 8, 2},
                                    {40, 64, 24, 2},  {64, 64, 32, 2},  {72, 64, 48, 2},
                                    {128, 64, 64, 2}, {136, 64, 64, 3}, {8, 0, 8, 1},
                                    {40, 8, 8, 6},    {200, 16, 16, 16}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    model_cache c = {.blocks = 1};
    slot_map_plan(want[i][0], want[i][1], &c);
    CHECK_EQ(c.slots, want[i][2]);
    CHECK_EQ(c.parts, want[i][3]);
    CHECK(c.slots * c.parts >= want[i][0]);
  }
  CHECK_EQ(slot_map_tail(1), 8);
  CHECK_EQ(slot_map_tail(2), 16);
  CHECK_EQ(slot_map_tail(257), 16);
  CHECK_EQ(slot_map_tail(258), 24);
  CHECK_EQ(slot_map_before(255), 0);
  CHECK_EQ(slot_map_before(1000), 24);
}

/* A token at place 530: segments 0 and 1 come in parts, block 16 in the tail. */
TEST(a_tail_has_the_segments_of_new_tokens) {
  sequence q = with_blocks(530, 17, 100);
  const sequence *row[ROWS] = {NULL, &q};
  const model_cache c = {.blocks = 200, .width = WIDTH, .tail = 24, .slots = 8, .parts = 2};
  lists x;
  fill(row, &c, &x);
  CHECK_EQ(x.table[WIDTH + 16], 8); /* the tail of row 1 */
  CHECK_EQ(x.fetch[8], 116);
  CHECK_EQ(x.store[8], 116);
  CHECK_EQ(x.table[WIDTH], 24);
  CHECK_EQ(x.table[WIDTH + 15], 39);
  CHECK_EQ(x.fetch[24], 100);
  CHECK_EQ(x.fetch[39], 115);
  CHECK_EQ(x.table[WIDTH + 17], -1);
  CHECK_EQ(x.store[9], -1);
  CHECK_EQ(x.table[0], -1);
  q.copy = 7; /* its last block is shared: it comes from there */
  fill(row, &c, &x);
  CHECK_EQ(x.fetch[8], 7);
  CHECK_EQ(x.store[8], 116);
  q.length = 512; /* the block is new */
  q.copy = -1;
  fill(row, &c, &x);
  CHECK_EQ(x.fetch[8], -1);
  CHECK_EQ(x.store[8], 116);
  vec_free(&q.block);
}

TEST(equal_segments_of_a_part_share_their_slots) {
  sequence a = with_blocks(600, 19, 0), b = with_blocks(600, 19, 0), d = with_blocks(300, 10, 50);
  for (int i = 8; i < 19; i++) b.block.at[i] = 100 + i; /* it differs from the second segment on */
  const sequence *row[ROWS] = {&a, &b, &d};
  model_cache c = {.blocks = 200, .width = WIDTH, .tail = 24, .slots = 16, .parts = 3};
  lists x;
  fill(row, &c, &x);
  CHECK_EQ(x.table[0], 24);
  CHECK_EQ(x.table[WIDTH], 24);
  CHECK_EQ(x.table[2 * WIDTH], 32);
  CHECK_EQ(x.table[8], 40);
  CHECK_EQ(x.table[WIDTH + 8], 48);
  CHECK_EQ(x.fetch[48], 108);
  CHECK_EQ(x.fetch[56], -1);
  vec_free(&a.block);
  vec_free(&b.block);
  vec_free(&d.block);
}
