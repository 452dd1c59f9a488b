/* Idle time of pipelines of two towers and a decoder on 8 devices, simulated: all layers as a
 * chain, and modules on groups of devices of unlike size.
 *
 *   bench/two_towers/run [MICROBATCHES]   builds and runs it; tables of Markdown
 *
 * The forward of a micro-batch takes 1 s of a device for tower A, 4 s for tower B and 1 s for the
 * decoder, the backward to inputs and to weights as much each; a group of n devices takes an nth.
 * Transfers take 0.01 s.  "Drawn": the lengths of A and of B are drawn anew for each micro-batch,
 * from 0.5 to 1.5 times the mean; the decoder reads both.
 */
#include "sched/pipe_check.h"
#include "sched/pipe_order.h"
#include "sched/pipe_simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 8, STAGES_MAX = 8, MICROS_MAX = 256, DRAWS = 20 };
enum { LAYERS_A = 8, LAYERS_B = 16, LAYERS_D = 4, LAYERS = LAYERS_A + LAYERS_B + LAYERS_D };
static const double transfer_s = 0.01;

static void check(hp_status st) {
  if (!st) return;
  fprintf(stderr, "two_towers: %s\n", err_message());
  exit(1);
}

/* --- costs ------------------------------------------------------------------------------------ */

static double chance(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(*state >> 40) / (1 << 24);
}

/* Lengths of the micro-batches; their mean is 1. */
typedef struct {
  uint32_t n;
  double a[MICROS_MAX], b[MICROS_MAX];
} lengths;

static void draw(uint64_t *state, bool alike, lengths *l) {
  for (uint32_t k = 0; k < l->n; k++) {
    l->a[k] = alike ? 1 : 0.5 + chance(state);
    l->b[k] = alike ? 1 : 0.5 + chance(state);
  }
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The short ones at both ends, where the pipeline is filled and drained. */
static void order_by_length(lengths *l) {
  lengths sorted = *l;
  qsort(sorted.b, l->n, sizeof *sorted.b, by_value);
  for (uint32_t k = 0; k < l->n; k++) l->b[k % 2 ? l->n - 1 - k / 2 : k / 2] = sorted.b[k];
}

/* Device seconds of the forward of a layer: 4 of 5 tokens of the decoder are of B. */
static double layer_s(int layer, const lengths *l, uint32_t k) {
  if (layer < LAYERS_A) return 1.0 / LAYERS_A * l->a[k];
  if (layer < LAYERS_A + LAYERS_B) return 4.0 / LAYERS_B * l->b[k];
  return 1.0 / LAYERS_D * (0.2 * l->a[k] + 0.8 * l->b[k]);
}

/* --- stages on groups of devices -------------------------------------------------------------- */

typedef struct {
  const char *what, *schedule;
  bool ordered;           /* by cost */
  bool one_length;        /* the lengths of A are those of B, */
  bool by_length;         /* in an order that depends on them alone */
  uint32_t stages, edges; /* edges 0: a chain */
  uint32_t devices[STAGES_MAX];
  int layers[STAGES_MAX][2]; /* [first, end) of a stage */
  pipe_edge edge[STAGES_MAX];
} division;

/* Consecutive layers to 8 devices so that the slowest takes least: the smallest bound under which a
 * greedy walk needs 8 stages. */
static void cut_chain(division *v) {
  static const lengths mean = {.n = 1, .a = {1}, .b = {1}};
  for (double bound = 6.0 / DEVICES;; bound += 0.005) {
    int first = 0;
    for (uint32_t s = 0; s < DEVICES; s++) {
      double sum = 0;
      int end = first;
      while (end < LAYERS && sum + layer_s(end, &mean, 0) <= bound + 1e-9)
        sum += layer_s(end++, &mean, 0);
      v->layers[s][0] = first;
      v->layers[s][1] = first = end;
    }
    if (first == LAYERS) return;
  }
}

static double stage_s(const division *v, uint32_t s, const lengths *l, uint32_t k) {
  double sum = 0;
  for (int i = v->layers[s][0]; i < v->layers[s][1]; i++) sum += layer_s(i, l, k);
  return sum / v->devices[s];
}

/* --- simulation ------------------------------------------------------------------------------- */

/* Idle share of all devices, each group as many as it has. */
static double idle_of(const division *v, const pipe_times *t) {
  double busy = 0;
  for (uint32_t s = 0; s < v->stages; s++) busy += t->device[s].busy_s * v->devices[s];
  return 1 - busy / (DEVICES * t->step_s);
}

static double simulate(const division *v, const lengths *l) {
  static double f[STAGES_MAX * MICROS_MAX], ordered[STAGES_MAX * MICROS_MAX];
  double send[STAGES_MAX], step;
  uint32_t order[MICROS_MAX];
  for (uint32_t i = 0; i < STAGES_MAX; i++) send[i] = transfer_s;
  for (uint32_t s = 0; s < v->stages; s++)
    for (uint32_t k = 0; k < l->n; k++) f[s * l->n + k] = stage_s(v, s, l, k);
  pipe_costs c = {.forward_s = f,
                  .backward_s = f,
                  .weights_s = f,
                  .micros = l->n,
                  .edge = v->edges ? v->edge : NULL,
                  .edges = v->edges,
                  .transfer_s = send};
  const pipe_request q = {.stages = v->stages,
                          .devices = v->stages,
                          .microbatches = l->n,
                          .costs = &c};
  pipe_rows rows;
  pipe_times t;
  if (v->ordered) {
    check(pipe_order(v->schedule, &q, order, &step));
    for (uint32_t s = 0; s < v->stages; s++)
      for (uint32_t k = 0; k < l->n; k++) ordered[s * l->n + k] = f[s * l->n + order[k]];
    c.forward_s = c.backward_s = c.weights_s = ordered;
  }
  check(pipe_generate(v->schedule, &q, &rows));
  check(pipe_check(&rows, v->what, &c, (pipe_limits){0}));
  check(pipe_simulate(&rows, v->what, &c, PIPE_ONE_STREAM, &t));
  double idle = idle_of(v, &t);
  pipe_times_free(&t);
  pipe_rows_free(&rows);
  return idle;
}

static void print_row(const division *v, uint32_t micros) {
  lengths l = {.n = micros};
  uint64_t state = 7;
  double mean = 0, most = 0;
  draw(&state, true, &l);
  const double alike = simulate(v, &l);
  for (int i = 0; i < DRAWS; i++) {
    draw(&state, false, &l);
    if (v->by_length) order_by_length(&l);
    if (v->one_length) memcpy(l.a, l.b, sizeof l.a);
    const double idle = simulate(v, &l);
    mean += idle / DRAWS;
    if (idle > most) most = idle;
  }
  printf("| %s | %s%s | %.1f %% | %.1f %% | %.1f %% |\n", v->what, v->schedule,
         v->ordered     ? ", ordered by cost"
         : v->by_length ? ", ordered by length"
                        : "",
         100 * alike, 100 * mean, 100 * most);
}

int main(int argc, char **argv) {
  uint32_t micros = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 32;
  division model = {.what = "one model, layers on 8 devices",
                    .schedule = "1f1b",
                    .one_length = true,
                    .stages = 8,
                    .devices = {1, 1, 1, 1, 1, 1, 1, 1}};
  division chain = {.what = "all layers as a chain over 8 devices",
                    .schedule = "1f1b",
                    .stages = DEVICES,
                    .devices = {1, 1, 1, 1, 1, 1, 1, 1}};
  division three = {.what = "modules: A on 1, B on 5, decoder on 2",
                    .schedule = "1f1b",
                    .stages = 3,
                    .devices = {1, 5, 2},
                    .layers = {{0, LAYERS_A},
                               {LAYERS_A, LAYERS_A + LAYERS_B},
                               {LAYERS_A + LAYERS_B, LAYERS}},
                    .edges = 2,
                    .edge = {{0, 2}, {1, 2}}};
  division two = {.what = "modules: A on 2, B and decoder on 6",
                  .schedule = "1f1b",
                  .stages = 2,
                  .devices = {2, 6},
                  .layers = {{0, LAYERS_A}, {LAYERS_A, LAYERS}}};
  division cut = {.what = "exact cut: A and 2 of 16 layers of B on 2, the others on 6",
                  .schedule = "1f1b",
                  .stages = 2,
                  .devices = {2, 6},
                  .layers = {{0, LAYERS_A + 2}, {LAYERS_A + 2, LAYERS}}};
  if (micros < 1 || micros > MICROS_MAX || argc > 2) {
    fprintf(stderr, "usage: two_towers [MICROBATCHES], 1 to %d\n", MICROS_MAX);
    return 2;
  }
  cut_chain(&chain);
  printf("%u micro-batches, idle share of 8 devices:\n\n", micros);
  printf("| | schedule | all alike | drawn, mean of %d | the worst |\n|---|---|---|---|---|\n",
         DRAWS);
  print_row(&chain, micros);
  chain.ordered = true;
  print_row(&chain, micros);
  print_row(&three, micros);
  print_row(&two, micros);
  print_row(&cut, micros);
  cut.ordered = true;
  print_row(&cut, micros);
  cut.schedule = "zb-h1";
  cut.ordered = false;
  print_row(&cut, micros);
  cut.ordered = true;
  print_row(&cut, micros);
  cut_chain(&model);
  print_row(&model, micros);
  model.ordered = true;
  print_row(&model, micros);
  model.ordered = false;
  model.by_length = true;
  print_row(&model, micros);
  return 0;
}
