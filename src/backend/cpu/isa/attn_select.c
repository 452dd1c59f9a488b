/* Scores of blocks by the bounds of their keys.  16 columns are lanes, and a fixed tree adds them,
 * so that the bits, and with them what is selected, are the same on every instruction set. */
#include "backend/cpu/attn/attn_select.h"

#include "backend/cpu/simd.h"

#include <float.h>
#include <math.h>

SIMD float score_block(const hp_dtype t, const attn_scores *s, int64_t at) {
  v16f sum = v16_zero();
  for (int64_t d = 0; d < s->D; d += 16) {
    int n = v16_left(s->D, d);
    v16f lo = v16_load_as(t, s->bounds, at + d, n),
         hi = v16_load_as(t, s->bounds, at + s->D + d, n);
    for (int64_t h = 0; h < s->heads; h++) {
      v16f q = v16_load_as(t, s->q, h * s->D + d, n);
      sum = v16_add(sum, v16_max(v16_mul(q, lo), v16_mul(q, hi)));
    }
  }
  return v16_sum(sum);
}

SIMD void score_all(const hp_dtype t, const attn_scores *s) {
  for (int64_t i = 0; i < s->n; i++) {
    float x = s->block[i] < 0 ? -INFINITY : score_block(t, s, s->block[i] * s->step);
    if (x > FLT_MAX) x = FLT_MAX; /* +inf is the mark of what is selected */
    s->score[i] = x == x ? x : -INFINITY;
  }
}

void ISA_NAME(attn_score_blocks)(const attn_scores *s) {
  if (s->dtype == HP_F32) score_all(HP_F32, s);
  else if (s->dtype == HP_BF16) score_all(HP_BF16, s);
  else score_all(HP_F16, s);
}
