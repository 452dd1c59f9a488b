#include "mem/offsets_kept.h"

#include <string.h>

enum { OFFSETS_KEPT = 1 << 20 }; /* about 40 MB; beyond that all are forgotten */

/* What a plan depends on. */
typedef struct {
  uint64_t size;
  uint32_t first, last, alias, tier;
} key_row;

void offsets_kept_free(offsets_kept *k) {
  map_free(&k->plan_of);
  vec_free(&k->plan);
  vec_free(&k->offset);
}

static hp_status solve(const offsets_problem *p, uint64_t *offset, uint64_t *peak) {
  offsets_summary sum = {0};
  HP_TRY(offsets_assign(p, offset, &sum));
  HP_TRY(offsets_verify(p, offset));
  memcpy(peak, sum.peak, sizeof sum.peak);
  return HP_OK;
}

static hp_status keep(offsets_kept *k, const key_row *row, size_t n, const uint64_t *offset,
                      const uint64_t *peak) {
  kept_plan made = {.at = k->offset.len};
  memcpy(made.peak, peak, sizeof made.peak);
  if (!vec_push(&k->plan, made) || !vec_reserve(&k->offset, n)) return HP_ERR_OOM;
  memcpy(k->offset.at + k->offset.len, offset, n * sizeof *offset);
  k->offset.len += n;
  return map_set(&k->plan_of, row, n * sizeof *row, (uint32_t)k->plan.len - 1);
}

static hp_status find(offsets_kept *k, const offsets_problem *p, const key_row *row,
                      uint64_t *offset, uint64_t *peak) {
  uint32_t i;
  if (map_get(&k->plan_of, row, p->n * sizeof *row, &i)) {
    memcpy(offset, k->offset.at + k->plan.at[i].at, p->n * sizeof *offset);
    memcpy(peak, k->plan.at[i].peak, sizeof k->plan.at[i].peak);
    return HP_OK;
  }
  HP_TRY(solve(p, offset, peak));
  if (k->offset.len + p->n > OFFSETS_KEPT) {
    offsets_kept_free(k);
    *k = (offsets_kept){.plan = {0}};
  }
  return keep(k, row, p->n, offset, peak);
}

hp_status offsets_kept_assign(offsets_kept *k, const offsets_problem *p, uint64_t *offset,
                              uint64_t peak[OFFSETS_TIERS]) {
  if (!p->n) memset(peak, 0, OFFSETS_TIERS * sizeof *peak);
  if (!p->n) return HP_OK;
  if (!k) return solve(p, offset, peak);
  key_row *row = mem_calloc(p->n, sizeof *row);
  HP_TRY_MEM(row);
  for (size_t i = 0; i < p->n; i++) {
    const offsets_buffer *b = &p->buffer[i];
    HP_ASSERT(!b->fixed && !b->align && !b->stream);
    row[i] = (key_row){b->size, b->first, b->last, b->alias, b->tier};
  }
  hp_status st = find(k, p, row, offset, peak);
  mem_free(row);
  return st;
}
