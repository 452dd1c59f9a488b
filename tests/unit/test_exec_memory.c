/* What a running program does with memory: it takes none, keeps to its plan, and to the limit. */
#include "test.h"

#include "ops/random_graph.h"
#include "rt/device_mesh.h"
#include "step_case.h"

#include <stdlib.h>

/* --- nothing is allocated --------------------------------------------------------------------- */

TEST(runs_allocate_nothing_on_any_number_of_threads_compiled_or_interpreted) {
  for (int k = 0; k < 12; k++) {
    step_case s;
    hp_device_options o = {.threads = k % 3 + 1, .interpret = k >= 6, .engine = "packed"};
    hp_compile_options c = {.remat = k % 2};
    step_open(&o, &c, k / 3 % 2 ? HP_BF16 : HP_F32, &s);
    float first = 0;
    for (int times = 0; times < 3; times++) {
      uint64_t before = mem_count();
      step_run(&s);
      CHECK_EQ(mem_count(), before);
      if (!times) first = s.loss;
    }
    CHECK(s.loss < first); /* it did something */
    step_close(&s);
  }
}

/* --- the plan is what is used ----------------------------------------------------------------- */

/* The work arena of a tier is `planned` bytes; makes it larger by a margin, to see writes beyond.
 */
enum { MARGIN = 4096 };

static unsigned char *widen(hp_device *d, int tier, uint64_t planned) {
  CHECK_OK(device_add_work(d->member[0], tier, planned + MARGIN));
  return device_work(d->member[0], tier);
}

/* Bytes up to the highest that differs from the poison after a run with either poison. */
static uint64_t highest(const unsigned char *a, uint64_t len, unsigned char poison,
                        uint64_t least) {
  while (len > least && a[len - 1] == poison) len--;
  return len;
}

/* No plan does with less than the bound, and one does with just that when a limit asks for it. */
static void check_bound(const hp_graph *g, bool remat, const hp_program_stats *plan) {
  hp_device *d;
  hp_program_stats tight;
  hp_device_options o = {.threads = 2,
                         .interpret = true,
                         .memory_limit = plan->memory.state_bytes + plan->memory.work_bound};
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_plan(g, d, &(hp_compile_options){.remat = remat}, &tight));
  CHECK_EQ(tight.memory.work_bytes, plan->memory.work_bound);
  hp_device_close(d);
}

TEST(the_highest_byte_that_a_step_writes_is_the_last_of_its_plan) {
  for (int remat = 0; remat < 2; remat++) {
    step_case s;
    hp_program_stats plan, dry;
    uint64_t used = 0;
    hp_device_options o = {.threads = 2, .interpret = true};
    step_open(&o, &(hp_compile_options){.remat = remat}, HP_F32, &s);
    CHECK_OK(hp_program_stats_get(s.p, &plan));
    CHECK_OK(hp_plan(s.g, s.d, &(hp_compile_options){.remat = remat}, &dry));
    CHECK_EQ(dry.memory.work_bytes, plan.memory.work_bytes);
    unsigned char *work = widen(s.d, TIER_DEVICE, plan.memory.work_bytes);
    for (int poison = 0x5a; poison <= 0xa5; poison += 0x4b) {
      memset(work, poison, plan.memory.work_bytes + MARGIN);
      step_run(&s);
      used = highest(work, plan.memory.work_bytes + MARGIN, (unsigned char)poison, used);
    }
    CHECK_EQ((used + 255) / 256 * 256,
             plan.memory.work_bytes); /* plans are made of pieces of 256 */
    CHECK(plan.memory.work_bytes - plan.memory.work_bound <=
          plan.memory.work_bound / 1024); /* where the search ends */
    check_bound(s.g, remat, &plan);
    step_close(&s);
  }
}

/* Compiles, writes params, and runs once on arenas filled with `poison`; all that comes out, and
 * that nothing was written beyond the plan. */
static void run_poisoned(random_graph *x, unsigned char poison, str *all) {
  hp_device *d;
  hp_program *p;
  hp_io io[RANDOM_LEAVES + RANDOM_OUTPUTS];
  int n = 0;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_compile(x->g, d, NULL, &p));
  uint64_t planned[TIER_COUNT];
  for (int t = 0; t < TIER_FLASH; t++) { /* those that have addresses */
    planned[t] = d->member[0]->job->memory[t].work_bytes;
    memset(widen(d, t, planned[t]), poison, planned[t] + MARGIN);
  }
  for (int i = 0; i < x->leaves; i++) {
    random_leaf *l = &x->leaf[i];
    if (l->name[0] == 'x') {
      io[n++] = (hp_io){l->name, l->data, l->bytes};
      continue;
    }
    CHECK_OK(hp_param_create(d, l->name, hp_dtype_of(x->g, l->v), hp_shape_of(x->g, l->v)));
    CHECK_OK(hp_write(d, l->name, l->data, l->bytes));
  }
  int first = n;
  for (int i = 0; i < x->outputs; i++) {
    size_t size = (size_t)value_bytes(graph_value(x->g, x->output[i].v));
    io[n++] = (hp_io){x->output[i].name, malloc(size + 1), size};
  }
  CHECK_OK(hp_run(p, io, n));
  for (int i = first; i < n; i++) {
    str_add_n(all, io[i].data, io[i].bytes);
    free(io[i].data);
  }
  for (int t = 0; t < TIER_FLASH; t++)
    CHECK_EQ(highest(device_work(d->member[0], t), planned[t] + MARGIN, poison, planned[t]),
             planned[t]);
  hp_program_free(p);
  hp_device_close(d);
}

TEST(no_program_reads_what_it_has_not_written_or_writes_beyond_its_plan) {
  static const random_options kinds[] = {{.dtypes = true}, {.streams = true}};
  for (uint64_t seed = 8000; seed < 8040; seed++) {
    random_graph x;
    str got[2] = {{0}, {0}};
    random_graph_make(seed, &kinds[seed % 2], &x);
    run_poisoned(&x, 0, &got[0]);
    run_poisoned(&x, 0xff, &got[1]); /* NaN in every float type */
    CHECK(got[0].len == got[1].len && !memcmp(got[0].at, got[1].at, got[0].len));
    str_free(&got[0]);
    str_free(&got[1]);
    random_graph_free(&x);
  }
}

TEST(a_program_runs_on_after_another_one_has_moved_the_work_memory) {
  step_case s;
  hp_graph *g;
  hp_program *large;
  static float x[1 << 20], y[1 << 20];
  step_open(&(hp_device_options){.threads = 1, .interpret = true}, NULL, HP_F32, &s);
  step_run(&s);
  float first = s.loss;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor t = hp_input(g, "x", HP_F32, (hp_shape){1, {1 << 20}});
  hp_output(g, "y",
            hp_transpose(g, hp_reshape(g, t, (hp_shape){2, {1024, 1024}}), (int64_t[]){1, 0}));
  CHECK_OK(hp_compile(g, s.d, NULL, &large));
  x[1] = 3;
  for (int times = 0; times < 3; times++) {
    y[1024] = 0;
    CHECK_OK(hp_run(large, (hp_io[]){{"x", x, sizeof x}, {"y", y, sizeof y}}, 2));
    CHECK_NEAR(y[1024], 3, 0);
    step_run(&s);
    CHECK(s.loss < first && s.loss > 0);
  }
  hp_program_free(large);
  hp_graph_free(g);
  step_close(&s);
}

/* --- limits ----------------------------------------------------------------------------------- */

static const hp_layout_rule tensor_parallel[] = {{"[qkv].*", "(tp,None)"},
                                                 {"o.*", "(None,tp)"},
                                                 {"up.*", "(tp,None)"}};

static hp_status plan_within(const hp_graph *g, const char *devices, uint64_t limit) {
  hp_device *d;
  hp_program_stats s;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1,
                                               .interpret = true,
                                               .mesh = devices,
                                               .layouts = tensor_parallel,
                                               .n_layouts = devices ? 3 : 0,
                                               .memory_limit = limit},
                          &d));
  hp_status st = hp_plan(g, d, NULL, &s);
  hp_device_close(d);
  return st;
}

/* The bytes that a refused plan names. */
static uint64_t named(void) {
  static const char key[] = "set memory_limit to ";
  const char *at = strstr(err_message(), key);
  if (!at) test_fail(__FILE__, __LINE__, "no minimum is named: %s", err_message());
  uint64_t bytes = strtoull(at + sizeof key - 1, NULL, 10);
  err_clear();
  return bytes;
}

static void check_limit(const hp_graph *g, const char *devices, uint64_t seed) {
  if (!plan_within(g, devices, 1)) return; /* nothing to keep */
  uint64_t least = named();
  if (plan_within(g, devices, least))
    test_fail(__FILE__, __LINE__, "seed %d: %llu bytes were said to do: %s", (int)seed,
              (unsigned long long)least, err_message());
  if (least > 1 && !plan_within(g, devices, least - 1))
    test_fail(__FILE__, __LINE__, "seed %d: one byte less than %llu does too", (int)seed,
              (unsigned long long)least);
  CHECK_EQ(named(), least);
}

static void check_random_limits(uint64_t first, uint64_t n) {
  for (uint64_t seed = first; seed < first + n; seed++) {
    random_graph x;
    random_graph_make(seed, &(random_options){.streams = seed % 6 == 0}, &x);
    check_limit(x.g, NULL, seed);
    random_graph_free(&x);
  }
}

TEST(a_limit_that_is_too_small_names_the_least_that_does) {
  hp_graph *g = step_graph(HP_F32);
  check_limit(g, NULL, 0);
  check_limit(g, "(2)(tp)", 0);
  hp_graph_free(g);
  check_random_limits(9000, 3);
}
TEST(torture_a_limit_that_is_too_small_names_the_least_that_does) { check_random_limits(9000, 60); }

/* How the order of a step on four devices is told under that limit; hp_free.  NULL: no plan. */
static char *order_within(const hp_graph *g, uint64_t limit, bool serial) {
  char *text = NULL;
  hp_device *d;
  hp_device_options o = {.mesh = "(4)(tp)",
                         .layouts = tensor_parallel,
                         .n_layouts = 3,
                         .cluster = "dgx-h100",
                         .plan_only = true,
                         .memory_limit = limit};
  CHECK_OK(hp_device_open(&o, &d));
  if (hp_plan_explain(g, d, &(hp_compile_options){.serial = serial}, "memory", &text)) text = NULL;
  hp_device_close(d);
  return text;
}

/* Of the limits that the fastest order does not keep, the larger ones leave room for some overlap:
 * an order is tried under a lower cap before all of it is given up. */
TEST(a_limit_between_the_fastest_and_the_serial_order_gives_up_some_overlap_only) {
  enum { LIMITS = 12, APART = 8 << 10 };
  hp_graph *g = step_graph(HP_F32);
  CHECK(!order_within(g, 1, true));
  uint64_t least = named();
  int some = 0, none = 0;
  for (uint64_t k = 0; k < LIMITS && !(some && none); k++) {
    char *text = order_within(g, least + k * APART, false);
    CHECK(text);
    some += strstr(text, "less overlap of communication with computation than") != NULL;
    none += strstr(text, ": no overlap of communication with computation") != NULL;
    hp_free(text);
  }
  CHECK(some && none);
  hp_graph_free(g);
}

/* --- failures --------------------------------------------------------------------------------- */

TEST(compiling_survives_every_failed_allocation) {
  for (uint64_t seed = 5000; seed < 5004; seed++) {
    random_graph x;
    random_graph_make(seed, &(random_options){.streams = true}, &x);
    bool all = false; /* compiled without asking for k allocations */
    for (uint64_t k = 1; !all; k++) {
      hp_device *d;
      hp_program *p;
      CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
      uint64_t before = mem_count();
      mem_fail_at(k);
      hp_status st = hp_compile(x.g, d, &(hp_compile_options){.remat = true}, &p);
      all = mem_count() - before < k;
      mem_fail_at(0);
      CHECK(!st || st == HP_ERR_OOM);
      if (!st) hp_program_free(p);
      err_clear();
      hp_device_close(d);
    }
    random_graph_free(&x);
  }
}
