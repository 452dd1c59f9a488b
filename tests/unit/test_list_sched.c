#include "test.h"

#include "base/mem.h"
#include "prog/vclock.h"
#include "sched/list.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { MAX = 48, EDGES = 512 };

typedef struct {
  double duration[MAX];
  uint8_t stream[MAX], keep[MAX], tier[MAX];
  uint64_t workspace[MAX], bytes[MAX];
  uint32_t dep0[MAX + 1], dep[EDGES], def[MAX], use0[MAX + 1], use[EDGES];
  list_problem p;
} graph;

static void start(graph *t, uint32_t streams) {
  memset(t, 0, sizeof *t);
  t->p = (list_problem){.streams = streams,
                        .duration_s = t->duration,
                        .stream = t->stream,
                        .workspace = t->workspace,
                        .dep0 = t->dep0,
                        .dep = t->dep,
                        .bytes = t->bytes,
                        .def = t->def,
                        .use0 = t->use0,
                        .use = t->use,
                        .keep = t->keep,
                        .tier = t->tier};
}

static uint32_t node(graph *t, uint8_t stream, double seconds) {
  uint32_t i = (uint32_t)t->p.n++;
  t->stream[i] = stream;
  t->duration[i] = seconds;
  t->dep0[i + 1] = t->dep0[i];
  return i;
}
static void after(graph *t, uint32_t before) { t->dep[t->dep0[t->p.n]++] = before; }

/* A value made by def and read by up to three nodes. */
static uint32_t value(graph *t, uint64_t bytes, uint32_t def, uint32_t a, uint32_t b, uint32_t c) {
  uint32_t v = (uint32_t)t->p.n_values++, in[] = {a, b, c};
  t->bytes[v] = bytes;
  t->def[v] = def;
  t->use0[v + 1] = t->use0[v];
  for (int k = 0; k < 3; k++)
    if (in[k] != UINT32_MAX) t->use[t->use0[v + 1]++] = in[k];
  return v;
}
#define NONE UINT32_MAX

/* before[a][b]: a has surely finished when b starts, by streams in schedule order, data,
 * dependencies and the edges that the schedule asks for. */
static void happens_before(const graph *t, const list_schedule *s, bool before[MAX][MAX]) {
  uint32_t n = (uint32_t)t->p.n;
  memset(before, 0, sizeof(bool[MAX][MAX]));
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = i + 1; j < n; j++)
      if (t->stream[s->order[i]] == t->stream[s->order[j]]) before[s->order[i]][s->order[j]] = true;
  for (uint32_t v = 0; v < t->p.n_values; v++)
    for (uint32_t k = t->use0[v]; k < t->use0[v + 1]; k++)
      if (t->def[v] != LIST_INPUT) before[t->def[v]][t->use[k]] = true;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = t->dep0[i]; k < t->dep0[i + 1]; k++) before[t->dep[k]][i] = true;
  for (size_t k = 0; k < s->n_edges; k++) before[s->edge[k].before][s->edge[k].after] = true;
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t i = 0; i < n; i++)
      for (uint32_t j = 0; j < n; j++)
        if (before[i][k] && before[k][j]) before[i][j] = true;
}

/* Bytes of a tier that may be in use when a node runs: of all before it in the order, what is not
 * surely dead. */
static uint64_t held_at(const graph *t, const list_schedule *s, bool before[MAX][MAX], uint32_t at,
                        uint32_t tier) {
  uint32_t x = s->order[at];
  uint64_t sum = 0;
  bool made[MAX] = {0};
  for (uint32_t i = 0; i <= at; i++) {
    uint32_t y = s->order[i];
    made[y] = true;
    if (!tier && (y == x || !before[y][x])) sum += t->workspace[y];
  }
  for (uint32_t v = 0; v < t->p.n_values; v++) {
    bool input = t->def[v] == LIST_INPUT, dead = !t->keep[v];
    if (!input && !made[t->def[v]]) continue;
    if (!input && !before[t->def[v]][x]) dead = false;
    for (uint32_t k = t->use0[v]; k < t->use0[v + 1]; k++)
      if (!before[t->use[k]][x]) dead = false;
    if (!dead && t->tier[v] == tier) sum += t->bytes[v];
  }
  return sum;
}

static void check_tier(const graph *t, const list_schedule *s, bool before[MAX][MAX],
                       uint32_t tier) {
  uint32_t n = (uint32_t)t->p.n;
  uint64_t peak = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t held = held_at(t, s, before, i, tier);
    if (held > peak) peak = held;
  }
  CHECK(peak <= s->peak[tier]);
  if (n && s->peak[tier] > peak) { /* the inputs before the first node may be the peak */
    uint64_t inputs = 0;
    for (uint32_t v = 0; v < t->p.n_values; v++)
      if (t->tier[v] == tier && t->def[v] == LIST_INPUT &&
          (t->keep[v] || t->use0[v] < t->use0[v + 1]))
        inputs += t->bytes[v];
    CHECK_EQ(s->peak[tier], inputs);
  }
  if (t->p.cap[tier]) CHECK(s->peak[tier] <= t->p.cap[tier]);
}

/* Everything that a schedule promises. */
static void check(const graph *t, const list_schedule *s) {
  static bool before[MAX][MAX];
  uint32_t n = (uint32_t)t->p.n, last[LIST_STREAMS], seen[MAX] = {0};
  double end = 0;
  CHECK(s->fits);
  for (uint32_t k = 0; k < LIST_STREAMS; k++) last[k] = NONE;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t x = s->order[i], *l = &last[t->stream[s->order[i]]];
    CHECK(x < n && !seen[x]);
    seen[x] = i + 1;
    CHECK_NEAR(s->end_s[x], s->start_s[x] + t->duration[x], 0);
    if (*l != NONE) CHECK(s->start_s[x] >= s->end_s[*l]);
    *l = x;
    if (s->end_s[x] > end) end = s->end_s[x];
  }
  CHECK_NEAR(s->makespan_s, end, 0);
  happens_before(t, s, before);
  for (uint32_t a = 0; a < n; a++)
    for (uint32_t b = 0; b < n; b++)
      if (before[a][b]) CHECK(seen[a] < seen[b] && s->end_s[a] <= s->start_s[b]);
  for (uint32_t tier = 0; tier < LIST_TIERS; tier++) check_tier(t, s, before, tier);
}

TEST(the_longest_path_goes_first_and_transfers_overlap_with_computation) {
  graph t;
  list_schedule s;
  start(&t, 2);
  uint32_t idle = node(&t, 0, 1), a = node(&t, 0, 1), comm = node(&t, 1, 3), b = node(&t, 0, 1);
  value(&t, 10, a, comm, NONE, NONE);
  value(&t, 10, comm, b, NONE, NONE);
  CHECK_OK(list_schedule_make(&t.p, &s, NULL));
  check(&t, &s);
  CHECK(s.order[0] == a && s.order[1] == comm && s.order[2] == idle && s.order[3] == b);
  CHECK_NEAR(s.makespan_s, 5, 0);
  CHECK_NEAR(s.start_s[idle], 1, 0);
  list_schedule_free(&s);
  t.p.keep_order = true;
  CHECK_OK(list_schedule_make(&t.p, &s, NULL));
  check(&t, &s);
  for (uint32_t i = 0; i < 4; i++) CHECK_EQ(s.order[i], i);
  CHECK_NEAR(s.makespan_s, 6, 0);
  list_schedule_free(&s);
}

/* Two makers of 100 bytes, and readers that free them: at most one fits at a time. */
TEST(the_cap_holds_nodes_back_and_the_minimum_is_named_when_nothing_fits) {
  graph t;
  list_schedule s;
  uint64_t needed[LIST_TIERS];
  start(&t, 1);
  uint32_t a = node(&t, 0, 9), b = node(&t, 0, 9), x = node(&t, 0, 1), y = node(&t, 0, 1);
  value(&t, 100, a, x, NONE, NONE);
  value(&t, 100, b, y, NONE, NONE);
  value(&t, 5, x, y, NONE, NONE);
  CHECK_OK(list_schedule_make(&t.p, &s, needed));
  CHECK_EQ(s.peak[0], 205);
  CHECK(s.order[0] == a && s.order[1] == b);
  list_schedule_free(&s);
  t.p.cap[0] = 105;
  CHECK_OK(list_schedule_make(&t.p, &s, needed));
  check(&t, &s);
  CHECK(s.order[0] == a && s.order[1] == x && s.order[2] == b && s.order[3] == y);
  CHECK_EQ(s.peak[0], 105);
  CHECK_EQ(needed[0], 105);
  list_schedule_free(&s);
  t.p.cap[0] = 104;
  CHECK_OK(list_schedule_make(&t.p, &s, needed));
  CHECK(!s.fits && !s.order);
  CHECK_EQ(needed[0], 105);
  t.p.cap[0] = 105, t.p.keep_order = true;
  CHECK_OK(list_schedule_make(&t.p, &s, needed));
  CHECK(!s.fits);
  CHECK_EQ(needed[0], 205);
}

/* The guard refuses the best node, since `needy`, which comes before it in the base order, would
 * not fit next to its value; the second best leads to a transfer, and is run before `idle`. */
TEST(nodes_are_tried_after_one_that_the_guard_refuses) {
  graph t;
  list_schedule s;
  start(&t, 2);
  node(&t, 0, 1); /* idle */
  uint32_t maker = node(&t, 0, 1), move = node(&t, 1, 5), needy = node(&t, 0, 1);
  uint32_t best = node(&t, 0, 1), far = node(&t, 1, 20), end = node(&t, 0, 10);
  t.workspace[needy] = 100;
  value(&t, 1, maker, move, NONE, NONE);
  value(&t, 1, move, needy, NONE, NONE);
  value(&t, 1, needy, end, NONE, NONE);
  value(&t, 50, best, far, end, NONE);
  value(&t, 1, far, end, NONE, NONE);
  t.p.cap[0] = 120;
  CHECK_OK(list_schedule_make(&t.p, &s, NULL));
  check(&t, &s);
  CHECK_EQ(s.order[0], maker);
  CHECK_NEAR(s.makespan_s, 38, 0);
  list_schedule_free(&s);
}

TEST(memory_freed_by_another_stream_is_used_only_after_a_wait_for_it) {
  graph t;
  list_schedule s;
  start(&t, 2);
  uint32_t a = node(&t, 0, 1), send = node(&t, 1, 5), b = node(&t, 0, 1);
  value(&t, 100, a, send, NONE, NONE);
  value(&t, 100, b, NONE, NONE, NONE);
  CHECK_OK(list_schedule_make(&t.p, &s, NULL));
  check(&t, &s);
  CHECK_EQ(s.n_edges, 0);
  CHECK_NEAR(s.makespan_s, 6, 0);
  CHECK_EQ(s.peak[0], 200);
  list_schedule_free(&s);
  t.p.cap[0] = 150;
  CHECK_OK(list_schedule_make(&t.p, &s, NULL));
  check(&t, &s);
  CHECK_EQ(s.n_edges, 1);
  CHECK(s.edge[0].before == send && s.edge[0].after == b);
  CHECK_NEAR(s.start_s[b], 6, 0);
  CHECK_EQ(s.peak[0], 100);
  list_schedule_free(&s);
}

static uint32_t draw(unsigned *seed, uint32_t below) { return (uint32_t)rand_r(seed) % below; }

static void random_graph(unsigned *seed, graph *t, uint32_t n, uint32_t streams, uint32_t tiers) {
  start(t, streams);
  for (uint32_t i = 0; i < n; i++) {
    node(t, (uint8_t)draw(seed, streams), draw(seed, 5));
    t->workspace[i] = draw(seed, 3) ? 0 : draw(seed, 6);
    for (uint32_t k = draw(seed, 8) == 0; k-- && i;) after(t, draw(seed, i));
  }
  for (uint32_t i = 0; i < n; i++) {
    uint32_t r[3];
    bool input = draw(seed, 10) == 0;
    for (int k = 0; k < 3; k++) {
      r[k] = draw(seed, 3) && i + 1 < n ? i + 1 + draw(seed, n - i - 1 < 6 ? n - i - 1 : 6) : NONE;
    }
    uint32_t v = value(t, draw(seed, 20), input ? LIST_INPUT : i, r[0], r[1], r[2]);
    t->keep[v] = draw(seed, 12) == 0;
    t->tier[v] = tiers > 1 ? (uint8_t)draw(seed, tiers) : 0;
  }
}

TEST(random_schedules_keep_all_promises_at_every_cap) {
  unsigned seed = 21;
  int capped = 0, faster = 0, refused = 0;
  for (int round = 0; round < 700; round++) {
    graph t;
    list_schedule s, again, order;
    uint64_t needed[LIST_TIERS];
    random_graph(&seed, &t, draw(&seed, MAX), 1 + draw(&seed, 4), 1 + draw(&seed, 3));
    CHECK_OK(list_schedule_make(&t.p, &s, needed));
    check(&t, &s);
    for (int m = 0; m < 2; m++) /* tier 2 has none */
      t.p.cap[m] =
          needed[m] + draw(&seed, 4) * (s.peak[m] > needed[m] ? (s.peak[m] - needed[m]) / 3 : 0);
    list_schedule_free(&s);
    if (!t.p.cap[0]) continue;
    CHECK_OK(list_schedule_make(&t.p, &s, needed));
    check(&t, &s);
    capped += s.n_edges > 0;
    CHECK_OK(list_schedule_make(&t.p, &again, needed));
    CHECK(!memcmp(s.order, again.order, t.p.n * sizeof *s.order));
    CHECK(!memcmp(s.start_s, again.start_s, t.p.n * sizeof *s.start_s));
    list_schedule_free(&again);
    t.p.keep_order = true;
    CHECK_OK(list_schedule_make(&t.p, &order, needed));
    if (!order.fits) {
      refused++;
      CHECK(needed[0] > t.p.cap[0] || (t.p.cap[1] && needed[1] > t.p.cap[1]));
    } else {
      check(&t, &order);
      faster += order.makespan_s > s.makespan_s;
      list_schedule_free(&order);
    }
    list_schedule_free(&s);
  }
  CHECK(capped > 50 && faster > 50);
}

/* Least peak over all orders of one stream. */
static uint64_t least_peak(const graph *t, uint32_t done, uint64_t best) {
  uint32_t n = (uint32_t)t->p.n;
  uint64_t now = 0, most = 0;
  if (done == (1u << n) - 1) return 0;
  for (uint32_t v = 0; v < t->p.n_values; v++) {
    bool live = t->keep[v];
    for (uint32_t k = t->use0[v]; k < t->use0[v + 1]; k++) live |= !(done >> t->use[k] & 1);
    if (live && (t->def[v] == LIST_INPUT || done >> t->def[v] & 1)) now += t->bytes[v];
  }
  for (uint32_t x = 0; x < n; x++) {
    bool ready = !(done >> x & 1);
    uint64_t need = now + t->workspace[x];
    for (uint32_t k = t->dep0[x]; k < t->dep0[x + 1]; k++) ready &= done >> t->dep[k] & 1;
    for (uint32_t v = 0; v < t->p.n_values; v++) {
      if (t->def[v] == x) need += t->bytes[v];
      for (uint32_t k = t->use0[v]; k < t->use0[v + 1]; k++)
        if (t->use[k] == x && t->def[v] != LIST_INPUT) ready &= done >> t->def[v] & 1;
    }
    if (!ready || need >= best) continue;
    uint64_t rest = least_peak(t, done | 1u << x, best);
    most = need > rest ? need : rest;
    if (most < best) best = most;
  }
  return best;
}

TEST(small_graphs_are_refused_only_when_hardly_any_order_fits) {
  unsigned seed = 22;
  int exact = 0, rounds = 400;
  for (int round = 0; round < rounds; round++) {
    graph t;
    list_schedule s;
    uint64_t needed[LIST_TIERS];
    random_graph(&seed, &t, 1 + draw(&seed, 6), 1, 1);
    t.p.workspace = t.workspace;
    uint64_t least = least_peak(&t, 0, UINT64_MAX);
    t.p.cap[0] = least ? least : 1;
    CHECK_OK(list_schedule_make(&t.p, &s, needed));
    if (!s.fits) {
      CHECK(needed[0] > least);
      t.p.cap[0] = needed[0];
      CHECK_OK(list_schedule_make(&t.p, &s, needed));
    } else {
      exact++;
    }
    check(&t, &s);
    list_schedule_free(&s);
    if (least < 2) continue;
    t.p.cap[0] = least - 1;
    CHECK_OK(list_schedule_make(&t.p, &s, needed));
    CHECK(!s.fits && needed[0] >= least);
  }
  CHECK(exact > rounds * 9 / 10);
}

TEST(malformed_graphs_are_refused_by_name) {
  graph t;
  list_schedule s;
  start(&t, 2);
  CHECK_OK(list_schedule_make(&t.p, &s, NULL)); /* empty */
  list_schedule_free(&s);
  uint32_t a = node(&t, 0, 1), b = node(&t, 1, 1);
  uint32_t v = value(&t, 1, a, b, NONE, NONE);
  t.def[v] = b;
  CHECK_FAILS(list_schedule_make(&t.p, &s, NULL), "value 0, made by node 1, is read by node 1");
  t.def[v] = 9;
  CHECK_FAILS(list_schedule_make(&t.p, &s, NULL), "made by node 9");
  t.def[v] = a, t.use[0] = 7;
  CHECK_FAILS(list_schedule_make(&t.p, &s, NULL), "is read by node 7");
  t.use[0] = b, t.bytes[v] = UINT64_C(1) << 63;
  CHECK_FAILS(list_schedule_make(&t.p, &s, NULL), "value 0 has 9223372036854775808 bytes");
  t.bytes[v] = 1, t.tier[v] = LIST_TIERS;
  CHECK_FAILS(list_schedule_make(&t.p, &s, NULL), "value 0 is in tier 3");
  t.tier[v] = 0;
  t.bytes[v] = 1, t.workspace[b] = UINT64_MAX;
  CHECK_FAILS(list_schedule_make(&t.p, &s, NULL), "node 1 needs 18446744073709551615 bytes");
  t.workspace[b] = 0, t.duration[b] = NAN;
  CHECK_FAILS(list_schedule_make(&t.p, &s, NULL), "node 1 takes nan seconds");
  t.duration[b] = -1;
  CHECK_FAILS(list_schedule_make(&t.p, &s, NULL), "node 1 takes -1 seconds");
  t.duration[b] = 1, t.stream[b] = 2;
  CHECK_FAILS(list_schedule_make(&t.p, &s, NULL), "node 1 is on stream 2");
  t.stream[b] = 1, t.dep0[2] = 1, t.dep[0] = 1;
  CHECK_FAILS(list_schedule_make(&t.p, &s, NULL), "node 1 depends on node 1");
  t.p.streams = 0;
  CHECK_FAILS(list_schedule_make(&t.p, &s, NULL), "0 streams");
}

/* CPU time: other processes of the machine do not count. */
static double cpu_s(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* A training step: layers forward and backward, gathers and reductions on stream 1. */
static double time_of_step(uint32_t layers, bool capped) {
  enum { PER = 8 };
  size_t n = (size_t)layers * PER;
  double *duration = calloc(n, sizeof *duration);
  uint8_t *stream = calloc(n, 1);
  uint64_t *bytes = calloc(n, sizeof *bytes);
  uint32_t *def = calloc(n, sizeof *def), *use0 = calloc(n + 1, sizeof *use0);
  uint32_t *use = calloc(4 * n, sizeof *use), k = 0;
  CHECK(duration && stream && bytes && def && use0 && use);
  for (uint32_t i = 0; i < n; i++) {
    bool forward = i < n / 2;
    uint32_t in = i % (PER / 2), mirror = (uint32_t)n - 1 - i;
    duration[i] = 1 + in % 3, stream[i] = in == 1, bytes[i] = 100 + in, def[i] = i;
    use0[i] = k;
    if (i + 1 < n) use[k++] = i + 1;
    if (i + 3 < n) use[k++] = i + 3;
    if (forward && in != 1) use[k++] = mirror;
  }
  use0[n] = k;
  list_problem p = {.n = n,
                    .streams = 2,
                    .duration_s = duration,
                    .stream = stream,
                    .n_values = n,
                    .bytes = bytes,
                    .def = def,
                    .use0 = use0,
                    .use = use};
  list_schedule s;
  uint64_t needed[LIST_TIERS];
  double t = cpu_s();
  CHECK_OK(list_schedule_make(&p, &s, needed));
  if (capped) {
    list_schedule_free(&s);
    p.cap[0] = needed[0] + needed[0] / 100;
    t = cpu_s();
    CHECK_OK(list_schedule_make(&p, &s, needed));
    CHECK(s.peak[0] <= p.cap[0]);
  }
  t = cpu_s() - t;
  list_schedule_free(&s);
  free(duration), free(stream), free(bytes), free(def), free(use0), free(use);
  return t;
}

TEST(scheduling_takes_time_nearly_linear_in_nodes) {
  for (int capped = 0; capped < 2; capped++) {
    double small = time_of_step(500, capped), large = time_of_step(5000, capped);
    CHECK(large < 40 * small + 0.5);
  }
}

TEST(scheduling_survives_every_failed_allocation) {
  graph t;
  unsigned seed = 2;
  uint64_t needed[LIST_TIERS];
  list_schedule s;
  for (size_t edges = 0; !edges;) {
    random_graph(&seed, &t, 20, 3, 1);
    CHECK_OK(list_schedule_make(&t.p, &s, needed));
    t.p.cap[0] = needed[0];
    list_schedule_free(&s);
    CHECK_OK(list_schedule_make(&t.p, &s, needed));
    edges = s.n_edges;
    list_schedule_free(&s);
  }
  for (uint64_t k = 1;; k++) {
    mem_fail_at(k);
    hp_status st = list_schedule_make(&t.p, &s, needed);
    mem_fail_at(0);
    if (!st) break;
    CHECK_EQ(st, HP_ERR_OOM);
    err_clear();
    CHECK(k < 200);
  }
  list_schedule_free(&s);
}
