#include "test.h"

#include "base/mem.h"
#include "mem/mincut.h"

#include <stdlib.h>
#include <time.h>

enum { MAX = 10, EDGES = 40 };

typedef struct {
  uint64_t bytes[MAX];
  uint8_t flags[MAX];
  uint32_t in0[MAX + 1], in[EDGES];
  mincut_graph g;
} graph;

static void start(graph *t) {
  memset(t, 0, sizeof *t);
  t->g = (mincut_graph){0, t->bytes, t->flags, t->in0, t->in};
}
static uint32_t add(graph *t, uint64_t bytes, uint8_t flags) {
  uint32_t v = (uint32_t)t->g.n++;
  t->bytes[v] = bytes;
  t->flags[v] = flags;
  t->in0[v + 1] = t->in0[v];
  return v;
}
static void reads(graph *t, uint32_t u) { t->in[t->in0[t->g.n]++] = u; }

TEST(a_small_value_is_saved_and_the_large_ones_after_it_are_recomputed) {
  graph t;
  start(&t);
  uint32_t x = add(&t, 100, MINCUT_BANNED);
  uint32_t small = add(&t, 10, MINCUT_BANNED);
  reads(&t, x);
  uint32_t gelu = add(&t, 400, MINCUT_NEEDED);
  reads(&t, small);
  uint32_t cast = add(&t, 200, MINCUT_NEEDED);
  reads(&t, gelu);
  uint32_t idle = add(&t, 1, 0);
  reads(&t, cast);
  bool save[MAX], again[MAX];
  mincut_summary s;
  CHECK_OK(mincut_choose(&t.g, save, again, &s));
  CHECK(save[small] && !save[x] && !save[gelu] && !save[cast] && !save[idle]);
  CHECK(again[gelu] && again[cast] && !again[idle] && !again[small]);
  CHECK_EQ(s.saved_bytes, 10);
  CHECK_EQ(s.saved, 1);
  CHECK_EQ(s.recomputed, 2);
}

TEST(of_equal_cuts_the_one_that_recomputes_least_is_taken) {
  graph t;
  start(&t);
  add(&t, 50, MINCUT_BANNED);
  add(&t, 50, 0);
  reads(&t, 0);
  add(&t, 50, MINCUT_NEEDED);
  reads(&t, 1);
  bool save[MAX], again[MAX];
  mincut_summary s;
  CHECK_OK(mincut_choose(&t.g, save, again, &s));
  CHECK(save[2] && !save[1] && !save[0]);
  CHECK_EQ(s.recomputed, 0);
}

TEST(a_value_that_can_be_neither_saved_nor_recomputed_is_named) {
  graph t;
  start(&t);
  add(&t, 1, MINCUT_NOSAVE);
  add(&t, 1, MINCUT_NOSAVE | MINCUT_NEEDED);
  reads(&t, 0);
  bool save[MAX], again[MAX];
  mincut_summary s;
  CHECK_FAILS(mincut_choose(&t.g, save, again, &s), "value 1 is needed");
  t.flags[0] = 0;
  CHECK_OK(mincut_choose(&t.g, save, again, &s));
  CHECK(save[0] && again[1]);
  t.bytes[0] = UINT64_C(1) << 63;
  CHECK_FAILS(mincut_choose(&t.g, save, again, &s), "value 0 has 9223372036854775808 bytes");
  t.bytes[0] = t.bytes[1] = UINT64_C(1) << 60;
  CHECK_FAILS(mincut_choose(&t.g, save, again, &s), "value 1 has");
  t.bytes[0] = 1;
  t.in[0] = 1;
  CHECK_FAILS(mincut_choose(&t.g, save, again, &s), "does not come before");
  t.g.n = 0;
  CHECK_OK(mincut_choose(&t.g, save, again, &s));
  CHECK_EQ(s.saved, 0);
}

/* What saving exactly the values of a mask (where they are reached) costs; false when it will not
 * do. */
static bool cost_of(const graph *t, uint32_t mask, uint64_t *bytes, size_t *again) {
  uint32_t need = 0;
  *bytes = 0, *again = 0;
  for (uint32_t v = (uint32_t)t->g.n; v-- > 0;) {
    if (t->flags[v] & MINCUT_NEEDED) need |= 1u << v;
    if (!(need >> v & 1)) continue;
    if (mask >> v & 1) {
      if (t->flags[v] & MINCUT_NOSAVE) return false;
      *bytes += t->bytes[v];
      continue;
    }
    if ((t->flags[v] & MINCUT_BANNED) || t->in0[v] == t->in0[v + 1]) return false;
    ++*again;
    for (uint32_t k = t->in0[v]; k < t->in0[v + 1]; k++) need |= 1u << t->in[k];
  }
  return true;
}

TEST(cuts_equal_brute_force_on_random_graphs) {
  unsigned seed = 11;
  int impossible = 0;
  for (int round = 0; round < 4000; round++) {
    graph t;
    start(&t);
    for (uint32_t v = 0, n = 1 + (uint32_t)rand_r(&seed) % MAX; v < n; v++) {
      uint8_t flags = (uint8_t)((rand_r(&seed) % 3 == 0) * MINCUT_BANNED +
                                (rand_r(&seed) % 3 == 0) * MINCUT_NEEDED +
                                (rand_r(&seed) % 5 == 0) * MINCUT_NOSAVE);
      add(&t, (uint64_t)rand_r(&seed) % 6, flags);
      for (uint32_t k = (uint32_t)rand_r(&seed) % 4; k-- && v;)
        reads(&t, (uint32_t)rand_r(&seed) % v);
    }
    bool save[MAX], again[MAX];
    mincut_summary s;
    uint64_t best = UINT64_MAX, bytes;
    size_t best_again = SIZE_MAX, n_again;
    for (uint32_t mask = 0; mask < 1u << t.g.n; mask++)
      if (cost_of(&t, mask, &bytes, &n_again) &&
          (bytes < best || (bytes == best && n_again < best_again)))
        best = bytes, best_again = n_again;
    if (best == UINT64_MAX) {
      impossible++;
      CHECK_FAILS(mincut_choose(&t.g, save, again, &s), "is needed by the backward pass");
      continue;
    }
    CHECK_OK(mincut_choose(&t.g, save, again, &s));
    uint32_t mask = 0;
    for (uint32_t v = 0; v < t.g.n; v++) {
      CHECK(!(save[v] && again[v]));
      mask |= (uint32_t)save[v] << v;
    }
    CHECK(cost_of(&t, mask, &bytes, &n_again));
    CHECK_EQ(bytes, best);
    CHECK_EQ(n_again, best_again);
    CHECK_EQ(s.saved_bytes, best);
    CHECK_EQ(s.recomputed, best_again);
  }
  CHECK(impossible > 100 && impossible < 3000);
}

/* CPU time: other processes of the machine do not count. */
static double cpu_s(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* A residual stack: per layer a banned matmul, a few cheap values after it, a residual sum. */
static double time_of_layers(uint32_t layers, uint64_t *saved) {
  enum { PER = 6 };
  size_t n = (size_t)layers * PER + 1;
  uint64_t *bytes = calloc(n, sizeof *bytes);
  uint8_t *flags = calloc(n, 1);
  uint32_t *in0 = calloc(n + 1, sizeof *in0), *in = calloc(2 * n, sizeof *in);
  bool *save = calloc(n, 1), *again = calloc(n, 1);
  CHECK(bytes && flags && in0 && in && save && again);
  uint32_t v = 1, k = 0, x = 0;
  bytes[0] = 64;
  for (uint32_t l = 0; l < layers; l++, x = v - 1) {
    uint32_t norm = v++, matmul = v++, a = v++, b = v++, c = v++, sum = v++;
    bytes[norm] = 64, bytes[matmul] = 128, bytes[a] = 256, bytes[b] = 256, bytes[c] = 128;
    bytes[sum] = 64;
    flags[matmul] = MINCUT_BANNED;
    flags[a] = flags[b] = flags[c] = flags[sum] = flags[norm] = MINCUT_NEEDED;
    in0[norm] = k, in[k++] = x;
    in0[matmul] = k, in[k++] = norm;
    in0[a] = k, in[k++] = matmul;
    in0[b] = k, in[k++] = a, in[k++] = matmul;
    in0[c] = k, in[k++] = b;
    in0[sum] = k, in[k++] = c, in[k++] = x;
  }
  in0[n] = k;
  mincut_summary s;
  double t = cpu_s();
  CHECK_OK(mincut_choose(&(mincut_graph){n, bytes, flags, in0, in}, save, again, &s));
  t = cpu_s() - t;
  *saved = s.saved_bytes;
  free(bytes), free(flags), free(in0), free(in), free(save), free(again);
  return t;
}

TEST(cutting_a_layered_model_takes_time_linear_in_layers) {
  uint64_t small, large;
  double t1 = time_of_layers(1000, &small), t2 = time_of_layers(10000, &large);
  CHECK_EQ(large, 10 * small - 9 * 64); /* every layer alike, the input once */
  CHECK(t2 < 30 * t1 + 0.3);
}

TEST(cutting_survives_every_failed_allocation) {
  graph t;
  start(&t);
  add(&t, 4, 0);
  add(&t, 4, MINCUT_NEEDED);
  reads(&t, 0);
  bool save[MAX], again[MAX];
  mincut_summary s;
  for (uint64_t k = 1;; k++) {
    mem_fail_at(k);
    hp_status st = mincut_choose(&t.g, save, again, &s);
    mem_fail_at(0);
    if (st != HP_ERR_OOM) break;
    err_clear();
    CHECK(k < 50);
  }
}
