#include "test.h"

#include "pipe_case.h"
#include "sched/pipe_streams.h"

static const pipe_costs unit = {0};

static void simulate(const pipe_rows *p, const pipe_costs *c, pipe_queues queues, pipe_times *t) {
  CHECK_OK(pipe_simulate(p, "rows", c, queues, t));
}

static void parse(const char *text, pipe_rows *p) {
  CHECK_OK(pipe_rows_parse(text, "file", (pipe_shape){0}, p));
}

/* 1f1b of two stages and two micro-batches, by hand. */
static const char *const two_stages = "device 0\n0 F 0\n0 F 1\n0 B 0\n0 B 1\n"
                                      "device 1\n1 F 0\n1 B 0\n1 F 1\n1 B 1\n";

TEST(rows_begin_when_their_device_is_free_and_their_input_is_there) {
  const double f[] = {1, 2}, b[] = {3, 4}, w[] = {5, 6}, transfer[] = {0.5};
  const pipe_costs c = {.forward_s = f, .backward_s = b, .weights_s = w, .transfer_s = transfer};
  /* B stands for both parts: 8 s and 10 s */
  const double start[] = {0, 1, 14, 26, 1.5, 3.5, 13.5, 15.5};
  const double end[] = {1, 2, 22, 34, 3.5, 13.5, 15.5, 25.5};
  pipe_rows p;
  pipe_times t;
  parse(two_stages, &p);
  simulate(&p, &c, PIPE_FREE_QUEUES, &t);
  for (int i = 0; i < 8; i++) {
    CHECK_NEAR(t.start_s[i], start[i], 1e-12);
    CHECK_NEAR(t.end_s[i], end[i], 1e-12);
  }
  CHECK_NEAR(t.step_s, 34, 1e-12);
  CHECK_NEAR(t.span_s, 34, 1e-12);
  CHECK_NEAR(t.device[0].busy_s, 18, 1e-12);
  CHECK_NEAR(t.device[1].busy_s, 24, 1e-12);
  CHECK_NEAR(t.device[1].begin_s, 1.5, 1e-12);
  CHECK_NEAR(t.device[1].end_s, 25.5, 1e-12);
  CHECK_NEAR(t.bubble, 1 - 42.0 / 68, 1e-12);
  CHECK_EQ(t.device[0].peak_in_flight, 2);
  CHECK_EQ(t.device[1].peak_in_flight, 1);
  pipe_times_free(&t);
  pipe_rows_free(&p);
}

TEST(transfers_are_ordered_by_their_end) {
  const double f[] = {1, 2}, transfer[] = {0.5};
  const pipe_costs c = {.forward_s = f, .transfer_s = transfer};
  static const uint32_t row[] = {0, 1, 5, 7};
  static const double start[] = {1, 2, 5.5, 9.5};
  pipe_rows p;
  pipe_times t;
  parse(two_stages, &p);
  simulate(&p, &c, PIPE_FREE_QUEUES, &t);
  CHECK_EQ(t.transfers, 4);
  for (int k = 0; k < 4; k++) {
    CHECK_EQ(t.transfer[k].row, row[k]);
    CHECK_EQ(t.transfer[k].from, k < 2 ? 0 : 1);
    CHECK_EQ(t.transfer[k].to, k < 2 ? 1 : 0);
    CHECK_NEAR(t.transfer[k].start_s, start[k], 1e-12);
    CHECK_NEAR(t.transfer[k].end_s, start[k] + 0.5, 1e-12);
  }
  pipe_times_free(&t);
  pipe_rows_free(&p);
}

TEST(rows_of_one_device_need_no_transfer) {
  const double transfer[] = {100};
  pipe_rows p;
  pipe_times t;
  parse("placement 0 0\n0 F 0\n1 F 0\n1 B 0\n0 B 0\n", &p);
  simulate(&p, &(pipe_costs){.transfer_s = transfer}, PIPE_FREE_QUEUES, &t);
  CHECK_EQ(t.transfers, 0);
  CHECK_NEAR(t.step_s, 6, 0);
  pipe_times_free(&t);
  pipe_rows_free(&p);
}

TEST(overlapping_rows_take_their_share_of_the_sum_of_both) {
  pipe_rows p;
  pipe_times t;
  parse("placement 0 0\n0 F 0\n1 F 0\n0 F 1 + 1 B 0\n0 B 0\n1 F 1\n1 B 1\n0 B 1\n", &p);
  simulate(&p, &(pipe_costs){.overlapped = 0.75}, PIPE_FREE_QUEUES, &t);
  CHECK_NEAR(t.start_s[2], 2, 0);
  CHECK_NEAR(t.start_s[3], 2, 0);
  CHECK_NEAR(t.end_s[2], 2 + 0.75 * 3, 1e-12);
  CHECK_NEAR(t.end_s[3], t.end_s[2], 0);
  CHECK_NEAR(t.device[0].busy_s, 12 - 0.25 * 3, 1e-12);
  CHECK_NEAR(t.device[0].idle_s, 0, 1e-12);
  pipe_times_free(&t);
  simulate(&p, &unit, PIPE_FREE_QUEUES, &t); /* without a share nothing is gained */
  CHECK_NEAR(t.step_s, 12, 1e-12);
  pipe_times_free(&t);
  pipe_rows_free(&p);
}

TEST(a_split_backward_passes_its_result_on_before_w) {
  const double update[] = {7, 0};
  pipe_rows p;
  pipe_times t;
  parse("0 F 0\n1 F 0\n1 B 0\n1 W 0\n0 BW 0\n0 U 0\n1 U 0\n", &p);
  simulate(&p, &(pipe_costs){.update_s = update}, PIPE_FREE_QUEUES, &t);
  CHECK_NEAR(t.start_s[1], 3, 0); /* BW of stage 0 */
  CHECK_NEAR(t.end_s[1], 5, 0);
  CHECK_NEAR(t.end_s[2], 12, 0); /* U */
  CHECK_NEAR(t.device[1].end_s, 4, 0);
  CHECK_NEAR(t.span_s, 12, 0);
  pipe_times_free(&t);
  pipe_rows_free(&p);
}

TEST(peaks_are_of_what_is_held_until_b_and_until_w) {
  const uint64_t bytes[] = {10}, kept[] = {4};
  pipe_rows p;
  pipe_times t;
  parse("0 F 0\n0 F 1\n0 B 0\n0 F 2\n0 W 0\n0 B 1\n0 W 1\n0 B 2\n0 W 2\n", &p);
  simulate(&p, &(pipe_costs){.bytes = bytes, .weights_bytes = kept}, PIPE_FREE_QUEUES, &t);
  CHECK_EQ(t.device[0].peak_in_flight, 3);
  CHECK_EQ(t.device[0].peak_bytes, 24);
  pipe_times_free(&t);
  pipe_rows_free(&p);
}

TEST(idle_time_is_the_sum_of_its_causes) {
  const double equal[] = {1.5, 1.5}, unequal[] = {1, 2}, transfer[] = {0.25};
  pipe_rows p;
  pipe_times t;
  parse(two_stages, &p);
  simulate(&p, &(pipe_costs){.forward_s = equal}, PIPE_FREE_QUEUES, &t);
  for (int d = 0; d < 2; d++) { /* (p - 1)(F + B + W) */
    CHECK_NEAR(t.device[d].idle_s, 3.5, 1e-12);
    CHECK_NEAR(t.device[d].warmup_s, 3.5, 1e-12);
    CHECK_NEAR(t.device[d].imbalance_s, 0, 1e-12);
    CHECK_NEAR(t.device[d].transfer_s, 0, 1e-12);
  }
  pipe_times_free(&t);
  simulate(&p, &(pipe_costs){.forward_s = unequal, .transfer_s = transfer}, PIPE_FREE_QUEUES, &t);
  for (int d = 0; d < 2; d++) {
    const pipe_device *at = &t.device[d];
    CHECK_NEAR(at->warmup_s, 3.5, 1e-12);   /* the mean is 1.5 */
    CHECK_NEAR(at->transfer_s, 0.5, 1e-12); /* there and back */
    CHECK_NEAR(at->idle_s, at->warmup_s + at->imbalance_s + at->transfer_s, 1e-12);
  }
  CHECK_NEAR(t.step_s, 11.5, 1e-12); /* 1 + 2 (2 + 2) + 2 + 2 transfers */
  CHECK_NEAR(t.device[0].imbalance_s, 11.5 - 6 - 3.5 - 0.5, 1e-12); /* it waits for the other */
  CHECK_NEAR(t.device[1].imbalance_s, 11.5 - 8 - 3.5 - 0.5, 1e-12);
  pipe_times_free(&t);
  pipe_rows_free(&p);
}

/* --- the global order ------------------------------------------------------------------------- */

/* F and B without a warm-up limit: the order of 1f1b. */
static void make_1f1b(uint32_t stages, uint32_t microbatches, pipe_rows *p) {
  str text = {0};
  for (uint32_t s = 0; s < stages; s++) {
    const uint32_t ahead = stages - 1 - s;
    str_printf(&text, "device %u\n", s);
    for (uint32_t k = 0; k < microbatches + ahead; k++) {
      if (k < microbatches) str_printf(&text, "%u F %u\n", s, k);
      if (k >= ahead) str_printf(&text, "%u B %u\n", s, k - ahead);
    }
  }
  parse(text.at, p);
  str_free(&text);
}

/* Each device receives what a row reads just before it, and sends its result just after. */
static void order_by_rows(const pipe_rows *p, const pipe_times *t, pipe_streams *s) {
  uint32_t n = 0;
  CHECK_OK(pipe_streams_create(p, t, s));
  for (uint32_t d = 0; d < p->devices; d++)
    for (uint32_t i = p->row0[d]; i < p->row0[d + 1]; i++)
      for (int send = 0; send < 2; send++)
        for (size_t k = 0; k < t->transfers; k++)
          if ((send ? t->transfer[k].row : t->transfer[k].reader) == i) s->at[n++] = (uint32_t)k;
  CHECK_EQ(n, s->at0[p->devices]);
}

TEST(sends_after_their_row_and_receives_before_it_deadlock_1f1b) {
  static const uint32_t size[][2] = {{4, 8}, {8, 32}};
  for (int i = 0; i < 2; i++) {
    pipe_rows p;
    pipe_times t;
    pipe_streams s;
    make_1f1b(size[i][0], size[i][1], &p);
    simulate(&p, &unit, PIPE_FREE_QUEUES, &t);
    order_by_rows(&p, &t, &s);
    CHECK_FAILS(pipe_streams_check(&p, "rows", &t, &s), "wait for each other; send and receive in");
    pipe_streams_free(&s);
    CHECK_OK(pipe_streams_create(&p, &t, &s));
    CHECK_OK(pipe_streams_check(&p, "rows", &t, &s));
    pipe_streams_free(&s);
    pipe_times_free(&t);
    pipe_rows_free(&p);
  }
}

static double random_s(uint64_t *state) {
  return pipe_random(state, 4) / 2.0;
} /* often 0 or equal */

typedef struct {
  double f[9], b[9], w[9], transfer[9];
  pipe_costs costs;
} random_costs;

static void draw_costs(uint64_t *state, random_costs *c) {
  for (int s = 0; s < 9; s++) {
    c->f[s] = random_s(state);
    c->b[s] = random_s(state);
    c->w[s] = random_s(state);
    c->transfer[s] = random_s(state);
  }
  c->costs = (pipe_costs){.forward_s = c->f,
                          .backward_s = c->b,
                          .weights_s = c->w,
                          .transfer_s = c->transfer,
                          .overlapped = pipe_random(state, 2) ? 0.75 : 0};
}

/* A transfer comes after those that bring what its row, or a row before it on its device, reads. */
static void check_extends_dependencies(const pipe_rows *p, const pipe_times *t) {
  static size_t arrives[PIPE_CASE_ROWS]; /* place of the latest transfer that a row needs, plus 1 */
  memset(arrives, 0, sizeof arrives);
  for (size_t k = 0; k < t->transfers; k++) arrives[t->transfer[k].reader] = k + 1;
  for (uint32_t d = 0; d < p->devices; d++)
    for (uint32_t i = p->row0[d] + 1; i < p->row0[d + 1]; i++)
      if (arrives[i] < arrives[i - 1]) arrives[i] = arrives[i - 1];
  for (size_t k = 0; k < t->transfers; k++) {
    CHECK(arrives[t->transfer[k].row] <= k);
    if (k) CHECK(t->transfer[k - 1].end_s <= t->transfer[k].end_s);
  }
}

TEST(no_random_schedule_deadlocks_in_the_global_order) {
  static random_costs c;
  uint64_t state = 11;
  int reordered = 0;
  for (int i = 0; i < pipe_cases(500); i++) {
    pipe_rows p;
    pipe_times t, one;
    pipe_streams s;
    random_pipe(&state, i % 2, &p);
    draw_costs(&state, &c);
    simulate(&p, &c.costs, PIPE_FREE_QUEUES, &t);
    check_extends_dependencies(&p, &t);
    CHECK_OK(pipe_streams_create(&p, &t, &s));
    CHECK_OK(pipe_streams_check(&p, "rows", &t, &s));
    simulate(&p, &c.costs, PIPE_ONE_STREAM, &one);
    CHECK(one.step_s >= t.step_s);
    for (size_t k = 0; k < t.transfers; k++) CHECK_EQ(one.transfer[k].row, t.transfer[k].row);
    pipe_times_free(&one);
    pipe_streams_free(&s);
    order_by_rows(&p, &t, &s);
    reordered += pipe_streams_check(&p, "rows", &t, &s) != HP_OK;
    err_clear();
    pipe_streams_free(&s);
    pipe_times_free(&t);
    pipe_rows_free(&p);
  }
  CHECK(reordered > 0); /* and others do */
}

TEST(two_sends_in_the_wrong_order_deadlock_and_are_named) {
  pipe_rows p;
  pipe_times t;
  pipe_streams s;
  make_1f1b(2, 4, &p);
  simulate(&p, &unit, PIPE_FREE_QUEUES, &t);
  CHECK_OK(pipe_streams_create(&p, &t, &s));
  const uint32_t first = s.at[0];
  s.at[0] = s.at[1];
  s.at[1] = first;
  CHECK_FAILS(
      pipe_streams_check(&p, "rows", &t, &s),
      "rows: what stage 0 F 1 (line 3) sends from device 0 to 1 and what stage 0 F 0 (line 2) "
      "sends from device 0 to 1 wait for each other; send and receive in one global order");
  pipe_streams_free(&s);
  pipe_times_free(&t);
  pipe_rows_free(&p);
}

TEST(a_send_or_receive_that_is_missing_or_elsewhere_is_named) {
  pipe_rows p;
  pipe_times t;
  pipe_streams s;
  parse("0 F 0\n1 F 0\n1 B 0\n0 B 0\n", &p);
  simulate(&p, &unit, PIPE_FREE_QUEUES, &t);
  CHECK_OK(pipe_streams_create(&p, &t, &s));
  s.at[1] = s.at[0];
  CHECK_FAILS(pipe_streams_check(&p, "rows", &t, &s),
              "what stage 0 F 0 (line 1) sends from device 0 to 1 is not sent exactly once");
  s.at[1] = 5; /* there are two */
  CHECK_FAILS(pipe_streams_check(&p, "rows", &t, &s),
              "device 0 has transfer 5, which is not one of");
  s.at[1] = 1;
  s.at[2] = 1;
  CHECK_FAILS(pipe_streams_check(&p, "rows", &t, &s), "is not received exactly once");
  pipe_streams_free(&s);
  pipe_times_free(&t);
  pipe_rows_free(&p);
}

TEST(a_transfer_of_other_devices_is_refused) {
  pipe_rows p;
  pipe_times t;
  pipe_streams s;
  parse("0 F 0\n1 F 0\n2 F 0\n2 B 0\n1 B 0\n0 B 0\n", &p);
  simulate(&p, &unit, PIPE_FREE_QUEUES, &t);
  CHECK_OK(pipe_streams_create(&p, &t, &s));
  CHECK_EQ(t.transfer[1].from, 1);
  s.at[0] = 1;
  CHECK_FAILS(pipe_streams_check(&p, "rows", &t, &s),
              "device 0 has transfer 1, which is not one of");
  pipe_streams_free(&s);
  pipe_times_free(&t);
  pipe_rows_free(&p);
}

TEST(a_transfer_before_the_row_that_makes_it_can_run_deadlocks) {
  pipe_rows p;
  pipe_times t;
  pipe_streams s;
  parse("0 F 0\n1 F 0\n1 B 0\n0 B 0\n", &p);
  simulate(&p, &unit, PIPE_FREE_QUEUES, &t);
  CHECK_OK(pipe_streams_create(&p, &t, &s));
  s.at[0] = s.at[2] = 1; /* the gradient first, on both devices */
  s.at[1] = s.at[3] = 0;
  CHECK_FAILS(
      pipe_streams_check(&p, "rows", &t, &s),
      "what stage 1 B 0 (line 3) sends from device 1 to 0 and what stage 0 F 0 (line 1) sends "
      "from device 0 to 1 wait for each other");
  pipe_streams_free(&s);
  pipe_times_free(&t);
  pipe_rows_free(&p);
}

/* A device runs one transfer at a time, after its row and before the row that reads it. */
static void check_one_stream(const pipe_times *t) {
  double end[64] = {0};
  for (size_t k = 0; k < t->transfers; k++) {
    const pipe_transfer *x = &t->transfer[k];
    CHECK(x->start_s >= end[x->from] && x->start_s >= end[x->to]);
    CHECK(x->start_s >= t->end_s[x->row] && x->end_s <= t->start_s[x->reader]);
    end[x->from] = end[x->to] = x->end_s;
  }
}

TEST(on_one_stream_a_device_runs_one_transfer_at_a_time) {
  static random_costs c;
  uint64_t state = 12;
  for (int i = 0; i < pipe_cases(200); i++) {
    pipe_rows p;
    pipe_times t;
    random_pipe(&state, i % 2, &p);
    draw_costs(&state, &c);
    simulate(&p, &c.costs, PIPE_ONE_STREAM, &t);
    check_one_stream(&t);
    pipe_times_free(&t);
    pipe_rows_free(&p);
  }
}

TEST(one_stream_queues_transfers_that_free_queues_run_at_once) {
  const double transfer[] = {2, 2};
  pipe_rows p;
  pipe_times t;
  parse("placement 0 1 2\ndevice 1\n1 F 0\n1 B 0\ndevice 0\n0 F 0\n0 B 0\ndevice 2\n2 F 0\n2 B 0\n",
        &p);
  simulate(&p, &(pipe_costs){.transfer_s = transfer}, PIPE_ONE_STREAM, &t);
  CHECK_NEAR(t.step_s, 3 + 2 + 2 + 2 + 2 + 6, 0); /* one after the other in any case */
  pipe_times_free(&t);
  pipe_rows_free(&p);
  parse("device 0\n0 F 0\n0 F 1\n0 B 0\n0 B 1\ndevice 1\n1 F 0\n1 F 1\n1 B 0\n1 B 1\n", &p);
  simulate(&p, &(pipe_costs){.transfer_s = transfer}, PIPE_FREE_QUEUES, &t);
  CHECK_NEAR(t.transfer[1].start_s, 2, 0);
  pipe_times_free(&t);
  simulate(&p, &(pipe_costs){.transfer_s = transfer}, PIPE_ONE_STREAM, &t);
  CHECK_NEAR(t.transfer[0].end_s, 3, 0);
  CHECK_NEAR(t.transfer[1].start_s, 3, 0);
  CHECK_NEAR(t.start_s[5], 5, 0); /* 1 F 1 */
  CHECK(t.device[1].transfer_s > 0);
  pipe_times_free(&t);
  pipe_rows_free(&p);
}

TEST(simulating_a_schedule_that_cannot_run_is_refused) {
  pipe_rows p;
  pipe_times t;
  parse("device 0\n0 F 0\n0 B 0\n0 F 1\n0 B 1\ndevice 1\n1 F 0\n1 F 1\n1 B 0\n1 B 1\n", &p);
  CHECK_FAILS(pipe_simulate(&p, "rows", &unit, PIPE_FREE_QUEUES, &t), "wait for each other");
  pipe_rows_free(&p);
  parse("0 F 0\n", &p);
  CHECK_FAILS(pipe_simulate(&p, "rows", &unit, PIPE_FREE_QUEUES, &t), "stage 0 B 0 is missing");
  pipe_rows_free(&p);
}

TEST(simulating_a_schedule_fails_cleanly_at_every_allocation) {
  pipe_rows p;
  hp_status st = HP_ERR_OOM;
  int n = 1;
  make_1f1b(2, 2, &p);
  for (; st; n++) {
    pipe_times t = {0};
    pipe_streams s = {0};
    mem_fail_at((uint64_t)n);
    st = pipe_simulate(&p, "rows", &unit, PIPE_ONE_STREAM, &t);
    if (!st) st = pipe_streams_create(&p, &t, &s);
    if (!st) st = pipe_streams_check(&p, "rows", &t, &s);
    mem_fail_at(0);
    CHECK(!st || st == HP_ERR_OOM);
    pipe_times_free(&t);
    pipe_streams_free(&s);
    err_clear();
  }
  CHECK(n > 20);
  pipe_rows_free(&p);
}
