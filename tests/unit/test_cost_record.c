/* The record of what this machine reaches: its file, what is learned, and that no plan reads it. */
#include "base/io.h"
#include "base/mem.h"
#include "compile/lower.h"
#include "rt/cost_record.h"
#include "sim/cost_learn.h"
#include "test.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>

enum { THREADS = 2 };

static cluster load_this(void) {
  cluster c;
  CHECK_OK(cluster_load("this", &c));
  return c;
}

/* Products go at a thousandth of a peak that no machine has. */
static void plant_record(void) {
  cluster c = load_this();
  CHECK(!setenv("HYPER_CACHE", test_dir(), 1));
  c.flops = 3e15;
  c.costs.launch_us = 5;
  CHECK(cost_table_set(&c.costs, (cost_entry){COST_PRODUCT, false, INFINITY, 1e-3}));
  CHECK(cost_table_set(&c.costs, (cost_entry){COST_COPY, true, 4096, 0.5}));
  cost_record_write(THREADS, &c);
}

static void find_record(char path[600]) {
  DIR *d = opendir(test_dir());
  CHECK(d != NULL);
  *path = 0;
  for (struct dirent *e; (e = readdir(d));)
    if (strstr(e->d_name, ".costs")) snprintf(path, 600, "%s/%s", test_dir(), e->d_name);
  closedir(d);
  CHECK(*path);
}

TEST(a_record_is_read_as_it_was_written) {
  cluster c = load_this(), other = load_this();
  plant_record();
  cost_record_read(THREADS, &c);
  CHECK_NEAR(c.flops, 3e15, 0);
  CHECK_NEAR(c.costs.launch_us, 5, 0);
  CHECK_EQ(c.costs.rows, 2);
  CHECK_NEAR(cost_table_row(&c.costs, COST_COPY, true, 4096)->of_limit, 0.5, 0);
  cost_record_read(THREADS + 1, &other);
  CHECK_EQ(other.costs.rows, 0); /* other threads have another one */
  cost_record_remove(THREADS);
  c = load_this();
  cost_record_read(THREADS, &c);
  CHECK_EQ(c.costs.rows, 0);
}

TEST(a_damaged_record_is_none) {
  char path[600], *text;
  size_t n;
  plant_record();
  find_record(path);
  CHECK_OK(file_read(path, 1 << 20, &text, &n));
  for (size_t i = 0; i < n; i += 7) { /* a changed byte, and a file cut there */
    cluster c = load_this();
    text[i] ^= 1;
    CHECK_OK(file_write(path, text, n));
    cost_record_read(THREADS, &c);
    CHECK_EQ(c.costs.rows, 0);
    text[i] ^= 1;
    CHECK_OK(file_write(path, text, i));
    cost_record_read(THREADS, &c);
    CHECK_EQ(c.costs.rows, 0);
  }
  mem_free(text);
}

static hp_graph *make_graph(void) {
  hp_graph *g;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {16, 64}});
  hp_tensor up = hp_param(g, "up", HP_F32, (hp_shape){2, {64, 256}});
  hp_tensor down = hp_param(g, "down", HP_F32, (hp_shape){2, {256, 64}});
  hp_tensor y = hp_einsum(g, "tc,cf->tf", x, up);
  hp_output(g, "y", hp_einsum(g, "tf,fc->tc", y, down));
  CHECK_OK(hp_graph_status(g));
  return g;
}

/* The program of the graph on a mesh, as text, and its predicted time. */
static char *plan(const char *on, double *predicted_s) {
  const hp_layout_rule rules[] = {{"up", "(dp,None)"}, {"down", "(dp,None)"}, {"x", "(dp,None)"}};
  hp_device_options o = {.mesh = on, .threads = THREADS, .layouts = rules};
  o.n_layouts = on ? 3 : 0;
  hp_device *d;
  hp_program *p;
  hp_program_stats s;
  char *text;
  hp_graph *g = make_graph();
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  CHECK_OK(hp_program_print(p, &text));
  CHECK_OK(hp_program_stats_get(p, &s));
  *predicted_s = s.predicted_s;
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
  return text;
}

TEST(no_plan_depends_on_the_record_and_the_prediction_of_one_device_does) {
  static const char *const meshes[] = {NULL, "(2)(dp)"};
  CHECK(!setenv("HYPER_CACHE", test_dir(), 1));
  for (int i = 0; i < 2; i++) {
    double without_s, with_s;
    cost_record_remove(THREADS);
    char *without = plan(meshes[i], &without_s);
    plant_record();
    char *with = plan(meshes[i], &with_s);
    CHECK_STR(with, without);
    CHECK(meshes[i] ? with_s == without_s : with_s != without_s);
    hp_free(with);
    hp_free(without);
  }
}

TEST(shares_are_the_time_at_the_limit_over_the_time_measured) {
  hp_graph *g = make_graph();
  program *p;
  cluster c = load_this();
  inst_times t[8] = {{0}};
  CHECK_OK(lower_graph(g, &p));
  CHECK_EQ(p->insts.len, 2);
  double limit_s = 0;
  for (int i = 0; i < 2; i++) {
    cost_work w = cost_work_of(p, program_inst(p, (size_t)i));
    limit_s += cluster_limit_s(&c, &w);
    CHECK_NEAR(w.size, 16, 0); /* the smallest dim: below 32 */
    t[i] = (inst_times){i, i, i + 1, 0};
  }
  cost_learn(&c, p, t);
  const cost_entry *row = cost_table_row(&c.costs, COST_PRODUCT, false, 32);
  CHECK(row != NULL);
  CHECK_NEAR(row->of_limit, limit_s / 2, 1e-12);
  mesh one;
  const char *name = "device";
  CHECK_OK(mesh_init(&(int64_t){1}, &name, 1, NULL, 0, &one));
  CHECK_NEAR(cost_inst(&c, &one, p, program_inst(p, 0)) +
                 cost_inst(&c, &one, p, program_inst(p, 1)),
             2, 1e-9);
  for (int i = 0; i < 2; i++) t[i].end_s = i + 0.25; /* four times as fast: half of the way is 2 */
  cost_learn(&c, p, t);
  row = cost_table_row(&c.costs, COST_PRODUCT, false, 32);
  CHECK_NEAR(row->of_limit, limit_s, 1e-12);
  mesh_free(&one);
  program_free(p);
  hp_graph_free(g);
}

/* Runs a product of n rows and columns so often and, if it is to be short, until a run was; is
 * anything learned of it? */
static bool learns(int64_t n, int runs, bool is_short) {
  hp_graph *g;
  hp_device *d;
  hp_program *p;
  hp_program_stats s;
  cluster c = load_this();
  size_t bytes = (size_t)(n * n) * sizeof(float);
  float *x = mem_calloc(bytes, 1), *y = mem_calloc(bytes, 1);
  CHECK(x && y && !setenv("HYPER_CACHE", test_dir(), 1));
  cost_record_remove(1);
  CHECK_OK(hp_graph_create(&g));
  hp_tensor in = hp_input(g, "x", HP_F32, (hp_shape){2, {n, n}});
  hp_output(g, "y", hp_einsum(g, "tc,cf->tf", in, in));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1}, &d));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  for (int i = 0; i < runs || (is_short && s.run_s >= 1e-3); i++) {
    CHECK_OK(hp_run(p, (hp_io[]){{"x", x, bytes}, {"y", y, bytes}}, 2));
    CHECK_OK(hp_program_stats_get(p, &s));
  }
  if (!is_short) CHECK(s.run_s > 1e-3);
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
  mem_free(x), mem_free(y);
  cost_record_read(1, &c);
  return c.costs.rows > 0;
}

TEST(three_runs_of_a_millisecond_teach_and_less_does_not) {
  CHECK(learns(1024, 3, false));
  CHECK(!learns(1024, 2, false));
  CHECK(!learns(8, 5, true));
}

/* The bound of the row that a product, whose smallest dim is at most n, or a copy of n rows sets.
 */
static double learned_bound(cost_class kind, int64_t n) {
  hp_graph *g;
  program *p;
  cluster c = load_this();
  inst_times t = {0, 0, 1e-3, 0};
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {n, 64}});
  if (kind == COST_PRODUCT) {
    hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){2, {64, 4096}});
    hp_output(g, "y", hp_einsum(g, "tc,cf->tf", x, w));
  } else {
    hp_output(g, "y", hp_transpose(g, x, (const int64_t[]){1, 0}));
  }
  CHECK_OK(hp_graph_status(g));
  CHECK_OK(lower_graph(g, &p));
  CHECK_EQ(p->insts.len, 1);
  cost_learn(&c, p, &t);
  CHECK_EQ(c.costs.rows, 1);
  program_free(p);
  hp_graph_free(g);
  return c.costs.row[0].below;
}

TEST(sizes_have_bounds_by_dims_or_bytes) {
  CHECK_NEAR(learned_bound(COST_PRODUCT, 1), 2, 0);
  CHECK_NEAR(learned_bound(COST_PRODUCT, 2), 8, 0);
  CHECK_NEAR(learned_bound(COST_PRODUCT, 64), 128, 0);
  CHECK_NEAR(learned_bound(COST_OTHER, 1), 32768, 0);
  CHECK(isinf(learned_bound(COST_OTHER, 1 << 27)));
}
