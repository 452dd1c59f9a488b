/* Choosing the next token: what the repetition penalty, top-k and top-p leave, and how often it is
 * drawn. */
#include "serve/sampling.h"
#include "test.h"

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
