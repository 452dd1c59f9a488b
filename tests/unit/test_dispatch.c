/* Dispatch and combine against an all_gather whose rows are zeroed and a reduce_scatter, bit by
 * bit, on 1 to 7 ranks, with ids by chance and as bad as can be. */
#include "base/dtype.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "test.h"

#include <pthread.h>
#include <string.h>

enum { RANKS_MAX = 7, EXPERTS = 3 /* of a rank */, WIDTH = 5, SLOTS_MAX = 3, ROWS_MAX = 8 };

/* Which ids rows have. */
typedef enum { BY_CHANCE, OUTSIDE, NOBODY, ALL_TO_ONE, KINDS_OF_IDS } kind_of_ids;

typedef struct {
  int ranks, slots, dim; /* rows [2,4] of a rank; dim of the two that is gathered */
  kind_of_ids kind;
  hp_dtype type;
} setting;

typedef struct {
  const setting *s;
  communicator *c;
  int32_t ids[RANKS_MAX * ROWS_MAX * SLOTS_MAX]; /* of all rows */
  int64_t received, whole;                       /* bytes, of both collectives */
  err_report failure;
} member;

static uint32_t draw(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

static int32_t draw_id(const setting *s, uint32_t *state) {
  int32_t all = s->ranks * EXPERTS, id = (int32_t)(draw(state) % (uint32_t)all);
  switch (s->kind) {
  case OUTSIDE: return (int32_t)(draw(state) % (uint32_t)(3 * all)) - all;
  case NOBODY: return draw(state) % 2 ? -1 : INT32_MAX;
  case ALL_TO_ONE: return all - 1;
  default: return id;
  }
}

static bool needs(const member *m, int64_t rank, int64_t row) {
  for (int j = 0; j < m->s->slots; j++) {
    int32_t id = m->ids[row * m->s->slots + j];
    if (id >= rank * EXPERTS && id < (rank + 1) * EXPERTS) return true;
  }
  return false;
}

/* The row's place among all rows, of the r-th of a rank's shard. */
static int64_t row_of(const setting *s, int64_t rank, int64_t r) {
  if (s->dim == 0) return rank * ROWS_MAX + r;
  return (r / 4 * s->ranks + rank) * 4 + r % 4;
}

static size_t bytes_of_row(const setting *s) { return WIDTH * dtype_size(s->type); }

static void zero_others(const member *m, char *rows, float with) {
  float zero[WIDTH];
  for (int i = 0; i < WIDTH; i++) zero[i] = with;
  for (int64_t row = 0; row < m->s->ranks * ROWS_MAX; row++)
    if (!needs(m, m->c->me, row))
      CHECK_OK(
          dtype_convert(m->s->type, rows + (size_t)row * bytes_of_row(m->s), HP_F32, zero, WIDTH));
}

static void draw_rows(const setting *s, uint32_t seed, int64_t rows, char *to) {
  float x[WIDTH];
  for (int64_t r = 0; r < rows; r++) {
    for (int i = 0; i < WIDTH; i++) {
      uint32_t u = draw(&seed);
      x[i] = u % 16 ? (float)((int32_t)(u % 20011) - 10000) * 0.0137f : -0.0f;
    }
    CHECK_OK(dtype_convert(s->type, to + (size_t)r * bytes_of_row(s), HP_F32, x, WIDTH));
  }
}

static hp_status run(const member *m, comm_collective_kind kind, const comm_tensor *t,
                     const void *from, void *to) {
  comm_call call = comm_call_of(t->rows ? "rows" : "all of them", NULL);
  double arrived_s;
  return m->c->of->iface->collective[kind](m->c, &call, t, from, to, 0, &arrived_s);
}

static void count(member *m, const comm_rows *rows, bool returns) {
  int64_t want = 0, me = m->c->me;
  for (int64_t i = 0; i < m->c->n; i++)
    for (int64_t r = 0; r < ROWS_MAX; r++) {
      int64_t home = returns ? me : i, at = returns ? i : me;
      want += i != me && needs(m, at, row_of(m->s, home, r));
    }
  CHECK_EQ(rows->received, want * (int64_t)bytes_of_row(m->s));
  m->received += rows->received;
  m->whole += (m->c->n - 1) * ROWS_MAX * (int64_t)bytes_of_row(m->s);
}

static hp_status go(member *m) {
  static const int32_t group[RANKS_MAX] = {0, 1, 2, 3, 4, 5, 6};
  char x[RANKS_MAX * ROWS_MAX * WIDTH * 4], got[sizeof x], want[sizeof x];
  int32_t room[2 * RANKS_MAX * ROWS_MAX];
  const setting *s = m->s;
  comm_rows rows = {.ids = m->ids,
                    .dims = 2,
                    .slots = s->slots,
                    .experts = EXPERTS,
                    .shards = s->ranks,
                    .shard_group = group,
                    .member_group = group,
                    .room = room};
  comm_tensor whole = {.type = s->type, .shape = {3, {2, 4, WIDTH}}, .dim = s->dim};
  comm_tensor by_rows = whole;
  by_rows.rows = &rows;
  size_t shard = ROWS_MAX * bytes_of_row(s), all = shard * (size_t)s->ranks;
  draw_rows(s, (uint32_t)(m->c->me + 1), ROWS_MAX, x);
  HP_TRY(run(m, COMM_ALL_GATHER, &whole, x, want));
  zero_others(m, want, 0);
  memset(got, 77, sizeof got);
  HP_TRY(run(m, COMM_DISPATCH, &by_rows, x, got));
  CHECK(!memcmp(got, want, all));
  count(m, &rows, false);
  whole.shape.dim[s->dim] *= s->ranks;
  by_rows.shape = whole.shape;
  draw_rows(s, (uint32_t)(m->c->me + 100), s->ranks * ROWS_MAX, x);
  zero_others(m, x, 0);
  HP_TRY(run(m, COMM_REDUCE_SCATTER, &whole, x, want));
  zero_others(m, x, 1e9f); /* what is not sent is not read */
  memset(got, 77, sizeof got);
  HP_TRY(run(m, COMM_COMBINE, &by_rows, x, got));
  CHECK(!memcmp(got, want, shard));
  count(m, &rows, true);
  return HP_OK;
}

static void *rank_main(void *arg) {
  member *m = arg;
  hp_status st = go(m);
  m->failure.code = HP_OK;
  if (st) err_take(st, &m->failure);
  m->c->of->iface->end(m->c, st != HP_OK);
  return NULL;
}

/* odd: a rank with ids that differ from those of the others; -1: none. */
static void run_setting(const setting *s, int odd, member m[RANKS_MAX]) {
  int64_t rank[RANKS_MAX];
  pthread_t thread[RANKS_MAX];
  comm *c;
  uint32_t state = (uint32_t)s->ranks * 31 + (uint32_t)s->kind;
  CHECK_OK(comm_local_open(s->ranks, &c));
  memset(m, 0, RANKS_MAX * sizeof *m);
  for (int i = 0; i < s->ranks; i++) rank[i] = i;
  for (int k = 0; k < s->ranks * ROWS_MAX * s->slots; k++) m[0].ids[k] = draw_id(s, &state);
  for (int i = 0; i < s->ranks; i++) {
    m[i].s = s;
    memcpy(m[i].ids, m[0].ids, sizeof m[0].ids);
    m[i].ids[0] += i == odd;
    CHECK_OK(c->iface->join(c, rank, s->ranks, i, &m[i].c));
  }
  c->iface->begin(m[0].c);
  for (int i = 0; i < s->ranks; i++) CHECK(!pthread_create(&thread[i], NULL, rank_main, &m[i]));
  for (int i = 0; i < s->ranks; i++) CHECK(!pthread_join(thread[i], NULL));
  c->iface->close(c);
}

TEST(rows_that_are_needed_are_sent_and_added_like_all_rows) {
  static const int ranks[] = {1, 2, 3, 7};
  static member m[RANKS_MAX];
  int64_t received = 0, whole = 0;
  for (int i = 0; i < 4 * KINDS_OF_IDS * 2 * 2; i++)
    for (int slots = 1; slots <= SLOTS_MAX; slots += 2) {
      setting s = {.ranks = ranks[i % 4],
                   .slots = slots,
                   .kind = (kind_of_ids)(i / 4 % KINDS_OF_IDS),
                   .dim = i / 16 % 2,
                   .type = i / 32 ? HP_BF16 : HP_F32};
      run_setting(&s, -1, m);
      for (int k = 0; k < s.ranks; k++) {
        CHECK_EQ(m[k].failure.code, HP_OK);
        if (s.kind == NOBODY) CHECK_EQ(m[k].received, 0);
        received += s.kind == BY_CHANCE && s.ranks == 7 ? m[k].received : 0;
        whole += s.kind == BY_CHANCE && s.ranks == 7 ? m[k].whole : 0;
      }
    }
  CHECK(received > 0 && received * 2 < whole); /* 1 or 3 of 7 devices need a row */
}

TEST(ranks_with_other_ids_are_refused_before_rows_move) {
  static member m[RANKS_MAX];
  setting s = {.ranks = 3, .slots = 1, .type = HP_F32};
  run_setting(&s, 1, m);
  for (int k = 0; k < 3; k++) {
    CHECK_EQ(m[k].failure.code, HP_ERR_ARG);
    CHECK(strstr(m[k].failure.message, "do not match"));
    CHECK(strstr(m[k].failure.message, "rows, ids "));
  }
}
