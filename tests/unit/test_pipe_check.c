#include "test.h"

#include "pipe_case.h"
#include "sched/pipe_check.h"

#include <stdlib.h>

static const pipe_costs unit = {0};

static hp_status check_limited(const char *text, const pipe_costs *costs, pipe_limits limits) {
  pipe_rows p;
  CHECK_OK(pipe_rows_parse(text, "file", (pipe_shape){0}, &p));
  hp_status st = pipe_check(&p, "file", costs, limits);
  pipe_rows_free(&p);
  return st;
}
static hp_status check(const char *text) { return check_limited(text, &unit, (pipe_limits){0}); }

TEST(schedules_that_can_run_are_accepted) {
  CHECK_OK(check("0 F 0\n0 B 0\n"));
  CHECK_OK(check("0 F 0\n1 F 0\n1 B 0\n0 B 0\n")); /* B stands for both */
  CHECK_OK(check("0 F 0\n1 F 0\n1 BW 0\n0 B 0\n0 W 0\n"));
  CHECK_OK(check("0 F 1\n0 F 0\n0 B 0\n0 B 1\n0 U 0\n")); /* micro-batches in any order */
  CHECK_OK(check("placement 0 0\n0 F 0\n1 F 0\n0 F 1 + 1 B 0\n0 B 0 + 1 F 1\n1 B 1\n0 B 1\n"));
}

TEST(rows_that_are_missing_are_named) {
  CHECK_FAILS(check("0 F 0\n1 F 0\n1 B 0\n"),
              "file: stage 0 B 0 is missing, although there is stage 0 F 0 (line 1)");
  CHECK_FAILS(check("microbatches 2\n0 F 0\n0 B 0\n0 B 1\n"),
              "stage 0 F 1 is missing, although there is stage 0 B 1 (line 4)");
  CHECK_FAILS(check("microbatches 2\n0 F 0\n0 B 0\n"),
              "file: stage 0 F 1 is missing; each micro-batch passes each stage once (1 stages, 2 "
              "micro-batches)");
  CHECK_FAILS(
      check("0 F 0\n0 F 1\n0 B 0\n0 B 1\n0 W 1\n"),
      "stage 0 W 0 is missing, although there is stage 0 B 0 (line 3); since other rows have "
      "W, add it or write BW in place of B");
  CHECK_FAILS(check("0 F 0\n1 F 0\n1 B 0\n0 B 0\n1 U 0\n"), "stage 0 U 0 is missing");
  CHECK_FAILS(check("microbatches 3\n0 F 0\n"),
              "file: 1 rows; expected F and B of 3 micro-batches on each of 1 stages, 6 rows");
}

TEST(rows_that_are_there_twice_are_named) {
  CHECK_FAILS(check("0 F 0\n0 B 0\n0 F 0\n"),
              "file: stage 0 F 0 (line 3) does again what stage 0 F 0 (line 1) does; leave one");
  CHECK_FAILS(check("0 F 0\n0 B 0\n0 BW 0\n"),
              "stage 0 BW 0 (line 3) does again what stage 0 B 0 (line 2)");
  CHECK_FAILS(check("0 F 0\n0 F 1\n0 BW 0\n0 W 0\n0 B 1\n0 W 1\n"),
              "stage 0 W 0 (line 4) does again what stage 0 BW 0 (line 3)");
  CHECK_FAILS(check("0 F 0\n0 B 0\n0 U 0\n0 U 0\n"), "stage 0 U 0 (line 4) does again");
  CHECK_FAILS(check("microbatches 2\n0 F 0\n0 F 1\n0 B 0\n0 B 1\n0 U 1\n"),
              "stage 0 U 1 (line 6): a stage is updated once a step; write micro-batch 0");
}

TEST(rows_on_another_device_are_named) {
  CHECK_FAILS(check("placement 0 1\n0 F 0\n1 F 0\ndevice 0\n1 B 0\n0 B 0\n"),
              "file: stage 1 B 0 (line 5) is on device 0, but stage 1 is placed on device 1; move");
}

TEST(rows_in_the_wrong_order_on_their_device_are_named) {
  CHECK_FAILS(check("0 B 0\n0 F 0\n"),
              "file: stage 0 B 0 (line 1) needs stage 0 F 0 (line 2), which "
              "does not come before it; expected F, B, W, U");
  CHECK_FAILS(check("0 F 0\n0 W 0\n0 B 0\n"),
              "stage 0 W 0 (line 2) needs stage 0 B 0 (line 3), which does not come before it");
  CHECK_FAILS(check("0 F 0\n0 B 0\n0 U 0\n0 W 0\n"),
              "stage 0 U 0 (line 3) needs stage 0 W 0 (line 4), which does not come before it");
  CHECK_FAILS(check("0 F 0\n0 U 0\n0 B 0\n"),
              "stage 0 U 0 (line 2) needs stage 0 B 0 (line 3), which does not come before it");
  CHECK_FAILS(check("0 F 0 + 0 B 0\n"),
              "stage 0 B 0 (line 1) needs stage 0 F 0 (line 1), which does not come before it");
}

TEST(rows_that_wait_for_each_other_are_named) {
  CHECK_FAILS(
      check("device 0\n0 F 0\n0 B 0\n0 F 1\n0 B 1\ndevice 1\n1 F 0\n1 F 1\n1 B 0\n1 B 1\n"),
      "file: stage 0 B 0 (line 3) on device 0 and stage 1 F 1 (line 8) on device 1 wait for "
      "each other: the first needs stage 1 B 0 (line 9), the second needs stage 0 F 1 (line "
      "4); change the order of rows on one of the devices");
  CHECK_FAILS(
      check("placement 0 1 1 0\n0 F 0\n2 F 0\n1 F 0\n3 F 0\n3 B 0\n2 B 0\n1 B 0\n0 B 0\n"),
      "file: stage 2 F 0 (line 3) needs stage 1 F 0 (line 4), which comes later on the same "
      "device 1; swap them");
  CHECK_FAILS(
      check("placement 0 0 1\ndevice 0\n0 F 0\n1 F 0\n0 F 1 + 1 B 0\n1 F 1\n0 B 0\n1 B 1\n"
            "0 B 1\ndevice 1\n2 F 0\n2 F 1\n2 B 0\n2 B 1\n"),
      "stage 0 F 1 (line 5) on device 0 and stage 2 F 1 (line 12) on device 1 wait for each "
      "other: the first needs stage 2 B 0 (line 13), the second needs stage 1 F 1 (line 6)");
}

TEST(a_cycle_of_three_devices_is_named_by_two_of_them) {
  CHECK_FAILS(
      check("placement 0 1 1 2 2 0\n"
            "device 0\n0 F 0\n5 F 0\n0 F 1\n5 F 1\n5 B 0\n5 B 1\n0 B 0\n0 B 1\n"
            "device 1\n1 F 0\n1 F 1\n2 F 0\n2 F 1\n2 B 0\n2 B 1\n1 B 0\n1 B 1\n"
            "device 2\n3 F 0\n4 F 0\n3 F 1\n4 F 1\n4 B 0\n4 B 1\n3 B 0\n3 B 1\n"),
      "file: stage 5 F 0 (line 4) on device 0 and stage 3 F 0 (line 21) on device 2 wait for "
      "each other through further devices: the first needs stage 4 F 0 (line 22), the second "
      "needs stage 2 F 0 (line 14); change the order of rows on one of the devices");
}

TEST(rows_marked_as_overlapping_that_cannot_are_refused) {
  pipe_rows p;
  CHECK_OK(
      pipe_rows_parse("placement 0 0\n0 F 0\n1 F 0\n1 B 0\n0 B 0\n", "file", (pipe_shape){0}, &p));
  for (int i = 0; i < 4; i++) { /* F with F; F with its own B; B with B; the last one */
    p.row[i].with_next = true;
    CHECK_FAILS(pipe_check(&p, "rows", &unit, (pipe_limits){0}),
                i == 1 ? "needs stage 1 F 0" : "rows that overlap are one F and one B or BW of a");
    p.row[i].with_next = false;
  }
  p.row[1].with_next = p.row[2].with_next = true; /* three in a row */
  CHECK_FAILS(pipe_check(&p, "rows", &unit, (pipe_limits){0}), "rows that overlap are one F and");
  pipe_rows_free(&p);
}

TEST(memory_in_flight_above_the_limit_is_refused_with_the_row) {
  static const char *const text = "0 F 0\n0 F 1\n0 B 0\n0 F 2\n0 W 0\n0 B 1\n0 W 1\n0 B 2\n0 W 2\n";
  const uint64_t bytes[] = {10}, kept[] = {4};
  const pipe_costs costs = {.bytes = bytes, .weights_bytes = kept}, all = {.bytes = bytes};
  CHECK_OK(check_limited(text, &unit, (pipe_limits){.in_flight = 3}));
  CHECK_FAILS(
      check_limited(text, &unit, (pipe_limits){.in_flight = 2}),
      "file: with stage 0 F 2 (line 4) 3 micro-batches are in flight on device 0 (F begun, W "
      "not ended), and the limit is 2; run W, or B that is not split, before it");
  CHECK_OK(check_limited(text, &costs, (pipe_limits){.bytes = 24})); /* 4 of B 0 are kept */
  CHECK_FAILS(check_limited(text, &costs, (pipe_limits){.bytes = 23}),
              "with stage 0 F 2 (line 4) device 0 holds 24 bytes of 3 micro-batches in flight, and "
              "the limit is 23");
  CHECK_OK(check_limited(text, &all, (pipe_limits){.bytes = 30})); /* all, unless weights_bytes */
  CHECK_FAILS(check_limited(text, &all, (pipe_limits){.bytes = 29}), "holds 30 bytes");
  /* without W, the backward frees it */
  CHECK_OK(check_limited("0 F 0\n0 B 0\n0 F 1\n0 B 1\n", &all, (pipe_limits){1, 10}));
  /* rows that overlap are both in flight */
  static const char *const two = "placement 0 0\n0 F 0\n1 F 0\n0 F 1 + 1 B 0\n0 B 0\n1 F 1\n1 B 1\n"
                                 "0 B 1\n";
  CHECK_OK(check_limited(two, &unit, (pipe_limits){.in_flight = 3}));
  CHECK_FAILS(check_limited(two, &unit, (pipe_limits){.in_flight = 2}), "stage 0 F 1 (line 4)");
}

TEST(costs_that_cannot_be_are_refused) {
  const double bad[] = {1, -1}, nan[] = {0.0 / 0.0};
  const uint64_t bytes[] = {UINT64_MAX / 2, 4}, more[] = {0, 5}, huge[] = {1ull << 63, 0};
  static const char *const text = "0 F 0\n1 F 0\n1 B 0\n0 B 0\n";
  CHECK_FAILS(check_limited(text, &(pipe_costs){.forward_s = bad}, (pipe_limits){0}),
              "forward of stage 1 is -1 s; expected a finite time of 0 or more");
  CHECK_FAILS(check_limited(text, &(pipe_costs){.weights_s = bad}, (pipe_limits){0}), "to weights");
  CHECK_FAILS(check_limited(text, &(pipe_costs){.backward_s = bad}, (pipe_limits){0}),
              "backward of");
  CHECK_FAILS(check_limited(text, &(pipe_costs){.update_s = bad}, (pipe_limits){0}), "update of");
  CHECK_FAILS(check_limited(text, &(pipe_costs){.transfer_s = nan}, (pipe_limits){0}),
              "transfer of stage 0 is");
  CHECK_FAILS(check_limited(text, &(pipe_costs){.overlapped = 1.5}, (pipe_limits){0}),
              "overlapped rows take 1.5 of the sum of their times; expected 0 to 1");
  CHECK_FAILS(check_limited(text, &(pipe_costs){.bytes = bytes, .weights_bytes = more},
                            (pipe_limits){0}),
              "stage 1 holds 5 bytes until W, more than the 4 bytes that it holds until B");
  CHECK_FAILS(check_limited("0 F 0\n1 F 0\n1 B 0\n0 B 0\n0 F 1\n1 F 1\n1 B 1\n0 B 1\n",
                            &(pipe_costs){.bytes = huge}, (pipe_limits){0}),
              "bytes a micro-batch; 2 of them are beyond 64 bits");
}

/* --- random schedules, good and bad ----------------------------------------------------------- */

static uint32_t peak_of(const pipe_rows *p) {
  pipe_limits most = {.in_flight = 1};
  while (pipe_check(p, "rows", &unit, most)) {
    CHECK(strstr(err_message(), "in flight on device"));
    err_clear();
    most.in_flight++;
  }
  return most.in_flight;
}

TEST(random_schedules_are_accepted_with_the_memory_that_they_need) {
  uint64_t state = 2;
  for (int i = 0; i < pipe_cases(500); i++) {
    pipe_rows p;
    random_pipe(&state, i % 2, &p);
    CHECK_OK(pipe_check(&p, "rows", &unit, (pipe_limits){0}));
    CHECK(peak_of(&p) <= p.stages * p.microbatches);
    pipe_rows_free(&p);
  }
}

/* A random row that does not overlap. */
static size_t draw_row(const pipe_list *l, uint64_t *state) {
  for (;;) {
    const size_t i = pipe_random(state, (uint32_t)l->n);
    if (!l->row[i].with_next && !(i && l->row[i - 1].with_next)) return i;
  }
}

static size_t count_actions(const pipe_list *l, uint8_t actions) {
  size_t n = 0;
  for (size_t i = 0; i < l->n; i++) n += l->row[i].actions == actions;
  return n;
}

static void draw_list(uint64_t *state, pipe_rows *p, pipe_list *l) {
  random_pipe(state, pipe_random(state, 2), p);
  pipe_list_get(p, l);
}

/* Checks the list as a schedule like p, which it frees. */
static hp_status check_list(const pipe_list *l, pipe_rows *p) {
  pipe_rows changed;
  pipe_list_apply(l, p, &changed);
  hp_status st = pipe_check(&changed, "rows", &unit, (pipe_limits){0});
  pipe_rows_free(&changed);
  pipe_rows_free(p);
  return st;
}

TEST(any_row_that_is_taken_out_is_named) {
  static pipe_list l;
  uint64_t state = 3;
  for (int i = 0; i < pipe_cases(500);) {
    pipe_rows p;
    char name[PIPE_ROW_NAME], message[PIPE_ROW_NAME + 32];
    draw_list(&state, &p, &l);
    const size_t at = draw_row(&l, &state);
    pipe_row row = l.row[at];
    /* without the only W or U, none is needed */
    if (row.actions & (PIPE_W | PIPE_U) && count_actions(&l, row.actions) == 1) {
      pipe_rows_free(&p);
      continue;
    }
    pipe_list_remove(&l, at);
    row.line = 0;
    if (row.actions & PIPE_B) row.actions = PIPE_B;
    snprintf(message, sizeof message, "%s is missing", pipe_row_name(&row, name));
    CHECK_FAILS(check_list(&l, &p), message);
    i++;
  }
}

TEST(any_row_that_is_there_twice_is_named) {
  static pipe_list l;
  uint64_t state = 4;
  for (int i = 0; i < pipe_cases(500); i++) {
    pipe_rows p;
    char name[PIPE_ROW_NAME];
    draw_list(&state, &p, &l);
    const size_t at = draw_row(&l, &state), to = draw_row(&l, &state);
    pipe_row row = l.row[at];
    row.line = 1000;
    pipe_list_insert(&l, to, l.device[at], row);
    CHECK_EQ(check_list(&l, &p), HP_ERR_INPUT);
    CHECK(strstr(err_message(), "does again what"));
    CHECK(strstr(err_message(), pipe_row_name(&row, name)));
    CHECK(strstr(err_message(), pipe_row_name(&l.row[at >= to ? at + 1 : at], name)));
    err_clear();
  }
}

TEST(any_row_on_another_device_is_named) {
  static pipe_list l;
  uint64_t state = 5;
  for (int i = 0; i < pipe_cases(500);) {
    pipe_rows p;
    char name[PIPE_ROW_NAME], message[PIPE_ROW_NAME + 64];
    draw_list(&state, &p, &l);
    const size_t at = draw_row(&l, &state);
    if (p.devices == 1) {
      pipe_rows_free(&p);
      continue;
    }
    const uint32_t device = l.device[at], to = (device + 1) % p.devices;
    l.device[at] = to;
    snprintf(message, sizeof message, "%s is on device %u, but stage %u is placed on device %u",
             pipe_row_name(&l.row[at], name), to, l.row[at].stage, device);
    CHECK_FAILS(check_list(&l, &p), message);
    i++;
  }
}

/* --- swapped rows, compared with running them one at a time -------------------------------------
 */

/* Line numbers of the first two rows that the message names. */
static void find_lines(int line[2]) {
  const char *at = err_message();
  for (int i = 0; i < 2; i++) {
    at = strstr(at, "(line ");
    CHECK(at);
    at += 6;
    line[i] = (int)strtol(at, NULL, 10);
  }
}

static uint32_t device_of_line(const pipe_rows *p, const pipe_halt *h, int line) {
  for (uint32_t d = 0; d < p->devices; d++)
    if (h->at[d] != UINT32_MAX && (p->row[h->at[d]].line == line || p->row[h->at[d]].with_next))
      for (int k = 0; k <= p->row[h->at[d]].with_next; k++)
        if (p->row[h->at[d] + (uint32_t)k].line == line) return d;
  test_fail(__FILE__, __LINE__, "line %d of \"%s\" is not where a device halts", line,
            err_message());
}

/* The first row that is named needs, through others, the second, and that one the first. */
static void check_they_wait(const pipe_rows *p, const pipe_halt *h) {
  int line[2];
  find_lines(line);
  const uint32_t one = device_of_line(p, h, line[0]), two = device_of_line(p, h, line[1]);
  uint32_t d = one;
  bool met = false, back = false;
  CHECK(one != two);
  for (uint32_t k = 0; k < p->devices && !back; k++) {
    d = p->placement[p->row[h->needs[d]].stage];
    met |= d == two;
    back = d == one;
  }
  CHECK(met && back);
}

TEST(swapped_rows_are_refused_if_and_only_if_devices_halt) {
  static pipe_list l;
  uint64_t state = 6;
  int refused = 0, waited = 0, longer = 0, accepted = 0;
  while (refused < pipe_cases(500) || waited < pipe_cases(50)) {
    pipe_rows p, swapped;
    pipe_halt halt;
    draw_list(&state, &p, &l);
    const size_t a = draw_row(&l, &state), b = draw_row(&l, &state);
    const pipe_row row = l.row[a];
    const bool other = l.device[a] != l.device[b] || count_actions(&l, PIPE_U);
    l.row[a] = l.row[b];
    l.row[b] = row;
    pipe_list_apply(&l, &p, &swapped);
    pipe_run_slowly(&swapped, &halt);
    if (!other) {
      hp_status st = pipe_check(&swapped, "rows", &unit, (pipe_limits){0});
      CHECK_EQ(st, halt.halted ? HP_ERR_INPUT : HP_OK);
      const bool waits = strstr(err_message(), "wait for each other");
      if (waits) check_they_wait(&swapped, &halt);
      else if (st) CHECK(strstr(err_message(), "needs"));
      longer += strstr(err_message(), "through further devices") != NULL;
      waited += waits;
      refused += st != HP_OK;
      accepted += !st;
      err_clear();
    }
    pipe_rows_free(&swapped);
    pipe_rows_free(&p);
  }
  CHECK(longer > 0 && accepted > 0);
}

TEST(checking_a_schedule_fails_cleanly_at_every_allocation) {
  pipe_rows p;
  hp_status st = HP_ERR_OOM;
  int n = 1;
  CHECK_OK(pipe_rows_parse("0 F 0\n1 F 0\n1 B 0\n0 B 0\n", "file", (pipe_shape){0}, &p));
  for (; st; n++) {
    mem_fail_at((uint64_t)n);
    st = pipe_check(&p, "file", &unit, (pipe_limits){0});
    mem_fail_at(0);
    CHECK(!st || st == HP_ERR_OOM);
    err_clear();
  }
  CHECK(n > 5);
  pipe_rows_free(&p);
}
