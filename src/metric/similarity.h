/* How similar generated texts are to the expected ones: LlamaFactory's figures of
 * predict_with_generate, in percent. */
#ifndef METRIC_SIMILARITY_H
#define METRIC_SIMILARITY_H

#include "base/str.h"
#include "base/vec.h"

enum { SIMILARITIES = 4 };
/* "rouge-1", "rouge-2", "rouge-l", "bleu-4" */
extern const char *const similarity_name[SIMILARITIES];

/* The scores of the samples so far; zeroed = none.  Free with similarity_free. */
typedef struct {
  VEC(double) score[SIMILARITIES]; /* each rounded to four decimals */
  bool chinese; /* some text has Chinese characters: ROUGE is of characters, not of jieba's words */
} similarity;
void similarity_free(similarity *s);
/* Adds a sample. */
hp_status similarity_add(similarity *s, const str *prediction, const str *label);
/* The mean over the samples, as NumPy adds them; NAN without samples. */
double similarity_mean(const similarity *s, int which);

#endif
