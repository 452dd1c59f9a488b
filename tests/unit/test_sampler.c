#include "test.h"

#include "base/mt19937.h"
#include "train/sampler.h"

static sampler make(int64_t n, int64_t batch, int64_t accumulation, double epochs, int64_t max) {
  sampler_spec spec = {n, n, batch, accumulation, epochs, max, 42, true};
  sampler s;
  CHECK_OK(sampler_create(&spec, &s));
  return s;
}

TEST(mt19937_gives_the_published_sequence) {
  mt19937 m;
  mt19937_seed(&m, 5489);
  uint32_t x = 0;
  for (int i = 0; i < 10000; i++) x = mt19937_u32(&m);
  CHECK_EQ(x, 4123659995u); /* the C++ standard's check value of mt19937 */
}

/* Expected: torch.randperm(n, generator=torch.Generator().manual_seed(seed)). */
TEST(the_order_of_an_epoch_is_torch_randperm) {
  static const struct {
    int n;
    uint64_t seed;
    int64_t want[40];
  } row[] = {
      {1, 0, {0}},
      {2, 1, {1, 0}},
      {10, 42, {2, 6, 1, 8, 4, 5, 0, 9, 3, 7}},
      {40, 43, {28, 34, 23, 35, 17, 15, 1,  19, 25, 20, 11, 18, 22, 38, 4,  14, 27, 21, 0,  31,
                39, 5,  9,  3,  26, 37, 24, 2,  29, 16, 32, 33, 8,  36, 13, 6,  12, 10, 30, 7}},
      {17, 4294967295u, {2, 3, 13, 6, 4, 9, 7, 11, 14, 5, 0, 12, 8, 16, 1, 15, 10}},
      {17, 4294967296u, {7, 16, 10, 5, 1, 8, 2, 6, 9, 12, 3, 13, 11, 4, 15, 14, 0}},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    int64_t order[40];
    for (int64_t epoch = 0; epoch < 2; epoch++) { /* epoch e of seed s is epoch 0 of seed s + e */
      if (row[i].seed < (uint64_t)epoch) continue;
      sampler s = make(row[i].n, 1, 1, 1, 0);
      s.spec.seed = row[i].seed - (uint64_t)epoch;
      sampler_order(&s, epoch, order);
      for (int k = 0; k < row[i].n; k++) CHECK_EQ(order[k], row[i].want[k]);
    }
    sampler s = make(row[i].n, 1, 1, 1, 0);
    s.spec.shuffle = false;
    sampler_order(&s, 3, order);
    for (int k = 0; k < row[i].n; k++) CHECK_EQ(order[k], k);
  }
}

TEST(a_long_order_is_torch_randperm_too) {
  enum { N = 100000 };
  static int64_t order[N];
  sampler s = make(N, 1, 1, 1, 0);
  s.spec.seed = 7;
  sampler_order(&s, 0, order);
  static const int64_t first[] = {41615, 23657, 92717, 16389, 28607};
  for (int i = 0; i < 5; i++) CHECK_EQ(order[i], first[i]);
  int64_t sum = 0;
  for (int i = 0; i < N; i++) sum += order[i] * i;
  CHECK_EQ(sum, 250090304507815);
}

/* The recorded runs: sft-llama3 has 90 samples, 2 to a batch, 2 batches to a step, 2 epochs. */
TEST(steps_and_epoch_numbers_are_those_of_the_recorded_runs) {
  sampler s = make(90, 2, 2, 2.0, 0);
  CHECK_EQ(s.steps, 46);
  CHECK_EQ(s.steps_per_epoch, 23);
  CHECK_EQ(s.epochs, 2);
  CHECK(sampler_find(&s, 0).epoch_after == 0.044444444444444446);
  CHECK(sampler_find(&s, 44).epoch_after == 1.9777777777777779);
  CHECK(sampler_find(&s, 45).epoch_after == 2.0);
  CHECK_EQ(sampler_find(&s, 22).micros, 1);
  CHECK_EQ(sampler_find(&s, 22).micro, 44);
  CHECK_EQ(sampler_find(&s, 23).epoch, 1);
  CHECK_EQ(sampler_find(&s, 23).micro, 0);

  s = make(235, 4, 1, 3.0, 50); /* pt */
  CHECK_EQ(s.steps, 50);
  CHECK_EQ(s.steps_per_epoch, 59);
  CHECK_EQ(s.epochs, 1);
  CHECK_EQ(s.train_samples, 200);
  CHECK(sampler_find(&s, 0).epoch_after == 0.01694915254237288);
  CHECK(sampler_find(&s, 49).epoch_after == 0.847457627118644);

  s = make(40, 3, 1, 2.0, 0); /* sft-qwen-shuffled */
  CHECK_EQ(s.steps, 28);
  CHECK_EQ(s.train_samples, 80);
  int64_t first;
  CHECK_EQ(sampler_micro(&s, 13, &first), 1);
  CHECK_EQ(first, 39);
  CHECK_EQ(sampler_micro(&s, 0, &first), 3);
}

TEST(fractional_epochs_and_dropped_batches_count_as_in_transformers) {
  sampler s = make(10, 3, 2, 1.5, 0); /* 4 micro-batches, 2 steps an epoch */
  CHECK_EQ(s.steps, 3);
  CHECK_EQ(s.epochs, 2);
  CHECK_EQ(s.train_samples, 15);
  CHECK(sampler_find(&s, 2).epoch_after == 1.5);
  s = make(7, 1, 100, 1, 0); /* more accumulation than there is data: one short step */
  CHECK_EQ(s.steps, 1);
  CHECK_EQ(sampler_find(&s, 0).micros, 7);

  int64_t dealt;
  CHECK_OK(sampler_deal(10, 3, SAMPLER_DROP, &dealt));
  CHECK_EQ(dealt, 9);
  sampler_spec spec = {10, dealt, 3, 2, 1, 0, 42, true};
  CHECK_OK(sampler_create(&spec, &s));
  CHECK_EQ(s.micro_per_epoch, 3);
  CHECK_EQ(s.steps, 2);
  CHECK_FAILS(sampler_deal(10, 11, SAMPLER_DROP, &dealt), "dataloader_drop_last");
  CHECK_FAILS(sampler_deal(0, 1, SAMPLER_SHORT, &dealt), "at least 1");
  CHECK_FAILS(sampler_deal(10, INT64_MAX, SAMPLER_FILL, &dealt), "at least 1");
  spec = (sampler_spec){0, 1, 1, 1, 1, 0, 42, true};
  CHECK_FAILS(sampler_create(&spec, &s), "at least 1");
  spec = (sampler_spec){10, 10, 1, 1, 1e300, 0, 42, true};
  CHECK_FAILS(sampler_create(&spec, &s), "out of range");
  spec = (sampler_spec){10, 10, INT64_MAX, INT64_MAX, 1, INT64_MAX, 42, true};
  CHECK_FAILS(sampler_create(&spec, &s), "out of range");
}

/* What accelerate's BatchSamplerShard(even_batches=True) deals to all processes together. */
TEST(batches_of_several_replicas_are_filled_up_from_the_epochs_start) {
  static const struct {
    int64_t samples, unit, dealt;
  } row[] = {{235, 8, 240}, {16, 8, 16}, {17, 8, 24}, {3, 8, 8}, {1, 8, 8}, {8, 8, 8}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    int64_t dealt;
    CHECK_OK(sampler_deal(row[i].samples, row[i].unit, SAMPLER_FILL, &dealt));
    CHECK_EQ(dealt, row[i].dealt);
    CHECK_OK(sampler_deal(row[i].samples, row[i].unit, SAMPLER_SHORT, &dealt));
    CHECK_EQ(dealt, row[i].samples);
  }
  sampler_spec spec = {235, 240, 8, 3, 1, 0, 42, true};
  sampler s;
  CHECK_OK(sampler_create(&spec, &s));
  CHECK_EQ(s.micro_per_epoch, 30);
  CHECK_EQ(s.steps, 10);
  int64_t first;
  CHECK_EQ(sampler_micro(&s, 29, &first), 8);
  CHECK_EQ(first, 232);
}

/* Another micro-batch with the same samples in a step, as after a move to another mesh. */
TEST(the_samples_of_a_step_depend_on_the_global_batch_alone) {
  for (int64_t dealt = 20; dealt <= 24; dealt += 4)
    for (int64_t n = 1; n <= 8; n *= 2) {
      sampler_spec one = {20, dealt, 8, 1, 3, 0, 42, true},
                   other = {20, dealt, n, 8 / n, 3, 0, 42, true};
      sampler a, b;
      CHECK_OK(sampler_create(&one, &a));
      CHECK_OK(sampler_create(&other, &b));
      CHECK_EQ(a.steps, b.steps);
      for (int64_t step = 0; step < a.steps; step++) {
        sampler_step x = sampler_find(&a, step), y = sampler_find(&b, step);
        int64_t from, to, end;
        int64_t all = sampler_micro(&a, x.micro, &from);
        sampler_micro(&b, y.micro, &to);
        CHECK_EQ(from, to);
        int64_t last = sampler_micro(&b, y.micro + y.micros - 1, &end);
        CHECK_EQ(from + all, end + last);
        CHECK_EQ(x.epoch, y.epoch);
      }
    }
}
