/* Copies between tiers on an emulated cluster: the turns that they take on their links, and that
 * runs take this time without a core. */
#include "base/io.h"
#include "base/thread.h"
#include "ir/graph.h"
#include "ops/ops.h"
#include "rt/exec.h"
#include "rt/device_mesh.h"
#include "api/api_program.h"
#include "test.h"

#include <string.h>
#include <time.h>

#define ROUNDING 1e-9 /* of differences of times */

enum {
  DEVICES = 4,
  ROWS = 8,
  COLUMNS = 256,
  BYTES = ROWS * COLUMNS * 4 / DEVICES
}; /* of a shard */

/* A shard takes 20 ms to the host, 10 ms back and 5 ms from or to flash, and another 2 ms. */
static void make_cluster(int shared_by, bool emulate, str *out) {
  str_printf(out,
             "devices_per_node: 4\n"
             "device: {flops: 1e12, bandwidth_gb_s: 100}\n"
             "links: [{bandwidth_gb_s: 1000, latency_us: 0}]\n"
             "tiers:\n"
             "- {name: host, read_gb_s: %.9g, write_gb_s: %.9g, latency_us: 2000, shared_by: %d}\n"
             "- {name: flash, read_gb_s: %.9g, write_gb_s: %.9g, latency_us: 2000}\n"
             "emulate: %s\n",
             BYTES / 10e6, BYTES / 20e6, shared_by, BYTES / 5e6, BYTES / 5e6,
             emulate ? "true" : "false");
}

/* --- the clock -------------------------------------------------------------------------------- */

typedef struct {
  cluster c;
  mesh m;
  host_pool *pool;
  link_clock *k;
} clock_case;

/* own: devices of this process; 0: no clock. */
static clock_case make_case(int shared_by, int own) {
  clock_case x = {.k = NULL};
  const char *axis = "dp";
  str text = {0};
  make_cluster(shared_by, true, &text);
  CHECK_OK(cluster_parse(text.at, text.len, "c.yaml", &x.c));
  CHECK_OK(mesh_init(&(int64_t){DEVICES}, &axis, 1, NULL, 0, &x.m));
  if (own) CHECK_OK(host_pool_open(0, own, &x.pool));
  if (own) CHECK_OK(link_clock_create(x.pool, &x.k));
  str_free(&text);
  return x;
}

static void end_case(clock_case *x) {
  link_clock_free(x->k);
  host_pool_close(x->pool);
  mesh_free(&x->m);
}

/* The milliseconds at which a shard that sets out at start_ms is there. */
static double reserve(const clock_case *x, int64_t position, int from, int to, double start_ms) {
  const link_copy copy = {from, to, BYTES, start_ms * 1e-3};
  return 1e3 * link_clock_reserve(x->k, &x->c, &x->m, position, &copy);
}

TEST(devices_that_share_a_link_take_turns_in_each_direction) {
  clock_case x = make_case(2, DEVICES);
  CHECK_NEAR(reserve(&x, 0, TIER_HOST, TIER_DEVICE, 0), 12, 1e-6);
  CHECK_NEAR(reserve(&x, 1, TIER_HOST, TIER_DEVICE, 1), 22, 1e-6);
  CHECK_NEAR(reserve(&x, 0, TIER_HOST, TIER_DEVICE, 12), 32, 1e-6);
  CHECK_NEAR(reserve(&x, 1, TIER_DEVICE, TIER_HOST, 1), 23, 1e-6);   /* the other way */
  CHECK_NEAR(reserve(&x, 2, TIER_HOST, TIER_DEVICE, 1), 13, 1e-6);   /* another link */
  CHECK_NEAR(reserve(&x, 0, TIER_FLASH, TIER_DEVICE, 1), 8, 1e-6);   /* another tier */
  CHECK_NEAR(reserve(&x, 1, TIER_FLASH, TIER_DEVICE, 1), 8, 1e-6);   /* which no one shares */
  CHECK_NEAR(reserve(&x, 0, TIER_FLASH, TIER_HOST, 1), 13, 1e-6);    /* its own copies do */
  CHECK_NEAR(reserve(&x, 1, TIER_HOST, TIER_DEVICE, 90), 102, 1e-6); /* it was idle */
  CHECK_NEAR(reserve(&x, 3, TIER_DEVICE, TIER_DEVICE, 1), 1 + 2e-8 * BYTES, 1e-6);
  end_case(&x);
}

TEST(processes_that_share_a_link_have_their_shares_of_it) {
  clock_case x = make_case(4, 1); /* three devices are elsewhere */
  CHECK_NEAR(reserve(&x, 2, TIER_HOST, TIER_DEVICE, 0), 42, 1e-6);
  CHECK_NEAR(reserve(&x, 2, TIER_HOST, TIER_DEVICE, 0), 82, 1e-6);
  end_case(&x);
  x = make_case(4, 2);
  CHECK_NEAR(reserve(&x, 0, TIER_HOST, TIER_DEVICE, 0), 22, 1e-6);
  end_case(&x);
  x = make_case(4, 0);
  CHECK_NEAR(reserve(&x, 0, TIER_HOST, TIER_DEVICE, 0), 42, 1e-6);
  CHECK_NEAR(reserve(&x, 0, TIER_HOST, TIER_DEVICE, 0), 42, 1e-6);
  end_case(&x);
}

/* --- runs ------------------------------------------------------------------------------------- */

static val move(hp_graph *g, op_id op, val x, int tier) {
  attr_record r = {0};
  attr_put_int(&r, tier);
  return ops_add(g, op, &x, 1, &r);
}

typedef struct {
  hp_device *d;
  hp_program *p;
  double wall_s, core_s;
} emulated;

static double core_now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs y = x, by way of the host or flash, each device with its rows. */
static void run_emulated(int shared_by, bool emulate, int tier, emulated *out) {
  static const hp_layout_rule rows = {"*", "(dp,None)"};
  static float x[ROWS * COLUMNS], y[ROWS * COLUMNS];
  const char *folder = test_dir();
  char name[300];
  str text = {0};
  hp_graph *g;
  make_cluster(shared_by, emulate, &text);
  snprintf(name, sizeof name, "%s/cluster.yaml", test_dir());
  CHECK_OK(file_write(name, text.at, text.len));
  str_free(&text);
  CHECK_OK(graph_create(NULL, &g));
  val v = ops_leaf(g, OP_INPUT, "x", HP_F32, (int64_t[]){ROWS, COLUMNS}, 2);
  ops_output(g, "y", move(g, OP_FETCH, move(g, OP_OFFLOAD, v, tier), tier));
  hp_device_options o = {.mesh = "(4)(dp)",
                         .layouts = &rows,
                         .n_layouts = 1,
                         .threads = DEVICES,
                         .interpret = true,
                         .cluster = name,
                         .flash = &folder,
                         .n_flash = 1,
                         .flash_limit = DEVICES << 20};
  CHECK_OK(hp_device_open(&o, &out->d));
  CHECK_OK(hp_compile(g, out->d, NULL, &out->p));
  for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)i;
  hp_io io[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
  double core = core_now_s(), start = time_now_s();
  CHECK_OK(hp_run(out->p, io, 2));
  out->wall_s = time_now_s() - start;
  out->core_s = core_now_s() - core;
  CHECK(!memcmp(x, y, sizeof x));
  graph_free(g);
}

static void close_emulated(emulated *x) {
  hp_program_free(x->p);
  hp_device_close(x->d);
}

/* The longest of all devices' copies by that op, in seconds; and the shortest. */
static double longest_copy(const emulated *x, op_id op, double *shortest) {
  double most = 0;
  *shortest = 1e9;
  for (int i = 0; i < DEVICES; i++) {
    const program *p = exec_program(x->p->r.e[i]);
    const inst_times *t = exec_last_times(x->p->r.e[i]);
    for (size_t k = 0; k < p->insts.len; k++) {
      if (program_inst(p, k)->op != op) continue;
      CHECK_EQ(program_arg(p, program_inst(p, k), 0)->bytes, BYTES);
      double s = t[k].end_s - t[k].start_s;
      if (s > most) most = s;
      if (s < *shortest) *shortest = s;
    }
  }
  CHECK(most > 0);
  return most;
}

TEST(an_emulated_copy_takes_the_time_of_its_link_and_no_core) {
  emulated x;
  double least;
  run_emulated(1, true, TIER_HOST, &x);
  CHECK(longest_copy(&x, OP_OFFLOAD, &least) >= 22e-3 - ROUNDING && least >= 22e-3 - ROUNDING);
  CHECK(longest_copy(&x, OP_FETCH, &least) >= 12e-3 - ROUNDING && least >= 12e-3 - ROUNDING);
  CHECK(x.wall_s >= 34e-3);
  CHECK(x.core_s < 34e-3); /* 136 ms of copies */
  close_emulated(&x);
  run_emulated(1, true, TIER_FLASH, &x);
  CHECK(longest_copy(&x, OP_FETCH, &least) >= 7e-3 - ROUNDING && least >= 7e-3 - ROUNDING);
  close_emulated(&x);
}

TEST(emulated_copies_over_one_link_have_its_bandwidth_together) {
  emulated x;
  double least;
  run_emulated(4, true, TIER_HOST, &x);
  /* The last offload has waited for three, and its fetch has waited for it. */
  CHECK(x.wall_s >= (4 * 20 + 2 + 10 + 2) * 1e-3);
  (void)longest_copy(&x, OP_OFFLOAD, &least);
  CHECK(least >= 22e-3 - ROUNDING);
  (void)longest_copy(&x, OP_FETCH, &least);
  CHECK(least >= 12e-3 - ROUNDING);
  close_emulated(&x);
}

TEST(copies_are_not_slowed_down_unless_the_cluster_is_emulated) {
  emulated x;
  double least;
  run_emulated(4, false, TIER_HOST, &x);
  (void)longest_copy(&x, OP_OFFLOAD, &least);
  CHECK(least < 20e-3);
  close_emulated(&x);
}
