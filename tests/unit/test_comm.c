/* Rendezvous by communicator and sequence number, transfers by peer and tag, of ranks that run
 * unlike programs: each rank is a thread, with a list of what it does. */
#include "comm/comm.h"
#include "base/mem.h"
#include "base/thread.h"
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { RANKS = 4, ROUNDS = 50 };

typedef struct {
  comm *c;
  communicator *everyone;
  int rank;
  err_report failure;
} member;

/* Gathers a number of each rank of a communicator. */
static hp_status gather(communicator *c, const char *what, int64_t mine, int64_t *sum) {
  comm_region give[RANKS], take[RANKS];
  comm_view seen[RANKS];
  comm_call call = comm_call_of(what, NULL);
  for (int i = 0; i < RANKS; i++) give[i] = take[i] = (comm_region){.run = sizeof mine, .n = 1};
  HP_TRY(c->of->iface->rendezvous(c, &call, &mine, give, take, seen));
  *sum = 0;
  for (int64_t i = 0; i < c->n; i++) *sum += *(const int64_t *)(const void *)seen[i].at;
  return c->of->iface->leave(c);
}

/* The same of these ranks, in their order. */
static hp_status gather_of(member *m, const char *what, int n, const int64_t *rank, int64_t mine,
                           int64_t *sum) {
  communicator *c;
  int64_t me = 0;
  while (rank[me] != m->rank) me++;
  HP_TRY(m->c->iface->join(m->c, rank, n, me, &c));
  return gather(c, what, mine, sum);
}

typedef hp_status (*rank_program)(member *m);

typedef struct {
  member *m;
  rank_program run;
} rank_thread;

static void *rank_main(void *arg) {
  rank_thread *t = arg;
  hp_status st = t->run(t->m);
  t->m->failure.code = HP_OK;
  if (st) err_take(st, &t->m->failure);
  t->m->c->iface->end(t->m->everyone, st != HP_OK);
  return NULL;
}

/* Runs one program a rank; each rank's failure is in its member. */
static void run_ranks(comm *c, member m[RANKS], const rank_program program[RANKS]) {
  const int64_t all[RANKS] = {0, 1, 2, 3};
  pthread_t thread[RANKS];
  rank_thread t[RANKS];
  for (int i = 0; i < RANKS; i++) {
    m[i] = (member){.c = c, .rank = i};
    t[i] = (rank_thread){&m[i], program[i]};
    CHECK_OK(c->iface->join(c, all, RANKS, i, &m[i].everyone));
  }
  c->iface->begin(m[0].everyone);
  for (int i = 0; i < RANKS; i++) CHECK(!pthread_create(&thread[i], NULL, rank_main, &t[i]));
  for (int i = 0; i < RANKS; i++) CHECK(!pthread_join(thread[i], NULL));
}

static void run_all(member m[RANKS], const rank_program program[RANKS]) {
  comm *c;
  CHECK_OK(comm_local_open(RANKS, &c));
  run_ranks(c, m, program);
  c->iface->close(c);
}

static void check_failure(const member *m, hp_status code, const char *const *said) {
  CHECK_EQ(m->failure.code, code);
  for (; *said; said++)
    if (!strstr(m->failure.message, *said))
      test_fail(__FILE__, __LINE__, "rank %d says \"%s\", not \"%s\"", m->rank, m->failure.message,
                *said);
}

/* --- communicators ---------------------------------------------------------------------------- */

/* Ranks 0 and 1 have more rendezvous than 2 and 3 before all four come together. */
static hp_status many_of_two(member *m) {
  const int64_t low[] = {0, 1}, high[] = {2, 3};
  int64_t sum, rounds = m->rank < 2 ? ROUNDS : 3;
  for (int64_t k = 0; k < rounds; k++) {
    const char *what = m->rank < 2 ? "sum of the low" : "sum of the high";
    HP_TRY(gather_of(m, what, 2, m->rank < 2 ? low : high, m->rank + 10 * k, &sum));
    CHECK_EQ(sum, (m->rank < 2 ? 1 : 5) + 20 * k);
  }
  HP_TRY(gather(m->everyone, "sum of all", m->rank, &sum));
  CHECK_EQ(sum, 6);
  return HP_OK;
}

TEST(rendezvous_of_other_ranks_are_not_counted) {
  member m[RANKS];
  run_all(m, (const rank_program[]){many_of_two, many_of_two, many_of_two, many_of_two});
  for (int i = 0; i < RANKS; i++) CHECK_EQ(m[i].failure.code, HP_OK);
}

TEST(a_communicator_is_found_again_by_its_ranks_in_their_order) {
  comm *c;
  communicator *a, *b, *other;
  CHECK_OK(comm_local_open(RANKS, &c));
  CHECK_OK(c->iface->join(c, (const int64_t[]){2, 0}, 2, 1, &a));
  CHECK_OK(c->iface->join(c, (const int64_t[]){2, 0}, 2, 1, &b));
  CHECK_OK(c->iface->join(c, (const int64_t[]){0, 2}, 2, 0, &other));
  CHECK(a == b && a != other && a->id != other->id);
  CHECK_EQ(c->iface->join(c, (const int64_t[]){0, 4}, 2, 0, &a), HP_ERR_ARG);
  CHECK_STR(err_message(), "rank 4 is not in the job, which has 4");
  err_clear();
  CHECK_EQ(c->iface->join(c, (const int64_t[]){1, 1}, 2, 0, &a), HP_ERR_ARG);
  CHECK_STR(err_message(), "rank 1 is in the communicator twice");
  err_clear();
  c->iface->close(c);
}

/* --- programs that do not match ----------------------------------------------------------------
 */

static hp_status gathers(member *m) {
  int64_t sum;
  return gather(m->everyone, "all_gather f32[4]", 1, &sum);
}
static hp_status reduces(member *m) {
  int64_t sum;
  return gather(m->everyone, "all_reduce f32[8]", 1, &sum);
}

TEST(two_instructions_that_differ_are_named_on_all_ranks) {
  member m[RANKS];
  run_all(m, (const rank_program[]){gathers, gathers, reduces, gathers});
  for (int i = 0; i < RANKS; i++)
    check_failure(&m[i], HP_ERR_ARG,
                  (const char *const[]){"the programs of ranks 0 and 2 do not match",
                                        "at rendezvous 1 of ranks {0,1,2,3}", "all_gather f32[4]",
                                        "all_reduce f32[8]", NULL});
}

static hp_status ends(member *m) {
  (void)m;
  return HP_OK;
}

TEST(a_rank_whose_program_has_ended_is_not_waited_for) {
  member m[RANKS];
  double start = time_now_s();
  run_all(m, (const rank_program[]){gathers, ends, gathers, gathers});
  CHECK(time_now_s() - start < 30);
  CHECK_EQ(m[1].failure.code, HP_OK);
  bool named = false;
  for (int i = 0; i < RANKS; i++) {
    CHECK(i == 1 || m[i].failure.code);
    named |= strstr(m[i].failure.message, "rank 1 does not come: its program has ended") != NULL;
  }
  CHECK(named);
}

/* Ranks 0 and 1 wait for each other at different rendezvous. */
static hp_status first_of_two(member *m) {
  int64_t sum;
  return gather_of(m, "the sum of two", 2, (const int64_t[]){0, 1}, 1, &sum);
}

TEST(ranks_that_wait_for_each_other_are_told_both_instructions) {
  member m[RANKS];
  run_all(m, (const rank_program[]){first_of_two, gathers, gathers, gathers});
  bool named = false;
  for (int i = 0; i < RANKS; i++) {
    const char *said = m[i].failure.message;
    CHECK(m[i].failure.code);
    named |= strstr(said, "each waits for the other") && strstr(said, "the sum of two") &&
             strstr(said, "all_gather f32[4]");
  }
  CHECK(named);
}

TEST(ranks_begin_again_after_a_failure) {
  comm *c;
  member m[RANKS];
  CHECK_OK(comm_local_open(RANKS, &c));
  run_ranks(c, m, (const rank_program[]){gathers, gathers, gathers, reduces});
  run_ranks(c, m, (const rank_program[]){many_of_two, many_of_two, many_of_two, many_of_two});
  for (int i = 0; i < RANKS; i++) CHECK_EQ(m[i].failure.code, HP_OK);
  c->iface->close(c);
}

static hp_status fails(member *m) {
  (void)m;
  HP_FAIL(HP_ERR_DEVICE, "broken");
}

/* The others of the same communicator fail; rank 0 and 1 have one of their own. */
static hp_status low_or_all(member *m) { return m->rank < 2 ? first_of_two(m) : gathers(m); }

/* Runs one program on both ranks of a mesh of two. */
static void run_two(comm *c, const int64_t rank[2], rank_program run, member m[2]) {
  pthread_t thread[2];
  rank_thread t[2];
  for (int i = 0; i < 2; i++) {
    m[i] = (member){.c = c, .rank = (int)rank[i]};
    t[i] = (rank_thread){&m[i], run};
    CHECK_OK(c->iface->join(c, rank, 2, i, &m[i].everyone));
  }
  c->iface->begin(m[0].everyone);
  for (int i = 0; i < 2; i++) CHECK(!pthread_create(&thread[i], NULL, rank_main, &t[i]));
  for (int i = 0; i < 2; i++) CHECK(!pthread_join(thread[i], NULL));
}

static hp_status gathers_once(member *m) {
  int64_t sum, want = m->everyone->rank[0] + m->everyone->rank[1];
  HP_TRY(gather(m->everyone, "sum of two", m->rank, &sum));
  CHECK_EQ(sum, want);
  return HP_OK;
}

static hp_status second_fails(member *m) {
  HP_TRY(gathers_once(m));
  return m->rank == 1 ? fails(m) : gathers_once(m);
}

/* What the ranks of a failed run do in other meshes does not heal it. */
TEST(a_mesh_begins_again_after_a_failure_though_others_ran_in_between) {
  static const int64_t low[] = {0, 1}, even[] = {0, 2}, odd[] = {1, 3};
  comm *c;
  member m[2];
  CHECK_OK(comm_local_open(RANKS, &c));
  run_two(c, low, second_fails, m);
  CHECK(m[0].failure.code != HP_OK && m[1].failure.code != HP_OK);
  run_two(c, even, gathers_once, m);
  run_two(c, odd, gathers_once, m);
  for (int k = 0; k < 3; k++) {
    run_two(c, low, gathers_once, m);
    CHECK(m[0].failure.code == HP_OK && m[1].failure.code == HP_OK);
  }
  c->iface->close(c);
}

TEST(the_failure_of_a_rank_reaches_only_those_that_wait_for_it) {
  member m[RANKS];
  run_all(m, (const rank_program[]){low_or_all, low_or_all, low_or_all, fails});
  CHECK_EQ(m[0].failure.code, HP_OK);
  CHECK_EQ(m[1].failure.code, HP_OK);
  check_failure(&m[2], HP_ERR_COMM, (const char *const[]){"cannot go on without it", NULL});
  check_failure(&m[3], HP_ERR_DEVICE, (const char *const[]){"broken", NULL});
}

/* --- collectives -------------------------------------------------------------------------------
 */

static hp_status run_collective(member *m, comm_collective_kind kind, const comm_tensor *t,
                                const void *from, void *to) {
  comm_call call = comm_call_of("a collective", NULL);
  double arrived_s = 0, before = time_now_s();
  HP_TRY(m->c->iface->collective[kind](m->everyone, &call, t, from, to, 0, &arrived_s));
  CHECK(arrived_s >= before && arrived_s <= time_now_s());
  return HP_OK;
}

/* Rank r brings [4,2] numbers: row i is 100 r + 10 i, and one more. */
static hp_status runs_collectives(member *m) {
  const int64_t place[RANKS] = {3, 2, 1, 0};
  comm_tensor t = {.type = HP_I32, .shape = {2, {4, 2}}, .reduction = COMM_REDUCE_MAX, .by = 1};
  int32_t x[8], y[8 * RANKS];
  int r = m->rank;
  for (int i = 0; i < 8; i++) x[i] = 100 * r + 10 * (i / 2) + i % 2;
  HP_TRY(run_collective(m, COMM_ALL_GATHER, &t, x, y));
  for (int i = 0; i < 8 * RANKS; i++) CHECK_EQ(y[i], 100 * (i / 8) + 10 * (i % 8 / 2) + i % 2);
  HP_TRY(run_collective(m, COMM_ALL_REDUCE, &t, x, y));
  for (int i = 0; i < 8; i++) CHECK_EQ(y[i], 300 + 10 * (i / 2) + i % 2);
  t.reduction = COMM_REDUCE_SUM;
  HP_TRY(run_collective(m, COMM_REDUCE_SCATTER, &t, x, y));
  for (int i = 0; i < 2; i++) CHECK_EQ(y[i], 600 + 4 * (10 * r + i));
  t.cut = 0;
  t.dim = 1;
  t.place = place;
  HP_TRY(run_collective(m, COMM_ALL_TO_ALL, &t, x, y)); /* [1,8] */
  for (int i = 0; i < 8; i++) CHECK_EQ(y[i], 100 * (i / 2) + 10 * (3 - r) + i % 2);
  HP_TRY(run_collective(m, COMM_PERMUTE, &t, x, y));
  for (int i = 0; i < 8; i++) CHECK_EQ(y[i], 100 * ((r + 3) % 4) + 10 * (i / 2) + i % 2);
  t.dim = 0;
  HP_TRY(run_collective(m, COMM_ZIGZAG, &t, x, y)); /* chunks r and 7 - r of 2 rows */
  for (int i = 0; i < 8; i++) {
    int row = (i < 4 ? 2 * r : 2 * (7 - r)) + i % 4 / 2;
    CHECK_EQ(y[i], 100 * (row / 4) + 10 * (row % 4) + i % 2);
  }
  t.inverse = true;
  memcpy(x, y, sizeof x);
  HP_TRY(run_collective(m, COMM_ZIGZAG, &t, x, y));
  for (int i = 0; i < 8; i++) CHECK_EQ(y[i], 100 * r + 10 * (i / 2) + i % 2);
  return HP_OK;
}

TEST(a_communicator_runs_collectives_of_buffers) {
  member m[RANKS];
  run_all(m, (const rank_program[]){runs_collectives, runs_collectives, runs_collectives,
                                    runs_collectives});
  for (int i = 0; i < RANKS; i++) CHECK_EQ(m[i].failure.code, HP_OK);
}

/* Of rank r: r + 1, -r, and NaN on rank 1 alone. */
static hp_status reduces_by_each(member *m) {
  enum { N = 3 };
  static const struct {
    comm_reduction by;
    float first, second;
    int64_t integer;
  } row[] = {{COMM_REDUCE_SUM, 10, -6, 10},
             {COMM_REDUCE_AVG, 2.5f, -1.5f, 2},
             {COMM_REDUCE_MAX, 4, 0, 4},
             {COMM_REDUCE_MIN, 1, -3, 1},
             {COMM_REDUCE_PROD, 24, 0, 24}};
  float x[N] = {(float)m->rank + 1, (float)-m->rank, m->rank == 1 ? NAN : 1}, y[N];
  int64_t a = m->rank + 1, b;
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    comm_tensor t = {.type = HP_F32, .shape = {1, {N}}, .reduction = row[i].by};
    HP_TRY(run_collective(m, COMM_ALL_REDUCE, &t, x, y));
    CHECK(y[0] == row[i].first && y[1] == row[i].second && isnan(y[2]));
    t.type = HP_I64;
    t.shape = (hp_shape){1, {1}};
    HP_TRY(run_collective(m, COMM_ALL_REDUCE, &t, &a, &b));
    CHECK_EQ(b, row[i].integer);
  }
  return HP_OK;
}

TEST(a_reduction_of_any_kind_keeps_what_is_not_a_number) {
  member m[RANKS];
  run_all(m, (const rank_program[]){reduces_by_each, reduces_by_each, reduces_by_each,
                                    reduces_by_each});
  for (int i = 0; i < RANKS; i++) CHECK_EQ(m[i].failure.code, HP_OK);
}

/* --- transfers -------------------------------------------------------------------------------- */

static comm_transfer transfer(const member *m, bool sends, int peer, int tag, int64_t *data,
                              const comm_call *call) {
  return (comm_transfer){.sends = sends,
                         .rank = m->rank,
                         .peer = peer,
                         .tag = tag,
                         .bytes = sizeof *data,
                         .data = data,
                         .call = call};
}

/* Rank 0 sends tags 0 .. 9 to rank 1, twice each; rank 1 asks for them from the last on. */
static hp_status sends_in_order(member *m) {
  comm_call call = comm_call_of("a number", NULL);
  comm_transfer t[20];
  int64_t data[20];
  for (int k = 0; k < 20; k++) {
    data[k] = k % 10 * 100 + k / 10;
    t[k] = transfer(m, true, 1, k % 10, &data[k], &call);
    HP_TRY(m->c->iface->post(m->c, &t[k]));
  }
  for (int k = 0; k < 20; k++) HP_TRY(m->c->iface->wait(m->c, &t[k]));
  return HP_OK;
}
static hp_status receives_backwards(member *m) {
  comm_call call = comm_call_of("a number", NULL);
  for (int tag = 9; tag >= 0; tag--)
    for (int k = 0; k < 2; k++) {
      int64_t got = -1;
      comm_transfer t = transfer(m, false, 0, tag, &got, &call);
      HP_TRY(m->c->iface->post(m->c, &t));
      HP_TRY(m->c->iface->wait(m->c, &t));
      CHECK_EQ(got, tag * 100 + k);
    }
  return HP_OK;
}

TEST(transfers_are_matched_by_peer_and_tag_whatever_their_order) {
  member m[RANKS];
  for (int k = 0; k < 20; k++) {
    run_all(m, (const rank_program[]){sends_in_order, receives_backwards, ends, ends});
    for (int i = 0; i < RANKS; i++) CHECK_EQ(m[i].failure.code, HP_OK);
  }
}

static hp_status moves_one(member *m, bool sends, int64_t bytes, const char *what) {
  int64_t data[2] = {0};
  comm_call call = comm_call_of(what, NULL);
  comm_transfer t = transfer(m, sends, sends ? 1 : 0, 7, data, &call);
  t.bytes = bytes;
  HP_TRY(m->c->iface->post(m->c, &t));
  return m->c->iface->wait(m->c, &t);
}
static hp_status sends_one(member *m) { return moves_one(m, true, 8, "f32[2]"); }
static hp_status receives_long(member *m) { return moves_one(m, false, 16, "f32[2]"); }
static hp_status receives_ints(member *m) { return moves_one(m, false, 8, "i32[2]"); }

TEST(a_transfer_between_unlike_instructions_is_refused_on_both_ranks) {
  member m[RANKS];
  run_all(m, (const rank_program[]){sends_one, receives_long, ends, ends});
  check_failure(&m[0], HP_ERR_ARG,
                (const char *const[]){"with tag 7 rank 0 sends 8 bytes at f32[2], and rank 1 "
                                      "receives 16 bytes at f32[2]",
                                      NULL});
  check_failure(&m[1], HP_ERR_ARG, (const char *const[]){"rank 1 receives 16 bytes", NULL});
  run_all(m, (const rank_program[]){sends_one, receives_ints, ends, ends});
  check_failure(&m[0], HP_ERR_ARG, (const char *const[]){"at f32[2]", "at i32[2]", NULL});
  check_failure(&m[1], HP_ERR_ARG, (const char *const[]){"at f32[2]", "at i32[2]", NULL});
}

TEST(a_transfer_without_another_end_does_not_hang) {
  member m[RANKS];
  run_all(m, (const rank_program[]){ends, receives_ints, ends, ends});
  check_failure(&m[1], HP_ERR_ARG,
                (const char *const[]){"rank 0 does not come: its program has ended", NULL});
}

/* --- transfers and failures ------------------------------------------------------------------- */

/* Sends a number that nobody takes, and fails: the number is gone with its rank. */
static hp_status sends_and_fails(member *m) {
  int64_t *gone = mem_calloc(1, sizeof *gone);
  comm_call call = comm_call_of("a number", NULL);
  comm_transfer t = transfer(m, true, 1, 7, gone, &call);
  *gone = 13;
  hp_status st = m->c->iface->post(m->c, &t);
  m->c->iface->end(m->everyone, true);
  mem_free(gone);
  HP_TRY(st);
  return fails(m);
}
static hp_status exchanges_numbers(member *m) {
  int64_t x = m->rank == 0 ? 21 : 0;
  comm_call call = comm_call_of("a number", NULL);
  comm_transfer t = transfer(m, m->rank == 0, !m->rank, 7, &x, &call);
  HP_TRY(m->c->iface->post(m->c, &t));
  HP_TRY(m->c->iface->wait(m->c, &t));
  CHECK_EQ(x, 21);
  return HP_OK;
}
TEST(transfers_of_a_rank_that_has_failed_are_gone_in_the_next_run) {
  comm *c;
  member m[RANKS];
  CHECK_OK(comm_local_open(RANKS, &c));
  for (int times = 0; times < 3; times++) {
    run_ranks(c, m, (const rank_program[]){sends_and_fails, ends, ends, ends});
    run_ranks(c, m, (const rank_program[]){exchanges_numbers, exchanges_numbers, ends, ends});
    CHECK(m[0].failure.code == HP_OK && m[1].failure.code == HP_OK);
    run_ranks(c, m, (const rank_program[]){sends_and_fails, receives_long, ends, ends});
    CHECK(m[1].failure.code == HP_ERR_COMM || m[1].failure.code == HP_ERR_ARG);
  }
  c->iface->close(c);
}

static hp_status one_fails(member *m) { return m->rank == 1 ? fails(m) : HP_OK; }
static hp_status one_sends_to_two(member *m) {
  int64_t x = 21;
  comm_call call = comm_call_of("a number", NULL);
  comm_transfer t = transfer(m, true, 2, 7, &x, &call);
  if (m->rank != 1) return HP_OK;
  HP_TRY(m->c->iface->post(m->c, &t));
  return m->c->iface->wait(m->c, &t);
}
static hp_status two_receives(member *m) {
  int64_t x = 0;
  comm_call call = comm_call_of("a number", NULL);
  comm_transfer t = transfer(m, false, 1, 7, &x, &call);
  if (m->rank != 2) return HP_OK;
  HP_TRY(m->c->iface->post(m->c, &t));
  HP_TRY(m->c->iface->wait(m->c, &t));
  CHECK_EQ(x, 21);
  return HP_OK;
}

typedef struct {
  comm *c;
  member m[2];
  rank_program run;
} mesh_thread;

static void *high_main(void *arg) {
  mesh_thread *t = arg;
  run_two(t->c, (const int64_t[]){2, 3}, t->run, t->m);
  return NULL;
}

/* Another mesh waits for a rank between two of its programs, the first of which has failed; a
 * failure while it waits reaches it. */
TEST(a_failure_before_a_transfer_does_not_end_it_and_one_during_it_does) {
  const int64_t low[] = {0, 1};
  mesh_thread high = {.run = two_receives};
  member m[2];
  pthread_t thread;
  CHECK_OK(comm_local_open(RANKS, &high.c));
  for (int fails_again = 0; fails_again < 2; fails_again++) {
    run_two(high.c, low, one_fails, m);
    CHECK_EQ(m[1].failure.code, HP_ERR_DEVICE);
    CHECK(!pthread_create(&thread, NULL, high_main, &high));
    time_sleep_until(time_now_s() + 0.6); /* it waits */
    run_two(high.c, low, fails_again ? one_fails : one_sends_to_two, m);
    CHECK(!pthread_join(thread, NULL));
    CHECK_EQ(high.m[0].failure.code, fails_again ? HP_ERR_COMM : HP_OK);
  }
  high.c->iface->close(high.c);
}
