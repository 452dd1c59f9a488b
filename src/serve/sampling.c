#include "serve/sampling.h"

#include "base/philox.h"

#include <math.h>
#include <stdlib.h>

hp_status sampling_check(const sampling *s) {
  if (!(s->temperature >= 0 && s->temperature <= 1000))
    HP_FAIL(HP_ERR_ARG, "temperature %g: expected 0 (greedy) or more", s->temperature);
  if (!(s->top_p > 0 && s->top_p <= 1))
    HP_FAIL(HP_ERR_ARG, "top_p %g: expected above 0, at most 1", s->top_p);
  if (s->top_k < 0)
    HP_FAIL(HP_ERR_ARG, "top_k %lld: expected 0 (off) or more", (long long)s->top_k);
  if (!(s->repetition_penalty > 0))
    HP_FAIL(HP_ERR_ARG, "repetition_penalty %g: expected above 0", s->repetition_penalty);
  return HP_OK;
}

/* Tokens that occurred get less likely; each once, however often it occurred. */
static hp_status penalize(const sampling *s, float *logits, int64_t vocab, const int32_t *tokens,
                          int64_t n) {
  if (s->repetition_penalty == 1) return HP_OK;
  bool *seen = mem_calloc((size_t)vocab, 1);
  HP_TRY_MEM(seen);
  for (int64_t i = 0; i < n; i++) {
    int32_t t = tokens[i];
    if (t < 0 || t >= vocab || seen[t]) continue;
    seen[t] = true;
    float f = (float)s->repetition_penalty;
    logits[t] = logits[t] < 0 ? logits[t] * f : logits[t] / f;
  }
  mem_free(seen);
  return HP_OK;
}

typedef struct {
  float logit;
  int32_t id;
} candidate;

static int by_logit(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
  return x->id < y->id ? -1 : x->id > y->id;
}

/* Candidates left by top-k and top-p, of n sorted ones; p becomes their probabilities. */
static int64_t cut(const sampling *s, const candidate *c, int64_t n, double *p) {
  int64_t keep = s->top_k && s->top_k < n ? s->top_k : n;
  /* top-k keeps all that tie with the last one, as a comparison with its value does */
  while (keep < n && c[keep].logit == c[keep - 1].logit) keep++;
  double sum = 0, run = 0;
  for (int64_t i = 0; i < keep; i++) {
    p[i] = exp(((double)c[i].logit - (double)c[0].logit) / s->temperature);
    sum += p[i];
  }
  for (int64_t i = 0; i < keep; i++) p[i] /= sum;
  if (s->top_p >= 1) return keep;
  for (int64_t i = 0; i < keep; i++) {
    if (i > 0 && run >= s->top_p) return i;
    run += p[i];
  }
  return keep;
}

static int32_t draw(const sampling *s, const candidate *c, const double *p, int64_t keep,
                    int64_t n) {
  double sum = 0, run = 0;
  for (int64_t i = 0; i < keep; i++) sum += p[i];
  double u = (double)philox_uniform(s->seed, 1, (uint64_t)n) * sum;
  for (int64_t i = 0; i < keep; i++) {
    run += p[i];
    if (u < run) return c[i].id;
  }
  return c[keep - 1].id;
}

hp_status sampling_next(const sampling *s, float *logits, int64_t vocab, const int32_t *tokens,
                        int64_t n, int32_t *next) {
  for (int64_t i = 0; i < vocab; i++)
    if (isnan(logits[i]))
      HP_FAIL(HP_ERR_NUMERIC, "the logit of token %lld is not a number after %lld tokens",
              (long long)i, (long long)n);
  HP_TRY(penalize(s, logits, vocab, tokens, n));
  if (s->temperature == 0) {
    int32_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
      if (logits[i] > logits[best]) best = (int32_t)i;
    *next = best;
    return HP_OK;
  }
  candidate *c = mem_calloc((size_t)vocab, sizeof *c);
  double *p = mem_calloc((size_t)vocab, sizeof *p);
  hp_status st = c && p ? HP_OK : HP_ERR_OOM;
  if (!st) {
    for (int64_t i = 0; i < vocab; i++) c[i] = (candidate){logits[i], (int32_t)i};
    qsort(c, (size_t)vocab, sizeof *c, by_logit);
    int64_t keep = cut(s, c, vocab, p);
    *next = draw(s, c, p, keep, n);
  }
  mem_free(c);
  mem_free(p);
  return st;
}
