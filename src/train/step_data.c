#include "train/step_data.h"

hp_status step_answers_create(int64_t n, step_answers *a) {
  size_t rows = (size_t)n;
  *a = (step_answers){.sign = mem_calloc(rows, sizeof *a->sign),
                      .gain = mem_calloc(rows, sizeof *a->gain),
                      .own = mem_calloc(rows, sizeof *a->own),
                      .logps = mem_calloc(rows, sizeof *a->logps),
                      .logits = mem_calloc(rows, sizeof *a->logits),
                      .counts = mem_calloc(rows, sizeof *a->counts),
                      .beyond = mem_calloc(rows, sizeof *a->beyond)};
  bool ok = a->sign && a->gain && a->own && a->logps && a->logits && a->counts && a->beyond;
  return ok ? HP_OK : HP_ERR_OOM;
}

void step_answers_free(step_answers *a) {
  mem_free(a->sign);
  mem_free(a->gain);
  mem_free(a->own);
  mem_free(a->logps);
  mem_free(a->logits);
  mem_free(a->counts);
  mem_free(a->beyond);
}

hp_status step_data_create(int64_t micros, int64_t tokens, const train_data *d, const preference *p,
                           step_data *out) {
  size_t n = (size_t)micros, room = (size_t)tokens;
  *out = (step_data){.most = micros,
                     .preference = *p,
                     .batch = mem_calloc(n, sizeof *out->batch),
                     .shifted = mem_calloc(n, sizeof *out->shifted),
                     .micro = mem_calloc(n, sizeof *out->micro)};
  if (!out->batch || !out->shifted || !out->micro) return HP_ERR_OOM;
  for (size_t i = 0; i < n; i++) {
    HP_TRY(train_batch_create(d, tokens, &out->batch[i]));
    out->shifted[i] = mem_calloc(room, sizeof *out->shifted[i]);
    HP_TRY_MEM(out->shifted[i]);
  }
  if (!p->kind) return HP_OK;
  out->answers = mem_calloc(n, sizeof *out->answers);
  HP_TRY_MEM(out->answers);
  for (size_t i = 0; i < n; i++) HP_TRY(step_answers_create(train_data_rows(d), &out->answers[i]));
  return HP_OK;
}

void step_data_free(step_data *s) {
  for (int64_t i = 0; s->batch && i < s->most; i++) train_batch_free(&s->batch[i]);
  for (int64_t i = 0; s->shifted && i < s->most; i++) mem_free(s->shifted[i]);
  for (int64_t i = 0; s->answers && i < s->most; i++) step_answers_free(&s->answers[i]);
  mem_free(s->answers);
  mem_free(s->batch);
  mem_free(s->shifted);
  mem_free(s->micro);
}

void step_data_shift(const train_batch *b, int32_t *out) {
  for (int64_t r = 0; r < b->B; r++)
    for (int64_t i = 0; i < b->T; i++)
      out[r * b->T + i] = i + 1 < b->T ? b->labels[r * b->T + i + 1] : LABEL_NONE;
}

/* Labels that a row is learned by: those behind its first token. */
static int64_t count_learned(const train_batch *b, int64_t row) {
  int64_t n = 0;
  for (int64_t t = 1; t < b->T; t++) n += b->labels[row * b->T + t] != LABEL_NONE;
  return n;
}

static double weight_alone(const train_batch *b) {
  int64_t n = 0;
  for (int64_t r = 0; r < b->B; r++) n += count_learned(b, r);
  return n ? 1.0 / (double)n : 0;
}

static void compare_answers(const step_data *s, int64_t i, int64_t micros) {
  const train_batch *b = &s->batch[i];
  step_answers *a = &s->answers[i];
  step_micro *m = &s->micro[i];
  for (int64_t r = 0; r < b->B; r++) a->counts[r] = count_learned(b, r);
  for (int64_t r = 0; preference_weighs_length(&s->preference) && r + 1 < b->B; r += 2)
    preference_find_rest(s->shifted[i] + r * b->T, b->T, a->beyond + r);
  preference_weights(&s->preference, b->good, b->B / 2, a->sign, a->gain, a->own);
  m->ref = b->ref;
  m->sign = a->sign;
  m->gain = a->gain;
  m->own = a->own;
  m->beyond = a->beyond;
  m->width = b->width;
  m->logps = a->logps;
  m->logits = a->logits;
  m->weight = 1.0 / ((double)(b->B / 2) * (double)micros);
}

void step_data_measure(const step_data *s, int64_t words, preference_metrics *m) {
  for (int64_t i = 0; s->answers && i < s->n; i++) {
    const train_batch *b = &s->batch[i];
    const step_answers *a = &s->answers[i];
    preference_rows r = {.samples = b->B / 2,
                         .logps = a->logps,
                         .logits = a->logits,
                         .ref = preference_has_reference(&s->preference) ? b->ref : NULL,
                         .good = b->good,
                         .counts = a->counts,
                         .cells = (double)b->T * (double)words};
    preference_add(&s->preference, &r, m);
  }
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
  for (int64_t i = 0; i < s->n; i++) {
    s->micro[i].weight = labels ? 1.0 / (double)labels : 0;
    if (s->smooths) s->micro[i].weight = weight_alone(&s->batch[i]);
    if (s->answers) compare_answers(s, i, s->n);
  }
}
