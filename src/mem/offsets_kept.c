#include "mem/offsets_kept.h"

#include <string.h>

enum { OFFSETS_KEPT = 1 << 20 }; /* about 10 MB; beyond that all are forgotten */

/* What a plan depends on: of the problem, and of each buffer. */
typedef struct {
  uint64_t limit[OFFSETS_TIERS], tight, must_fit, effort, byte_effort;
  uint64_t streams;
} key_head;
typedef struct {
  uint64_t size, align, offset;
  uint32_t first, last, alias, tie;
  uint32_t tier, stream, fixed, unused;
} key_row;

void offsets_kept_free(offsets_kept *k) {
  map_free(&k->plan_of);
  vec_free(&k->plan);
  vec_free(&k->offset);
}

static hp_status hash_problem(const offsets_problem *p, hash128 *out) {
  key_head head = {.effort = p->effort, .byte_effort = p->byte_effort, .streams = p->streams};
  hash_stream *s;
  HP_TRY(hash_stream_create(&s));
  for (int t = 0; t < OFFSETS_TIERS; t++) {
    head.limit[t] = p->limit[t];
    head.tight |= (uint64_t)p->tight[t] << t;
    head.must_fit |= (uint64_t)p->must_fit[t] << t;
  }
  hash_stream_add(s, &head, sizeof head);
  for (size_t i = 0; i < p->n; i++) {
    const offsets_buffer *b = &p->buffer[i];
    const key_row row = {.size = b->size,
                         .align = b->align,
                         .offset = b->fixed ? b->offset : 0,
                         .first = b->first,
                         .last = b->last,
                         .alias = b->alias,
                         .tie = b->tie,
                         .tier = b->tier,
                         .stream = b->stream,
                         .fixed = b->fixed};
    hash_stream_add(s, &row, sizeof row);
  }
  if (p->dead) hash_stream_add(s, p->dead, p->n * p->streams * sizeof *p->dead);
  *out = hash_stream_get(s);
  hash_stream_free(s);
  return HP_OK;
}

static hp_status solve(const offsets_problem *p, uint64_t *offset, offsets_summary *sum) {
  HP_TRY(offsets_assign(p, offset, sum));
  return offsets_verify(p, offset);
}

/* The plan of this hash, if it is one of this problem. */
static bool find(const offsets_kept *k, const hash128 *key, const offsets_problem *p,
                 uint64_t *offset, offsets_summary *sum) {
  uint32_t i;
  if (!map_get(&k->plan_of, key, sizeof *key, &i) || k->plan.at[i].n != p->n) return false;
  memcpy(offset, k->offset.at + k->plan.at[i].at, p->n * sizeof *offset);
  if (offsets_verify(p, offset)) {
    err_clear();
    return false;
  }
  *sum = k->plan.at[i].sum;
  return true;
}

static hp_status keep(offsets_kept *k, const hash128 *key, size_t n, const uint64_t *offset,
                      const offsets_summary *sum) {
  if (k->offset.len + n > OFFSETS_KEPT) {
    offsets_kept_free(k);
    *k = (offsets_kept){.plan = {0}};
  }
  const kept_plan made = {.at = k->offset.len, .n = n, .sum = *sum};
  if (!vec_push(&k->plan, made) || !vec_reserve(&k->offset, n)) return HP_ERR_OOM;
  memcpy(k->offset.at + k->offset.len, offset, n * sizeof *offset);
  k->offset.len += n;
  return map_set(&k->plan_of, key, sizeof *key, (uint32_t)k->plan.len - 1);
}

hp_status offsets_kept_assign(offsets_kept *k, const offsets_problem *p, uint64_t *offset,
                              offsets_summary *sum) {
  hash128 key;
  if (!k || !p->n) return solve(p, offset, sum);
  HP_TRY(hash_problem(p, &key));
  if (find(k, &key, p, offset, sum)) return HP_OK;
  HP_TRY(solve(p, offset, sum));
  return keep(k, &key, p->n, offset, sum);
}
