/* Choosing the next token from logits, as Transformers' generate does: repetition penalty, then
 * temperature, top-k, top-p, then a draw.  Temperature 0 is greedy: the first of the largest. */
#ifndef SERVE_SAMPLING_H
#define SERVE_SAMPLING_H

#include "base/tree.h"

typedef struct {
  double temperature, top_p, repetition_penalty; /* 1 = off for the last two */
  int64_t top_k;                                 /* 0 = off */
  uint64_t seed;
} sampling;

/* Values out of range are refused by name. */
hp_status sampling_check(const sampling *s);
/* The next token after `tokens` (prompt and answer so far; n of them).  The draw depends on seed
 * and n alone.  logits [vocab] is changed.  HP_ERR_NUMERIC when a logit is NaN. */
hp_status sampling_next(const sampling *s, float *logits, int64_t vocab, const int32_t *tokens,
                        int64_t n, int32_t *next);

#endif
