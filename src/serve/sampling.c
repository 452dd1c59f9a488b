#include "serve/sampling.h"

#include "base/philox.h"

#include <math.h>

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

/* Candidates as a heap, the likeliest on top, and behind it those that were taken: only as many are
 * put in order as a draw looks at. */
typedef struct {
  candidate *at;
  int64_t left, n;
} candidates;

/* Larger logits first; of equal ones the smaller id. */
static bool is_before(const candidate *a, const candidate *b) {
  return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift_down(candidates *h, int64_t i) {
  candidate moved = h->at[i];
  for (int64_t child; (child = 2 * i + 1) < h->left; i = child) {
    if (child + 1 < h->left && is_before(&h->at[child + 1], &h->at[child])) child++;
    if (!is_before(&h->at[child], &moved)) break;
    h->at[i] = h->at[child];
  }
  h->at[i] = moved;
}

static void fill(candidates *h, const float *logits) {
  for (int64_t i = 0; i < h->n; i++) h->at[i] = (candidate){logits[i], (int32_t)i};
  h->left = h->n;
  for (int64_t i = h->n / 2; i-- > 0;) sift_down(h, i);
}

/* The i-th likeliest of those taken so far. */
static const candidate *taken(const candidates *h, int64_t i) { return &h->at[h->n - 1 - i]; }

/* Takes the likeliest that is left. */
static const candidate *take(candidates *h) {
  candidate best = h->at[0];
  h->at[0] = h->at[--h->left];
  sift_down(h, 0);
  h->at[h->left] = best;
  return &h->at[h->left];
}

/* In proportion to its probability; `best` is the largest logit. */
static double weight(const sampling *s, float logit, float best) {
  return exp(((double)logit - (double)best) / s->temperature);
}

/* Takes the top k, and all that tie with the last one, as a comparison with its value does; p[]
 * become their probabilities.  Returns how many they are. */
static int64_t take_top_k(const sampling *s, candidates *h, double *p) {
  float best = h->at[0].logit;
  int64_t keep = 0;
  double sum = 0;
  while (h->left && (keep < s->top_k || h->at[0].logit == taken(h, keep - 1)->logit)) {
    p[keep] = weight(s, take(h)->logit, best);
    sum += p[keep++];
  }
  for (int64_t i = 0; i < keep; i++) p[i] /= sum;
  return keep;
}

/* How many of n sum to top_p. */
static int64_t cut_top_p(const sampling *s, const double *p, int64_t n) {
  double run = 0;
  for (int64_t i = 0; i < n; i++) {
    if (i > 0 && run >= s->top_p) return i;
    run += p[i];
  }
  return n;
}

/* Without top-k: takes as many as sum to top_p, or, where that is off, to `share`. */
static int64_t take_top_p(const sampling *s, candidates *h, double share, double *p) {
  float best = h->at[0].logit;
  int64_t keep = 0;
  double sum = 0, run = 0;
  for (int64_t i = 0; i < h->n; i++) sum += weight(s, h->at[i].logit, best);
  while (h->left && (!keep || (s->top_p < 1 ? run < s->top_p : run <= share))) {
    p[keep] = weight(s, take(h)->logit, best) / sum;
    run += p[keep++];
  }
  return keep;
}

/* The first of `keep` whose probabilities sum to more than `share` of all that may be drawn. */
static int32_t draw(const candidates *h, const double *p, int64_t keep, double share) {
  double run = 0;
  for (int64_t i = 0; i < keep; i++) {
    run += p[i];
    if (share < run) return taken(h, i)->id;
  }
  return taken(h, keep - 1)->id;
}

static int32_t choose(const sampling *s, candidates *h, double *p, int64_t n) {
  double share = (double)philox_uniform(s->seed, 1, (uint64_t)n), sum = 0;
  bool top_k = s->top_k && s->top_k < h->n;
  int64_t keep = top_k ? take_top_k(s, h, p) : take_top_p(s, h, share, p);
  if (top_k && s->top_p < 1) keep = cut_top_p(s, p, keep);
  if (!top_k && s->top_p >= 1) return draw(h, p, keep, share);
  for (int64_t i = 0; i < keep; i++) sum += p[i];
  return draw(h, p, keep, share * sum);
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
  candidates h = {.at = mem_calloc((size_t)vocab, sizeof *h.at), .n = vocab};
  double *p = mem_calloc((size_t)vocab, sizeof *p);
  hp_status st = h.at && p ? HP_OK : HP_ERR_OOM;
  if (!st) {
    fill(&h, logits);
    *next = choose(s, &h, p, n);
  }
  mem_free(h.at);
  mem_free(p);
  return st;
}
