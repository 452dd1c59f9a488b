/* Several devices as one: random graphs through the public API on meshes, against the reference,
 * run twice with params that go on from what they became. */
#include "base/dtype.h"
#include "ops/random_graph.h"
#include "shard/layout_text.h"
#include "shard/slices.h"
#include "test.h"
#include "unit/far_memory.h"
#include "unit/hazards.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
  random_graph x;
  hp_device *d;
  hp_program *p;
  char entries[RANDOM_LEAVES][128];
  hp_layout_rule rule[RANDOM_LEAVES];
  int rules;
} job;

/* A layout by chance for some of the leaves, as the user writes it. */
static void choose_layouts(job *j, const char *mesh_text, uint64_t seed) {
  mesh m;
  layout none;
  bool called;
  CHECK_OK(layout_parse(mesh_text, &m, &none, &called));
  for (int i = 0; i < j->x.leaves; i++) {
    const ir_value *t = graph_value(j->x.g, j->x.leaf[i].v);
    rng r = {.seed = seed * 91 + (uint64_t)i};
    layout l = {.rank = t->rank};
    str text = {0};
    if (rng_chance(&r, 15)) continue;
    for (int a = 0; a < m.axes; a++) {
      if (!t->rank || rng_chance(&r, 25)) continue;
      int d = rng_below(&r, t->rank);
      bool even = t->dim[d] % (layout_shard_count(&m, &l, d) * m.size[a]) == 0;
      if (even || rng_chance(&r, 50)) layout_append(&l, d, a);
    }
    for (int d = 0; d < t->rank; d++)
      if (l.n[d] && rng_chance(&r, 20))
        l.shard_size[d] = (int32_t)layout_shard_size(&m, &l, d, t->dim[d]) + rng_below(&r, 3);
    layout_print_on(&m, &l, &text);
    snprintf(j->entries[i], sizeof j->entries[i], "%s", text.at);
    j->rule[j->rules++] = (hp_layout_rule){j->x.leaf[i].name, j->entries[i]};
    str_free(&text);
  }
  mesh_free(&m);
}

static void fail_job(const job *j, const char *what) {
  char *text;
  CHECK_OK(hp_graph_print(j->x.g, &text));
  test_fail(__FILE__, __LINE__, "seed %llu: %s\n%s", (unsigned long long)j->x.r.seed, what, text);
}

static void check_bytes(const job *j, const char *name, val v, const void *got) {
  char why[200];
  int64_t unknown = 0;
  if (ref_compare(&j->x.ref, v, got, &unknown, why)) {
    printf("%s ", name);
    fail_job(j, why);
  }
}

static void run_once(job *j) {
  hp_io io[RANDOM_LEAVES + RANDOM_OUTPUTS];
  int n = 0;
  for (int i = 0; i < j->x.leaves; i++) {
    random_leaf *l = &j->x.leaf[i];
    if (l->name[0] == 'x') io[n++] = (hp_io){l->name, l->data, l->bytes};
    else CHECK_OK(hp_read(j->d, l->name, l->data, l->bytes));
    ref_set(&j->x.ref, l->v, l->data);
  }
  ref_again(&j->x.ref);
  ref_eval(&j->x.ref);
  int first = n;
  for (int i = 0; i < j->x.outputs; i++) {
    size_t size = (size_t)value_bytes(graph_value(j->x.g, j->x.output[i].v));
    io[n++] = (hp_io){j->x.output[i].name, calloc(size + 1, 1), size};
  }
  uint64_t before = mem_count();
  if (hp_run(j->p, io, n)) fail_job(j, hp_last_error());
  CHECK_EQ(mem_count(), before);
  for (int i = 0; i < j->x.outputs; i++) {
    check_bytes(j, io[first + i].name, j->x.output[i].v, io[first + i].data);
    free(io[first + i].data);
  }
  for (int i = 0; i < j->x.leaves; i++) {
    random_leaf *l = &j->x.leaf[i];
    if (l->name[0] != 'p') continue;
    char *got = calloc(l->bytes + 1, 1);
    CHECK_OK(hp_read(j->d, l->name, got, l->bytes));
    check_bytes(j, l->name, j->x.becomes[i] ? j->x.becomes[i] : l->v, got);
    free(got);
  }
}

/* Nothing in the program may conflict in memory but in the order of the list. */
static void check_hazards(const job *j) {
  char *text, why[HAZARD_TEXT];
  program *p;
  CHECK_OK(hp_program_print(j->p, &text));
  CHECK_OK(program_parse(text, strlen(text), "program", &p));
  if (program_hazard(p, why)) fail_job(j, why);
  program_free(p);
  hp_free(text);
}

typedef struct {
  bool serial, no_partial_sums, homes;
  bool far, own_communicator; /* unit/far_memory.h */
} job_how;

/* mesh NULL: one device. */
static void open_job(job *j, uint64_t seed, const char *mesh_text, int threads, job_how how) {
  memset(j, 0, sizeof *j);
  random_graph_make(seed, &(random_options){.dtypes = seed % 2, .streams = seed % 4 == 0}, &j->x);
  if (mesh_text) choose_layouts(j, mesh_text, seed);
  hp_device_options o = {.mesh = mesh_text,
                         .threads = threads,
                         .interpret = true,
                         .layouts = j->rule,
                         .n_layouts = j->rules,
                         .no_partial_sums = how.no_partial_sums};
  hp_compile_options c = {.remat = seed % 3 == 0, .serial = how.serial};
  CHECK_OK(hp_device_open(&o, &j->d));
  if (how.homes) CHECK_OK(hp_device_home(j->d, seed % 2 ? "p1*" : "*", HP_OFFLOAD_HOST));
  if (how.far) far_memory_use(j->d, how.own_communicator);
  for (int i = 0; i < j->x.leaves; i++) {
    random_leaf *l = &j->x.leaf[i];
    if (l->name[0] != 'p') continue;
    CHECK_OK(hp_param_create(j->d, l->name, hp_dtype_of(j->x.g, l->v), hp_shape_of(j->x.g, l->v)));
    CHECK_OK(hp_write(j->d, l->name, l->data, l->bytes));
  }
  if (hp_compile(j->x.g, j->d, &c, &j->p)) fail_job(j, hp_last_error());
  check_hazards(j);
}

static void close_job(job *j) {
  hp_program_free(j->p);
  hp_device_close(j->d);
  random_graph_free(&j->x);
}

static void try_reference(uint64_t seed, const char *mesh_text, int threads) {
  static job j;
  open_job(&j, seed, mesh_text, threads, (job_how){.homes = seed % 3 == 0});
  j.x.ref.partial_sums = true;
  run_once(&j);
  run_once(&j);
  close_job(&j);
}

typedef void (*trial)(uint64_t seed, const char *mesh_text, int threads);

static void try_mesh(trial t, uint64_t first, int n, const char *mesh_text, int threads) {
  const char *only = getenv("HYPER_SEED"), *more = getenv("HYPER_SEEDS");
  if (more) n *= atoi(more);
  if (only) first = strtoull(only, NULL, 10), n = 1;
  for (uint64_t seed = first; seed < first + (uint64_t)n; seed++) t(seed, mesh_text, threads);
}

TEST(random_graphs_on_two_devices_compute_what_the_reference_does) {
  try_mesh(try_reference, 7000, 30, "(2)(a)", 2);
}
TEST(random_graphs_on_a_mesh_compute_what_the_reference_does) {
  try_mesh(try_reference, 7100, 15, "(2,2)(a,b)", 4);
  try_mesh(try_reference, 7200, 10, "(3)(a)", 2);
  try_mesh(try_reference, 7300, 5, "(2,2,2)(a,b,c)", 8);
}
TEST(torture_random_graphs_on_a_mesh_compute_what_the_reference_does) {
  try_mesh(try_reference, 7000, 100, "(2)(a)", 2);
  try_mesh(try_reference, 7100, 100, "(2,2)(a,b)", 4);
  try_mesh(try_reference, 7200, 100, "(3)(a)", 2);
  try_mesh(try_reference, 7300, 60, "(2,2,2)(a,b,c)", 8);
}

static void try_far(uint64_t seed, const char *mesh_text, int threads) {
  static job j;
  open_job(&j, seed, mesh_text, threads, (job_how){.far = true, .own_communicator = seed % 2});
  run_once(&j);
  run_once(&j);
  close_job(&j);
}

TEST(random_graphs_on_devices_whose_memory_the_host_cannot_address) {
  try_mesh(try_far, 7050, 20, "(2,2)(a,b)", 4);
}

/* Outputs and params after a run, in one chunk of memory. */
static char *results_of(job *j, size_t *size) {
  hp_io io[RANDOM_LEAVES + RANDOM_OUTPUTS];
  int n = 0;
  *size = 0;
  for (int i = 0; i < j->x.outputs; i++)
    *size += (size_t)value_bytes(graph_value(j->x.g, j->x.output[i].v));
  for (int i = 0; i < j->x.leaves; i++) *size += j->x.leaf[i].bytes;
  char *all = calloc(*size + 1, 1), *at = all;
  for (int i = 0; i < j->x.outputs; i++) {
    size_t bytes = (size_t)value_bytes(graph_value(j->x.g, j->x.output[i].v));
    io[n++] = (hp_io){j->x.output[i].name, at, bytes};
    at += bytes;
  }
  for (int i = 0; i < j->x.leaves; i++) {
    random_leaf *l = &j->x.leaf[i];
    if (l->name[0] == 'x') io[n++] = (hp_io){l->name, l->data, l->bytes};
  }
  CHECK_OK(hp_run(j->p, io, n));
  for (int i = 0; i < j->x.leaves; i++) {
    random_leaf *l = &j->x.leaf[i];
    if (l->name[0] == 'p') CHECK_OK(hp_read(j->d, l->name, at, l->bytes));
    at += l->bytes;
  }
  return all;
}

TEST(communication_that_overlaps_changes_no_bit) {
  static job j;
  int meetings = 0;
  for (uint64_t seed = 7400; seed < 7430; seed++) {
    size_t size, same;
    open_job(&j, seed, "(2,2)(a,b)", 4, (job_how){.serial = true});
    char *serial = results_of(&j, &size), *text;
    CHECK_OK(hp_program_print(j.p, &text));
    CHECK(!strstr(text, "comm: "));
    hp_free(text);
    close_job(&j);
    open_job(&j, seed, "(2,2)(a,b)", 4, (job_how){0});
    char *overlapped = results_of(&j, &same);
    CHECK_OK(hp_program_print(j.p, &text));
    meetings += strstr(text, "comm: ") != NULL;
    if (size != same || memcmp(serial, overlapped, size)) fail_job(&j, "other bits");
    hp_free(text);
    close_job(&j);
    free(serial);
    free(overlapped);
  }
  CHECK(meetings > 10);
}

/* --- without partial sums -----------------------------------------------------------------------
 */

static bool is_nan(hp_dtype t, const char *at) {
  uint16_t half;
  float x;
  memcpy(&half, at, sizeof half);
  if (t == HP_F32) memcpy(&x, at, sizeof x);
  else x = t == HP_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
  return isnan(x);
}

/* The payload of a NaN is free. */
static void check_same(const job *j, const char *name, val v, const char **one, const char **many) {
  const ir_value *t = graph_value(j->x.g, v);
  hp_dtype type = (hp_dtype)t->dtype;
  size_t size = dtype_size(type);
  char what[100];
  for (int64_t k = 0; k < value_elements(t); k++, *one += size, *many += size) {
    if (!memcmp(*one, *many, size)) continue;
    if (dtype_is_float(type) && is_nan(type, *one) && is_nan(type, *many)) continue;
    snprintf(what, sizeof what, "%s: element %lld has other bits", name, (long long)k);
    fail_job(j, what);
  }
}

static void compare_runs(job *one, job *many) {
  size_t bytes;
  char *a = results_of(one, &bytes), *b = results_of(many, &bytes);
  const char *x = a, *y = b;
  for (int i = 0; i < one->x.outputs; i++)
    check_same(many, one->x.output[i].name, one->x.output[i].v, &x, &y);
  for (int i = 0; i < one->x.leaves; i++)
    check_same(many, one->x.leaf[i].name, one->x.leaf[i].v, &x, &y);
  free(a);
  free(b);
}

static void try_bits(uint64_t seed, const char *mesh_text, int threads) {
  static job one, many;
  open_job(&one, seed, NULL, 1, (job_how){.no_partial_sums = true});
  open_job(&many, seed, mesh_text, threads, (job_how){.no_partial_sums = true});
  compare_runs(&one, &many);
  compare_runs(&one, &many);
  close_job(&one);
  close_job(&many);
}

TEST(without_partial_sums_random_graphs_have_the_bits_of_one_device) {
  try_mesh(try_bits, 7000, 30, "(2)(a)", 2);
  try_mesh(try_bits, 7400, 15, "(3)(a)", 2);
  try_mesh(try_bits, 7500, 15, "(2,2)(a,b)", 4);
  try_mesh(try_bits, 7600, 10, "(2,3)(a,b)", 2);
  try_mesh(try_bits, 7700, 4, "(2,2,2)(a,b,c)", 8);
}

TEST(products_without_partial_sums_have_one_engine) {
  hp_device *d;
  hp_device_options o = {.no_partial_sums = true, .engine = "onednn", .interpret = true};
  CHECK_FAILS(hp_device_open(&o, &d), "engine onednn: its bits depend on how tensors are cut");
  o.engine = NULL;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_STR(hp_device_engine(d), "packed");
  CHECK_FAILS(hp_device_set_engine(d, "onednn", NULL), "use packed");
  CHECK_OK(hp_device_set_engine(d, "packed", NULL));
  hp_device_close(d);
}

TEST(a_device_group_refuses_layouts_that_cannot_be) {
  hp_device *d;
  hp_layout_rule bad = {"*.weight", "(tp:3,None)"};
  hp_device_options o = {.mesh = "(2)(dp)", .layouts = &bad, .n_layouts = 1, .interpret = true};
  CHECK_FAILS(hp_device_open(&o, &d), "layout of \"*.weight\": layout: \"tp\" is not an axis");
  o.mesh = "(2)(dp)(dp)";
  CHECK_FAILS(hp_device_open(&o, &d), "expected sizes and names alone");
  o.mesh = "(100)(dp)";
  CHECK_FAILS(hp_device_open(&o, &d), "at most 64");
  o.mesh = "(2)(tp)";
  o.layouts = NULL;
  CHECK_FAILS(hp_device_open(&o, &d), "layouts is NULL");
  o.layouts = &(hp_layout_rule){"x", NULL};
  CHECK_FAILS(hp_device_open(&o, &d), "entries of layout rule 0 is NULL; expected text");
  o.layouts = &bad;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_FAILS(hp_param_create(d, "a.weight", HP_F32, (hp_shape){2, {7, 4}}),
              "size 7 is more than 2 shards of 3");
  CHECK_FAILS(hp_param_create(d, "b.weight", HP_F32, (hp_shape){1, {4}}), "has 2 entries");
  CHECK_OK(hp_param_create(d, "c.weight", HP_F32, (hp_shape){2, {4, 4}}));
  hp_shape s;
  hp_dtype t;
  CHECK_OK(hp_param_find(d, "c.weight", &t, &s));
  CHECK_EQ(s.dim[0], 4); /* of the global tensor */
  hp_device_close(d);
}

static hp_status count_up(void *context, int64_t first, int64_t n, void *to) {
  int64_t row = *(int64_t *)context;
  float *x = to;
  if (first % row || n % row) HP_FAIL(HP_ERR_INTERNAL, "no whole rows");
  for (int64_t i = 0; i < n; i++) x[i] = (float)(first + i);
  return HP_OK;
}

TEST(a_fill_gives_each_element_its_value) {
  static const hp_layout_rule cut = {"a", "(y,x)"};
  static float back[301 * 999];
  const hp_device_options options[] =
      {{.threads = 3}, {.mesh = "(3,2)(x,y)", .layouts = &cut, .n_layouts = 1, .interpret = true}};
  for (int i = 0; i < 2; i++) {
    hp_device *d;
    int64_t row = 999;
    CHECK_OK(hp_device_open(&options[i], &d));
    CHECK_OK(hp_param_create(d, "a", HP_F32, (hp_shape){2, {301, 999}}));
    CHECK_OK(hp_param_create(d, "one", HP_F32, (hp_shape){0, {0}}));
    CHECK_OK(hp_param_create(d, "none", HP_F32, (hp_shape){2, {0, 3}}));
    CHECK_OK(hp_fill(d, "a", count_up, &row));
    CHECK_OK(hp_read(d, "a", back, sizeof back));
    for (int k = 0; k < 301 * 999; k++) CHECK(back[k] == (float)k);
    row = 1;
    back[0] = -1;
    CHECK_OK(hp_fill(d, "one", count_up, &row));
    CHECK_OK(hp_read(d, "one", back, sizeof *back));
    CHECK(back[0] == 0);
    CHECK_OK(hp_fill(d, "none", count_up, &row));
    row = 1000;
    CHECK_FAILS(hp_fill(d, "a", count_up, &row), "no whole rows");
    CHECK_FAILS(hp_fill(d, "a", NULL, NULL), "fill is NULL");
    CHECK_FAILS(hp_fill(d, "b", count_up, &row), "has no param \"b\"");
    hp_device_close(d);
  }
}

TEST(what_is_written_to_uneven_shards_is_read_back) {
  hp_device *d;
  hp_layout_rule uneven[] = {{"a", "(x:2,y)"}, {"b", "(y,x)"}};
  hp_device_options o = {.mesh = "(3,2)(x,y)",
                         .layouts = uneven,
                         .n_layouts = 2,
                         .interpret = true};
  float data[5 * 7], back[5 * 7];
  for (int i = 0; i < 5 * 7; i++) data[i] = (float)i + 1;
  CHECK_OK(hp_device_open(&o, &d));
  for (int i = 0; i < 2; i++) {
    CHECK_OK(hp_param_create(d, uneven[i].pattern, HP_F32, (hp_shape){2, {5, 7}}));
    CHECK_OK(hp_write(d, uneven[i].pattern, data, sizeof data));
    CHECK_OK(hp_read(d, uneven[i].pattern, back, sizeof back));
    CHECK(!memcmp(data, back, sizeof data));
  }
  hp_device_close(d);
}

static hp_graph *product(void) {
  hp_graph *g;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {16384, 64}});
  hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){2, {64, 64}});
  hp_output(g, "y", hp_einsum(g, "ab,bc->ac", x, w));
  return g;
}

TEST(one_device_stands_for_any_number_when_only_plans_are_made) {
  static const hp_layout_rule rules[] = {{"x", "(dp,None)"}, {"w", "(None,tp)"}};
  hp_device_options o = {.mesh = "(1024,8)(dp,tp)",
                         .layouts = rules,
                         .n_layouts = 2,
                         .interpret = true,
                         .threads = 1,
                         .plan_only = true};
  hp_graph *g = product();
  hp_device *d;
  hp_program *p;
  hp_program_stats s;
  char *text;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_plan(g, d, NULL, &s));
  CHECK_EQ(s.flops, 2.0 * 16 * 64 * 8); /* a device's share */
  CHECK_OK(hp_plan_explain(g, d, NULL, "layouts", &text));
  CHECK(strstr(text, "8192 devices"));
  hp_free(text);
  CHECK_FAILS(hp_compile(g, d, NULL, &p), "opened with plan_only");
  CHECK_FAILS(hp_param_create(d, "w", HP_F32, (hp_shape){2, {64, 64}}), "to make plans only");
  hp_device_close(d);
  o.plan_only = false;
  CHECK_FAILS(hp_device_open(&o, &d), "at most 64");
  hp_graph_free(g);
}

TEST(a_mesh_must_fit_the_cluster) {
  hp_device *d;
  hp_device_options o = {.mesh = "(8,64)(dp,tp)",
                         .cluster = "cloudmatrix384",
                         .interpret = true,
                         .plan_only = true};
  CHECK_FAILS(hp_device_open(&o, &d), "has 384 devices, and 512 are needed");
  o.cluster = "dgx-h200";
  CHECK_FAILS(hp_device_open(&o, &d), "did you mean \"dgx-h100\"?");
}

TEST(collectives_in_a_global_graph_are_refused) {
  static const char text[] = "%1:f32[4] = input {name=\"x\", dtype=f32, shape=[4]}\n"
                             "%2:f32[4] = all_reduce %1 {axes=[7], n=2, op=1}\n"
                             "output %2 {name=\"y\"}\n";
  hp_graph *g;
  hp_program *p;
  CHECK_OK(hp_graph_parse(text, "text", &g));
  for (int n = 1; n <= 2; n++) {
    hp_device *d;
    hp_device_options o = {.mesh = n == 1 ? NULL : "(2)(a)", .interpret = true, .threads = 1};
    CHECK_OK(hp_device_open(&o, &d));
    CHECK_FAILS(hp_compile(g, d, NULL, &p), "all_reduce \"\" of 2 devices");
    hp_device_close(d);
  }
  hp_graph_free(g);
}

/* --- layouts of tensors within a graph -------------------------------------------------------- */

/* y = (x w) w, with the product in between laid out as `entries` say; NULL: as it comes. */
static hp_status sharded_chain(const char *on, const char *entries, float *y, char **text) {
  enum { N = 8 };
  float x[N * N], w[N * N];
  hp_device *d;
  hp_graph *g;
  hp_program *p = NULL;
  for (int i = 0; i < N * N; i++) x[i] = (float)(i % 7) - 3, w[i] = (float)(i % 5) - 2;
  hp_device_options o = {.mesh = on, .interpret = true, .threads = 2};
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_graph_create(&g));
  hp_shape s = {2, {N, N}};
  hp_tensor in = hp_input(g, "x", HP_F32, s), by = hp_input(g, "w", HP_F32, s);
  hp_at(g, "middle");
  hp_tensor h = hp_einsum(g, "ab,bc->ac", in, by);
  if (entries) h = hp_shard(g, h, entries);
  hp_output(g, "y", hp_einsum(g, "ab,bc->ac", h, by));
  hp_status st = hp_compile(g, d, NULL, &p);
  hp_io io[] = {{"x", x, sizeof x}, {"w", w, sizeof w}, {"y", y, sizeof x}};
  if (!st) st = hp_run(p, io, 3);
  if (!st) CHECK_OK(hp_program_print(p, text));
  hp_program_free(p);
  hp_graph_free(g);
  hp_device_close(d);
  return st;
}

TEST(a_tensor_within_a_graph_lies_as_it_is_told) {
  float one[64], many[64];
  char *plain, *cut;
  CHECK_OK(sharded_chain(NULL, "(a,None)", one, &plain));
  CHECK_OK(sharded_chain("(2,2)(a,b)", "(a,b)", many, &cut));
  for (int i = 0; i < 64; i++) CHECK_NEAR(many[i], one[i], 1e-4);
  CHECK(!strstr(plain, "all_gather") && strstr(cut, "f32[4,4]"));
  hp_free(plain);
  hp_free(cut);
  CHECK_OK(sharded_chain("(3)(a)", "(a,None)", many, &cut)); /* padded */
  for (int i = 0; i < 64; i++) CHECK_NEAR(many[i], one[i], 1e-4);
  hp_free(cut);
}

TEST(what_is_no_layout_of_a_tensor_is_refused_with_its_place) {
  float y[64];
  char *text;
  CHECK_FAILS(sharded_chain("(2)(a)", "(c,None)", y, &text), "hp_shard \"middle\": ");
  CHECK_FAILS(sharded_chain("(2)(a)", "(a,a)", y, &text), "hp_shard \"middle\": ");
  CHECK_FAILS(sharded_chain("(2)(a)", "(a)", y, &text),
              "hp_shard \"(a)\": has 1 entries, the tensor 2 dims");
  CHECK_FAILS(sharded_chain("(2)(a)", "a", y, &text), "no list of entries");
}

static const char *const ways[] = {"(None,None)",  "(a,None)",     "(b,None)",    "(None,a)",
                                   "(None,b)",     "(a,b)",        "(b,a)",       "((a,b),None)",
                                   "((b,a),None)", "(None,(a,b))", "(None,(b,a))"};
enum { WAYS = sizeof ways / sizeof *ways, MOVED_MAX = 96 };

/* What a graph of a tensor that lies in one way, and then in each of all, gives of it. */
static void move_from(hp_device *d, const char *first, hp_shape s) {
  float x[MOVED_MAX], y[WAYS][MOVED_MAX];
  char name[WAYS][8];
  size_t n = (size_t)(s.dim[0] * s.dim[1]), bytes = n * sizeof *x;
  hp_io io[WAYS + 1] = {{"x", x, bytes}};
  hp_graph *g;
  hp_program *p;
  HP_ASSERT(n <= MOVED_MAX);
  for (size_t i = 0; i < n; i++) x[i] = (float)i + 1;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor lies = hp_shard(g, hp_input(g, "x", HP_F32, s), first);
  for (int i = 0; i < WAYS; i++) {
    snprintf(name[i], sizeof name[i], "y%d", i);
    hp_output(g, name[i], hp_shard(g, lies, ways[i]));
    io[i + 1] = (hp_io){name[i], y[i], bytes};
  }
  CHECK_OK(hp_compile(g, d, NULL, &p));
  CHECK_OK(hp_run(p, io, WAYS + 1));
  for (int i = 0; i < WAYS; i++)
    if (memcmp(x, y[i], bytes)) test_fail(__FILE__, __LINE__, "%s to %s", first, ways[i]);
  hp_program_free(p);
  hp_graph_free(g);
}

static void move_on(const char *mesh_text, int threads) {
  hp_device *d;
  hp_device_options o = {.mesh = mesh_text, .interpret = true, .threads = threads};
  CHECK_OK(hp_device_open(&o, &d));
  for (int i = 0; i < WAYS; i++) {
    move_from(d, ways[i], (hp_shape){2, {6, 12}});
    move_from(d, ways[i], (hp_shape){2, {7, 13}});
  }
  hp_device_close(d);
}

TEST(elements_keep_their_place_from_any_layout_to_any_other) {
  move_on("(2,2)(a,b)", 2);
  move_on("(2,3)(a,b)", 2);
}

/* 256 + 1 and -256, the parts of the sum, are not both numbers of bf16. */
TEST(parts_of_a_sum_of_16_bits_are_not_rounded) {
  enum { ONE = 0x3f80, MANY = 0x4380, LESS = 0xc380 };
  uint16_t x[4] = {MANY, ONE, LESS, 0}, w[4] = {ONE, ONE, ONE, ONE}, y = 0;
  hp_layout_rule rules[] = {{"x", "(None,a)"}, {"w", "(a,None)"}};
  hp_device_options o = {.mesh = "(2)(a)",
                         .interpret = true,
                         .threads = 2,
                         .layouts = rules,
                         .n_layouts = 2};
  hp_io io[] = {{"x", x, sizeof x}, {"w", w, sizeof w}, {"y", &y, sizeof y}};
  hp_device *d;
  hp_graph *g;
  hp_program *p;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_graph_create(&g));
  hp_tensor left = hp_input(g, "x", HP_BF16, (hp_shape){2, {1, 4}});
  hp_tensor right = hp_input(g, "w", HP_BF16, (hp_shape){2, {4, 1}});
  hp_output(g, "y", hp_einsum(g, "ab,bc->ac", left, right));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  CHECK_OK(hp_run(p, io, 3));
  CHECK_EQ(y, ONE);
  hp_program_free(p);
  hp_graph_free(g);
  hp_device_close(d);
}

/* y = x z w, the first product of f32 and cut along what it sums, the second of f32 and bf16, of
 * one element: the sum could wait behind it, but of its parts, 257 and -256 in each place, bf16
 * does not have the first. */
TEST(a_sum_is_whole_before_a_product_rounds_it) {
  enum { N = 64, ONE = 0x3f80 };
  float x[2 * N], z[2] = {1, 1}, y[N];
  uint16_t w = ONE;
  hp_layout_rule rules[] = {{"x", "(None,a)"}, {"z", "(a,None)"}};
  hp_device_options o = {.mesh = "(2)(a)",
                         .interpret = true,
                         .threads = 2,
                         .layouts = rules,
                         .n_layouts = 2};
  hp_io io[] = {{"x", x, sizeof x}, {"z", z, sizeof z}, {"w", &w, sizeof w}, {"y", y, sizeof y}};
  hp_device *d;
  hp_graph *g;
  hp_program *p;
  for (int i = 0; i < N; i++) x[2 * i] = 257, x[2 * i + 1] = -256;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_graph_create(&g));
  hp_tensor sum = hp_einsum(g, "ab,bc->ac", hp_input(g, "x", HP_F32, (hp_shape){2, {N, 2}}),
                            hp_input(g, "z", HP_F32, (hp_shape){2, {2, 1}}));
  hp_output(g, "y",
            hp_einsum(g, "ab,bc->ac", sum, hp_input(g, "w", HP_BF16, (hp_shape){2, {1, 1}})));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  CHECK_OK(hp_run(p, io, 4));
  for (int i = 0; i < N; i++) CHECK_EQ(y[i], 1);
  hp_program_free(p);
  hp_graph_free(g);
  hp_device_close(d);
}

/* g += rows of x, or y = g; on two devices with the rows cut and g a partial sum. */
static hp_program *running_sum(hp_device *d, bool adds) {
  hp_graph *g;
  hp_program *p;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor held = hp_param(g, "g", HP_F32, (hp_shape){1, {4}});
  if (adds) {
    hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {8, 4}});
    hp_assign(g, held, hp_add(g, held, hp_sum(g, x, (int64_t[]){0}, 1, false)));
  } else {
    hp_output(g, "y", hp_scale(g, held, 2));
  }
  CHECK_OK(hp_compile(g, d, NULL, &p));
  hp_graph_free(g);
  return p;
}

TEST(a_param_may_be_a_sum_that_is_reduced_when_it_is_used) {
  hp_layout_rule rules[] = {{"x", "(a,None)"}, {"g", "(None)+sum:a"}};
  hp_device_options o = {.mesh = "(2)(a)",
                         .interpret = true,
                         .threads = 2,
                         .layouts = rules,
                         .n_layouts = 2};
  float x[32], y[4], none[4];
  char *text;
  hp_device *d;
  for (int i = 0; i < 32; i++) x[i] = (float)i;
  CHECK_OK(hp_device_open(&o, &d));
  hp_program *add = running_sum(d, true), *use = running_sum(d, false);
  hp_io in = {"x", x, sizeof x}, out = {"y", y, sizeof y};
  for (int i = 0; i < 3; i++) CHECK_OK(hp_run(add, &in, 1));
  CHECK_OK(hp_run(use, &out, 1));
  for (int c = 0; c < 4; c++) CHECK_EQ(y[c], 2 * 3 * (8 * c + 4 * 28));
  CHECK_OK(hp_program_print(add, &text));
  CHECK(!strstr(text, "all_reduce"));
  hp_free(text);
  CHECK_FAILS(hp_read(d, "g", none, sizeof none), "a partial sum");
  hp_program_free(add);
  hp_program_free(use);
  hp_device_close(d);
}

/* --- processes -------------------------------------------------------------------------------- */

TEST(job_of_processes_computes_what_the_reference_does) {
  int rank, size;
  char mesh_text[32];
  CHECK_OK(hp_world(&rank, &size));
  if (size == 1) return; /* started by tests/cli/test_launch.sh as several */
  printf("process %d of %d\n", rank, size);
  snprintf(mesh_text, sizeof mesh_text, "(%d)(a)", size);
  try_mesh(try_reference, 7000, 30, size == 4 ? "(2,2)(a,b)" : mesh_text, size);
  if (size == 4) move_on("(2,2)(a,b)", size);
}
