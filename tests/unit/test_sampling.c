/* Choosing the next token: what the repetition penalty, top-k and top-p leave, and how often it is
 * drawn. */
#include "base/philox.h"
#include "serve/sampling.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { VOCAB = 4, DRAWS = 4000 };

/* The token chosen greedily of logits after these tokens, with this repetition penalty. */
static int32_t penalized(double penalty, const float logits[VOCAB], const int32_t *tokens,
                         int64_t n) {
  float x[VOCAB];
  int32_t next = -1;
  memcpy(x, logits, sizeof x);
  sampling s = {.top_p = 1, .repetition_penalty = penalty};
  CHECK_OK(sampling_next(&s, x, VOCAB, tokens, n, &next));
  return next;
}

/* A logit below 0 is multiplied, one above 0 divided: both get less likely. */
TEST(a_repeated_token_gets_less_likely_whatever_the_sign_of_its_logit) {
  static const struct {
    float logits[VOCAB];
    double penalty;
    int32_t next;
  } cases[] = {{{-2, -3, -9, -9}, 1, 0},  {{-2, -3, -9, -9}, 1.4, 0}, {{-2, -3, -9, -9}, 1.6, 1},
               {{3, 2, -9, -9}, 1.4, 0},  {{3, 2, -9, -9}, 1.6, 1},   {{-2, -3, -9, -9}, 0.5, 0},
               {{-4, -3, -9, -9}, 0.7, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    CHECK_EQ(penalized(cases[i].penalty, cases[i].logits, (int32_t[]){0}, 1), cases[i].next);
}

TEST(the_penalty_counts_a_token_once_and_only_tokens_that_occurred) {
  static const float logits[VOCAB] = {4, 1.5f, -9, -9};
  CHECK_EQ(penalized(2, logits, (int32_t[]){0, 0, 0}, 3), 0); /* 2, not 0.5 */
  CHECK_EQ(penalized(4, logits, (int32_t[]){0, 0, 0}, 3), 1);
  CHECK_EQ(penalized(4, logits, (int32_t[]){1, 2, 3}, 3), 0);
  CHECK_EQ(penalized(4, logits, (int32_t[]){-1, VOCAB, 1 << 30}, 3), 0);
}

/* Shares of the tokens among many draws. */
static void draw(const sampling *s, const float logits[VOCAB], double share[VOCAB]) {
  static const int32_t tokens[DRAWS];
  float x[VOCAB];
  int32_t next;
  memset(share, 0, VOCAB * sizeof *share);
  for (int64_t n = 0; n < DRAWS; n++) {
    memcpy(x, logits, sizeof x);
    CHECK_OK(sampling_next(s, x, VOCAB, tokens, n, &next));
    CHECK(next >= 0 && next < VOCAB);
    share[next] += 1.0 / DRAWS;
  }
}

static void shares_are(const sampling *s, const float logits[VOCAB], const double want[VOCAB]) {
  double share[VOCAB];
  draw(s, logits, share);
  for (int i = 0; i < VOCAB; i++) {
    CHECK_NEAR(share[i], want[i], 0.03);
    CHECK((share[i] > 0) == (want[i] > 0));
  }
}

#define LN2 0.693147181f

/* Transformers compares with the k-th largest value, so all that equal it stay. */
TEST(top_k_keeps_all_that_tie_with_the_last) {
  static const float ties[VOCAB] = {0, LN2, 0, -LN2};
  sampling s = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 7};
  shares_are(&s, ties, (double[]){2 / 9.0, 4 / 9.0, 2 / 9.0, 1 / 9.0});
  s.top_k = 1;
  shares_are(&s, ties, (double[]){0, 1, 0, 0});
  s.top_k = 2;
  shares_are(&s, ties, (double[]){0.25, 0.5, 0.25, 0});
  s.top_k = 3;
  shares_are(&s, ties, (double[]){0.25, 0.5, 0.25, 0});
  s.top_k = VOCAB + 1;
  shares_are(&s, ties, (double[]){2 / 9.0, 4 / 9.0, 2 / 9.0, 1 / 9.0});
}

/* The fewest tokens that hold p together, of what temperature and top-k have left. */
TEST(top_p_keeps_the_fewest_tokens_that_hold_so_much) {
  static const float logits[VOCAB] = {2 * LN2, LN2, 0, 0}; /* 4/8, 2/8, 1/8, 1/8 */
  sampling s = {.temperature = 1, .top_p = 0.49, .repetition_penalty = 1, .seed = 7};
  shares_are(&s, logits, (double[]){1, 0, 0, 0});
  s.top_p = 0.51;
  shares_are(&s, logits, (double[]){2 / 3.0, 1 / 3.0, 0, 0});
  s.temperature = 0.5; /* 16/22, 4/22, 1/22, 1/22 */
  shares_are(&s, logits, (double[]){1, 0, 0, 0});
  s.top_p = 0.9;
  shares_are(&s, logits, (double[]){0.8, 0.2, 0, 0});
  s.temperature = 1;
  s.top_k = 2; /* 2/3, 1/3 */
  s.top_p = 0.6;
  shares_are(&s, logits, (double[]){1, 0, 0, 0});
}

/* --- against a sort of the whole vocabulary ----------------------------------------------------
 */

enum { LARGE = 300 };

typedef struct {
  float logit;
  int32_t id;
} token;

static int by_logit(const void *a, const void *b) {
  const token *x = a, *y = b;
  if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
  return (x->id > y->id) - (x->id < y->id);
}

/* The token that a draw gives, by the definition. */
static int32_t drawn_of_all(const sampling *s, const float *logits, int vocab, int64_t n) {
  token c[LARGE];
  double p[LARGE], sum = 0, kept = 0, run = 0;
  int keep = vocab;
  for (int i = 0; i < vocab; i++) c[i] = (token){logits[i], i};
  qsort(c, (size_t)vocab, sizeof *c, by_logit);
  if (s->top_k && s->top_k < vocab) keep = (int)s->top_k;
  while (keep < vocab && c[keep].logit == c[keep - 1].logit) keep++;
  for (int i = 0; i < keep; i++) {
    p[i] = exp(((double)c[i].logit - (double)c[0].logit) / s->temperature);
    sum += p[i];
  }
  for (int i = 0, all = keep; i < all; i++) {
    p[i] /= sum;
    if (i > 0 && kept >= s->top_p && keep == all) keep = i;
    if (i < keep) kept += p[i];
  }
  double share = (double)philox_uniform(s->seed, 1, (uint64_t)n) * kept;
  for (int i = 0; i < keep; i++)
    if (share < (run += p[i])) return c[i].id;
  return c[keep - 1].id;
}

TEST(only_a_part_is_sorted_and_the_draw_is_that_of_all) {
  static const double top_p[] = {1, 0.99, 0.9, 0.5, 0.01}, temperature[] = {0.1, 0.7, 1, 3};
  for (int64_t n = 0; n < 20000; n++) {
    float logits[LARGE], x[LARGE];
    int vocab = 1 + (int)(n % (n % 10 ? 40 : LARGE)), ties = n % 3 == 0;
    for (int i = 0; i < vocab; i++) {
      float u = philox_uniform(3, (uint64_t)n, (uint64_t)i);
      logits[i] = ties ? (float)(int)(u * 5) : u * 20 - 10;
    }
    sampling s = {.temperature = temperature[n / 5 % 4],
                  .top_p = top_p[n % 5],
                  .top_k = n % 7 < 3 ? 0 : n % 50,
                  .repetition_penalty = 1,
                  .seed = 11};
    int32_t next = -1;
    memcpy(x, logits, sizeof x);
    CHECK_OK(sampling_next(&s, x, vocab, NULL, n, &next));
    CHECK_EQ(next, drawn_of_all(&s, logits, vocab, n));
  }
}
