/* BLEU-4 of characters, as nltk 3.10.4 computes sentence_bleu with smoothing method 3. */
#ifndef METRIC_BLEU_H
#define METRIC_BLEU_H

#include "base/str.h"

/* 0 to 1, of UTF-8 texts; 0 if they share no character. */
hp_status bleu_compare(const str *hypothesis, const str *reference, double *out);

#endif
