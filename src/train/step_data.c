#include "train/step_data.h"

hp_status step_data_create(int64_t micros, int64_t tokens, const train_data *d, step_data *out) {
  size_t n = (size_t)micros, room = (size_t)tokens;
  *out = (step_data){.most = micros,
                     .batch = mem_calloc(n, sizeof *out->batch),
                     .shifted = mem_calloc(n, sizeof *out->shifted),
                     .micro = mem_calloc(n, sizeof *out->micro)};
  if (!out->batch || !out->shifted || !out->micro) return HP_ERR_OOM;
  for (size_t i = 0; i < n; i++) {
    HP_TRY(train_batch_create(d, tokens, &out->batch[i]));
    out->shifted[i] = mem_calloc(room, sizeof *out->shifted[i]);
    HP_TRY_MEM(out->shifted[i]);
  }
  return HP_OK;
}

void step_data_free(step_data *s) {
  for (int64_t i = 0; s->batch && i < s->most; i++) train_batch_free(&s->batch[i]);
  for (int64_t i = 0; s->shifted && i < s->most; i++) mem_free(s->shifted[i]);
  mem_free(s->batch);
  mem_free(s->shifted);
  mem_free(s->micro);
}

void step_data_shift(const train_batch *b, int32_t *out) {
  for (int64_t r = 0; r < b->B; r++)
    for (int64_t i = 0; i < b->T; i++)
      out[r * b->T + i] = i + 1 < b->T ? b->labels[r * b->T + i + 1] : LABEL_NONE;
}

void step_data_draw(step_data *s, train_data *d, const sampler_step *at) {
  int64_t labels = 0;
  s->n = at->micros;
  s->tokens = s->texts = s->padded = 0;
  for (int64_t i = 0; i < s->n; i++) {
    train_batch *b = &s->batch[i];
    train_data_batch(d, at->epoch, at->micro + i, 0, b);
    step_data_shift(b, s->shifted[i]);
    s->micro[i] = (step_micro){.B = b->B,
                               .T = b->T,
                               .ids = b->ids,
                               .labels = s->shifted[i],
                               .lengths = b->lengths,
                               .positions = b->position,
                               .span = b->span};
    labels += b->labelled;
    s->tokens += b->B * b->T;
    s->texts += b->tokens;
    s->padded += b->padded;
  }
  for (int64_t i = 0; i < s->n; i++) s->micro[i].weight = labels ? 1.0 / (double)labels : 0;
}
