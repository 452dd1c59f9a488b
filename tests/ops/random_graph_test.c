/* Random graphs: the program must compute what the reference does, whatever fuse, remat, lower, the
 * aliases, the offsets and the streams make of the graph. */
#include "base/dtype.h"
#include "ops/random_graph.h"
#include "ops/stage_join.h"
#include "pass/pass.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

/* Every pass leaves a graph whose types are those of its rules. */
static void check_passes(const hp_graph *g, const pass_options *o) {
  const hp_graph *at = g;
  hp_graph *made = NULL, *next;
  CHECK_OK(ops_verify(g));
  for (int i = 0; pass_table[i].name; i++) {
    CHECK_OK(pass_table[i].run(at, o, &next));
    graph_free(made);
    at = made = next;
    if (ops_verify(at))
      test_fail(__FILE__, __LINE__, "after %s: %s", pass_table[i].name, err_message());
  }
  graph_free(made);
}

typedef struct {
  int threads;
  bool remat, interpret;
  uint64_t chunk_bytes;
  double share; /* of the memory without a limit that there is, but at least the minimum; 0: all */
  int stages;   /* into which it is cut, and joined again; 0: it is not cut */
} setting;

/* What a run gave: bytes of all outputs and params one after the other. */
typedef struct {
  char *at;
  size_t len;
} bytes;

static int64_t compared, skipped;

static void fail_with_text(const random_graph *x, const setting *s, const char *why) {
  char *text = NULL;
  hp_graph_print(x->g, &text);
  test_fail(__FILE__, __LINE__, "seed %llu, threads %d, remat %d, share %g: %s\n%s",
            (unsigned long long)x->r.seed, s->threads, s->remat, s->share, why, text);
}

static void check_value(const random_graph *x, const setting *s, const char *name, val v,
                        const void *got) {
  char why[200], text[300];
  int64_t wrong = ref_compare(&x->ref, v, got, &skipped, why);
  compared += x->ref.value[v].n;
  if (!wrong) return;
  snprintf(text, sizeof text, "%s: %lld wrong, first %s", name, (long long)wrong, why);
  fail_with_text(x, s, text);
}

static void append(bytes *b, const void *p, size_t n) {
  b->at = realloc(b->at, b->len + n + 1);
  HP_ASSERT(b->at);
  memcpy(b->at + b->len, p, n);
  b->len += n;
}

/* One run with new inputs; the params go on from what they have become. */
static void run_once(random_graph *x, hp_device *d, hp_program *p, const setting *s, bytes *all) {
  hp_io io[RANDOM_LEAVES + RANDOM_OUTPUTS];
  int n = 0;
  for (int i = 0; i < x->leaves; i++) {
    random_leaf *l = &x->leaf[i];
    if (l->name[0] == 'x') io[n++] = (hp_io){l->name, l->data, l->bytes};
    else CHECK_OK(hp_read(d, l->name, l->data, l->bytes));
    ref_set(&x->ref, l->v, l->data);
  }
  ref_again(&x->ref);
  ref_eval(&x->ref);
  int first = n;
  for (int i = 0; i < x->outputs; i++) {
    size_t size = (size_t)value_bytes(graph_value(x->g, x->output[i].v));
    io[n++] = (hp_io){x->output[i].name, malloc(size + 1), size};
  }
  uint64_t before = mem_count();
  hp_status st = hp_run(p, io, n);
  if (st) fail_with_text(x, s, hp_last_error());
  CHECK_EQ(mem_count(), before);
  for (int i = 0; i < x->outputs; i++) {
    check_value(x, s, x->output[i].name, x->output[i].v, io[first + i].data);
    append(all, io[first + i].data, io[first + i].bytes);
    free(io[first + i].data);
  }
  for (int i = 0; i < x->leaves; i++) {
    random_leaf *l = &x->leaf[i];
    if (l->name[0] != 'p') continue;
    char *got = malloc(l->bytes + 1);
    CHECK_OK(hp_read(d, l->name, got, l->bytes));
    check_value(x, s, l->name, x->becomes[i] ? x->becomes[i] : l->v, got);
    append(all, got, l->bytes);
    free(got);
  }
}

/* Bytes without a limit, and the least; the same for all settings of a graph that have a share. */
static void find_needed(const random_graph *x, const setting *s, const hp_compile_options *c,
                        uint64_t needed[2]) {
  hp_device_options o = {.threads = s->threads, .interpret = s->interpret, .plan_only = true};
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) o.offload[k] = HP_OFFLOAD_AUTO;
  for (int i = 0; i < 2; i++) { /* without a limit, and the least */
    hp_device *d;
    hp_program_stats stats = {0};
    o.memory_limit = (uint64_t)i;
    CHECK_OK(hp_device_open(&o, &d));
    hp_status st = hp_plan(x->g, d, c, &stats);
    CHECK(st == HP_OK || st == HP_ERR_OOM);
    needed[i] = stats.memory.planned_bytes;
    hp_device_close(d);
  }
}

/* Compiles and runs twice; returns all bytes that came out.  needed: zeros, or what find_needed has
 * found for the graph. */
static bytes run_graph(random_graph *x, const setting *s, uint64_t needed[2]) {
  hp_device_options o = {.threads = s->threads, .interpret = s->interpret};
  hp_compile_options c = {.remat = s->remat,
                          .dump_dir = getenv("HYPER_DUMP"),
                          .chunk_bytes = s->chunk_bytes};
  hp_device *d;
  hp_program *p;
  bytes all = {0};
  for (int k = 0; s->share > 0 && k < HP_MEMORY_CLASSES; k++) o.offload[k] = HP_OFFLOAD_AUTO;
  if (s->share > 0) {
    if (!needed[0]) find_needed(x, s, &c, needed);
    o.memory_limit = (uint64_t)(s->share * (double)needed[0]);
    if (o.memory_limit < needed[1]) o.memory_limit = needed[1];
  }
  x->r.at = 1 << 20; /* the same numbers for every setting */
  CHECK_OK(hp_device_open(&o, &d));
  for (int i = 0; i < x->leaves; i++) {
    random_leaf *l = &x->leaf[i];
    random_leaf_fill(x, l);
    if (l->name[0] != 'p') continue;
    CHECK_OK(hp_param_create(d, l->name, hp_dtype_of(x->g, l->v), hp_shape_of(x->g, l->v)));
    CHECK_OK(hp_write(d, l->name, l->data, l->bytes));
  }
  hp_graph *g = s->stages ? stage_join_random(x->g, s->stages, x->r.seed) : x->g;
  if (hp_compile(g, d, &c, &p)) fail_with_text(x, s, hp_last_error());
  if (s->stages) graph_free(g);
  run_once(x, d, p, s, &all);
  for (int i = 0; i < x->leaves; i++)
    if (x->leaf[i].name[0] == 'x') random_leaf_fill(x, &x->leaf[i]);
  run_once(x, d, p, s, &all);
  hp_program_free(p);
  hp_device_close(d);
  return all;
}

static void check_seeds(uint64_t first, int n, const random_options *o, const setting *s,
                        int settings) {
  const char *only = getenv("HYPER_SEED"), *more = getenv("HYPER_SEEDS");
  if (only) first = strtoull(only, NULL, 10), n = 1;
  else if (more) n *= atoi(more);
  for (uint64_t seed = first; seed < first + (uint64_t)n; seed++) {
    random_graph x;
    bytes want = {0};
    uint64_t needed[2] = {0};
    random_graph_make(seed, o, &x);
    capabilities can = capabilities_usual();
    hp_compile_options usual = {0}, spare = {.remat = true, .chunk_bytes = 40};
    check_passes(x.g, &(pass_options){.options = &usual, .can = &can});
    check_passes(x.g, &(pass_options){.options = &spare, .can = &can});
    for (int k = 0; k < settings; k++) {
      bytes got = run_graph(&x, &s[k], needed);
      if (k && (got.len != want.len || memcmp(got.at, want.at, got.len)))
        fail_with_text(&x, &s[k], "other bits than with the first setting");
      free(want.at);
      want = got;
    }
    free(want.at);
    random_graph_free(&x);
  }
  CHECK(compared > 0);
  if (!only) CHECK(skipped * 5 < compared);
}

static const setting both[] = {{1, false, true, 0, 0, 0}, {2, true, true, 40, 0, 0}};

/* Without a limit, under one that asks for offloading, and under the least. */
static void check_offloaded(int n) {
  static const setting limited[] = {{1, false, true, 0, 0, 0},
                                    {1, false, true, 0, 0.7, 0},
                                    {1, false, true, 0, 1e-9, 0}};
  check_seeds(9000, n, &(random_options){0}, limited, 3);
  check_seeds(9500, n, &(random_options){.streams = true, .dtypes = true}, limited, 3);
}

TEST(random_graphs_have_the_same_bits_when_they_are_offloaded) { check_offloaded(2); }
TEST(torture_random_graphs_have_the_same_bits_when_they_are_offloaded) { check_offloaded(60); }

TEST(random_graphs_have_the_same_bits_when_they_are_cut_by_stages) {
  static const setting cut[] = {{1, false, true, 0, 0, 0},
                                {1, false, true, 0, 0, 1},
                                {1, false, true, 0, 0, 3},
                                {1, false, true, 0, 0, 16}};
  check_seeds(9700, 20, &(random_options){0}, cut, 4);
  check_seeds(9800, 20, &(random_options){.dtypes = true}, cut, 4);
}

TEST(random_f32_graphs_compute_what_the_reference_does) {
  check_seeds(1000, 120, &(random_options){0}, both, 2);
}
TEST(random_graphs_of_many_dtypes_compute_what_the_reference_does) {
  check_seeds(2000, 100, &(random_options){.dtypes = true}, both, 2);
}
TEST(random_graphs_on_several_streams_compute_what_the_reference_does) {
  check_seeds(3000, 60, &(random_options){.streams = true, .dtypes = true}, both, 2);
}
static void check_large(int n) {
  static const setting s[] = {{1, false, true, 0, 0, 0},
                              {2, false, true, 0, 0, 0},
                              {3, true, false, 1000, 0, 0}};
  check_seeds(4000, n, &(random_options){.large = true}, s, 3);
}
TEST(random_large_graphs_give_the_same_bits_compiled_and_on_threads) { check_large(4); }
TEST(torture_random_large_graphs_give_the_same_bits_compiled_and_on_threads) { check_large(40); }
