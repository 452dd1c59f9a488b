/* Bounds of the keys of blocks, and how much attention a query can pay to a block by them. */
#ifndef ATTN_SELECT_H
#define ATTN_SELECT_H

#include "backend/cpu/cpu_features.h"
#include "base/dtype.h"

/* Of one head of keys: query heads q [heads,D], and the bounds of block i at `bounds` + block[i] *
 * step elements: [2,D], the least of each dim, then the largest.  score[i], of n: the sum over
 * query heads of the largest product q k that the bounds allow; of blocks -1: -inf. */
typedef struct {
  hp_dtype dtype;
  const void *q, *bounds;
  const int32_t *block;
  int64_t heads, D, step, n;
  float *score;
} attn_scores;

void attn_score_blocks_plain(const attn_scores *s);
void attn_score_blocks_avx2(const attn_scores *s);
void attn_score_blocks_avx512(const attn_scores *s);

#endif
