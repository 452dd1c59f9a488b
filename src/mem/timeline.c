#include "mem/timeline.h"

#include "base/mem.h"

#include <string.h>

const char *mem_class_name(mem_class c) {
  static const char *const name[MEM_CLASS_COUNT] = {"parameters",  "gradients", "optimizer",
                                                    "activations", "workspace", "communication",
                                                    "other"};
  return (unsigned)c < MEM_CLASS_COUNT ? name[c] : name[MEM_OTHER];
}

void timeline_free(timeline *t) {
  mem_free(t->live);
  *t = (timeline){0};
}

static hp_status check_spans(const timeline_span *s, size_t n, size_t positions, uint32_t tiers) {
  uint64_t total = 0;
  if (tiers < 1 || tiers > TIMELINE_TIERS)
    HP_FAIL(HP_ERR_ARG, "a timeline of %u tiers: 1 to %d are possible", tiers, TIMELINE_TIERS);
  for (size_t i = 0; i < n; i++) {
    if (s[i].first > s[i].last || s[i].last >= positions)
      HP_FAIL(HP_ERR_ARG, "span %zu lives from %u to %u; the program has %zu positions", i,
              s[i].first, s[i].last, positions);
    if (s[i].tier >= tiers)
      HP_FAIL(HP_ERR_ARG, "span %zu is in tier %u; there are tiers 0..%u", i, s[i].tier, tiers - 1);
    if (__builtin_add_overflow(total, s[i].bytes, &total) || total > INT64_MAX)
      HP_FAIL(HP_ERR_ARG, "span %zu has %llu bytes: the sum of all spans passes 2^63", i,
              (unsigned long long)s[i].bytes);
  }
  return HP_OK;
}

hp_status timeline_build(const timeline_span *span, size_t n, size_t positions, uint32_t tiers,
                         timeline *out) {
  HP_TRY(check_spans(span, n, positions, tiers));
  timeline t = {.positions = positions, .tiers = tiers};
  size_t cells;
  if (!size_mul(positions, tiers, &cells)) cells = SIZE_MAX; /* refused by mem_calloc */
  t.live = mem_calloc(cells, sizeof *t.live);
  HP_TRY_MEM(t.live);
  /* differences first (modulo 2^64), then their running sum */
  for (size_t i = 0; i < n; i++) {
    uint64_t *row = t.live + span[i].tier * positions;
    row[span[i].first] += span[i].bytes;
    if (span[i].last + (size_t)1 < positions) row[span[i].last + 1] -= span[i].bytes;
  }
  for (uint32_t k = 0; k < tiers; k++) {
    uint64_t *row = t.live + k * positions;
    for (size_t x = 1; x < positions; x++) row[x] += row[x - 1];
    for (size_t x = 0; x < positions; x++)
      if (row[x] > t.peak[k]) t.peak[k] = row[x], t.peak_at[k] = (uint32_t)x;
    timeline_by_class(span, n, k, t.peak_at[k], t.peak_by_class[k]);
  }
  *out = t;
  return HP_OK;
}

static bool is_live_at(const timeline_span *s, uint32_t tier, uint32_t position) {
  return s->tier == tier && s->first <= position && position <= s->last;
}

size_t timeline_largest(const timeline_span *span, size_t n, uint32_t tier, uint32_t position,
                        uint32_t *id, size_t max) {
  size_t len = 0;
  for (size_t i = 0; i < n && max; i++) {
    if (!is_live_at(&span[i], tier, position)) continue;
    if (len == max && span[i].bytes <= span[id[len - 1]].bytes) continue;
    size_t k = len < max ? len++ : len - 1; /* insertion into the sorted few */
    for (; k > 0 && span[id[k - 1]].bytes < span[i].bytes; k--) id[k] = id[k - 1];
    id[k] = (uint32_t)i;
  }
  return len;
}

void timeline_by_class(const timeline_span *span, size_t n, uint32_t tier, uint32_t position,
                       uint64_t bytes[MEM_CLASS_COUNT]) {
  memset(bytes, 0, MEM_CLASS_COUNT * sizeof *bytes);
  for (size_t i = 0; i < n; i++)
    if (is_live_at(&span[i], tier, position))
      bytes[span[i].class < MEM_CLASS_COUNT ? span[i].class : MEM_OTHER] += span[i].bytes;
}
