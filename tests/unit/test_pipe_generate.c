#include "test.h"

#include "pipe_case.h"
#include "sched/pipe_check.h"
#include "sched/pipe_generate.h"
#include "sched/pipe_streams.h"

#include <math.h>
#include <time.h>

static const pipe_costs unit = {0};

static uint32_t chunks_of(const char *name, uint32_t interleaved) {
  if (!strcmp(name, "interleaved")) return interleaved;
  return !strcmp(name, "zbv") || *name == 'v' || *name == 'd' ? 2 : 1;
}

static pipe_request request(const char *name, uint32_t devices, uint32_t microbatches) {
  return (pipe_request){devices * chunks_of(name, 2), devices, microbatches, &unit, {0}, 0, false};
}

/* Generates it, checks that it runs under the limits, and simulates it; pipe_times_free. */
static void run(const char *name, const pipe_request *q, pipe_times *t) {
  pipe_rows p;
  CHECK_OK(pipe_generate(name, q, &p));
  CHECK_EQ(p.stages, q->stages);
  CHECK_EQ(p.devices, q->devices);
  CHECK_EQ(p.microbatches, q->microbatches);
  CHECK_OK(pipe_check(&p, name, q->costs, q->limits));
  CHECK_OK(pipe_simulate(&p, name, q->costs, PIPE_FREE_QUEUES, t));
  pipe_rows_free(&p);
}

static uint32_t peak(const pipe_times *t, uint32_t devices) {
  uint32_t most = 0;
  for (uint32_t d = 0; d < devices; d++)
    if (t->device[d].peak_in_flight > most) most = t->device[d].peak_in_flight;
  return most;
}

/* --- published bubbles, at F = B = W = 1 s a stage -----------------------------------------------
 */

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* All devices have the same work: the idle time of a step, and of a step between others. */
static void idle(const char *name, uint32_t p, uint32_t m, double *step, double *steady,
                 uint32_t *in_flight) {
  pipe_times t;
  const pipe_request q = request(name, p, m);
  run(name, &q, &t);
  *step = t.step_s - t.device[0].busy_s;
  *steady = t.span_s - t.device[0].busy_s;
  *in_flight = peak(&t, p);
  CHECK_NEAR(t.bubble, *step / t.step_s, 1e-9);
  CHECK_NEAR(t.steady_bubble, *steady / t.span_s, 1e-9);
  pipe_times_free(&t);
}

static const uint32_t sizes[][2] = {{2, 4}, {3, 9}, {4, 16}, {5, 11}, {8, 32}, {9, 36}, {16, 64}};
enum { SIZES = sizeof sizes / sizeof *sizes };

TEST(gpipe_and_1f1b_have_their_published_bubble_and_memory) {
  for (int i = 0; i < SIZES; i++) {
    const uint32_t p = sizes[i][0], m = sizes[i][1];
    double step, steady;
    uint32_t held;
    idle("gpipe", p, m, &step, &steady, &held);
    CHECK_NEAR(step, 3.0 * (p - 1), 1e-9); /* (p - 1)(F + B + W), (p - 1) / (m + p - 1) of all */
    CHECK_NEAR(step / (step + 3.0 * m), (p - 1.0) / (m + p - 1), 1e-9);
    CHECK_EQ(held, m);
    idle("1f1b", p, m, &step, &steady, &held);
    CHECK_NEAR(step, 3.0 * (p - 1), 1e-9);
    CHECK_EQ(held, least(p, m));
  }
}

TEST(interleaved_divides_the_bubble_by_its_stages_a_device) {
  for (int i = 0; i < SIZES; i++)
    for (uint32_t v = 2; v <= 4; v++) {
      const uint32_t p = sizes[i][0], m = 4 * p; /* published for multiples of p */
      const pipe_request q = {p * v, p, m, &unit, {0}, 0, false};
      pipe_times t;
      run("interleaved", &q, &t);
      CHECK_NEAR(t.step_s - t.device[0].busy_s, 3.0 * (p - 1), 1e-9); /* of stages 1 / v as long */
      CHECK_EQ(peak(&t, p), p * v + p - 1); /* 1 + (p - 1) / (p v) of 1f1b */
      pipe_times_free(&t);
    }
}

TEST(zb_h1_has_a_third_of_the_bubble_of_1f1b_in_the_same_memory) {
  for (int i = 0; i < SIZES; i++) {
    const uint32_t p = sizes[i][0], m = sizes[i][1];
    double step, steady;
    uint32_t held;
    idle("zb-h1", p, m, &step, &steady, &held);
    CHECK_NEAR(step, 1.0 * (p - 1), 1e-9); /* (p - 1)(F + B - W) */
    CHECK_EQ(held, p);
  }
}

TEST(zb_2p_has_no_bubble_between_steps_in_twice_the_memory) {
  for (int i = 0; i < SIZES; i++) {
    const uint32_t p = sizes[i][0], m = sizes[i][1];
    double step, steady;
    uint32_t held;
    idle("zb-2p", p, m, &step, &steady, &held);
    CHECK_NEAR(steady, 0, 1e-9);
    CHECK_NEAR(step, p - 1, 1e-9); /* until the last device has its first forward */
    CHECK(held <= 2 * p - 1);
  }
}

TEST(zbv_has_no_bubble_between_steps_in_the_memory_of_1f1b) {
  for (int i = 0; i < SIZES; i++) {
    const uint32_t p = sizes[i][0], m = sizes[i][1];
    double step, steady;
    uint32_t held;
    idle("zbv", p, m, &step, &steady, &held);
    CHECK_NEAR(steady, 0, 1e-9);
    CHECK_NEAR(step, p - 1, 1e-9); /* of stages half as long */
    CHECK(held <= 2 * p);
  }
}

TEST(v_half_and_v_min_have_half_and_two_thirds_of_the_bubble_of_1f1b) {
  for (int i = 0; i < SIZES; i++) {
    const uint32_t p = sizes[i][0], m = sizes[i][1];
    const double full = 2 * 3.0 * (p - 1); /* 1f1b, with stages as long as two of these */
    double step, steady;
    uint32_t held;
    idle("v-half", p, m, &step, &steady, &held);
    CHECK(steady <= full / 2 + 1e-9);
    CHECK(held <= least(p + 2, 2 * p)); /* of 2 p: half, and the one that is running */
    idle("v-min", p, m, &step, &steady, &held);
    CHECK(steady <= full * 2 / 3 + 1e-9);
    CHECK(held <= 2 * ((p + 4 + 2) / 3)); /* of 2 p: (p + 4) / 3, rounded up */
  }
}

TEST(dualpipe_v_has_its_published_bubble_and_memory) {
  for (int i = 0; i < SIZES; i++)
    for (int share = 0; share < 2; share++) {
      const uint32_t p = sizes[i][0], m = least(2 * p + sizes[i][1], 48);
      pipe_costs c = {.overlapped = share ? 0.8 : 0};
      pipe_request q = request("dualpipe-v", p, m);
      pipe_times t;
      q.costs = &c;
      run("dualpipe-v", &q, &t);
      /* (p - 1)(F&B + B - 3 W), B being both parts; the last device has most of the pairs */
      const double pair = share ? 0.8 * 3 : 3;
      CHECK_NEAR(t.device[p - 1].idle_s, (p - 1) * (pair + 2 - 3), 1e-9);
      CHECK_EQ(peak(&t, p), 2 * p + 1);
      pipe_times_free(&t);
    }
}

TEST(a_step_of_zbv_takes_nine_tenths_of_1f1b_in_the_same_memory) {
  const pipe_request all = request("1f1b", 8, 32), half = request("zbv", 8, 32);
  pipe_times one, v;
  run("1f1b", &all, &one);
  run("zbv", &half, &v);
  CHECK(peak(&v, 8) <= 2 * peak(&one, 8));
  CHECK(v.step_s / 2 <= 0.86 * one.step_s); /* stages half as long; 0.90 is asked for */
  pipe_times_free(&one);
  pipe_times_free(&v);
}

/* --- any size, limit and cost -------------------------------------------------------------------
 */

TEST(every_schedule_runs_for_any_number_of_stages_and_micro_batches) {
  const char *what, *name;
  for (size_t i = 0; (name = pipe_schedule_name(i, &what)); i++) {
    CHECK(*what);
    for (uint32_t p = 1; p <= 9; p += p > 4 ? 2 : 1)
      for (uint32_t m = 1; m <= 20; m += m > 6 ? 3 : 1) {
        pipe_request q = request(name, p, m);
        if (*name == 'd' && m < 2 * p) continue;
        pipe_times t;
        run(name, &q, &t);
        CHECK(t.step_s >= t.device[0].busy_s);
        pipe_times_free(&t);
      }
  }
}

TEST(interleaved_runs_with_micro_batches_that_are_no_multiple_of_devices) {
  for (uint32_t p = 1; p <= 8; p++)
    for (uint32_t v = 2; v <= 4; v++)
      for (uint32_t m = 1; m <= 2 * p + 1; m++) {
        const pipe_request q = {p * v, p, m, &unit, {0}, 0, false},
                           whole = {p * v, p, (m + p - 1) / p * p, &unit, {0}, 0, false};
        pipe_times t, all;
        run("interleaved", &q, &t);
        run("interleaved", &whole, &all);
        CHECK(t.step_s <= all.step_s); /* never worse than with the group filled up */
        CHECK(peak(&t, p) <= peak(&all, p));
        pipe_times_free(&t);
        pipe_times_free(&all);
      }
}

TEST(interleaved_has_groups_of_any_number_of_micro_batches_from_that_of_devices) {
  for (uint32_t p = 1; p <= 5; p++)
    for (uint32_t v = 2; v <= 3; v++)
      for (uint32_t n = p; n <= 2 * p + 1; n++)
        for (uint32_t m = 1; m <= 3 * p; m++) {
          char name[32];
          const pipe_request q = {p * v, p, m, &unit, {0}, 0, false};
          pipe_times t, usual;
          snprintf(name, sizeof name, "interleaved:%u", n);
          run(name, &q, &t);
          run("interleaved", &q, &usual);
          if (n == p) CHECK_NEAR(t.step_s, usual.step_s, 1e-12);
          CHECK(n == p || peak(&t, p) >= peak(&usual, p) || m <= p);
          pipe_times_free(&t);
          pipe_times_free(&usual);
        }
}

TEST(larger_groups_hide_slow_transfers) {
  double slow[8];
  for (int s = 0; s < 8; s++) slow[s] = 2;
  pipe_request q = {8, 4, 16, &(pipe_costs){.transfer_s = slow}, {0}, 0, false};
  pipe_times t, usual;
  run("interleaved:8", &q, &t);
  run("interleaved", &q, &usual);
  CHECK(t.step_s < usual.step_s);
  pipe_times_free(&t);
  pipe_times_free(&usual);
}

TEST(schedules_with_a_choice_adapt_to_any_limit) {
  static const char *const names[] = {"1f1b", "zb-h1", "zb-2p", "zbv", "v-half", "v-min"};
  for (int i = 0; i < 6; i++)
    for (uint32_t p = 2; p <= 8; p += 3) {
      double last = INFINITY;
      for (uint32_t limit = chunks_of(names[i], 2); limit <= 2 * p; limit++) {
        pipe_request q = request(names[i], p, 3 * p);
        pipe_times t;
        q.limits.in_flight = limit;
        run(names[i], &q, &t);                                          /* checks the limit */
        if (limit == 2 * p && *names[i] != 'v') CHECK(t.step_s < last); /* the limit is used */
        if (limit == chunks_of(names[i], 2)) last = t.step_s;
        pipe_times_free(&t);
      }
    }
}

TEST(a_limit_in_bytes_holds_on_every_device) {
  uint64_t bytes[16], kept[16];
  for (uint64_t s = 0; s < 16; s++) {
    bytes[s] = 100 + 10 * s;
    kept[s] = 30 + s;
  }
  const pipe_costs c = {.bytes = bytes, .weights_bytes = kept};
  static const char *const names[] = {"1f1b", "zb-h1", "zb-2p", "zbv", "v-half", "v-min"};
  for (int i = 0; i < 6; i++)
    for (uint64_t limit = 520; limit <= 2000; limit += 370) {
      pipe_request q = request(names[i], 8, 24);
      pipe_times t;
      q.costs = &c;
      q.limits.bytes = limit;
      run(names[i], &q, &t);
      for (int d = 0; d < 8; d++) CHECK(t.device[d].peak_bytes <= limit);
      pipe_times_free(&t);
    }
}

TEST(limits_that_nothing_fits_under_are_refused) {
  const uint64_t bytes[] = {100, 100, 100, 100};
  const pipe_costs c = {.bytes = bytes};
  pipe_rows p;
  pipe_request q = {4, 4, 8, &c, {.in_flight = 4}, 0, false};
  CHECK_EQ(pipe_generate("gpipe", &q, &p), HP_ERR_OOM);
  CHECK_FAILS(HP_ERR_OOM, "gpipe holds 8 micro-batches of a stage in flight on device 0, and the "
                          "limit is 4; take 1f1b, zb-h1 or v-min, or fewer micro-batches");
  q.limits = (pipe_limits){.bytes = 799};
  CHECK_FAILS(pipe_generate("gpipe", &q, &p), "gpipe holds 800 bytes of micro-batches in flight on "
                                              "device 0, and the limit is 799");
  q.limits.bytes = 99;
  CHECK_FAILS(pipe_generate("1f1b", &q, &p), "1f1b holds 100 bytes");
  CHECK_FAILS(pipe_generate("zb-h1", &q, &p),
              "zb-h1 does not fit under the limit of 4 micro-batches "
              "of a stage in flight and 99 bytes");
  q.devices = 2;
  CHECK_FAILS(pipe_generate("zbv", &q, &p), "zbv does not fit under the limit of 4 micro-batches");
  q.limits = (pipe_limits){.in_flight = 1};
  CHECK_FAILS(pipe_generate("v-min", &q, &p),
              "v-min does not fit under the limit of 1 micro-batches");
  CHECK_FAILS(pipe_generate("dualpipe-v", &q, &p), "dualpipe-v holds 5 micro-batches");
}

TEST(requests_that_cannot_be_are_refused) {
  pipe_rows p;
  pipe_request q = {4, 4, 8, &unit, {0}, 0, false};
  const double bad[] = {1, 1, -1, 1};
  CHECK_FAILS(pipe_generate("zbh1", &q, &p),
              "no pipeline schedule, and no file of rows, is called \"zbh1\", did you mean "
              "zb-h1? expected gpipe, 1f1b, interleaved, zb-h1, zb-2p, "
              "zbv, v-half, v-min, dualpipe-v");
  CHECK_FAILS(pipe_generate("zbv", &q, &p), "zbv has 2 stages a device: expected 8 stages on 4 "
                                            "devices, not 4");
  CHECK_FAILS(pipe_generate("interleaved", &q, &p),
              "expected a multiple of 4 stages on 4 devices, not "
              "4; take 1f1b for one stage a device");
  q.stages = 8;
  CHECK_FAILS(pipe_generate("interleaved:3", &q, &p),
              "interleaved:3: expected groups of at least as many micro-batches as devices, 4");
  for (int i = 0; i < 5; i++) {
    static const char *const bad_group[] = {"interleaved:", "interleaved:x", "interleaved:0",
                                            "interleaved:4x", "interleaved:99999999999"};
    CHECK_FAILS(pipe_generate(bad_group[i], &q, &p),
                "expected interleaved:N, with N micro-batches");
  }
  CHECK_FAILS(pipe_generate("zbv:4", &q, &p), "no pipeline schedule");
  q.stages = 6;
  CHECK_FAILS(pipe_generate("interleaved", &q, &p), "not 6");
  CHECK_FAILS(pipe_generate("1f1b", &q, &p), "1f1b has 1 stage a device: expected 4 stages");
  q.stages = 8;
  q.microbatches = 7;
  CHECK_FAILS(pipe_generate("dualpipe-v", &q, &p),
              "dualpipe-v needs at least 8 micro-batches a step "
              "on 4 devices, not 7; take more of them "
              "(gradient accumulation), or zbv, which needs");
  q = (pipe_request){4, 4, 0, &unit, {0}, 0, false};
  CHECK_FAILS(pipe_generate("1f1b", &q, &p), "expected at least 1 of each");
  q.microbatches = PIPE_MICROBATCHES + 1;
  CHECK_FAILS(pipe_generate("1f1b", &q, &p), "at most 4096 stages, 1048576 micro-batches");
  q = (pipe_request){4096, 4096, 129, &unit, {0}, 0, false};
  CHECK_FAILS(pipe_generate("1f1b", &q, &p), "524288 of both together");
  q = (pipe_request){4, 4, 8, &(pipe_costs){.forward_s = bad}, {0}, 0, false};
  CHECK_FAILS(pipe_generate("zb-h1", &q, &p), "forward of stage 2 is -1 s");
}

TEST(split_backwards_use_the_costs_of_stages_and_transfers) {
  const uint32_t p = 8, m = 32;
  double f[16], b[16], w[16], transfer[16];
  for (int s = 0; s < 16; s++) f[s] = 1, b[s] = 1.2, w[s] = 0.8, transfer[s] = 0.1;
  const pipe_costs c = {.forward_s = f, .backward_s = b, .weights_s = w};
  pipe_request q = request("zb-h1", p, m);
  pipe_times t;
  q.costs = &c;
  run("zb-h1", &q, &t);
  CHECK_NEAR(t.step_s - 3 * m, (p - 1) * (1 + 1.2 - 0.8), 1e-9); /* the formula for any costs */
  pipe_times_free(&t);
  /* and no more than the rows made for equal costs would take */
  static const char *const names[] = {"zb-h1", "zb-2p", "zbv", "v-half", "v-min"};
  for (int s = 0; s < 16; s++) f[s] = 1 + 0.05 * (s % 5), w[s] = 1.1 - 0.04 * (s % 7);
  const pipe_costs uneven = {.forward_s = f,
                             .backward_s = b,
                             .weights_s = w,
                             .transfer_s = transfer};
  for (int i = 0; i < 5; i++) {
    pipe_rows even;
    pipe_times before;
    q = request(names[i], p, m);
    CHECK_OK(pipe_generate(names[i], &q, &even));
    CHECK_OK(pipe_simulate(&even, "even", &uneven, PIPE_FREE_QUEUES, &before));
    q.costs = &uneven;
    run(names[i], &q, &t);
    CHECK(t.step_s + t.span_s <= before.step_s + before.span_s + 1e-9);
    pipe_times_free(&t);
    pipe_times_free(&before);
    pipe_rows_free(&even);
  }
}

/* Sum of step_s and span_s next to twice the work of a device, the mean over costs of all kinds; of
 * v-min with 16 devices, too, where its patterns differ more. */
static double mean_score(const char *name) {
  static const double transfers[] = {0, 0.1, 0.3};
  static const double times[][3] = {{1, 1, 1}, {1, 1.2, 0.8}, {1, 1.5, 1}, {1, 0.9, 0.6}};
  double sum = 0;
  int n = 0;
  for (uint32_t p = 4; p <= (strcmp(name, "v-min") ? 8 : 16); p *= 2)
    for (int i = 0; i < (p < 16 ? 24 : 8); i++, n++) {
      double f[32], b[32], w[32], transfer[32], work = 0;
      pipe_request q = request(name, p, 2 * p);
      uint64_t state = (uint64_t)i;
      pipe_times t;
      for (uint32_t s = 0; s < q.stages; s++) {
        const double size = i < 12 ? 1 : 0.8 + 0.01 * pipe_random(&state, 41);
        f[s] = size * times[i % 4][0];
        b[s] = size * times[i % 4][1];
        w[s] = size * times[i % 4][2];
        transfer[s] = transfers[i / 4 % 3];
        work += f[s] + b[s] + w[s];
      }
      const pipe_costs c = {.forward_s = f,
                            .backward_s = b,
                            .weights_s = w,
                            .transfer_s = transfer};
      q.costs = &c;
      run(name, &q, &t);
      sum += (t.step_s + t.span_s) / (2 * 2 * work);
      pipe_times_free(&t);
    }
  return sum / n;
}

/* What was reached when each policy and pattern was chosen; less is better. */
TEST(split_backwards_are_filled_as_well_as_ever) {
  static const struct {
    const char *name;
    double reached;
  } of[] = {{"zb-h1", 1.2889},
            {"zb-2p", 1.1676},
            {"zbv", 1.1420},
            {"v-half", 1.2929},
            {"v-min", 1.3585}};
  for (int i = 0; i < 5; i++) {
    const double score = mean_score(of[i].name);
    if (score > of[i].reached + 0.0001)
      test_fail(__FILE__, __LINE__, "%s takes %.4f of the work, was %.4f", of[i].name, score,
                of[i].reached);
  }
}

TEST(the_global_order_costs_little_and_never_deadlocks) {
  static const double transfers[] = {0, 0.1, 0.3};
  static const char *const names[] = {"1f1b",   "interleaved", "zb-h1",      "zb-2p", "zbv",
                                      "v-half", "v-min",       "dualpipe-v", "gpipe"};
  for (int i = 0; i < 9; i++)
    for (int k = 0; k < 3; k++) {
      double transfer[16];
      for (int s = 0; s < 16; s++) transfer[s] = transfers[k];
      const pipe_costs c = {.transfer_s = transfer};
      pipe_request q = request(names[i], 8, 32);
      pipe_rows p;
      pipe_times t, one;
      pipe_streams s;
      q.costs = &c;
      CHECK_OK(pipe_generate(names[i], &q, &p));
      CHECK_OK(pipe_simulate(&p, names[i], &c, PIPE_FREE_QUEUES, &t));
      CHECK_OK(pipe_simulate(&p, names[i], &c, PIPE_ONE_STREAM, &one));
      CHECK_OK(pipe_streams_create(&p, &t, &s));
      CHECK_OK(pipe_streams_check(&p, names[i], &t, &s));
      /* rows that overlap send two results at once, one after the other on a stream */
      CHECK(one.step_s <= t.step_s * (*names[i] == 'd' ? 1.07 : 1.02));
      pipe_streams_free(&s);
      pipe_times_free(&t);
      pipe_times_free(&one);
      pipe_rows_free(&p);
    }
}

TEST(a_name_and_a_request_always_give_the_same_rows) {
  const char *what, *name;
  for (size_t i = 0; (name = pipe_schedule_name(i, &what)); i++) {
    str text[2] = {{0}, {0}};
    for (int k = 0; k < 2; k++) {
      pipe_rows p, again;
      pipe_request q = request(name, 4, 12);
      if (k) q.costs = NULL; /* the same as {0} */
      CHECK_OK(pipe_generate(name, &q, &p));
      pipe_rows_print(&p, &text[k]);
      CHECK_OK(pipe_rows_parse(text[k].at, name, (pipe_shape){q.stages, 12}, &again));
      CHECK_OK(pipe_check(&again, name, &unit, (pipe_limits){0}));
      pipe_rows_free(&p);
      pipe_rows_free(&again);
    }
    CHECK_STR(text[0].at, text[1].at);
    str_free(&text[0]);
    str_free(&text[1]);
  }
}

TEST(schedules_of_64_stages_and_512_micro_batches_take_less_than_a_second) {
  const char *what, *name;
  for (size_t i = 0; (name = pipe_schedule_name(i, &what)); i++) {
    pipe_times t;
    pipe_request q = {64, 64 / chunks_of(name, 2), 512, &unit, {0}, 0, false};
    const clock_t start = clock();
    run(name, &q, &t);
    const double s = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (s >= 1) test_fail(__FILE__, __LINE__, "%s takes %.2f s", name, s);
    pipe_times_free(&t);
  }
}

TEST(generating_a_schedule_fails_cleanly_at_every_allocation) {
  const char *what, *name;
  for (size_t i = 0; (name = pipe_schedule_name(i, &what)); i++) {
    const pipe_request q = request(name, 2, 8);
    hp_status st = HP_ERR_OOM;
    for (int n = 1; st; n += n < 60 ? 1 : 17) {
      pipe_rows p = {0};
      mem_fail_at((uint64_t)n);
      st = pipe_generate(name, &q, &p);
      mem_fail_at(0);
      CHECK(!st || st == HP_ERR_OOM);
      CHECK(!st || !p.row);
      pipe_rows_free(&p);
      err_clear();
    }
  }
}
