#include "test.h"

#include "train/length_order.h"

#include <string.h>

enum { MOST = 5000 };

/* Sample i has (7919 i + 13) mod 23 + 1 tokens. */
static void make_set(int64_t n, sample_set *out) {
  static int64_t start[MOST + 1];
  for (int64_t i = 0; i < n; i++) start[i + 1] = start[i] + (i * 7919 + 13) % 23 + 1;
  *out = (sample_set){.start = start, .samples = n};
}

/* Pass `pass` over n samples. */
static const int64_t *draw(int64_t n, int64_t batch, uint32_t seed, int pass) {
  static int64_t order[MOST];
  static length_item room[MOST];
  sample_set s;
  mt19937 random;
  make_set(n, &s);
  mt19937_seed(&random, seed);
  for (int i = 0; i <= pass; i++) length_order_draw(&random, &s, batch, room, order);
  return order;
}

/* Expected: transformers 5.6's get_length_grouped_indices, with a torch.Generator that draws the
 * data loader's seed before each pass, as DataLoader does. */
TEST(a_pass_has_the_order_of_transformers) {
  static const struct {
    int64_t n, batch;
    uint32_t seed;
    int64_t want[2][23];
  } row[] = {
      {1, 4, 42, {{0}, {0}}},
      {2, 1, 1, {{1, 0}, {1, 0}}},
      {7, 2, 42, {{1, 5, 3, 6, 4, 0, 2}, {1, 5, 0, 2, 4, 3, 6}}},
      {20,
       2,
       7,
       {{11, 9, 2, 15, 1, 16, 6, 19, 17, 7, 18, 8, 14, 4, 10, 13, 0, 3, 12, 5},
        {11, 14, 4, 18, 0, 16, 2, 5, 13, 19, 12, 8, 7, 6, 9, 15, 1, 17, 10, 3}}},
      {23,
       3,
       42,
       {{21, 0, 15, 4, 19, 18, 20, 16, 6, 1, 17, 8, 14, 7, 10, 3, 9, 22, 11, 13, 5, 12, 2},
        {21, 22, 18, 1, 17, 12, 7, 16, 6, 10, 19, 9, 11, 13, 8, 4, 20, 15, 0, 3, 5, 14, 2}}},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    for (int pass = 0; pass < 2; pass++) {
      const int64_t *order = draw(row[i].n, row[i].batch, row[i].seed, pass);
      for (int64_t k = 0; k < row[i].n; k++) CHECK_EQ(order[k], row[i].want[pass][k]);
    }
}

/* With many mega-batches of 50 batches, and many samples of one length. */
TEST(a_long_pass_has_the_order_of_transformers) {
  static const struct {
    int64_t n, batch, first[6], sum;
  } row[] = {{1000, 4, {895, 527, 44, 159, 274, 366}, 248931770},
             {5000, 8, {4000, 3793, 941, 711, 4575, 3839}, 31294830548}};
  for (int i = 0; i < 2; i++) {
    const int64_t *order = draw(row[i].n, row[i].batch, 42, 1);
    int64_t sum = 0;
    for (int k = 0; k < 6; k++) CHECK_EQ(order[k], row[i].first[k]);
    for (int64_t k = 0; k < row[i].n; k++) sum += order[k] * k;
    CHECK_EQ(sum, row[i].sum);
  }
}

/* A run of 3 epochs of 23 samples, 2 steps each, that evaluates after every step. */
TEST(the_order_of_a_pass_does_not_depend_on_those_that_were_asked_for) {
  sample_set s;
  sampler steps;
  train_config c = {.is = {.by_length = true, .batch = {.length_group = 12}},
                    .seed = 42,
                    .eval_strategy = WHEN_STEPS,
                    .eval_steps = 1,
                    .eval_on_start = true,
                    .per_device_eval_batch_size = 3};
  int64_t in_turn[10][23], again[23];
  length_order o;
  make_set(23, &s);
  CHECK_OK(sampler_create(&(sampler_spec){23, 23, 4, 3, 3, 0, 42, true}, &steps));
  CHECK_OK(length_order_create(&c, &steps, &s, &s, 1, &o));
  CHECK_EQ(length_order_evaluations(&o), 8); /* before, after each step, after the run */
  mt19937 random;
  mt19937_seed(&random, 42);
  /* what a run draws: before the first step, then an epoch and the evaluations of its steps */
  static const int batch[] = {3, 12, 3, 3, 12, 3, 3, 12, 3, 3};
  for (int i = 0; i < 10; i++) length_order_draw(&random, &s, batch[i], o.room, in_turn[i]);
  static const int epoch_at[] = {1, 4, 7}, eval_at[] = {0, 2, 3, 5, 6, 8, 9};
  for (int e = 2; e >= 0; e--) {
    length_order_epoch(&o, &s, e, again);
    CHECK(!memcmp(again, in_turn[epoch_at[e]], sizeof again));
  }
  for (int i = 6; i >= 0; i--) {
    length_order_evaluation(&o, i);
    CHECK(!memcmp(o.eval_order[0], in_turn[eval_at[i]], sizeof again));
  }
  length_order_free(&o);
}
