#include "test.h"

#include "base/mem.h"
#include "mem/offsets.h"
#include "prog/vclock.h"

#include <stdlib.h>

enum { MAX = 40 };

static uint32_t draw(unsigned *seed, uint32_t below) { return (uint32_t)rand_r(seed) % below; }

static uint64_t size_of(const offsets_buffer *b) {
  uint64_t align = b->align ? b->align : OFFSETS_ALIGN;
  return (b->size + align - 1) / align * align;
}

/* Overlap of two buffers that may not overlap, by looking at every pair; groups as a whole. */
static bool overlap(const offsets_problem *p, const uint64_t *offset) {
  for (uint32_t a = 0; a < p->n; a++)
    for (uint32_t b = 0; b < p->n; b++)
      if (offsets_conflict(p, a, b) && offset[a] < offset[b] + size_of(&p->buffer[b]) &&
          offset[b] < offset[a] + size_of(&p->buffer[a]))
        return true;
  return false;
}

static uint64_t peak_of(const offsets_problem *p, const uint64_t *offset, uint8_t tier) {
  uint64_t peak = 0;
  for (uint32_t i = 0; i < p->n; i++)
    if (p->buffer[i].tier == tier && p->buffer[i].size && offset[i] + size_of(&p->buffer[i]) > peak)
      peak = offset[i] + size_of(&p->buffer[i]);
  return peak;
}

/* The least peak: every order, each buffer as low as it fits above or between those before it. */
typedef struct {
  const offsets_problem *p;
  uint64_t offset[MAX], best;
  bool placed[MAX];
} brute;

static void place_rest(brute *w, uint32_t done, uint64_t peak) {
  const offsets_buffer *b = w->p->buffer;
  if (peak >= w->best) return;
  if (done == w->p->n) {
    w->best = peak;
    return;
  }
  for (uint32_t i = 0; i < w->p->n; i++) {
    if (w->placed[i]) continue;
    uint64_t align = b[i].align ? b[i].align : OFFSETS_ALIGN, at = 0;
    bool moved = !b[i].fixed;
    if (b[i].fixed) at = b[i].offset;
    while (moved) {
      moved = false;
      for (uint32_t k = 0; k < w->p->n; k++) {
        uint64_t end = w->offset[k] + size_of(&b[k]);
        if (!w->placed[k] || !offsets_conflict(w->p, i, k) || at >= end ||
            w->offset[k] >= at + size_of(&b[i]))
          continue;
        at = (end + align - 1) / align * align;
        moved = true;
      }
    }
    w->placed[i] = true;
    w->offset[i] = at;
    uint64_t end = b[i].size ? at + size_of(&b[i]) : 0;
    place_rest(w, done + 1, end > peak ? end : peak);
    w->placed[i] = false;
  }
}

static uint64_t least_peak(const offsets_problem *p) {
  brute w = {.p = p, .best = UINT64_MAX};
  uint64_t peak = 0;
  uint32_t done = 0;
  for (uint32_t i = 0; i < p->n; i++) /* fixed ones first: they block the others in every order */
    if (p->buffer[i].fixed) {
      w.placed[i] = true, w.offset[i] = p->buffer[i].offset, done++;
      uint64_t end = p->buffer[i].offset + size_of(&p->buffer[i]);
      if (p->buffer[i].size && end > peak) peak = end;
    }
  place_rest(&w, done, peak);
  return w.best;
}

TEST(buffers_that_live_together_lie_apart_and_others_share) {
  const offsets_buffer b[] = {{.size = 100, .first = 0, .last = 3},
                              {.size = 300, .first = 1, .last = 2},
                              {.size = 200, .first = 3, .last = 5},
                              {.size = 0, .first = 0, .last = 9},
                              {.size = 512, .tier = 2, .first = 0, .last = 9}};
  offsets_problem p = {.buffer = b, .n = 5};
  uint64_t offset[5];
  offsets_summary s;
  CHECK_OK(offsets_assign(&p, offset, &s));
  CHECK(!overlap(&p, offset));
  CHECK_OK(offsets_verify(&p, offset));
  CHECK_EQ(s.peak[0], 256 + 512);
  CHECK_EQ(s.bound[0], 256 + 512);
  CHECK_EQ(s.bound_at[0], 1);
  CHECK_EQ(s.peak[1], 0);
  CHECK_EQ(s.peak[2], 512);
  CHECK(offset[0] % 256 == 0 && offset[1] % 256 == 0);
  CHECK_OK(offsets_assign(&(offsets_problem){.n = 0}, NULL, &s));
  CHECK_EQ(s.peak[0], 0);
}

static void random_buffers(unsigned *seed, offsets_buffer *b, uint32_t n, bool fixed) {
  uint64_t top = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t x = draw(seed, 8), y = draw(seed, 8);
    b[i] = (offsets_buffer){.size = draw(seed, 12), .align = 1u << draw(seed, 4)};
    if (draw(seed, 2)) b[i].align = 1;
    b[i].first = x < y ? x : y, b[i].last = x < y ? y : x;
    if (fixed && draw(seed, 4) == 0) {
      b[i].fixed = true;
      b[i].offset = top + 8 * draw(seed, 2); /* fixed ones one above the other, with holes */
      top = (b[i].offset + size_of(&b[i]) + 7) / 8 * 8;
    }
  }
}

TEST(small_plans_are_optimal) {
  unsigned seed = 5;
  int above_bound = 0;
  for (int round = 0; round < 600; round++) {
    offsets_buffer b[8];
    uint32_t n = 1 + draw(&seed, round % 50 ? 7 : 8);
    random_buffers(&seed, b, n, false);
    offsets_problem p = {.buffer = b, .n = n, .effort = OFFSETS_EFFORT};
    uint64_t offset[8];
    offsets_summary s;
    CHECK_OK(offsets_assign(&p, offset, &s));
    CHECK(!overlap(&p, offset));
    CHECK_OK(offsets_verify(&p, offset));
    CHECK_EQ(s.peak[0], peak_of(&p, offset, 0));
    uint64_t best = least_peak(&p);
    CHECK_EQ(s.peak[0], best);
    CHECK(s.bound[0] <= best);
    p.effort = 0;
    CHECK_OK(offsets_assign(&p, offset, &s));
    CHECK(!overlap(&p, offset));
    CHECK(s.peak[0] >= best);
    above_bound += s.bound[0] < best;
  }
  CHECK(above_bound > 0); /* the search had something to prove */
}

TEST(fixed_offsets_are_kept_and_the_rest_fits_around_them) {
  unsigned seed = 6;
  int optimal = 0, rounds = 400;
  for (int round = 0; round < rounds; round++) {
    offsets_buffer b[7];
    uint32_t n = 1 + draw(&seed, 7);
    random_buffers(&seed, b, n, true);
    offsets_problem p = {.buffer = b, .n = n, .effort = OFFSETS_EFFORT / 100};
    uint64_t offset[7];
    offsets_summary s;
    CHECK_OK(offsets_assign(&p, offset, &s));
    CHECK(!overlap(&p, offset));
    CHECK_OK(offsets_verify(&p, offset));
    for (uint32_t i = 0; i < n; i++)
      if (b[i].fixed) CHECK_EQ(offset[i], b[i].offset);
    uint64_t best = least_peak(&p);
    CHECK(s.peak[0] >= best && s.bound[0] <= best);
    optimal += s.peak[0] == best;
  }
  CHECK(optimal > rounds * 95 / 100);
}

TEST(an_alias_group_is_one_place_of_its_largest_size_for_all_its_live_range) {
  const offsets_buffer b[] =
      {{.size = 256, .first = 0, .last = 2, .alias = 7},
       {.size = 512, .first = 2, .last = 4, .alias = 7},
       {.size = 256, .first = 1, .last = 3},
       {.size = 256, .first = 4, .last = 6, .alias = 9},
       {.size = 256, .first = 6, .last = 8, .alias = 9, .fixed = true, .offset = 1024}};
  offsets_problem p = {.buffer = b, .n = 5};
  uint64_t offset[5];
  offsets_summary s;
  CHECK_OK(offsets_assign(&p, offset, &s));
  CHECK_EQ(offset[0], offset[1]);
  CHECK(offset[2] + 256 <= offset[0] || offset[0] + 512 <= offset[2]);
  CHECK_EQ(offset[3], 1024);
  CHECK_EQ(offset[4], 1024);
  CHECK(!offsets_conflict(&p, 0, 1) && offsets_conflict(&p, 1, 2) && offsets_conflict(&p, 0, 2));
  CHECK_OK(offsets_verify(&p, offset));
  offset[1] += 256;
  CHECK_FAILS(offsets_verify(&p, offset), "buffers 0 and 1 are aliases but lie at");
}

TEST(alias_groups_plan_like_one_buffer_each) {
  unsigned seed = 8;
  for (int round = 0; round < 300; round++) {
    offsets_buffer b[10], one[10];
    uint32_t n = 2 + draw(&seed, 8), of[10], n_one = 0, item[4] = {0};
    random_buffers(&seed, b, n, false);
    for (uint32_t i = 0; i < n; i++) {
      b[i].size++; /* empty members would not show */
      b[i].alias = draw(&seed, 4);
      uint32_t g = b[i].alias;
      if (!g || !item[g]) {
        one[n_one] = b[i];
        one[n_one].alias = 0;
        of[i] = n_one++;
        if (g) item[g] = n_one; /* plus one */
        continue;
      }
      offsets_buffer *o = &one[of[i] = item[g] - 1];
      if (b[i].first < o->first) o->first = b[i].first;
      if (b[i].last > o->last) o->last = b[i].last;
      if (b[i].size > o->size) o->size = b[i].size;
      if (b[i].align > o->align) o->align = b[i].align;
    }
    offsets_problem p = {.buffer = b, .n = n}, q = {.buffer = one, .n = n_one};
    uint64_t at[10], at_one[10];
    offsets_summary s, s_one;
    CHECK_OK(offsets_assign(&p, at, &s));
    CHECK_OK(offsets_assign(&q, at_one, &s_one));
    CHECK(!overlap(&q, at_one));
    CHECK_EQ(s.peak[0], s_one.peak[0]);
    for (uint32_t i = 0; i < n; i++) CHECK_EQ(at[i], at_one[of[i]]);
    CHECK_OK(offsets_verify(&p, at));
  }
}

/* A random program on several streams with a buffer per instruction, and what is before what. */
typedef struct {
  uint32_t n, streams;
  uint8_t stream[MAX];
  uint32_t wait0[MAX + 1];
  vclock_wait wait[4 * MAX];
  bool before[MAX][MAX];
  uint32_t use[MAX][4], n_use[MAX];
  offsets_buffer buffer[MAX];
  uint32_t dead[MAX * STREAM_MAX];
} program;

static void random_program(unsigned *seed, program *g, uint32_t n) {
  uint32_t length[STREAM_MAX] = {0}, at[STREAM_MAX][MAX];
  memset(g, 0, sizeof *g);
  g->n = n;
  g->streams = 2 + draw(seed, 3);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t s = draw(seed, g->streams);
    g->stream[i] = (uint8_t)s;
    if (length[s]) g->before[at[s][length[s] - 1]][i] = true;
    g->wait0[i + 1] = g->wait0[i];
    for (uint32_t k = draw(seed, 3); k--;) {
      uint32_t t = draw(seed, g->streams);
      if (!length[t]) continue;
      uint32_t x = draw(seed, length[t]);
      g->wait[g->wait0[i + 1]++] = (vclock_wait){t, x};
      g->before[at[t][x]][i] = true;
    }
    at[s][length[s]++] = i;
  }
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t i = 0; i < n; i++)
      for (uint32_t j = 0; j < n; j++)
        if (g->before[i][k] && g->before[k][j]) g->before[i][j] = true;
  vclock v;
  CHECK_OK(vclock_build(&(vclock_program){n, g->streams, g->stream, g->wait0, g->wait}, &v));
  for (uint32_t i = 0; i < n; i++) {
    g->buffer[i] = (offsets_buffer){.size = draw(seed, 9),
                                    .align = 1,
                                    .first = i,
                                    .last = i,
                                    .stream = g->stream[i]};
    g->use[i][g->n_use[i]++] = i;
    for (uint32_t k = draw(seed, 4); k--;) {
      uint32_t u = draw(seed, n);
      if (!g->before[i][u]) continue;
      g->use[i][g->n_use[i]++] = u;
      if (u > g->buffer[i].last) g->buffer[i].last = u;
    }
    vclock_dead(&v, g->use[i], g->n_use[i], g->dead + (size_t)i * g->streams);
  }
  vclock_free(&v);
}

static bool dies_before(const program *g, uint32_t a, uint32_t b) {
  for (uint32_t k = 0; k < g->n_use[a]; k++)
    if (!g->before[g->use[a][k]][b]) return false;
  return true;
}

TEST(on_several_streams_buffers_share_iff_one_surely_dies_before_the_other_is_made) {
  unsigned seed = 9;
  for (int round = 0; round < 400; round++) {
    static program g;
    random_program(&seed, &g, 2 + draw(&seed, round % 4 ? 5 : MAX - 2));
    offsets_problem p = {.buffer = g.buffer,
                         .n = g.n,
                         .streams = g.streams,
                         .dead = g.dead,
                         .effort = OFFSETS_EFFORT / (g.n <= 7 ? 20 : 200)};
    for (uint32_t a = 0; a < g.n; a++)
      for (uint32_t b = 0; b < g.n; b++)
        CHECK_EQ(offsets_conflict(&p, a, b), a != b && g.buffer[a].size && g.buffer[b].size &&
                                                 !dies_before(&g, a, b) && !dies_before(&g, b, a));
    uint64_t offset[MAX];
    offsets_summary s;
    CHECK_OK(offsets_assign(&p, offset, &s));
    CHECK(!overlap(&p, offset));
    CHECK_OK(offsets_verify(&p, offset));
    CHECK_EQ(s.peak[0], peak_of(&p, offset, 0));
    CHECK(s.bound[0] <= s.peak[0]);
    if (g.n <= 7) CHECK_EQ(s.peak[0], least_peak(&p));
  }
}

TEST(groups_over_several_streams_conflict_with_whatever_meets_them) {
  unsigned seed = 10;
  for (int round = 0; round < 200; round++) {
    static program g;
    random_program(&seed, &g, 2 + draw(&seed, 20));
    for (uint32_t i = 0; i < g.n; i++) g.buffer[i].alias = draw(&seed, 8);
    offsets_problem p = {.buffer = g.buffer, .n = g.n, .streams = g.streams, .dead = g.dead};
    uint64_t offset[MAX];
    offsets_summary s;
    CHECK_OK(offsets_assign(&p, offset, &s));
    CHECK(!overlap(&p, offset));
    CHECK_OK(offsets_verify(&p, offset));
    for (uint32_t a = 0; a < g.n; a++)
      for (uint32_t b = 0; b < g.n; b++)
        if (g.buffer[a].alias && g.buffer[a].alias == g.buffer[b].alias)
          CHECK_EQ(offset[a], offset[b]);
  }
}

TEST(verification_finds_every_overlap) {
  unsigned seed = 12;
  int good = 0, bad = 0;
  for (int round = 0; round < 3000; round++) {
    static program g;
    random_program(&seed, &g, 2 + draw(&seed, 10));
    offsets_problem p = {.buffer = g.buffer, .n = g.n, .streams = g.streams, .dead = g.dead};
    uint64_t offset[MAX];
    for (uint32_t i = 0; i < g.n; i++) {
      offset[i] = draw(&seed, 60);
      g.buffer[i].tier = (uint8_t)draw(&seed, 2);
    }
    if (overlap(&p, offset)) {
      bad++;
      CHECK_FAILS(offsets_verify(&p, offset), "are live together but overlap");
    } else {
      good++;
      CHECK_OK(offsets_verify(&p, offset));
    }
  }
  CHECK(good > 300 && bad > 300);
  const offsets_buffer b[] = {{.size = 1, .last = 1}, {.size = 1, .last = 1, .fixed = true}};
  offsets_problem p = {.buffer = b, .n = 2};
  CHECK_FAILS(offsets_verify(&p, (uint64_t[]){100, 0}), "expected a multiple of 256");
  CHECK_FAILS(offsets_verify(&p, (uint64_t[]){0, 256}), "is fixed at 0 but lies at 256");
}

static hp_status assign_one(offsets_buffer b) {
  uint64_t offset;
  offsets_summary s;
  return offsets_assign(&(offsets_problem){.buffer = &b, .n = 1}, &offset, &s);
}

TEST(what_makes_no_sense_is_refused_by_name) {
  const uint64_t huge = UINT64_C(1) << 63;
  CHECK_FAILS(assign_one((offsets_buffer){.size = huge}), "buffer 0: 9223372036854775808 bytes");
  CHECK_FAILS(assign_one((offsets_buffer){.size = UINT64_MAX}), "at most 2^62");
  CHECK_FAILS(assign_one((offsets_buffer){.size = 1, .fixed = true, .offset = huge}), "2^62");
  CHECK_FAILS(assign_one((offsets_buffer){.size = 1, .align = 24}), "power of two");
  CHECK_FAILS(assign_one((offsets_buffer){.size = 1, .align = huge}), "power of two up to 2^40");
  CHECK_FAILS(assign_one((offsets_buffer){.size = 1, .fixed = true, .offset = 8}), "no multiple");
  CHECK_FAILS(assign_one((offsets_buffer){.size = 1, .first = 3, .last = 2}), "first <= last");
  CHECK_FAILS(assign_one((offsets_buffer){.size = 1, .last = UINT32_MAX}), "first <= last");
  CHECK_FAILS(assign_one((offsets_buffer){.size = 1, .tier = 8}), "tier 8");
  CHECK_FAILS(assign_one((offsets_buffer){.size = 1, .stream = 1}), "stream 1");
  CHECK_OK(assign_one((offsets_buffer){.size = UINT64_C(1) << 62}));
  CHECK_OK(
      assign_one((offsets_buffer){.size = 1, .first = UINT32_MAX - 2, .last = UINT32_MAX - 2}));

  uint64_t offset[2];
  offsets_summary s;
  offsets_buffer b[] = {{.size = UINT64_C(1) << 61, .last = 1}, {.size = (UINT64_C(1) << 61) + 1}};
  offsets_problem p = {.buffer = b, .n = 2};
  CHECK_FAILS(offsets_assign(&p, offset, &s), "add up to more than 2^62");
  b[0] = (offsets_buffer){.size = 512, .last = 4, .fixed = true};
  b[1] = (offsets_buffer){.size = 512, .last = 4, .fixed = true, .offset = 256};
  CHECK_FAILS(offsets_assign(&p, offset, &s), "buffers 0 and 1 are live together but fixed");
  b[0].alias = b[1].alias = 3;
  CHECK_FAILS(offsets_assign(&p, offset, &s), "buffers 0 and 1 are aliases (group 3) but fixed at");
  b[1].offset = 0, b[1].tier = 1;
  CHECK_FAILS(offsets_assign(&p, offset, &s), "in tiers 0 and 1");
  b[1].tier = 0;
  p.streams = 2;
  CHECK_FAILS(offsets_assign(&p, offset, &s), "no table of when");
  p.dead = (const uint32_t[]){5, 4, 5, 5};
  CHECK_FAILS(offsets_assign(&p, offset, &s),
              "buffer 0: dead on stream 1 at 4, but last used at 4");
  p.streams = 9;
  CHECK_FAILS(offsets_assign(&p, offset, &s), "9 streams");
}

/* Layers whose saved values live until the way back, with short ones between. */
static uint32_t layered(offsets_buffer *b, uint32_t layers) {
  uint32_t n = 0, at = 0, end = layers * 6;
  unsigned seed = 4;
  for (uint32_t l = 0; l < layers; l++) {
    uint64_t unit = 256 * (1 + draw(&seed, 7));
    for (uint32_t k = 0; k < 3; k++, at++)
      b[n++] =
          (offsets_buffer){.size = unit * (k + 1), .first = at, .last = k == 1 ? at + 1 : end - at};
  }
  for (uint32_t l = layers; l-- > 0;)
    for (uint32_t k = 0; k < 3; k++, at++)
      b[n++] = (offsets_buffer){.size = 768, .first = at, .last = at + 1 + k};
  return n;
}

TEST(a_layered_program_needs_no_more_than_its_live_bytes_and_plans_the_same_twice) {
  enum { LAYERS = 400 };
  offsets_buffer *b = calloc(LAYERS * 6, sizeof *b);
  uint64_t *x = calloc(LAYERS * 6, sizeof *x), *y = calloc(LAYERS * 6, sizeof *y);
  CHECK(b && x && y);
  offsets_problem p = {.buffer = b, .n = layered(b, LAYERS), .effort = OFFSETS_EFFORT};
  offsets_summary s, s2;
  CHECK_OK(offsets_assign(&p, x, &s));
  CHECK_OK(offsets_verify(&p, x));
  CHECK(s.peak[0] - s.bound[0] <= s.bound[0] / 1024);
  CHECK_OK(offsets_assign(&p, y, &s2));
  CHECK(!memcmp(x, y, p.n * sizeof *x) && !memcmp(&s, &s2, sizeof s));
  free(b), free(x), free(y);
}

/* 20,000 buffers of many sizes on four streams, a quarter of them live at a time. */
static void crowd(offsets_buffer *b, uint32_t *dead, uint32_t n) {
  unsigned seed = 11;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t length = 1 + draw(&seed, n / 2);
    b[i] = (offsets_buffer){.size = 1 + draw(&seed, 1 << 20),
                            .first = i,
                            .last = i + length < n ? i + length : n - 1,
                            .stream = (uint8_t)draw(&seed, 4)};
    for (uint32_t s = 0; s < 4; s++) {
      uint32_t d = b[i].last + 1 + (s == b[i].stream ? 0 : draw(&seed, length));
      dead[i * 4 + s] = d < n ? d : OFFSETS_NEVER;
    }
  }
}

TEST(a_plan_of_many_buffers_keeps_to_its_effort_and_is_no_waste) {
  enum { N = 20000 };
  offsets_buffer *b = calloc(N, sizeof *b);
  uint32_t *dead = calloc(N * 4, sizeof *dead);
  uint64_t *offset = calloc(N, sizeof *offset);
  CHECK(b && dead && offset);
  crowd(b, dead, N);
  for (uint64_t effort = 0; effort <= OFFSETS_EFFORT; effort += OFFSETS_EFFORT) {
    offsets_problem p = {.buffer = b, .n = N, .streams = 4, .dead = dead, .effort = effort};
    offsets_summary s;
    CHECK_OK(offsets_assign(&p, offset, &s));
    CHECK_OK(offsets_verify(&p, offset));
    uint64_t least = 2048 * N; /* a first plan comes out in any case, and is no waste */
    CHECK(s.steps <= 3 * (effort ? effort : least));
    CHECK(s.peak[0] <= s.bound[0] * 5 / 4);
  }
  free(b), free(dead), free(offset);
}

TEST(planning_survives_every_failed_allocation) {
  static program g;
  unsigned seed = 1;
  do random_program(&seed, &g, 20);
  while (g.streams != 2);
  g.buffer[3].alias = g.buffer[9].alias = 1;
  offsets_problem p =
      {.buffer = g.buffer, .n = g.n, .streams = 2, .dead = g.dead, .effort = 100000, .limit = {1}};
  uint64_t offset[MAX];
  offsets_summary s;
  for (int what = 0; what < 2; what++)
    for (uint64_t k = 1;; k++) {
      mem_fail_at(k);
      hp_status st = what ? offsets_verify(&p, offset) : offsets_assign(&p, offset, &s);
      mem_fail_at(0);
      err_clear();
      if (st != HP_ERR_OOM) break;
      CHECK(k < 200);
    }
}

TEST(plans_without_a_limit_are_improved_to_a_thousandth_above_the_bound) {
  enum { N = 75 };
  unsigned seed = 77;
  for (int round = 0; round < 40; round++) {
    offsets_buffer b[N];
    uint64_t offset[N];
    offsets_summary s;
    for (uint32_t i = 0; i < N; i++) {
      uint32_t x = draw(&seed, 2 * N), y = x + draw(&seed, 10);
      b[i] = (offsets_buffer){.size = 1 + draw(&seed, 4000), .align = 1, .first = x, .last = y};
    }
    offsets_problem p = {.buffer = b, .n = N, .effort = OFFSETS_EFFORT};
    CHECK_OK(offsets_assign(&p, offset, &s));
    CHECK(s.peak[0] <= s.bound[0] + s.bound[0] / 1024);
  }
}

/* --- ties ------------------------------------------------------------------------------------- */

TEST(memory_between_the_lives_of_tied_buffers_is_free) {
  const offsets_buffer b[] = {{.size = 512, .first = 0, .last = 1, .tie = 4},
                              {.size = 512, .first = 3, .last = 5},
                              {.size = 512, .first = 8, .last = 9, .tie = 4},
                              {.size = 256, .first = 0, .last = 9}};
  offsets_problem p = {.buffer = b, .n = 4};
  uint64_t offset[4];
  offsets_summary s;
  CHECK_OK(offsets_assign(&p, offset, &s));
  CHECK_EQ(s.peak[0], 768);
  CHECK_EQ(offset[0], offset[2]);
  CHECK_EQ(offset[0], offset[1]);
  offset[2] = offset[0] + 4096;
  CHECK_FAILS(offsets_verify(&p, offset), "buffers 0 and 2 are tied but lie at");
}

/* Buffers of one size that never live together are tied, where there are such. */
TEST(tied_buffers_have_one_offset_that_is_free_in_all_their_lives) {
  unsigned seed = 61;
  int ties = 0, above = 0;
  for (int round = 0; round < 300; round++) {
    enum { N = 24 };
    offsets_buffer b[N];
    uint32_t streams = 1 + (uint32_t)round % 3, dead[3 * N], tie = 0;
    uint64_t offset[N];
    offsets_summary s;
    for (uint32_t i = 0; i < N; i++) {
      uint32_t first = draw(&seed, 40), last = first + draw(&seed, 12);
      b[i] = (offsets_buffer){.size = 256 * (1 + draw(&seed, 3)), .first = first, .last = last};
      b[i].stream = (uint8_t)draw(&seed, streams);
      for (uint32_t t = 0; t < streams; t++)
        dead[i * streams + t] = last + 1 + (t == b[i].stream ? 0 : draw(&seed, 4));
    }
    offsets_problem p = {.buffer = b,
                         .n = N,
                         .streams = streams,
                         .dead = dead,
                         .effort = OFFSETS_EFFORT / 1000};
    for (uint32_t i = 0; i < N; i++)
      for (uint32_t k = i + 1; k < N && !b[i].tie; k++) {
        if (b[k].tie || b[k].size != b[i].size || offsets_conflict(&p, i, k)) continue;
        b[i].tie = b[k].tie = ++tie;
      }
    CHECK_OK(offsets_assign(&p, offset, &s));
    CHECK_OK(offsets_verify(&p, offset));
    CHECK(!overlap(&p, offset));
    CHECK_EQ(s.peak[0], peak_of(&p, offset, 0));
    CHECK(s.bound[0] <= s.peak[0]);
    for (uint32_t i = 0; i < N; i++)
      for (uint32_t k = 0; k < i && b[i].tie; k++)
        if (b[k].tie == b[i].tie) CHECK_EQ(offset[k], offset[i]);
    ties += (int)tie;
    above += s.peak[0] > s.bound[0] + s.bound[0] / 4;
  }
  CHECK(ties > 1000);
  CHECK(above < 60); /* as placing pairs one by one, with nothing in between, would not do */
}

TEST(ties_that_make_no_sense_are_refused) {
  uint64_t offset[2];
  offsets_summary s;
  offsets_buffer b[] = {{.size = 512, .first = 0, .last = 4, .tie = 1},
                        {.size = 512, .first = 4, .last = 6, .tie = 1}};
  offsets_problem p = {.buffer = b, .n = 2};
  CHECK_FAILS(offsets_assign(&p, offset, &s), "buffers 0 and 1 are tied (group 1)");
  b[1].first = 5;
  CHECK_OK(offsets_assign(&p, offset, &s));
  b[1].size = 768;
  CHECK_FAILS(offsets_assign(&p, offset, &s), "expected one size");
  b[1].size = 512, b[1].tier = 1;
  CHECK_FAILS(offsets_assign(&p, offset, &s), "expected one size, tier");
  b[1].tier = 0, b[1].fixed = true;
  CHECK_FAILS(offsets_assign(&p, offset, &s), "no fixed offset");
}

TEST(a_plan_within_its_limit_is_improved_where_it_shall_be_tight) {
  enum { N = 75 };
  unsigned seed = 78;
  int better = 0;
  for (int round = 0; round < 20; round++) {
    offsets_buffer b[N];
    uint64_t offset[N];
    offsets_summary good, tight;
    for (uint32_t i = 0; i < N; i++) {
      uint32_t x = draw(&seed, 2 * N), y = x + draw(&seed, 40);
      b[i] = (offsets_buffer){.size = 1 + draw(&seed, 4000), .align = 1, .first = x, .last = y};
    }
    offsets_problem p = {.buffer = b, .n = N, .effort = OFFSETS_EFFORT, .limit = {1 << 20}};
    CHECK_OK(offsets_assign(&p, offset, &good));
    p.tight[0] = true;
    CHECK_OK(offsets_assign(&p, offset, &tight));
    CHECK_OK(offsets_verify(&p, offset));
    CHECK(tight.peak[0] <= tight.bound[0] + tight.bound[0] / 1024);
    better += tight.peak[0] < good.peak[0];
  }
  CHECK(better > 10);
}

/* Below the bound there is no plan, and so no step is spent on a better one. */
TEST(a_plan_that_must_fit_is_not_improved_where_none_does) {
  enum { N = 75, LITTLE = 1000000 };
  unsigned seed = 78;
  int worse = 0;
  for (int round = 0; round < 4; round++) {
    offsets_buffer b[N];
    uint64_t offset[N];
    offsets_summary any, fit;
    for (uint32_t i = 0; i < N; i++) {
      uint32_t x = draw(&seed, 2 * N), y = x + draw(&seed, 40);
      b[i] = (offsets_buffer){.size = 1 + draw(&seed, 4000), .align = 1, .first = x, .last = y};
    }
    offsets_problem p = {.buffer = b, .n = N, .effort = OFFSETS_EFFORT, .limit = {1}};
    CHECK_OK(offsets_assign(&p, offset, &any));
    p.must_fit[0] = true;
    CHECK_OK(offsets_assign(&p, offset, &fit));
    CHECK_OK(offsets_verify(&p, offset));
    CHECK(fit.steps < LITTLE);
    worse += fit.peak[0] > any.peak[0];
    p.limit[0] = fit.bound[0]; /* may be kept */
    CHECK_OK(offsets_assign(&p, offset, &fit));
    CHECK_EQ(fit.peak[0], any.peak[0]);
  }
  CHECK(worse > 0);
}
