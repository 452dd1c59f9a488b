/* Values that a graph itself keeps on slower tiers: hp_offload, hp_fetch, hp_detach. */
#include "ir/print.h"
#include "ops/ops.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { N = 1024 };

static const char *disk(void) {
  static char at[512];
  snprintf(at, sizeof at, "%s/disk", test_dir());
  mkdir(at, 0700);
  return at;
}

static hp_device *open_device(const char *mesh) {
  static const hp_layout_rule rows = {"x", "(dp)"};
  const char *folder = disk();
  hp_device *d;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1,
                                               .interpret = true,
                                               .mesh = mesh,
                                               .layouts = mesh ? &rows : NULL,
                                               .n_layouts = mesh != NULL,
                                               .flash = &folder,
                                               .n_flash = 1,
                                               .flash_limit = 1 << 22},
                          &d));
  return d;
}

static hp_graph *begin(hp_tensor *x) {
  hp_graph *g;
  CHECK_OK(hp_graph_create(&g));
  *x = hp_input(g, "x", HP_F32, (hp_shape){1, {N}});
  return g;
}

static void fill(float *x) {
  for (int i = 0; i < N; i++) x[i] = (float)(i % 37) * 0.25f - 4;
}

static void run(hp_graph *g, hp_device *d, float *x, float *y, hp_memory *m) {
  hp_program *p;
  hp_program_stats s;
  CHECK_OK(hp_compile(g, d, NULL, &p));
  CHECK_OK(hp_run(p, (hp_io[]){{"x", x, N * sizeof *x}, {"y", y, N * sizeof *y}}, 2));
  CHECK_OK(hp_program_stats_get(p, &s));
  if (m) *m = s.memory;
  hp_program_free(p);
}

TEST(a_value_comes_back_from_its_tier_as_it_was) {
  static const int tiers[] = {HP_OFFLOAD_HOST, HP_OFFLOAD_FLASH};
  static const char *const meshes[] = {NULL, "(2)(dp)"};
  for (int k = 0; k < 4; k++) {
    hp_device *d = open_device(meshes[k / 2]);
    hp_tensor x;
    hp_graph *g = begin(&x);
    float in[N], out[N];
    hp_memory m;
    hp_tensor square = hp_mul(g, x, x), away = hp_offload(g, square, tiers[k % 2]);
    CHECK_EQ(hp_dtype_of(g, away), HP_F32);
    CHECK_EQ(hp_shape_of(g, away).dim[0], N);
    hp_output(g, "y", hp_add(g, hp_fetch(g, away), x));
    fill(in);
    run(g, d, in, out, &m);
    for (int i = 0; i < N; i++) CHECK(out[i] == in[i] * in[i] + in[i]);
    CHECK_EQ(m.tier[1 + k % 2].moved_bytes, 2 * N * sizeof *in / (k / 2 ? 2 : 1));
    hp_graph_free(g);
    hp_device_close(d);
  }
}

TEST(an_output_may_be_on_the_host) {
  hp_device *d = open_device(NULL);
  hp_tensor x;
  hp_graph *g = begin(&x);
  float in[N], out[N];
  hp_output(g, "y", hp_offload(g, hp_mul(g, x, x), HP_OFFLOAD_HOST));
  fill(in);
  run(g, d, in, out, NULL);
  for (int i = 0; i < N; i++) CHECK(out[i] == in[i] * in[i]);
  hp_graph_free(g);
  hp_device_close(d);
}

/* The gradient of sum(f(x) * 3) where f is x^2 by way of a tier. */
TEST(copies_between_tiers_hand_gradients_on) {
  for (int k = 0; k < 3; k++) {
    hp_device *d = open_device(NULL);
    hp_tensor x, grad;
    hp_graph *g = begin(&x);
    float in[N], out[N];
    hp_tensor y = hp_mul(g, x, x);
    if (k < 2) y = hp_fetch(g, hp_offload(g, y, k ? HP_OFFLOAD_FLASH : HP_OFFLOAD_HOST));
    else y = hp_detach(g, y);
    hp_tensor loss = hp_sum(g, hp_scale(g, y, 3), (int64_t[]){0}, 1, false);
    CHECK_OK(hp_grad(g, loss, &x, 1, &grad));
    hp_output(g, "y", grad);
    fill(in);
    run(g, d, in, out, NULL);
    for (int i = 0; i < N; i++) CHECK(out[i] == 6 * in[i]);
    hp_graph_free(g);
    hp_device_close(d);
  }
}

/* Products one after the other, all of which are read again, the last first. */
TEST(an_offloaded_value_does_not_stay_on_the_device) {
  enum { KEPT = 8, SIDE = 256 };
  hp_memory m[2];
  for (int offloads = 0; offloads < 2; offloads++) {
    hp_device *d = open_device(NULL);
    hp_graph *g;
    hp_program_stats s;
    hp_tensor early[KEPT];
    CHECK_OK(hp_graph_create(&g));
    hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {SIDE, SIDE}}), y = x;
    for (int i = 0; i < KEPT; i++) {
      y = hp_einsum(g, "ab,bc->ac", y, x);
      early[i] = offloads ? hp_offload(g, y, HP_OFFLOAD_HOST) : y;
    }
    for (int i = KEPT; i-- > 0;) {
      hp_tensor back = offloads ? hp_fetch(g, early[i]) : early[i];
      y = hp_einsum(g, "ab,bc->ac", back, y);
    }
    hp_output(g, "y", y);
    CHECK_OK(hp_plan(g, d, NULL, &s));
    m[offloads] = s.memory;
    hp_graph_free(g);
    hp_device_close(d);
  }
  CHECK_EQ(m[1].tier[1].moved_bytes, 2 * KEPT * SIDE * SIDE * 4);
  CHECK(m[1].work_bytes + 4 * SIDE * SIDE * 4 <= m[0].work_bytes);
}

static void refuses(hp_tensor (*build)(hp_graph *, hp_tensor), const char *says) {
  hp_tensor x;
  hp_graph *g = begin(&x);
  CHECK_EQ(build(g, x), HP_NONE);
  CHECK_FAILS(hp_graph_status(g), says);
  hp_graph_free(g);
}

static hp_tensor add_offloaded(hp_graph *g, hp_tensor x) {
  return hp_add(g, x, hp_offload(g, x, HP_OFFLOAD_HOST));
}
static hp_tensor reshape_offloaded(hp_graph *g, hp_tensor x) {
  return hp_reshape(g, hp_offload(g, x, HP_OFFLOAD_FLASH), (hp_shape){2, {2, N / 2}});
}
static hp_tensor offload_twice(hp_graph *g, hp_tensor x) {
  return hp_offload(g, hp_offload(g, x, HP_OFFLOAD_HOST), HP_OFFLOAD_FLASH);
}
static hp_tensor output_from_flash(hp_graph *g, hp_tensor x) {
  hp_output(g, "y", hp_offload(g, x, HP_OFFLOAD_FLASH));
  return HP_NONE;
}
static hp_tensor assign_offloaded(hp_graph *g, hp_tensor x) {
  hp_assign(g, hp_param(g, "w", HP_F32, (hp_shape){1, {N}}), hp_offload(g, x, HP_OFFLOAD_HOST));
  return HP_NONE;
}
static hp_tensor fetch_resident(hp_graph *g, hp_tensor x) { return hp_fetch(g, x); }
static hp_tensor offload_to_device(hp_graph *g, hp_tensor x) {
  return hp_offload(g, x, HP_OFFLOAD_NONE);
}
static hp_tensor offload_nowhere(hp_graph *g, hp_tensor x) { return hp_offload(g, x, 9); }
static hp_tensor offload_none(hp_graph *g, hp_tensor x) {
  (void)x;
  return hp_offload(g, 77, HP_OFFLOAD_HOST);
}

TEST(a_tier_is_a_part_of_a_values_type) {
  refuses(add_offloaded, "hp_add: b is on tier host, where only fetch reads it; fetch it first");
  refuses(reshape_offloaded, "hp_reshape: x is on tier flash");
  refuses(offload_twice, "hp_offload: x is on tier host");
  refuses(output_from_flash, "hp_output: x is on tier flash");
  refuses(assign_offloaded, "hp_assign: x is on tier host");
  refuses(fetch_resident, "hp_fetch: x is on the device; the result of hp_offload was expected");
  refuses(offload_to_device, "hp_offload: tier is 0; HP_OFFLOAD_HOST or HP_OFFLOAD_FLASH");
  refuses(offload_nowhere, "hp_offload: tier is 9");
  refuses(offload_none, "hp_offload");
}

TEST(the_text_of_a_graph_has_its_tiers) {
  hp_tensor x;
  hp_graph *g = begin(&x), *again;
  char *text, *same;
  hp_output(g, "y", hp_fetch(g, hp_offload(g, hp_detach(g, x), HP_OFFLOAD_FLASH)));
  CHECK_OK(hp_graph_print(g, &text));
  CHECK(strstr(text, "offload %1 {tier=1}") && strstr(text, "fetch %2 {tier=1}"));
  CHECK(strstr(text, "offload %3 {tier=2}") && strstr(text, "fetch %4 {tier=2}"));
  CHECK_OK(hp_graph_parse(text, "g", &again));
  CHECK_OK(hp_graph_print(again, &same));
  CHECK_STR(same, text);
  hp_free(text);
  hp_free(same);
  hp_graph_free(again);
  hp_graph_free(g);
  static const char bad[] = "%1:f32[4] = input {name=\"x\", dtype=f32, shape=[4]}\n"
                            "%2:f32[4] = offload %1 {tier=1}\n"
                            "%3:f32[4] = exp %2\n"
                            "output %3 {name=\"y\"}\n";
  CHECK_FAILS(hp_graph_parse(bad, "g", &again), "on tier host, where only fetch reads it");
}
