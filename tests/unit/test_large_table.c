/* Training steps of a table that is larger than all else: what of it must be on the device. */
#include "test.h"

#include "base/io.h"
#include "hyperparallel.h"

#include <string.h>

enum { ROWS = 4001, COLS = 64, IDS = 8, STEPS = 4, TABLE = ROWS * COLS * 4 };

static hp_graph *table_graph(void) {
  hp_graph *g;
  CHECK_OK(hp_graph_create(&g));
  hp_shape shape = {2, {ROWS, COLS}};
  hp_tensor ids = hp_input(g, "ids", HP_I32, (hp_shape){1, {IDS}}), grad, state[2];
  hp_tensor table = hp_param(g, "table", HP_F32, shape);
  hp_tensor x = hp_embedding(g, table, ids, -1);
  hp_tensor loss = hp_sum(g, hp_mul(g, x, x), (int64_t[]){0, 1}, 2, false);
  CHECK_OK(hp_grad(g, loss, &table, 1, &grad));
  hp_output(g, "loss", loss);
  hp_update_phase(g);
  for (int k = 0; k < 2; k++) state[k] = hp_param(g, k ? "v" : "m", HP_F32, shape);
  hp_tensor one = hp_const(g, HP_F32, 1), rate = hp_const(g, HP_F32, 1e-2);
  hp_adamw(g, table, grad, state[0], state[1], one, rate, one, one,
           &(hp_adamw_options){0.9, 0.999, 1e-8, 0.1});
  CHECK_OK(hp_graph_status(g));
  return g;
}

/* What the steps have made: losses, and the three tensors after half of the steps and all. */
typedef struct {
  float loss[STEPS], tensor[2][3][ROWS * COLS];
  hp_program_stats stats;
} outcome;

static const char *const names[] = {"table", "m", "v"};

static void fill(hp_device *d) {
  static float x[ROWS * COLS];
  for (int i = 0; i < ROWS * COLS; i++) x[i] = (float)(i % 97) * 0.01f;
  CHECK_OK(hp_write(d, "table", x, sizeof x));
  memset(x, 0, sizeof x);
  for (int k = 1; k < 3; k++) CHECK_OK(hp_write(d, names[k], x, sizeof x));
}

static void run_steps(const hp_device_options *o, hp_host_update where, outcome *out) {
  int32_t ids[IDS] = {0, 1, 1000, 1001, 2003, 3500, ROWS - 2, ROWS - 1};
  hp_compile_options c = {.host_update = where};
  hp_program *p;
  hp_device *d;
  hp_graph *g = table_graph();
  CHECK_OK(hp_device_open(o, &d));
  CHECK_OK(hp_compile(g, d, &c, &p));
  fill(d);
  for (int i = 0; i < STEPS; i++) {
    hp_io io[] = {{"ids", ids, sizeof ids}, {"loss", &out->loss[i], sizeof out->loss[i]}};
    CHECK_OK(hp_run(p, io, 2));
    if (i != STEPS / 2 && i != STEPS - 1) continue;
    for (int k = 0; k < 3; k++)
      CHECK_OK(hp_read(d, names[k], out->tensor[i == STEPS - 1][k], TABLE));
  }
  CHECK_OK(hp_program_stats_get(p, &out->stats));
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
}

static hp_device_options options_under(uint64_t limit) {
  hp_device_options o = {.memory_limit = limit, .threads = 1};
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) o.offload[k] = HP_OFFLOAD_AUTO;
  return o;
}

static uint64_t find_least(hp_host_update where) {
  hp_device_options o = options_under(1);
  hp_compile_options c = {.host_update = where};
  hp_program_stats s = {0};
  hp_device *d;
  hp_graph *g = table_graph();
  o.plan_only = true;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_EQ(hp_plan(g, d, &c, &s), HP_ERR_OOM);
  hp_device_close(d);
  hp_graph_free(g);
  return s.memory.planned_bytes;
}

static void check_same(const outcome *a, const outcome *b) {
  CHECK_EQ(memcmp(a->loss, b->loss, sizeof a->loss), 0);
  CHECK_EQ(memcmp(a->tensor, b->tensor, sizeof a->tensor), 0);
}

static outcome whole, limited;

static void run_whole(void) {
  hp_device_options o = options_under(0);
  run_steps(&o, HP_HOST_UPDATE_NEVER, &whole);
}

/* The table and its gradient, and of the optimizer state a sixteenth. */
TEST(the_least_limit_of_a_large_table_has_no_room_for_its_optimizer_state) {
  uint64_t least = find_least(HP_HOST_UPDATE_NEVER);
  CHECK(least >= 2 * (uint64_t)TABLE);
  CHECK(least < 2 * (uint64_t)TABLE + TABLE / 4);
}

/* Below the room of all four tensors slices alone can be what is on the device; with more, some of
 * them stay there from one step to the next, and come home when they are read. */
TEST(updates_in_slices_have_the_bits_of_whole_ones_under_every_limit) {
  run_whole();
  uint64_t least = find_least(HP_HOST_UPDATE_NEVER), all = whole.stats.memory.planned_bytes;
  CHECK(all >= 4 * (uint64_t)TABLE);
  for (int share = 0; share < 100; share += 25) {
    hp_device_options o = options_under(least + (all - least) / 100 * (uint64_t)share);
    run_steps(&o, HP_HOST_UPDATE_NEVER, &limited);
    CHECK(limited.stats.memory.planned_bytes <= o.memory_limit);
    CHECK(limited.stats.memory.tier[1].moved_bytes > 0);
    check_same(&whole, &limited);
  }
}

/* All slices of a tensor are on one tier. */
TEST(slices_go_to_flash_together) {
  const char *disk = test_dir();
  run_whole();
  for (int share = 0; share < 100; share += 45) {
    hp_device_options o =
        options_under(find_least(HP_HOST_UPDATE_NEVER) + (uint64_t)share * TABLE / 100);
    o.flash = &disk;
    o.n_flash = 1;
    o.flash_limit = 16 << 20;
    o.host_limit = share < 50 ? (uint64_t)TABLE * 3 / 2 : (uint64_t)TABLE * 5 / 2;
    run_steps(&o, HP_HOST_UPDATE_NEVER, &limited);
    CHECK(limited.stats.memory.planned_bytes <= o.memory_limit);
    CHECK(limited.stats.memory.tier[1].planned_bytes <= o.host_limit);
    CHECK(limited.stats.memory.tier[2].state[HP_MEMORY_OPTIMIZER] >= (uint64_t)TABLE);
    CHECK_EQ(limited.stats.memory.tier[2].state[HP_MEMORY_OPTIMIZER] %
                 ((TABLE + 4095) / 4096 * 4096),
             0);
    check_same(&whole, &limited);
  }
}

/* --- updates by the host ------------------------------------------------------------------------
 */

/* The gradient alone, and what makes it. */
TEST(the_least_limit_with_updates_by_the_host_is_that_of_the_gradient) {
  uint64_t least = find_least(HP_HOST_UPDATE_ALWAYS);
  CHECK(least >= (uint64_t)TABLE);
  CHECK(least < (uint64_t)TABLE + TABLE / 4);
}

TEST(updates_by_the_host_have_the_bits_of_the_device_under_every_limit) {
  run_whole();
  uint64_t least = find_least(HP_HOST_UPDATE_ALWAYS), all = whole.stats.memory.planned_bytes;
  for (int share = 0; share < 100; share += 45) {
    hp_device_options o = options_under(least + (all - least) / 100 * (uint64_t)share);
    o.threads = share ? 2 : 1; /* the device's threads are not the host's */
    run_steps(&o, HP_HOST_UPDATE_ALWAYS, &limited);
    CHECK(limited.stats.memory.planned_bytes <= o.memory_limit);
    CHECK(limited.stats.host_updates > 0);
    /* the gradient goes to the host, the param comes back; two scalars and the ids with them */
    CHECK(limited.stats.memory.tier[1].moved_bytes <= 2 * (uint64_t)TABLE + 4096);
    check_same(&whole, &limited);
  }
  CHECK_EQ(whole.stats.host_updates, 0);
}

/* A cluster whose link moves 1 GB/s, and whose host updates so many. */
static int count_host_updates(const char *update_gb_s) {
  char text[512], path[256];
  snprintf(text, sizeof text,
           "name: one\ndevice: {flops: 1e12, bandwidth_gb_s: 100}\n"
           "links: [{name: none, bandwidth_gb_s: 1, latency_us: 1}]\n"
           "tiers: [{name: host, read_gb_s: 1, write_gb_s: 1, latency_us: 1%s}]\n",
           update_gb_s);
  snprintf(path, sizeof path, "%s/cluster.yaml", test_dir());
  CHECK_OK(file_write(path, text, strlen(text)));
  hp_device_options o = options_under(find_least(HP_HOST_UPDATE_NEVER) + TABLE / 8);
  o.cluster = path;
  run_steps(&o, HP_HOST_UPDATE_AUTO, &limited);
  check_same(&whole, &limited);
  return limited.stats.host_updates;
}

TEST(the_host_updates_where_the_cluster_file_says_that_it_is_faster) {
  run_whole();
  CHECK_EQ(count_host_updates(""), 0);
  CHECK_EQ(count_host_updates(", update_gb_s: 0.5"), 0);
  CHECK(count_host_updates(", update_gb_s: 50") > 0);
}

/* A device of 10 kB/s makes the gradient in 1.8 s; the host then updates in 0.7. */
TEST(no_plan_is_faster_than_the_gradient_and_its_update_by_the_host) {
  const char text[] = "name: one\ndevice: {flops: 1e12, bandwidth_gb_s: 0.00001}\n"
                      "links: [{name: none, bandwidth_gb_s: 1, latency_us: 1}]\n"
                      "tiers: [{name: host, read_gb_s: 1, write_gb_s: 1, update_gb_s: 0.01}]\n";
  hp_device_options o = options_under(find_least(HP_HOST_UPDATE_ALWAYS));
  hp_compile_options c = {.host_update = HP_HOST_UPDATE_ALWAYS};
  char path[256];
  hp_program_stats s;
  hp_device *d;
  hp_graph *g = table_graph();
  snprintf(path, sizeof path, "%s/slow.yaml", test_dir());
  CHECK_OK(file_write(path, text, strlen(text)));
  o.cluster = path;
  o.plan_only = true;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_plan(g, d, &c, &s));
  CHECK(s.bound_s > 1.8 + 7. * TABLE / 1e7);
  CHECK(s.predicted_s >= s.bound_s);
  hp_device_close(d);
  hp_graph_free(g);
}

/* What has no room on the device by any other plan. */
TEST(the_host_updates_where_nothing_else_fits) {
  uint64_t least = find_least(HP_HOST_UPDATE_ALWAYS);
  run_whole();
  hp_device_options o = options_under(least);
  hp_compile_options never = {.host_update = HP_HOST_UPDATE_NEVER}, any = {.dump_dir = NULL};
  hp_program_stats s;
  hp_device *d;
  hp_graph *g = table_graph();
  o.plan_only = true;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_EQ(hp_plan(g, d, &never, &s), HP_ERR_OOM);
  CHECK_EQ(hp_plan(g, d, &any, &s), HP_ERR_OOM); /* how fast the host is is not known */
  hp_device_close(d);
  hp_graph_free(g);
}

/* Where a program has left it on flash, another one finds it there. */
TEST(what_is_on_flash_is_updated_on_the_device) {
  const char *disk = test_dir();
  hp_device_options o = options_under(find_least(HP_HOST_UPDATE_NEVER));
  hp_compile_options never = {.host_update = HP_HOST_UPDATE_NEVER};
  hp_compile_options always = {.host_update = HP_HOST_UPDATE_ALWAYS};
  hp_program *p[2];
  hp_program_stats s;
  hp_device *d;
  hp_graph *g = table_graph();
  o.offload[HP_MEMORY_OPTIMIZER] = HP_OFFLOAD_FLASH;
  o.flash = &disk;
  o.n_flash = 1;
  o.flash_limit = 16 << 20;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_compile(g, d, &never, &p[0]));
  CHECK_OK(hp_compile(g, d, &always, &p[1]));
  CHECK_OK(hp_program_stats_get(p[1], &s));
  CHECK_EQ(s.host_updates, 0);
  for (int k = 0; k < 2; k++) hp_program_free(p[k]);
  hp_device_close(d);
  hp_graph_free(g);
}

/* What the host has no room for goes to flash, and all updates to the device. */
TEST(with_too_little_host_memory_updates_are_on_the_device) {
  const char *disk = test_dir();
  run_whole();
  hp_device_options o = options_under(find_least(HP_HOST_UPDATE_NEVER));
  o.flash = &disk;
  o.n_flash = 1;
  o.flash_limit = 16 << 20;
  o.host_limit = (uint64_t)TABLE * 5 / 2;
  run_steps(&o, HP_HOST_UPDATE_ALWAYS, &limited);
  CHECK_EQ(limited.stats.host_updates, 0);
  check_same(&whole, &limited);
}

/* --- what the device makes of what the host reads ------------------------------------------------
 */

/* table -= x for a product x, and rows of x times a scalar, which has the memory of x. */
static void run_over(const hp_device_options *o, float *table, float *out, int *host_updates) {
  static float x[ROWS * COLS];
  hp_compile_options c = {.host_update = HP_HOST_UPDATE_ALWAYS};
  float product[ROWS], ones[COLS];
  hp_graph *g;
  hp_program_stats s;
  hp_program *p;
  hp_device *d;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor t = hp_param(g, "table", HP_F32, (hp_shape){2, {ROWS, COLS}});
  hp_tensor one = hp_input(g, "ones", HP_F32, (hp_shape){1, {COLS}});
  hp_tensor a = hp_input(g, "a", HP_F32, (hp_shape){1, {ROWS}});
  hp_tensor made = hp_einsum(g, "i,j->ij", a, one);
  hp_update_phase(g);
  hp_assign(g, t, hp_sub(g, t, made));
  hp_tensor scaled = hp_mul(g, made, hp_sum_sq(g, made)); /* a loop of its own, over `made` */
  hp_output(g, "out", hp_einsum(g, "ij,j->i", scaled, one));
  CHECK_OK(hp_graph_status(g));
  for (int i = 0; i < ROWS * COLS; i++) x[i] = (float)(i % 97) * 0.01f;
  for (int i = 0; i < COLS; i++) ones[i] = 1;
  for (int i = 0; i < ROWS; i++) product[i] = (float)(i % 31);
  CHECK_OK(hp_device_open(o, &d));
  CHECK_OK(hp_compile(g, d, &c, &p));
  CHECK_OK(hp_write(d, "table", x, sizeof x));
  hp_io io[] = {{"ones", ones, sizeof ones},
                {"a", product, sizeof product},
                {"out", out, ROWS * sizeof *out}};
  CHECK_OK(hp_run(p, io, 3));
  CHECK_OK(hp_read(d, "table", table, TABLE));
  CHECK_OK(hp_program_stats_get(p, &s));
  *host_updates = s.host_updates;
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
}

TEST(what_the_host_reads_is_not_overwritten_on_the_device) {
  static float want[ROWS * COLS], table[ROWS * COLS], out[2][ROWS];
  hp_device_options o = options_under(0);
  int host_updates;
  run_over(&o, want, out[0], &host_updates);
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) o.offload[k] = HP_OFFLOAD_HOST;
  o.memory_limit = (uint64_t)TABLE * 20;
  run_over(&o, table, out[1], &host_updates);
  CHECK(host_updates > 0);
  CHECK_EQ(memcmp(table, want, sizeof want), 0);
  CHECK_EQ(memcmp(out[0], out[1], sizeof out[0]), 0);
}

/* --- reductions of the update phase -------------------------------------------------------------
 */

enum { LONG = 5000 }; /* rows whose sum is of several segments */

/* Sums of the columns of a table, and of all of it, in named tensors. */
static hp_graph *sums_graph(void) {
  hp_graph *g;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor table = hp_param(g, "table", HP_F32, (hp_shape){2, {LONG, COLS}});
  hp_tensor columns = hp_param(g, "columns", HP_F32, (hp_shape){1, {COLS}});
  hp_tensor all = hp_param(g, "all", HP_F32, (hp_shape){0, {0}});
  hp_update_phase(g);
  hp_assign(g, columns, hp_sum(g, table, (int64_t[]){0}, 1, false));
  hp_assign(g, all, hp_sum(g, table, (int64_t[]){0, 1}, 2, false));
  CHECK_OK(hp_graph_status(g));
  return g;
}

static void run_sums(const hp_device_options *o, float sums[COLS + 1], int *host_updates) {
  static float x[LONG * COLS];
  hp_compile_options c = {.host_update = HP_HOST_UPDATE_ALWAYS};
  hp_graph *g = sums_graph();
  hp_program_stats s;
  hp_program *p;
  hp_device *d;
  for (int i = 0; i < LONG * COLS; i++) x[i] = (float)(i % 97) * 0.01f;
  CHECK_OK(hp_device_open(o, &d));
  CHECK_OK(hp_compile(g, d, &c, &p));
  CHECK_OK(hp_write(d, "table", x, sizeof x));
  CHECK_OK(hp_run(p, NULL, 0));
  CHECK_OK(hp_read(d, "columns", sums, COLS * sizeof *sums));
  CHECK_OK(hp_read(d, "all", &sums[COLS], sizeof *sums));
  CHECK_OK(hp_program_stats_get(p, &s));
  *host_updates = s.host_updates;
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
}

/* A loop that needs scratch memory is the device's. */
TEST(long_sums_into_named_tensors_are_on_the_device) {
  float want[COLS + 1], sums[COLS + 1];
  hp_device_options o = options_under(0);
  int host_updates;
  run_sums(&o, want, &host_updates);
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) o.offload[k] = HP_OFFLOAD_HOST;
  o.memory_limit = LONG * COLS * 5;
  run_sums(&o, sums, &host_updates);
  CHECK_EQ(host_updates, 0);
  CHECK_EQ(memcmp(sums, want, sizeof sums), 0);
}
