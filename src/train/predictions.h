/* Answers that a model generated to the samples of an evaluation set: their scores, and the lines
 * of generated_predictions.jsonl as LlamaFactory 0.9.5 writes them. */
#ifndef TRAIN_PREDICTIONS_H
#define TRAIN_PREDICTIONS_H

#include "metric/similarity.h"
#include "tok/tokenizer.h"
#include "train/sample_set.h"

typedef struct {
  const sample_set *set; /* not owned */
  token_ids *answer;     /* [samples]; an end token is part of its answer */
  int64_t samples;       /* of the set, from the first on */
} predictions;
/* Without answers yet; predictions_free, also after a failure. */
hp_status predictions_create(const sample_set *s, int64_t samples, predictions *out);
void predictions_free(predictions *p);

/* Adds the scores of all samples. */
hp_status predictions_score(const predictions *p, const tokenizer *t, similarity *out);

/* How LlamaFactory pads what it decodes: seen if special tokens are shown. */
typedef struct {
  bool skip_special;
  int64_t batch; /* samples of a batch, which are padded together */
  int32_t pad;
} predictions_form;
/* A line {"prompt": ..., "predict": ..., "label": ...} for each sample. */
hp_status predictions_print(const predictions *p, const tokenizer *t, const predictions_form *f,
                            str *out);

#endif
