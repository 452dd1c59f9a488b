/* A multilayer perceptron that tells three spirals apart: points of the plane, 2 -> 64 -> 64 -> 3.
 *
 *   cc -o mlp mlp.c -lhyperparallel && ./mlp [STEPS]
 *
 * Shows the whole of a training in plain C: a graph with its gradient and an optimizer, a device with
 * the params, a program that is run step by step, and a second one for the accuracy. */
#include <hyperparallel.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 300, CLASSES = 3, WIDTH = 64 };

static void check(hp_status s) {
  if (s == HP_OK) return;
  fprintf(stderr, "mlp: %s\n", hp_last_error());
  exit(1);
}

/* A fixed sequence of numbers in [0, 1). */
static double chance(void) {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (double)(state >> 40) / (1 << 24);
}

static void draw_spirals(float *points, int32_t *labels) {
  for (int i = 0; i < POINTS; i++) {
    int arm = i % CLASSES;
    double r = (double)i / POINTS, angle = arm * 2.0944 + r * 5 + 0.2 * (chance() - 0.5);
    points[2 * i] = (float)(r * cos(angle));
    points[2 * i + 1] = (float)(r * sin(angle));
    labels[i] = arm;
  }
}

/* --- the model ---------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  hp_shape shape;
} param;
static const param params[] = {{"w1", {2, {WIDTH, 2}}},       {"b1", {1, {WIDTH}}},
                               {"w2", {2, {WIDTH, WIDTH}}},   {"b2", {1, {WIDTH}}},
                               {"w3", {2, {CLASSES, WIDTH}}}, {"b3", {1, {CLASSES}}}};
enum { PARAMS = sizeof params / sizeof *params };

/* x [B,I], w [O,I], b [O] -> [B,O] */
static hp_tensor linear(hp_graph *g, hp_tensor x, hp_tensor w, hp_tensor b) {
  return hp_add(g, hp_einsum(g, "bi,oi->bo", x, w), b);
}

/* Scores of the classes; p are the params in the graph. */
static hp_tensor forward(hp_graph *g, hp_tensor p[PARAMS]) {
  hp_tensor x = hp_input(g, "points", HP_F32, (hp_shape){2, {POINTS, 2}});
  for (int i = 0; i < PARAMS; i++) p[i] = hp_param(g, params[i].name, HP_F32, params[i].shape);
  x = hp_map(g, "tanh", linear(g, x, p[0], p[1]), HP_NONE, HP_NONE);
  x = hp_map(g, "tanh", linear(g, x, p[2], p[3]), HP_NONE, HP_NONE);
  return linear(g, x, p[4], p[5]);
}

/* One step: the loss, its gradients, and SGD with momentum. */
static hp_program *compile_training(hp_device *d) {
  hp_graph *g;
  hp_program *program;
  hp_tensor p[PARAMS], grad[PARAMS];
  check(hp_graph_create(&g));
  hp_tensor scores = forward(g, p);
  hp_tensor labels = hp_input(g, "labels", HP_I32, (hp_shape){1, {POINTS}});
  hp_tensor each = hp_cross_entropy(g, scores, labels, -1);
  hp_tensor loss = hp_mean(g, each, (int64_t[]){0}, 1, false);
  hp_output(g, "loss", loss);
  check(hp_grad(g, loss, p, PARAMS, grad));
  for (int i = 0; i < PARAMS; i++) {
    char name[16];
    snprintf(name, sizeof name, "%s.momentum", params[i].name);
    hp_tensor momentum = hp_param(g, name, HP_F32, params[i].shape);
    hp_sgd(g, p[i], grad[i], momentum, hp_const(g, HP_F32, 1), hp_const(g, HP_F32, 0.2), 0.9, 0);
  }
  check(hp_compile(g, d, NULL, &program)); /* tells the first mistake of all above */
  hp_graph_free(g);
  return program;
}

static hp_program *compile_answers(hp_device *d) {
  hp_graph *g;
  hp_program *program;
  hp_tensor p[PARAMS];
  check(hp_graph_create(&g));
  hp_output(g, "answers", hp_argmax(g, forward(g, p)));
  check(hp_compile(g, d, NULL, &program));
  hp_graph_free(g);
  return program;
}

/* Weights uniform within 1 / sqrt(inputs); biases stay 0, as all params begin. */
static void fill_params(hp_device *d) {
  for (int i = 0; i < PARAMS; i += 2) {
    int64_t n = params[i].shape.dim[0] * params[i].shape.dim[1];
    double range = 1 / sqrt((double)params[i].shape.dim[1]);
    float x[WIDTH * WIDTH];
    for (int64_t k = 0; k < n; k++) x[k] = (float)((2 * chance() - 1) * range);
    check(hp_write(d, params[i].name, x, (size_t)n * sizeof *x));
  }
}

int main(int argc, char **argv) {
  int steps = argc > 1 ? atoi(argv[1]) : 500;
  float points[2 * POINTS], loss = 0;
  int32_t labels[POINTS], answers[POINTS], right = 0;
  hp_device *d;
  draw_spirals(points, labels);
  check(hp_device_open(NULL, &d));
  hp_program *training = compile_training(d), *answering = compile_answers(d);
  fill_params(d);
  for (int step = 1; step <= steps; step++) {
    hp_io io[] = {{"points", points, sizeof points},
                  {"labels", labels, sizeof labels},
                  {"loss", &loss, sizeof loss}};
    check(hp_run(training, io, 3));
    if (step == 1 || step % 100 == 0 || step == steps)
      printf("step %4d  loss %.4f\n", step, (double)loss);
  }
  hp_io io[] = {{"points", points, sizeof points}, {"answers", answers, sizeof answers}};
  check(hp_run(answering, io, 2));
  for (int i = 0; i < POINTS; i++) right += answers[i] == labels[i];
  printf("accuracy %.1f %%\n", 100.0 * right / POINTS);
  hp_program_free(training);
  hp_program_free(answering);
  hp_device_close(d);
  return 0;
}
