/* Training steps under memory limits that only offloading can keep: the same bits. */
#include "step_case.h"
#include "test.h"

#include "base/mem.h"

#include <string.h>

enum { STEPS = 5 };

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

TEST(offloading_changes_no_bit_of_a_training_step) {
  static const double share[] = {0.9, 0.7, 0.5, 0.35, 0.25, 0};
  for (int remat = 0; remat < 2; remat++) {
    outcome whole, limited;
    run_under(0, remat, NULL, &whole);
    uint64_t all = whole.stats.memory.planned_bytes, least = find_minimum(remat);
    CHECK(least < all / 2);
    for (size_t i = 0; i < sizeof share / sizeof *share; i++) {
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
}
