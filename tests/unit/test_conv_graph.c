/* A network of convolutions on devices that share it in several ways: the same step as on one. */
#include "test.h"

#include "hyperparallel.h"

#include <math.h>
#include <string.h>

enum { LAYOUTS = 2 };

typedef struct {
  const char *mesh;
  hp_layout_rule layout[LAYOUTS];
} way;
static const way ways[] = {
    {NULL, {{"none", "(None)"}, {"none", "(None)"}}},
    {"(2)(dp)", {{"x", "(dp,None,None,None)"}, {"labels", "(dp)"}}},
    {"(2)(tp)", {{"conv", "(tp,None,None,None)"}, {"each", "(tp,None,None,None)"}}},
    {"(2)(tp)", {{"conv", "(None,tp,None,None)"}, {"x", "(None,tp,None,None)"}}},
    {"(2,2)(dp,tp)", {{"x", "(dp,None,None,None)"}, {"conv", "(tp,None,None,None)"}}},
};
enum { WAYS = sizeof ways / sizeof *ways };

static const hp_shape shapes[] = {{4, {8, 4, 3, 3}}, {4, {8, 1, 3, 3}}, {2, {8, 8}}};
static const char *const names[] = {"conv", "each", "out"};

/* Convolution, maximum, a convolution of each channel, mean, classes; one step of SGD. */
static hp_program *compile(hp_device *d) {
  hp_graph *g;
  hp_program *p;
  hp_tensor w[3], dw[3];
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){4, {8, 4, 6, 6}});
  hp_tensor labels = hp_input(g, "labels", HP_I32, (hp_shape){1, {8}});
  for (int i = 0; i < 3; i++) w[i] = hp_param(g, names[i], HP_F32, shapes[i]);
  x = hp_conv(g, x, w[0], HP_NONE, &(hp_conv_options){.pad = {1, 1}});
  x = hp_max_pool(g, x, &(hp_pool_options){.kernel = {2, 2}});
  x = hp_conv(g, x, w[1], HP_NONE, &(hp_conv_options){.pad = {1, 1}, .groups = 8});
  x = hp_avg_pool(g, x, &(hp_pool_options){.kernel = {3, 3}});
  x = hp_einsum(g, "bi,oi->bo", hp_reshape(g, x, (hp_shape){2, {8, 8}}), w[2]);
  x = hp_cross_entropy(g, x, labels, -1);
  hp_tensor loss = hp_mean(g, x, (int64_t[]){0}, 1, false);
  hp_output(g, "loss", loss);
  CHECK_OK(hp_grad(g, loss, w, 3, dw));
  for (int i = 0; i < 3; i++) hp_assign(g, w[i], hp_sub(g, w[i], dw[i]));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  hp_graph_free(g);
  return p;
}

static void fill(float *x, int n, float range) {
  for (int i = 0; i < n; i++) x[i] = range * sinf((float)(i * i % 97));
}

typedef struct {
  float loss, w[3][288];
} state;

/* Two steps. */
static void train(const way *as, bool no_partial_sums, state *out) {
  hp_device *d;
  float x[8 * 4 * 36], w[288];
  int32_t labels[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const hp_device_options o = {.mesh = as->mesh,
                               .layouts = as->layout,
                               .n_layouts = LAYOUTS,
                               .threads = 2,
                               .interpret = true,
                               .no_partial_sums = no_partial_sums};
  memset(out, 0, sizeof *out);
  CHECK_OK(hp_device_open(&o, &d));
  hp_program *p = compile(d);
  fill(x, 8 * 4 * 36, 1);
  fill(w, 288, 0.4f);
  static const size_t bytes[] = {288 * 4, 72 * 4, 64 * 4};
  for (int i = 0; i < 3; i++) CHECK_OK(hp_write(d, names[i], w, bytes[i]));
  hp_io io[] = {{"x", x, sizeof x}, {"labels", labels, sizeof labels}, {"loss", &out->loss, 4}};
  for (int step = 0; step < 2; step++) CHECK_OK(hp_run(p, io, 3));
  for (int i = 0; i < 3; i++) CHECK_OK(hp_read(d, names[i], out->w[i], bytes[i]));
  hp_program_free(p);
  hp_device_close(d);
}

TEST(a_network_of_convolutions_trains_alike_however_devices_share_it) {
  state one, many;
  train(&ways[0], false, &one);
  CHECK(one.loss > 0 && one.loss < 3);
  for (int i = 1; i < WAYS; i++) {
    train(&ways[i], false, &many);
    CHECK_NEAR(many.loss, one.loss, 1e-5);
    for (int k = 0; k < 3; k++)
      for (int j = 0; j < 288; j++) CHECK_NEAR(many.w[k][j], one.w[k][j], 1e-5);
  }
}

TEST(a_network_of_convolutions_has_the_same_bits_where_no_sum_is_cut) {
  state one, many;
  train(&ways[0], false, &one);
  for (int i = 1; i < WAYS; i++) {
    train(&ways[i], true, &many);
    CHECK(!memcmp(&one, &many, sizeof one));
  }
}

/* 131,074 GiB once: elements between two taps take no memory. */
TEST(a_convolution_of_a_far_dilation_is_planned_by_the_elements_that_it_reads) {
  enum { FAR = 1 << 18 };
  hp_graph *g;
  hp_device *d;
  hp_program_stats s;
  hp_tensor dx;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_param(g, "x", HP_F32, (hp_shape){4, {64, 8, 4, 4}});
  hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){4, {8, 8, 2, 2}});
  const hp_conv_options o = {.pad = {FAR, FAR}, .dilation = {2 * FAR, 2 * FAR}};
  CHECK_OK(hp_grad(g, hp_sum_sq(g, hp_conv(g, x, w, HP_NONE, &o)), &x, 1, &dx));
  hp_output(g, "dx", dx);
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 2, .interpret = true}, &d));
  CHECK_OK(hp_plan(g, d, NULL, &s));
  CHECK(s.memory.work_bytes < 16 << 20);
  hp_device_close(d);
  hp_graph_free(g);
}
