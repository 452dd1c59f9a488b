#include "test.h"

#include "train/schedule.h"

#include <math.h>

typedef struct {
  const char *name;
  double lr;
  int warmup, total;
  schedule_arg arg[8];
  size_t args;
  struct {
    int step;
    double lr;
  } want[9];
  int wants;
} schedule_case;
typedef struct {
  const char *name;
  schedule_arg arg[10];
  size_t args;
  double want[60];
} metric_case;
#include "schedule_cases.h"

TEST(every_schedule_gives_the_rates_of_transformers_to_the_last_digit) {
  bool seen[SCHEDULE_COUNT] = {false};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const schedule_case *c = &cases[i];
    schedule_kind kind = schedule_find(c->name);
    CHECK(kind != SCHEDULE_COUNT);
    seen[kind] = true;
    schedule s;
    CHECK_OK(schedule_create(kind, c->lr, c->warmup, c->total, c->arg, c->args, &s));
    for (int k = 0; k < c->wants; k++) {
      double got = schedule_lr(&s, c->want[k].step);
      if (got != c->want[k].lr)
        test_fail(__FILE__, __LINE__, "case %zu, %s of %d with %d: step %d is %.17g, want %.17g", i,
                  c->name, c->total, c->warmup, c->want[k].step, got, c->want[k].lr);
    }
    schedule_free(&s);
  }
  for (int k = 0; k < SCHEDULE_COUNT; k++)
    CHECK(seen[k] || schedule_follows_metric((schedule_kind)k));
}

TEST(schedules_that_follow_a_metric_do_so_also_through_a_checkpoint) {
  for (size_t i = 0; i < sizeof metric_cases / sizeof *metric_cases; i++) {
    const metric_case *c = &metric_cases[i];
    schedule s;
    CHECK_OK(schedule_create(schedule_find(c->name), 1e-3, 0, 100, c->arg, c->args, &s));
    CHECK(schedule_lr(&s, 7) == 1e-3);
    for (int k = 0; k < 60; k++) {
      CHECK_OK(schedule_observe(&s, metrics[k]));
      if (schedule_lr(&s, k) != c->want[k])
        test_fail(__FILE__, __LINE__, "case %zu, %s: after metric %d the rate is %.17g, want %.17g",
                  i, c->name, k, schedule_lr(&s, k), c->want[k]);
      if (k % 7 != 3) continue;
      str state = {0};
      schedule_print_state(&s, &state);
      schedule_free(&s);
      CHECK_OK(schedule_create(schedule_find(c->name), 1e-3, 0, 100, c->arg, c->args, &s));
      CHECK_OK(schedule_parse_state(&s, state.at));
      str_free(&state);
    }
    schedule_free(&s);
  }
}

TEST(wrong_schedule_arguments_are_named) {
  schedule s;
#define TRY(kind, ...)                                                                             \
  schedule_create(SCHEDULE_##kind, 1e-3, 0, 10, (schedule_arg[]){__VA_ARGS__}, 1, &s)
  CHECK_FAILS(TRY(COSINE, {"num_cycle", NULL, 1}), "did you mean \"num_cycles\"");
  CHECK_FAILS(TRY(LINEAR, {"num_cycles", NULL, 1}), "it has none");
  CHECK_FAILS(TRY(COSINE, {"num_cycles", "many", 0}), "expected a number");
  CHECK_FAILS(TRY(COSINE, {"num_cycles", NULL, NAN}), "num_cycles is nan");
  CHECK_FAILS(TRY(POLYNOMIAL, {"lr_end", NULL, 1e-3}), "expected less than learning_rate");
  CHECK_FAILS(TRY(COSINE_WITH_MIN_LR, {"num_cycles", NULL, 1}), "one of min_lr and min_lr_rate");
  CHECK_FAILS(TRY(WARMUP_STABLE_DECAY, {"decay_type", "1-cos", 0}), "linear, cosine or 1-sqrt");
  CHECK_FAILS(TRY(REDUCE_LR_ON_PLATEAU, {"factor", NULL, 1}), "from 0 to below 1");
  CHECK_FAILS(TRY(REDUCE_LR_ON_PLATEAU, {"patience", NULL, 1.5}), "whole number");
  CHECK_FAILS(TRY(REDUCE_LR_ON_PLATEAU, {"mode", NULL, 1}), "expected min or max");
}

TEST(a_damaged_schedule_state_is_refused) {
  schedule s;
  CHECK_OK(schedule_create(SCHEDULE_GREEDY, 1e-3, 0, 10, (schedule_arg[]){{"window_size", NULL, 2}},
                           1, &s));
  static const char *const bad[] = {"",
                                    "linear",
                                    "greedy",
                                    "greedy ",
                                    "greedy 1 2 3 4",
                                    "greedy 1 2 3 4 5 6 7 8 2 1",
                                    "greedy 1 2 3 4 5 6 7 8 3 1 1 1",
                                    "greedy 1 2 3 4 5 6 7 8 -1",
                                    "greedy 1 2 3 4 5 6 7 8 1 1 x"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    CHECK_FAILS(schedule_parse_state(&s, bad[i]), "the state");
  CHECK_OK(schedule_parse_state(&s, "greedy 1 2 3 4 5 6 7 8 2 1 2"));
  schedule_free(&s);
  CHECK_OK(schedule_create(SCHEDULE_LINEAR, 1e-3, 0, 10, NULL, 0, &s));
  CHECK_OK(schedule_parse_state(&s, "linear"));
  CHECK_FAILS(schedule_parse_state(&s, "linear 1"), "another schedule");
}

TEST(warm_up_steps_round_as_in_transformers) {
  CHECK_EQ(schedule_warmup_steps(0.1, 50), 5);
  CHECK_EQ(schedule_warmup_steps(0.1, 51), 6);
  CHECK_EQ(schedule_warmup_steps(0.03, 100), 3);
  CHECK_EQ(schedule_warmup_steps(0, 100), 0);
  CHECK_EQ(schedule_warmup_steps(4, 28), 4);
  CHECK_EQ(schedule_warmup_steps(4.7, 28), 4);
  CHECK(schedule_warmup_steps(1e300, 28) > 28);
}
