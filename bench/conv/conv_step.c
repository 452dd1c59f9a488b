/* A training step of a convolutional model on hyperparallel.h alone: conv_step lenet|resnet THREADS
 *
 * lenet: LeNet-5 on 64 images of 28 x 28.  resnet: a basic block of a ResNet, 8 x 64 x 56 x 56, with
 * batch norm made of other ops, in training, and the gradient of its input.  Both end in SGD with
 * momentum.  A line "flops bytes" of one step and "limits flops bytes" of the machine come first; every
 * line on standard input asks for that many steps, the answer is the seconds of one and the loss. */
#include "hyperparallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PARAMS = 16 };

typedef struct {
  hp_graph *g;
  hp_device *d;
  hp_tensor param[PARAMS];
  char name[PARAMS][16];
  hp_shape shape[PARAMS];
  int n;
} model;

static void check(hp_status s) {
  if (s == HP_OK) return;
  fprintf(stderr, "conv_step: %s\n", hp_last_error());
  exit(1);
}

static hp_tensor param(model *m, hp_shape s) {
  snprintf(m->name[m->n], sizeof m->name[0], "p%d", m->n);
  m->shape[m->n] = s;
  m->param[m->n] = hp_param(m->g, m->name[m->n], HP_F32, s);
  return m->param[m->n++];
}
static hp_tensor filters(model *m, int64_t out, int64_t in, int64_t k) {
  return param(m, (hp_shape){4, {out, in, k, k}});
}
static hp_tensor row(model *m, int64_t n) { return param(m, (hp_shape){1, {n}}); }

static hp_tensor relu(model *m, hp_tensor x) { return hp_map(m->g, "relu", x, HP_NONE, HP_NONE); }

static hp_tensor linear(model *m, hp_tensor x, int64_t in, int64_t out) {
  hp_tensor w = param(m, (hp_shape){2, {out, in}}), b = row(m, out);
  return hp_add(m->g, hp_einsum(m->g, "bi,oi->bo", x, w), b);
}

static hp_tensor lenet(model *m) {
  hp_graph *g = m->g;
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){4, {64, 1, 28, 28}});
  hp_tensor labels = hp_input(g, "labels", HP_I32, (hp_shape){1, {64}});
  hp_tensor w = filters(m, 6, 1, 5), b = row(m, 6);
  x = hp_conv(g, x, w, b, &(hp_conv_options){.pad = {2, 2}});
  x = hp_max_pool(g, relu(m, x), &(hp_pool_options){.kernel = {2, 2}});
  w = filters(m, 16, 6, 5), b = row(m, 16);
  x = hp_max_pool(g, relu(m, hp_conv(g, x, w, b, NULL)), &(hp_pool_options){.kernel = {2, 2}});
  x = hp_reshape(g, x, (hp_shape){2, {64, 400}});
  x = relu(m, linear(m, x, 400, 120));
  x = relu(m, linear(m, x, 120, 84));
  x = linear(m, x, 84, 10);
  return hp_mean(g, hp_cross_entropy(g, x, labels, -100), (int64_t[]){0}, 1, false);
}

/* Over images and positions, with the statistics of the batch. */
static hp_tensor batch_norm(model *m, hp_tensor x, int64_t channels) {
  hp_graph *g = m->g;
  int64_t axes[] = {0, 2, 3};
  hp_shape each = {3, {channels, 1, 1}};
  hp_tensor w = param(m, each), b = param(m, each);
  hp_tensor mean = hp_mean(g, x, axes, 3, true), off = hp_sub(g, x, mean);
  hp_tensor var = hp_mean(g, hp_mul(g, off, off), axes, 3, true);
  hp_tensor scale = hp_map(g, "rsqrt", hp_add(g, var, hp_const(g, HP_F32, 1e-5)), HP_NONE, HP_NONE);
  return hp_add(g, hp_mul(g, hp_mul(g, off, scale), w), b);
}

static hp_tensor resnet(model *m) {
  hp_graph *g = m->g;
  const hp_conv_options same = {.pad = {1, 1}};
  hp_tensor x = param(m, (hp_shape){4, {8, 64, 56, 56}});
  hp_tensor w1 = filters(m, 64, 64, 3), w2 = filters(m, 64, 64, 3);
  hp_tensor y = relu(m, batch_norm(m, hp_conv(g, x, w1, HP_NONE, &same), 64));
  y = batch_norm(m, hp_conv(g, y, w2, HP_NONE, &same), 64);
  y = relu(m, hp_add(g, y, x));
  return hp_mean(g, hp_mul(g, y, y), (int64_t[]){0, 1, 2, 3}, 4, false);
}

static void add_update(model *m, hp_tensor loss) {
  hp_tensor grad[PARAMS];
  hp_output(m->g, "loss", loss);
  check(hp_grad(m->g, loss, m->param, m->n, grad));
  hp_update_phase(m->g);
  for (int i = 0; i < m->n; i++) {
    char name[32];
    snprintf(name, sizeof name, "m.%s", m->name[i]);
    hp_tensor buffer = hp_param(m->g, name, HP_F32, m->shape[i]);
    hp_sgd(m->g, m->param[i], grad[i], buffer, hp_const(m->g, HP_F32, 1), hp_const(m->g, HP_F32, 0.01),
           0.9, 0);
  }
}

/* Numbers in [-range, range) by a fixed rule. */
static float *numbers(int64_t n, float range) {
  float *x = malloc((size_t)n * sizeof *x);
  uint32_t seed = 1;
  if (!x) exit(1);
  for (int64_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    x[i] = ((float)(seed >> 8) / 8388608 - 1) * range;
  }
  return x;
}

static void fill_params(model *m) {
  for (int i = 0; i < m->n; i++) {
    int64_t n = 1, in = 1;
    for (int k = 0; k < m->shape[i].rank; k++) n *= m->shape[i].dim[k];
    if (m->shape[i].rank > 0) in = n / m->shape[i].dim[0];
    float *x = numbers(n, m->shape[i].rank == 4 && n > 1000000 ? 1 : in > 1 ? 0.1f : 1);
    check(hp_write(m->d, m->name[i], x, (size_t)n * sizeof *x));
    free(x);
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  model m = {0};
  hp_program *p;
  hp_program_stats stats;
  hp_limits limits;
  bool images = argc > 1 && !strcmp(argv[1], "lenet");
  if (argc != 3 || (!images && strcmp(argv[1], "resnet")))
    return fprintf(stderr, "usage: conv_step lenet|resnet THREADS\n"), 2;
  check(hp_graph_create(&m.g));
  check(hp_device_open(&(hp_device_options){.threads = atoi(argv[2])}, &m.d));
  add_update(&m, images ? lenet(&m) : resnet(&m));
  check(hp_compile(m.g, m.d, NULL, &p));
  fill_params(&m);
  check(hp_program_stats_get(p, &stats));
  check(hp_device_measure(m.d, &limits));
  printf("%.0f %.0f\nlimits %.0f %.0f\n", stats.flops, stats.bytes, limits.flops, limits.bytes);
  float *x = numbers(64 * 28 * 28, 1), loss = 0;
  int32_t labels[64];
  for (int i = 0; i < 64; i++) labels[i] = i % 10;
  hp_io io[] = {{"loss", &loss, sizeof loss},
                {"x", x, sizeof(float) * 64 * 28 * 28},
                {"labels", labels, sizeof labels}};
  char line[64];
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    int steps = atoi(line);
    double start = now();
    for (int i = 0; i < steps; i++) check(hp_run(p, io, images ? 3 : 1));
    printf("%.9f %.6f\n", (now() - start) / (steps > 0 ? steps : 1), (double)loss);
    fflush(stdout);
  }
  if (getenv("CONV_STEP_TIMES")) {
    hp_op_time *t;
    int n;
    check(hp_program_times(p, &t, &n));
    for (int i = 0; i < n; i++)
      fprintf(stderr, "%-16s %-28s %3d x %9.3f ms, limit %9.3f %s\n", t[i].kind, t[i].shape, t[i].count,
              t[i].seconds * 1e3, t[i].limit_s * 1e3, t[i].limit);
    hp_free(t);
  }
  free(x);
  hp_program_free(p);
  hp_device_close(m.d);
  hp_graph_free(m.g);
  return 0;
}
