#include "test.h"

#include "base/mem.h"
#include "prog/vclock.h"

#include <stdlib.h>

enum { MAX = 40, WAITS = 6 };

typedef struct {
  uint8_t stream[MAX];
  uint32_t wait0[MAX + 1];
  vclock_wait wait[MAX * WAITS];
  vclock_program p;
} program;

static void start(program *g, uint32_t streams) {
  memset(g, 0, sizeof *g);
  g->p = (vclock_program){0, streams, g->stream, g->wait0, g->wait};
}
static uint32_t add(program *g, uint8_t stream) {
  uint32_t i = (uint32_t)g->p.n++;
  g->stream[i] = stream;
  g->wait0[i + 1] = g->wait0[i];
  return i;
}
static void wait_for(program *g, uint32_t stream, uint32_t position) {
  g->wait[g->wait0[g->p.n]++] = (vclock_wait){stream, position};
}

TEST(an_instruction_knows_what_its_waits_knew) {
  program g;
  start(&g, 3);
  uint32_t a = add(&g, 0), b = add(&g, 0), c = add(&g, 1);
  wait_for(&g, 0, 0);
  uint32_t d = add(&g, 2);
  wait_for(&g, 1, 0);
  uint32_t e = add(&g, 0);
  wait_for(&g, 2, 0);
  vclock v;
  CHECK_OK(vclock_build(&g.p, &v));
  CHECK(vclock_before(&v, a, b) && vclock_before(&v, a, c) && vclock_before(&v, a, d));
  CHECK(vclock_before(&v, c, d) && vclock_before(&v, c, e) && vclock_before(&v, b, e));
  CHECK(!vclock_before(&v, b, c) && !vclock_before(&v, c, b) && !vclock_before(&v, b, d));
  CHECK(!vclock_before(&v, a, a) && !vclock_before(&v, d, c));
  for (uint32_t i = 0; i < v.n; i++) CHECK_EQ(v.rank[i], i);
  uint32_t dead[3], use[] = {a, c};
  vclock_dead(&v, use, 2, dead);
  CHECK_EQ(dead[0], e); /* b overlaps with c */
  CHECK_EQ(dead[1], VCLOCK_NEVER);
  CHECK_EQ(dead[2], d);
  vclock_free(&v);
}

TEST(waits_that_others_imply_are_removed) {
  program g;
  start(&g, 3);
  add(&g, 0);
  add(&g, 1);
  wait_for(&g, 0, 0);
  wait_for(&g, 0, 0);
  add(&g, 2);
  wait_for(&g, 0, 0); /* implied by the next */
  wait_for(&g, 1, 0);
  add(&g, 2);
  wait_for(&g, 2, 0); /* its own stream */
  wait_for(&g, 1, 0); /* known since the instruction before */
  vclock v;
  CHECK_OK(vclock_build(&g.p, &v));
  uint32_t wait0[MAX + 1];
  vclock_wait wait[MAX];
  vclock_prune(&g.p, &v, wait0, wait);
  CHECK_EQ(wait0[1], 0);
  CHECK_EQ(wait0[2], 1);
  CHECK_EQ(wait0[3], 2);
  CHECK_EQ(wait0[4], 2);
  CHECK(wait[0].stream == 0 && wait[1].stream == 1);
  vclock_free(&v);
}

TEST(a_wait_for_a_later_instruction_is_fine_unless_it_closes_a_ring) {
  program g;
  start(&g, 2);
  uint32_t a = add(&g, 0);
  wait_for(&g, 1, 0);
  uint32_t b = add(&g, 1);
  vclock v;
  CHECK_OK(vclock_build(&g.p, &v));
  CHECK(vclock_before(&v, b, a));
  CHECK_EQ(v.rank[b], 0);
  CHECK_EQ(v.rank[a], 1);
  vclock_free(&v);
  wait_for(&g, 0, 0);
  CHECK_FAILS(vclock_build(&g.p, &v), "instruction 0 (compute 0) waits for instruction 1 (comm 0)");
}

TEST(deadlocks_and_waits_that_never_end_are_named) {
  program g;
  vclock v;
  start(&g, 2);
  add(&g, 0);
  wait_for(&g, 1, 3);
  add(&g, 1);
  CHECK_FAILS(vclock_build(&g.p, &v), "waits for comm 3, which never comes: comm has 1");
  start(&g, 2);
  add(&g, 0);
  wait_for(&g, 7, 0);
  CHECK_FAILS(vclock_build(&g.p, &v), "waits for stream 7");
  start(&g, 2);
  add(&g, 5);
  CHECK_FAILS(vclock_build(&g.p, &v), "is on stream 5");
  start(&g, 1);
  add(&g, 0);
  wait_for(&g, 0, 0);
  CHECK_FAILS(vclock_build(&g.p, &v), "can never finish");
  start(&g, 1);
  add(&g, 0);
  wait_for(&g, 0, UINT32_MAX);
  CHECK_FAILS(vclock_build(&g.p, &v), "never comes");
  start(&g, 9);
  CHECK_FAILS(vclock_build(&g.p, &v), "9 streams");
  start(&g, 1);
  CHECK_OK(vclock_build(&g.p, &v)); /* empty */
  vclock_free(&v);
}

/* reach[a][b]: a path of stream order and waits leads from a to b. */
static void closure(const program *g, bool reach[MAX][MAX]) {
  uint32_t at[STREAM_MAX][MAX], length[STREAM_MAX] = {0};
  memset(reach, 0, sizeof(bool[MAX][MAX]));
  for (uint32_t i = 0; i < g->p.n; i++) at[g->stream[i]][length[g->stream[i]]++] = i;
  for (uint32_t s = 0; s < g->p.streams; s++)
    for (uint32_t k = 1; k < length[s]; k++) reach[at[s][k - 1]][at[s][k]] = true;
  for (uint32_t i = 0; i < g->p.n; i++)
    for (uint32_t k = g->wait0[i]; k < g->wait0[i + 1]; k++)
      reach[at[g->wait[k].stream][g->wait[k].position]][i] = true;
  for (uint32_t k = 0; k < g->p.n; k++)
    for (uint32_t i = 0; i < g->p.n; i++)
      for (uint32_t j = 0; j < g->p.n; j++)
        if (reach[i][k] && reach[k][j]) reach[i][j] = true;
}

static void random_program(program *g, unsigned *seed) {
  uint32_t n = (uint32_t)rand_r(seed) % MAX, streams = 1 + (uint32_t)rand_r(seed) % 5;
  uint32_t length[STREAM_MAX] = {0};
  start(g, streams);
  /* first the streams, so that a wait may name a later instruction */
  for (uint32_t i = 0; i < n; i++) {
    g->stream[i] = (uint8_t)((uint32_t)rand_r(seed) % streams);
    length[g->stream[i]]++;
  }
  bool forward = rand_r(seed) % 3 == 0;
  uint32_t so_far[STREAM_MAX] = {0};
  for (uint32_t i = 0; i < n; i++) {
    g->p.n = i + 1;
    g->wait0[i + 1] = g->wait0[i];
    for (uint32_t k = (uint32_t)rand_r(seed) % WAITS; k--;) {
      uint32_t s = (uint32_t)rand_r(seed) % streams;
      uint32_t most = forward && rand_r(seed) % 8 == 0 ? length[s] : so_far[s];
      if (most) wait_for(g, s, (uint32_t)rand_r(seed) % most);
    }
    so_far[g->stream[i]]++;
  }
}

TEST(clocks_equal_the_transitive_closure_on_random_programs) {
  unsigned seed = 7;
  static bool reach[MAX][MAX], reach2[MAX][MAX];
  int good = 0, bad = 0;
  for (int round = 0; round < 3000; round++) {
    program g, pruned;
    vclock v;
    random_program(&g, &seed);
    closure(&g, reach);
    bool cycle = false;
    for (uint32_t i = 0; i < g.p.n; i++) cycle |= reach[i][i];
    if (cycle) {
      bad++;
      CHECK_FAILS(vclock_build(&g.p, &v), "can never finish");
      continue;
    }
    good++;
    CHECK_OK(vclock_build(&g.p, &v));
    for (uint32_t a = 0; a < g.p.n; a++)
      for (uint32_t b = 0; b < g.p.n; b++) {
        CHECK_EQ(vclock_before(&v, a, b), reach[a][b]);
        if (reach[a][b]) CHECK(v.rank[a] < v.rank[b]);
      }
    for (uint32_t a = 0; a < g.p.n; a++) {
      uint32_t dead[STREAM_MAX], use[] = {a, (uint32_t)rand_r(&seed) % (uint32_t)g.p.n};
      vclock_dead(&v, use, 2, dead);
      for (uint32_t b = 0; b < g.p.n; b++)
        CHECK_EQ(v.rank[b] >= dead[g.stream[b]], reach[use[0]][b] && reach[use[1]][b]);
    }
    /* pruning keeps the order, and nothing that is left can go */
    pruned = g;
    pruned.p.stream = pruned.stream, pruned.p.wait0 = pruned.wait0, pruned.p.wait = pruned.wait;
    vclock_prune(&g.p, &v, pruned.wait0, pruned.wait);
    closure(&pruned, reach2);
    CHECK(!memcmp(reach, reach2, sizeof reach));
    for (uint32_t k = 0; k < pruned.wait0[g.p.n]; k++) {
      program less = pruned;
      less.p.stream = less.stream, less.p.wait0 = less.wait0, less.p.wait = less.wait;
      for (uint32_t j = k; j + 1 < pruned.wait0[g.p.n]; j++) less.wait[j] = less.wait[j + 1];
      for (uint32_t i = 0; i <= g.p.n; i++) less.wait0[i] -= less.wait0[i] > k;
      if (round % 10 == 0) {
        closure(&less, reach2);
        CHECK(memcmp(reach, reach2, sizeof reach));
      }
    }
    vclock_free(&v);
  }
  CHECK(good > 1000 && bad > 100);
}

TEST(building_clocks_survives_every_failed_allocation) {
  program g;
  unsigned seed = 3;
  do random_program(&g, &seed);
  while (g.p.n < 10);
  for (uint64_t k = 1;; k++) {
    vclock v = {0};
    mem_fail_at(k);
    hp_status st = vclock_build(&g.p, &v);
    mem_fail_at(0);
    vclock_free(&v);
    if (st != HP_ERR_OOM) break;
    err_clear();
    CHECK(k < 20);
  }
}
