#include "serve/slot_map.h"

#include "base/round.h"

#include <string.h>

enum {
  SEGMENT_TOKENS = CACHE_SEGMENT * CACHE_BLOCK,
  LAYER_PARTS = CACHE_PARTS / 2, /* at least: the parts on the device are no more than two layers */
};

int64_t slot_map_tail(int64_t T) {
  return (T > 1 ? (T - 2) / SEGMENT_TOKENS + 2 : 1) * CACHE_SEGMENT;
}

int64_t slot_map_before(int64_t tokens) { return tokens / SEGMENT_TOKENS * CACHE_SEGMENT; }

int64_t slot_map_dropped(const sequence *q) {
  int64_t before = slot_map_before(q->length);
  int64_t dropped = q->dropped / CACHE_SEGMENT * CACHE_SEGMENT;
  return dropped < before ? dropped : before;
}

/* 1, 2, 3, 4, 6, 8, 12, 16, ... */
static int64_t round_count(int64_t n) {
  int64_t x = 1;
  while (x < n) x *= 2;
  return x >= 4 && x / 4 * 3 >= n ? x / 4 * 3 : x;
}

int64_t slot_map_round(int64_t blocks) {
  return blocks ? round_count(div_up(blocks, CACHE_SEGMENT)) * CACHE_SEGMENT : 0;
}

void slot_map_plan(int64_t blocks, int64_t slots_max, model_cache *c) {
  int64_t segments = round_count(div_up(blocks, LAYER_PARTS * CACHE_SEGMENT));
  int64_t most = slots_max / CACHE_SEGMENT;
  if (most < 1) most = 1;
  if (segments > most) segments = most;
  c->slots = segments * CACHE_SEGMENT;
  c->parts = blocks ? round_count(div_up(blocks, c->slots)) : 0;
}

/* The blocks that new tokens are written to, and those of the same segments. */
static void map_tail(const slot_map *m, int64_t row, const sequence *q) {
  int64_t each = m->cache->tail / m->rows, first = slot_map_before(q->length);
  int64_t written = q->length / CACHE_BLOCK, n = (int64_t)q->block.len - first;
  for (int64_t i = 0; i < n; i++) {
    int64_t slot = row * each + i, block = first + i;
    m->table[row * m->cache->width + block] = (int32_t)slot;
    if (block * CACHE_BLOCK < q->length) m->fetch[slot] = q->block.at[block];
    if (block == written && q->copy >= 0) m->fetch[slot] = q->copy;
    if (block >= written) m->store[slot] = q->block.at[block];
  }
}

/* An earlier row with the same segment in a part from slot `from` on; -1: none. */
static int64_t find_equal(const slot_map *m, int64_t row, int64_t block, int64_t from) {
  const sequence *q = m->in_row[row];
  for (int64_t i = 0; i < row; i++) {
    const sequence *x = m->in_row[i];
    if (!x || slot_map_before(x->length) <= block) continue;
    if (m->table[i * m->cache->width + block] < from) continue;
    if (!memcmp(x->block.at + block, q->block.at + block, CACHE_SEGMENT * sizeof *q->block.at))
      return i;
  }
  return -1;
}

/* Segments before the tails, the first of all sequences, then the second, so that those of a
 * sequence are in order, and equal ones side by side. */
static void map_parts(const slot_map *m) {
  const model_cache *c = m->cache;
  int64_t next = c->tail, most = 0;
  for (int64_t i = 0; i < m->rows; i++)
    if (m->in_row[i] && slot_map_before(m->in_row[i]->length) > most)
      most = slot_map_before(m->in_row[i]->length);
  for (int64_t block = 0; block < most; block += CACHE_SEGMENT)
    for (int64_t i = 0; i < m->rows; i++) {
      const sequence *q = m->in_row[i];
      if (!q || slot_map_before(q->length) <= block || slot_map_dropped(q) > block) continue;
      int64_t part = next - c->tail ? (next - c->tail - 1) / c->slots : 0;
      int64_t same = find_equal(m, i, block, c->tail + part * c->slots);
      int32_t *to = m->table + i * c->width + block;
      int64_t slot = same < 0 ? next : m->table[same * c->width + block];
      for (int64_t k = 0; k < CACHE_SEGMENT; k++) {
        to[k] = (int32_t)(slot + k);
        m->fetch[slot + k] = q->block.at[block + k];
      }
      if (same < 0) next += CACHE_SEGMENT;
    }
}

void slot_map_fill(const slot_map *m) {
  for (int64_t i = 0; i < m->rows; i++)
    if (m->in_row[i]) map_tail(m, i, m->in_row[i]);
  map_parts(m);
}
