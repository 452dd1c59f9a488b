#include "serve/sequence.h"

#include <string.h>

static int64_t blocks_for(int64_t tokens) { return (tokens + CACHE_BLOCK - 1) / CACHE_BLOCK; }

/* The last block has room, but other holders: it must be copied before it is written. */
static bool has_shared_end(const sequence *s, const block_pool *p) {
  return s->length % CACHE_BLOCK && block_pool_holders(p, s->block.at[s->length / CACHE_BLOCK]) > 1;
}

hp_status sequence_match(sequence *s, block_pool *p, const int32_t *ids, int64_t n) {
  HP_ASSERT(s->length == 0 && s->block.len == 0);
  s->copy = -1;
  for (int32_t before = -1; s->length + CACHE_BLOCK < n; s->length += CACHE_BLOCK) {
    int32_t found = block_pool_find(p, before, ids + s->length);
    if (found < 0) break;
    if (!vec_push(&s->block, found)) return HP_ERR_OOM;
    block_pool_hold(p, found);
    before = found;
  }
  return HP_OK;
}

int64_t sequence_count_needed(const sequence *s, const block_pool *p, int64_t n) {
  int64_t more = blocks_for(s->length + n) - (int64_t)s->block.len;
  return (n && has_shared_end(s, p)) + (more > 0 ? more : 0);
}

hp_status sequence_grow(sequence *s, block_pool *p, int64_t n) {
  size_t want = (size_t)blocks_for(s->length + n);
  s->before = s->block.len;
  s->copy = -1;
  if (want > s->block.len && !vec_reserve(&s->block, want - s->block.len)) return HP_ERR_OOM;
  HP_ASSERT(sequence_count_needed(s, p, n) <= block_pool_available(p));
  if (n && has_shared_end(s, p)) {
    int32_t *end = &s->block.at[s->length / CACHE_BLOCK];
    s->copy = *end;
    *end = block_pool_take(p);
  }
  while (s->block.len < want) s->block.at[s->block.len++] = block_pool_take(p);
  return HP_OK;
}

void sequence_undo(sequence *s, block_pool *p) {
  while (s->block.len > s->before) block_pool_release(p, s->block.at[--s->block.len]);
  if (s->copy < 0) return;
  int32_t *end = &s->block.at[s->length / CACHE_BLOCK];
  block_pool_release(p, *end);
  *end = s->copy;
  s->copy = -1;
}

/* What is before it is known: nothing, or a block that is filled, as skipped ones are not. */
static bool is_found_later(const sequence *s, const block_pool *p, int64_t full) {
  return full < 2 || block_pool_is_filled(p, s->block.at[full - 2]);
}

void sequence_commit(sequence *s, block_pool *p, const int32_t *ids, int64_t n, bool share) {
  if (s->copy >= 0) block_pool_release(p, s->copy);
  s->copy = -1;
  for (int64_t i = 0; i < n; i++) {
    s->tail[s->length++ % CACHE_BLOCK] = ids[i];
    int64_t full = s->length / CACHE_BLOCK;
    if (share && s->length % CACHE_BLOCK == 0 && is_found_later(s, p, full))
      block_pool_fill(p, s->block.at[full - 1], full > 1 ? s->block.at[full - 2] : -1, s->tail);
  }
}

void sequence_drop(sequence *s, block_pool *p, int64_t first) {
  int64_t end = first / CACHE_BLOCK, most = (int64_t)s->block.len - 2;
  for (; s->dropped < end && s->dropped < most; s->dropped++) {
    block_pool_release(p, s->block.at[s->dropped]);
    s->block.at[s->dropped] = -1;
  }
}

hp_status sequence_fork(const sequence *s, block_pool *p, sequence *to) {
  if (!vec_reserve(&to->block, s->block.len)) return HP_ERR_OOM;
  for (size_t i = 0; i < s->block.len; i++) {
    if (s->block.at[i] >= 0) block_pool_hold(p, s->block.at[i]);
    to->block.at[to->block.len++] = s->block.at[i];
  }
  to->group = s->group;
  to->length = s->length;
  to->dropped = s->dropped;
  to->copy = -1;
  memcpy(to->tail, s->tail, sizeof to->tail);
  return HP_OK;
}

void sequence_clear(sequence *s, block_pool *p) {
  /* the last first: it is the first to be taken, and of the beginnings most is left to find */
  while ((int64_t)s->block.len > s->dropped) block_pool_release(p, s->block.at[--s->block.len]);
  vec_free(&s->block);
  s->length = s->dropped = 0;
}
