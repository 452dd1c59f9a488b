#include "test.h"

#include "base/mem.h"
#include "pipe_case.h"
#include "sched/pipe_ahead.h"
#include "sched/pipe_generate.h"
#include "sched/pipe_simulate.h"

#include <string.h>

enum { STAGES_MAX_ = 32 };

/* All stages may run ahead but the last, and beforehand nothing takes time. */
static void find_ahead(const pipe_rows *p, const pipe_costs *c, pipe_ahead *out) {
  bool can[STAGES_MAX_];
  double guess[STAGES_MAX_] = {0};
  for (uint32_t s = 0; s < p->stages; s++) can[s] = s + 1 < p->stages;
  CHECK_OK(pipe_ahead_find(p, "rows", c, &(pipe_ahead_request){can, guess}, out));
}

static void generate(const char *name, uint32_t devices, uint32_t micros, pipe_rows *out) {
  pipe_costs unit = {0};
  pipe_request q = {.devices = devices, .microbatches = micros, .costs = &unit};
  CHECK_OK(pipe_schedule_stages(name, devices, &q.stages));
  CHECK_OK(pipe_generate(name, &q, out));
}

/* The parallelogram of the paper: each device begins the next step when it is done with this one,
 * and the time of a step is the span of a device's rows. */
TEST(zero_bubble_schedules_have_no_bubble_with_rows_of_the_next_step) {
  static const char *const names[] = {"zb-2p", "zbv"};
  for (int k = 0; k < 2; k++) {
    pipe_rows p;
    pipe_ahead a;
    pipe_times t;
    pipe_costs unit = {0};
    uint32_t stages;
    generate(names[k], 4, 12, &p);
    CHECK_OK(pipe_schedule_stages(names[k], 4, &stages));
    const double busy = 3.0 * 12 * stages / 4;
    CHECK_OK(pipe_simulate(&p, "rows", &unit, PIPE_ONE_STREAM, &t));
    find_ahead(&p, &unit, &a);
    CHECK_NEAR(a.alone_s, t.step_s, 1e-9);
    CHECK_NEAR(a.step_s, busy, 1e-9);
    CHECK(a.rows[0] > 0 && a.rows[3] <= a.rows[0]);
    pipe_times_free(&t);
    pipe_ahead_free(&a);
    pipe_rows_free(&p);
  }
}

TEST(rows_ahead_are_leading_forwards_whose_inputs_are_ahead_too) {
  pipe_rows p;
  pipe_ahead a;
  pipe_costs unit = {0};
  generate("zb-2p", 4, 8, &p);
  find_ahead(&p, &unit, &a);
  static const uint32_t rows[] = {3, 2, 1, 0};
  for (int d = 0; d < 4; d++) CHECK_EQ(a.rows[d], rows[d]);
  CHECK_EQ(a.micros, 3);
  for (uint32_t i = 0; i < pipe_rows_count(&p); i++) {
    if (!pipe_ahead_has(&p, &a, i)) continue;
    CHECK_EQ(p.row[i].actions, PIPE_F);
    CHECK_NEAR(a.next_end_s[i] - a.next_start_s[i], 1, 1e-9);
    CHECK_NEAR(a.next_start_s[i] - a.start_s[i], a.step_s, 1e-9);
  }
  pipe_ahead_free(&a);
  pipe_rows_free(&p);
}

/* All devices of 1f1b wait for the first one, which is done last. */
TEST(nothing_is_run_ahead_where_it_gains_nothing) {
  pipe_rows p;
  pipe_ahead a;
  pipe_costs unit = {0};
  generate("1f1b", 4, 8, &p);
  find_ahead(&p, &unit, &a);
  for (int d = 0; d < 4; d++) CHECK_EQ(a.rows[d], 0);
  CHECK_EQ(a.micros, 0);
  CHECK_NEAR(a.step_s, a.alone_s, 0);
  pipe_ahead_free(&a);
  pipe_rows_free(&p);
}

TEST(a_stage_that_waits_for_the_update_keeps_those_behind_it) {
  pipe_rows p;
  pipe_ahead a;
  pipe_costs unit = {0};
  bool can[4] = {true, false, true, false};
  double guess[4] = {0};
  generate("zb-2p", 4, 8, &p);
  CHECK_OK(pipe_ahead_find(&p, "rows", &unit, &(pipe_ahead_request){can, guess}, &a));
  for (int d = 1; d < 4; d++) CHECK_EQ(a.rows[d], 0);
  pipe_ahead_free(&a);
  can[0] = false;
  CHECK_OK(pipe_ahead_find(&p, "rows", &unit, &(pipe_ahead_request){can, guess}, &a));
  for (int d = 0; d < 4; d++) CHECK_EQ(a.rows[d], 0);
  pipe_ahead_free(&a);
  pipe_rows_free(&p);
}

/* A second update that takes longer than the bubble. */
TEST(an_update_beforehand_that_takes_too_long_is_not_worth_it) {
  pipe_rows p;
  pipe_ahead a;
  pipe_costs unit = {0};
  bool can[4] = {true, true, true, false};
  double guess[4] = {4, 4, 4, 4};
  generate("zb-2p", 4, 8, &p);
  CHECK_OK(pipe_ahead_find(&p, "rows", &unit, &(pipe_ahead_request){can, guess}, &a));
  for (int d = 0; d < 4; d++) CHECK_EQ(a.rows[d], 0);
  pipe_ahead_free(&a);
  pipe_rows_free(&p);
}

/* Stages of a device are updated one after the other, params of rows ahead before the norm. */
TEST(a_step_has_the_time_of_its_updates) {
  double update[8], guess[8] = {0};
  bool can[8] = {true, true, true, true};
  pipe_rows p;
  pipe_ahead a;
  pipe_times t;
  for (int s = 0; s < 8; s++) update[s] = 0.25 * (s + 1);
  pipe_costs unit = {0}, c = {.update_s = update};
  generate("zbv", 4, 12, &p);
  CHECK_OK(pipe_simulate(&p, "rows", &unit, PIPE_ONE_STREAM, &t));
  find_ahead(&p, &c, &a);
  CHECK_NEAR(a.alone_s, t.step_s + 2.25, 1e-9); /* 0.25 k + 0.25 (9 - k) */
  pipe_times_free(&t);
  pipe_ahead_free(&a);
  pipe_rows_free(&p);
  generate("zb-2p", 4, 8, &p);
  for (int s = 0; s < 4; s++) guess[s] = 0.25;
  CHECK_OK(pipe_ahead_find(&p, "rows", &unit, &(pipe_ahead_request){can, guess}, &a));
  CHECK_NEAR(a.step_s, 3 * 8 + 0.25, 1e-9);
  CHECK_NEAR(a.alone_s, 3 * 8 + 3, 1e-9);
  pipe_ahead_free(&a);
  pipe_rows_free(&p);
}

/* The step of zb-2p gets shorter by 3 of 3 m + 3. */
TEST(a_gain_of_less_than_one_percent_is_not_taken) {
  static const uint32_t micros[] = {90, 110};
  pipe_costs unit = {0};
  for (int k = 0; k < 2; k++) {
    pipe_rows p;
    pipe_ahead a;
    generate("zb-2p", 4, micros[k], &p);
    find_ahead(&p, &unit, &a);
    CHECK_EQ(a.rows[0], k ? 0 : 3);
    CHECK_EQ(a.micros, k ? 0 : 3);
    pipe_ahead_free(&a);
    pipe_rows_free(&p);
  }
}

/* Device 0 waits long enough for both of its forwards. */
TEST(a_forward_that_overlaps_with_a_backward_is_not_run_ahead) {
  static const char text[] = "placement 0 1\n0 F 0\n0 F 1 + 0 BW 0\n0 BW 1\n"
                             "1 F 0\n1 B 0\n1 F 1\n1 B 1\n1 W 0\n1 W 1\n";
  double weights[] = {1, 10};
  pipe_costs c = {.weights_s = weights};
  pipe_rows p;
  pipe_ahead a;
  CHECK_OK(pipe_rows_parse(text, "rows", (pipe_shape){2, 2}, &p));
  find_ahead(&p, &c, &a);
  CHECK_EQ(a.rows[0], 1);
  CHECK_EQ(a.rows[1], 0);
  pipe_ahead_free(&a);
  pipe_rows_free(&p);
}

/* Whatever the schedule and the costs: it is never slower, and rows ahead are closed. */
TEST(rows_ahead_of_random_schedules_run_and_never_cost_time) {
  uint64_t seed = 7;
  for (int k = 0; k < pipe_cases(200); k++) {
    pipe_rows p;
    pipe_ahead a;
    double f[STAGES_MAX_], b[STAGES_MAX_], w[STAGES_MAX_], u[STAGES_MAX_];
    random_pipe_in_order(&seed, &p);
    for (uint32_t s = 0; s < p.stages; s++) {
      f[s] = 0.5 + pipe_random(&seed, 8) / 4.0;
      b[s] = 0.5 + pipe_random(&seed, 8) / 4.0;
      w[s] = 0.5 + pipe_random(&seed, 8) / 4.0;
      u[s] = pipe_random(&seed, 4) / 8.0;
    }
    pipe_costs c = {.forward_s = f, .backward_s = b, .weights_s = w, .update_s = u};
    find_ahead(&p, &c, &a);
    CHECK(a.step_s <= a.alone_s);
    for (uint32_t i = 0; i < pipe_rows_count(&p); i++)
      if (pipe_ahead_has(&p, &a, i)) CHECK(p.row[i].microbatch < a.micros);
    pipe_ahead_free(&a);
    pipe_rows_free(&p);
  }
}

TEST(schedules_that_split_the_backward_are_known_by_their_names) {
  static const char *const split[] = {"zb-h1", "zb-2p", "zbv", "v-half", "v-min", "rows.txt"};
  static const char *const whole[] = {"gpipe", "1f1b", "interleaved", "interleaved:4",
                                      "dualpipe-v"};
  for (size_t i = 0; i < sizeof split / sizeof *split; i++) CHECK(pipe_schedule_splits(split[i]));
  for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) CHECK(!pipe_schedule_splits(whole[i]));
}
