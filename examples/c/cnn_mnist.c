/* A convolutional network that reads digits, LeNet-5, on MNIST.
 *
 *   cc -o cnn_mnist cnn_mnist.c -lhyperparallel
 *   ./cnn_mnist [STEPS [FOLDER]]
 *
 * FOLDER holds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
 * t10k-labels-idx1-ubyte.  Without it digits are drawn: a small font, moved, dimmed and with noise. */
#include <hyperparallel.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 64, SIDE = 28, PIXELS = SIDE * SIDE, DRAWN = 4096, TESTS = 1024 };

static void check(hp_status s) {
  if (s == HP_OK) return;
  fprintf(stderr, "cnn_mnist: %s\n", hp_last_error());
  exit(1);
}

static uint32_t chance(uint32_t below) {
  static uint64_t state = 7;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

typedef struct {
  int n;
  uint8_t *pixel, *label; /* [n,28,28], [n] */
} images;

/* The numbers of an idx file behind its header of `skip` bytes; *n is the first dim. */
static uint8_t *read_idx(const char *folder, const char *name, int skip, int each, int *n) {
  char path[4096];
  uint8_t head[16];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "rb");
  if (!f || fread(head, 1, (size_t)skip, f) != (size_t)skip || head[0] || head[1] || head[2] != 8) {
    fprintf(stderr, "cnn_mnist: %s is not there, or not an idx file of bytes\n", path);
    exit(1);
  }
  *n = (int)((uint32_t)head[4] << 24 | (uint32_t)head[5] << 16 | (uint32_t)head[6] << 8 | head[7]);
  size_t bytes = *n > 0 && *n <= 1000000 ? (size_t)*n * (size_t)each : 0;
  uint8_t *x = malloc(bytes + 1);
  if (!x || bytes == 0 || fread(x, 1, bytes, f) != bytes) {
    fprintf(stderr, "cnn_mnist: %s ends before its %d items\n", path, *n);
    exit(1);
  }
  fclose(f);
  return x;
}

static images read_images(const char *folder, const char *which) {
  char name[64];
  images x;
  int labels;
  snprintf(name, sizeof name, "%s-images-idx3-ubyte", which);
  x.pixel = read_idx(folder, name, 16, PIXELS, &x.n);
  snprintf(name, sizeof name, "%s-labels-idx1-ubyte", which);
  x.label = read_idx(folder, name, 8, 1, &labels);
  if (labels < x.n) x.n = labels;
  if (x.n >= BATCH) return x;
  fprintf(stderr, "cnn_mnist: %s/%s: %d images, at least %d are needed\n", folder, which, x.n, BATCH);
  exit(1);
}

/* 3 x 5 dots each, a row of three bits after the other. */
static const uint16_t font[10] = {075557, 026227, 071747, 071717, 055711,
                                  074717, 074757, 071111, 075757, 075717};

static images draw_images(int n) {
  images x = {n, malloc((size_t)n * PIXELS), malloc((size_t)n)};
  if (!x.pixel || !x.label) exit(1);
  for (int i = 0; i < n; i++) {
    uint32_t digit = chance(10), left = 4 + chance(9), top = 2 + chance(6), ink = 120 + chance(136);
    uint32_t wide = 3 + chance(2), high = 3 + chance(2);
    x.label[i] = (uint8_t)digit;
    for (uint32_t y = 0; y < SIDE; y++)
      for (uint32_t c = 0; c < SIDE; c++) {
        uint32_t row = (y - top) / high, col = (c - left) / wide;
        bool dot = y >= top && c >= left && row < 5 && col < 3 &&
                   font[digit] >> (14 - 3 * row - col) & 1;
        x.pixel[i * PIXELS + (int)(y * SIDE + c)] = (uint8_t)((dot ? ink : 0) * 7 / 8 + chance(32));
      }
  }
  return x;
}

/* --- the model ---------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  hp_shape shape;
} param;
static const param params[] = {
    {"conv1.w", {4, {6, 1, 5, 5}}}, {"conv1.b", {1, {6}}},   {"conv2.w", {4, {16, 6, 5, 5}}},
    {"conv2.b", {1, {16}}},         {"fc1.w", {2, {120, 400}}}, {"fc1.b", {1, {120}}},
    {"fc2.w", {2, {84, 120}}},      {"fc2.b", {1, {84}}},    {"fc3.w", {2, {10, 84}}},
    {"fc3.b", {1, {10}}}};
enum { PARAMS = sizeof params / sizeof *params };

static hp_tensor relu(hp_graph *g, hp_tensor x) { return hp_map(g, "relu", x, HP_NONE, HP_NONE); }
static hp_tensor linear(hp_graph *g, hp_tensor x, const hp_tensor *wb) {
  return hp_add(g, hp_einsum(g, "bi,oi->bo", x, wb[0]), wb[1]);
}

static hp_tensor forward(hp_graph *g, hp_tensor p[PARAMS]) {
  const hp_pool_options halve = {.kernel = {2, 2}};
  hp_tensor x = hp_input(g, "images", HP_F32, (hp_shape){4, {BATCH, 1, SIDE, SIDE}});
  for (int i = 0; i < PARAMS; i++) p[i] = hp_param(g, params[i].name, HP_F32, params[i].shape);
  x = relu(g, hp_conv(g, x, p[0], p[1], &(hp_conv_options){.pad = {2, 2}})); /* [B,6,28,28] */
  x = hp_max_pool(g, x, &halve);                                             /* [B,6,14,14] */
  x = relu(g, hp_conv(g, x, p[2], p[3], NULL));                              /* [B,16,10,10] */
  x = hp_max_pool(g, x, &halve);                                             /* [B,16,5,5] */
  x = relu(g, linear(g, hp_reshape(g, x, (hp_shape){2, {BATCH, 400}}), p + 4));
  return linear(g, relu(g, linear(g, x, p + 6)), p + 8);
}

/* Training gives "loss" and updates the params; else "answers" are given. */
static hp_program *compile(hp_device *d, bool training) {
  hp_graph *g;
  hp_program *program;
  hp_tensor p[PARAMS], grad[PARAMS];
  check(hp_graph_create(&g));
  hp_tensor scores = forward(g, p);
  if (training) {
    hp_tensor labels = hp_input(g, "labels", HP_I32, (hp_shape){1, {BATCH}});
    hp_tensor each = hp_cross_entropy(g, scores, labels, -1);
    hp_tensor loss = hp_mean(g, each, (int64_t[]){0}, 1, false);
    hp_output(g, "loss", loss);
    check(hp_grad(g, loss, p, PARAMS, grad));
    for (int i = 0; i < PARAMS; i++) {
      char name[32];
      snprintf(name, sizeof name, "%s.momentum", params[i].name);
      hp_tensor momentum = hp_param(g, name, HP_F32, params[i].shape);
      hp_sgd(g, p[i], grad[i], momentum, hp_const(g, HP_F32, 1), hp_const(g, HP_F32, 0.02), 0.9, 0);
    }
  } else {
    hp_output(g, "answers", hp_argmax(g, scores));
  }
  check(hp_compile(g, d, NULL, &program));
  hp_graph_free(g);
  return program;
}

/* Uniform within sqrt(3 / inputs): of a variance that keeps that of what comes in. */
static void fill_params(hp_device *d) {
  static float x[120 * 400];
  for (int i = 0; i < PARAMS; i += 2) {
    int64_t n = 1;
    for (int k = 0; k < params[i].shape.rank; k++) n *= params[i].shape.dim[k];
    double inputs = (double)(n / params[i].shape.dim[0]), range = 1;
    while (range * range > 3 / inputs) range *= 0.99;
    for (int64_t k = 0; k < n; k++) x[k] = (float)((chance(2001) / 1000.0 - 1) * range);
    check(hp_write(d, params[i].name, x, (size_t)n * sizeof *x));
  }
}

/* Images first .. first + BATCH, or by chance where first is negative. */
static void take(const images *from, int first, float *x, int32_t *labels) {
  for (int i = 0; i < BATCH; i++) {
    int k = first < 0 ? (int)chance((uint32_t)from->n) : first + i;
    labels[i] = from->label[k];
    for (int j = 0; j < PIXELS; j++) x[i * PIXELS + j] = (float)from->pixel[k * PIXELS + j] / 255;
  }
}

int main(int argc, char **argv) {
  static float x[BATCH * PIXELS];
  int32_t labels[BATCH], answers[BATCH];
  int steps = argc > 1 ? atoi(argv[1]) : 300, right = 0, seen = 0;
  images train = argc > 2 ? read_images(argv[2], "train") : draw_images(DRAWN);
  images test = argc > 2 ? read_images(argv[2], "t10k") : draw_images(TESTS);
  float loss = 0;
  hp_device *d;
  if (argc <= 2) printf("no folder with MNIST given: digits are drawn\n");
  check(hp_device_open(NULL, &d));
  hp_program *training = compile(d, true), *answering = compile(d, false);
  fill_params(d);
  hp_io io[] = {{"images", x, sizeof x}, {"labels", labels, sizeof labels}, {"loss", &loss, 4}};
  for (int step = 1; step <= steps; step++) {
    take(&train, -1, x, labels);
    check(hp_run(training, io, 3));
    if (step == 1 || step % 50 == 0) printf("step %4d  loss %.4f\n", step, (double)loss);
  }
  hp_io ask[] = {{"images", x, sizeof x}, {"answers", answers, sizeof answers}};
  for (; seen + BATCH <= test.n; seen += BATCH) {
    take(&test, seen, x, labels);
    check(hp_run(answering, ask, 2));
    for (int i = 0; i < BATCH; i++) right += answers[i] == labels[i];
  }
  printf("accuracy %.1f %% of %d images that were not trained on\n", 100.0 * right / seen, seen);
  hp_program_free(training);
  hp_program_free(answering);
  hp_device_close(d);
  return 0;
}
