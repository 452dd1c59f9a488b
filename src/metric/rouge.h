/* ROUGE: how many words and pairs of words two texts share, and their longest common subsequence,
 * to the bit as rouge_chinese 1.0.3 computes them. */
#ifndef METRIC_ROUGE_H
#define METRIC_ROUGE_H

#include "base/str.h"

/* F1 scores, 0 to 1. */
typedef struct {
  double one, two, l; /* ROUGE-1, ROUGE-2, ROUGE-L */
} rouge_scores;

/* Of words that are separated by spaces (words_join).  All are 0 if a text has no word.  Time is
 * the product of the numbers of words. */
hp_status rouge_compare(const str *hypothesis, const str *reference, rouge_scores *out);

#endif
