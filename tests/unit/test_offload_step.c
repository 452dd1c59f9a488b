/* Training steps under memory limits that only offloading can keep: the same bits. */
#include "step_case.h"
#include "test.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 };

/* Losses of all steps, and a hash of all params after them. */
typedef struct {
  float loss[STEPS];
  uint64_t params;
  hp_program_stats stats;
} outcome;

static uint64_t hash_params(const hp_device *d) {
  uint64_t h = 14695981039346656037u;
  for (int i = 0; i < hp_param_count(d); i++) {
    const char *name;
    hp_dtype t;
    hp_shape s;
    CHECK_OK(hp_param_info(d, i, &name, &t, &s));
    size_t bytes = t == HP_BF16 ? 2 : 4;
    for (int k = 0; k < s.rank; k++) bytes *= (size_t)s.dim[k];
    unsigned char *data = mem_calloc(bytes, 1);
    CHECK_OK(hp_read(d, name, data, bytes));
    uint64_t one = 14695981039346656037u;
    for (size_t k = 0; k < bytes; k++) one = (one ^ data[k]) * 1099511628211u;
    h += one; /* in any order */
    mem_free(data);
  }
  return h;
}

static void options_auto(hp_device_options *o) {
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) o->offload[k] = HP_OFFLOAD_AUTO;
}

static void run_under(uint64_t limit, bool remat, const char *mesh, outcome *out) {
  hp_device_options o = {.memory_limit = limit, .threads = 1, .mesh = mesh};
  hp_compile_options c = {.remat = remat};
  step_case s;
  options_auto(&o);
  step_open(&o, &c, HP_F32, &s);
  for (int i = 0; i < STEPS; i++) {
    step_run(&s);
    out->loss[i] = s.loss;
  }
  CHECK_OK(hp_program_stats_get(s.p, &out->stats));
  out->params = hash_params(s.d);
  step_close(&s);
}

static uint64_t find_minimum(bool remat) {
  hp_device_options o = {.memory_limit = 1, .threads = 1, .plan_only = true};
  hp_compile_options c = {.remat = remat};
  hp_program_stats s = {0};
  hp_device *d;
  hp_graph *g = step_graph(HP_F32);
  options_auto(&o);
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_EQ(hp_plan(g, d, &c, &s), HP_ERR_OOM);
  hp_device_close(d);
  hp_graph_free(g);
  return s.memory.planned_bytes;
}

static void check_shares(const double *share, size_t n, bool remat) {
  outcome whole, limited;
  run_under(0, remat, NULL, &whole);
  uint64_t all = whole.stats.memory.planned_bytes, least = find_minimum(remat);
  CHECK(least < all / 2);
  for (size_t i = 0; i < n; i++) {
    uint64_t limit = (uint64_t)(share[i] * (double)all);
    if (limit < least) limit = least;
    run_under(limit, remat, NULL, &limited);
    const hp_memory *m = &limited.stats.memory;
    CHECK(m->planned_bytes <= limit);
    CHECK(m->tier[1].moved_bytes > 0);
    CHECK_EQ(memcmp(limited.loss, whole.loss, sizeof whole.loss), 0);
    CHECK_EQ(limited.params, whole.params);
  }
}

TEST(offloading_changes_no_bit_of_a_training_step) {
  check_shares((const double[]){0.9, 0.5, 0}, 3, false);
  check_shares((const double[]){0.7, 0}, 2, true);
}
TEST(torture_offloading_changes_no_bit_of_a_training_step) {
  for (int remat = 0; remat < 2; remat++)
    check_shares((const double[]){0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35, 0.3, 0.25, 0}, 11,
                 remat);
}

/* --- a host that is too small -----------------------------------------------------------------
 */

typedef struct {
  uint64_t device, host, flash; /* limits */
  const char *mesh;
} tier_limits;

static hp_device_options options_of(const tier_limits *l, const char *const *disk) {
  hp_device_options o = {.memory_limit = l->device,
                         .threads = 1,
                         .mesh = l->mesh,
                         .host_limit = l->host,
                         .flash = l->flash ? disk : NULL,
                         .n_flash = l->flash ? 1 : 0,
                         .flash_limit = l->flash};
  options_auto(&o);
  return o;
}

static void run_tiers(const tier_limits *l, outcome *out) {
  const char *disk = test_dir();
  hp_device_options o = options_of(l, &disk);
  hp_compile_options c = {.remat = false};
  step_case s;
  step_open(&o, &c, HP_F32, &s);
  for (int i = 0; i < STEPS; i++) {
    step_run(&s);
    out->loss[i] = s.loss;
  }
  CHECK_OK(hp_program_stats_get(s.p, &out->stats));
  out->params = hash_params(s.d);
  step_close(&s);
}

/* HP_ERR_OOM: refused, with what the message says. */
static hp_status plan_tiers(const tier_limits *l, hp_program_stats *out) {
  const char *disk = test_dir();
  hp_device_options o = options_of(l, &disk);
  o.plan_only = true;
  hp_device *d;
  hp_graph *g = step_graph(HP_F32);
  CHECK_OK(hp_device_open(&o, &d));
  hp_status st = hp_plan(g, d, NULL, out);
  hp_device_close(d);
  hp_graph_free(g);
  return st;
}

static uint64_t named_least(const char *key) {
  const char *at = strstr(hp_last_error(), key);
  CHECK(at);
  return strtoull(at + strlen(key), NULL, 10);
}

TEST(what_the_host_has_no_room_for_is_on_flash_with_the_same_bits) {
  static const char *const meshes[] = {NULL, "(2)(dp)"};
  for (int k = 0; k < 2; k++) {
    uint64_t devices = (uint64_t)k + 1;
    outcome whole, all, some;
    tier_limits l = {.mesh = meshes[k]};
    run_tiers(&l, &whole);
    l.device = whole.stats.memory.planned_bytes / 2;
    run_tiers(&l, &all);
    uint64_t on_host = all.stats.memory.tier[1].planned_bytes, least;
    CHECK_EQ(all.stats.memory.tier[2].planned_bytes, 0);
    l.host = 1;
    CHECK_EQ(plan_tiers(&l, &some.stats), HP_ERR_OOM);
    CHECK(strstr(hp_last_error(), "or give folders of disks (flash, flash_limit)"));
    CHECK(named_least("set host_limit to ") >= on_host * devices);
    CHECK(named_least("set host_limit to ") < on_host * devices + 8192 * devices);
    l.flash = 64 << 20;
    CHECK_EQ(plan_tiers(&l, &some.stats), HP_ERR_OOM); /* the host has inputs and outputs */
    CHECK(strstr(hp_last_error(), "the rest is on flash already"));
    least = named_least("set host_limit to ");
    for (int share = 90; share >= 0; share -= k ? 90 : 45) {
      l.host = on_host * devices / 100 * (uint64_t)share;
      if (l.host < least) l.host = least;
      run_tiers(&l, &some);
      const hp_memory *m = &some.stats.memory;
      CHECK(m->planned_bytes <= l.device);
      CHECK(m->tier[1].planned_bytes * devices <= l.host);
      CHECK(m->tier[2].moved_bytes > 0);
      CHECK(m->tier[2].state[HP_MEMORY_OPTIMIZER] > 0); /* it goes first */
      if (share == 90) CHECK_EQ(m->tier[2].state[HP_MEMORY_PARAMS], 0);
      CHECK_EQ(memcmp(some.loss, whole.loss, sizeof whole.loss), 0);
      CHECK_EQ(some.params, whole.params);
    }
    CHECK(some.stats.memory.tier[2].state[HP_MEMORY_PARAMS] > 0);
    CHECK_EQ(some.stats.memory.tier[1].state[HP_MEMORY_PARAMS], 0);
  }
}

TEST(a_flash_tier_too_small_for_what_the_host_leaves_is_refused_by_its_key) {
  hp_program_stats s;
  tier_limits l = {.flash = 1 << 20};
  outcome whole;
  run_tiers(&(tier_limits){0}, &whole);
  l.device = whole.stats.memory.planned_bytes / 2;
  l.host = 100 << 10;
  l.flash = 64 << 10;
  CHECK_EQ(plan_tiers(&l, &s), HP_ERR_OOM);
  l.flash = named_least("set flash_limit to ");
  CHECK_OK(plan_tiers(&l, &s));
  CHECK(s.memory.tier[2].planned_bytes <= l.flash);
  CHECK(s.memory.tier[2].planned_bytes > l.flash / 100 * 99);
}
