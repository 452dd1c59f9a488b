#include "metric/similarity.h"

#include "base/round.h"
#include "metric/bleu.h"
#include "metric/rouge.h"
#include "metric/words.h"

#include <math.h>

const char *const similarity_name[SIMILARITIES] = {"rouge-1", "rouge-2", "rouge-l", "bleu-4"};

void similarity_free(similarity *s) {
  for (int i = 0; i < SIMILARITIES; i++) vec_free(&s->score[i]);
}

static hp_status compare_words(similarity *s, const str *prediction, const str *label,
                               rouge_scores *out) {
  str hypothesis = {0}, reference = {0};
  words_join(prediction, &hypothesis, &s->chinese);
  words_join(label, &reference, &s->chinese);
  hp_status st = hypothesis.failed ? HP_ERR_OOM : str_status(&reference);
  if (!st) st = rouge_compare(&hypothesis, &reference, out);
  str_free(&hypothesis);
  str_free(&reference);
  return st;
}

hp_status similarity_add(similarity *s, const str *prediction, const str *label) {
  rouge_scores words;
  double bleu;
  HP_TRY(compare_words(s, prediction, label, &words));
  HP_TRY(bleu_compare(prediction, label, &bleu));
  const double score[SIMILARITIES] = {words.one, words.two, words.l, bleu};
  for (int i = 0; i < SIMILARITIES; i++)
    if (!vec_push(&s->score[i], round_decimal(score[i] * 100, 4))) return HP_ERR_OOM;
  return HP_OK;
}

/* NumPy's pairwise sum: up to 128 numbers in eight lanes, more in halves. */
static double sum_pairwise(const double *x, size_t n) {
  enum { LANES = 8, BLOCK = 128 };
  if (n > BLOCK) {
    size_t half = n / 2 / LANES * LANES;
    return sum_pairwise(x, half) + sum_pairwise(x + half, n - half);
  }
  double r[LANES] = {0}, sum = 0;
  size_t whole = n / LANES * LANES;
  for (size_t i = 0; i < whole; i++) r[i % LANES] = i < LANES ? x[i] : r[i % LANES] + x[i];
  if (whole) sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (size_t i = whole; i < n; i++) sum += x[i];
  return sum;
}

double similarity_mean(const similarity *s, int which) {
  size_t n = s->score[which].len;
  return n ? sum_pairwise(s->score[which].at, n) / (double)n : NAN;
}
