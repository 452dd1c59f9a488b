/* Time to link a training step whose micro-batches have other shapes than those before.
 *
 *   cc -std=c11 -D_GNU_SOURCE -O2 -Iinclude -Isrc bench/link_bench.c build/libhyperparallel.a \
 *      $(pkg-config --libs yaml-0.1 libpcre2-8 libutf8proc libxxhash cairo) -lm -lpthread -ldl \
 *      -o build/link-bench
 *   build/link-bench shapes MODEL_DIR      8 micro-batches of 8 rows, on this machine's cpu
 *   build/link-bench many MODEL_DIR N      N micro-batches of 1 x 256 tokens, for a cluster
 *
 * Processor time, medians of 40 steps for shapes and of 5 links for many. */
#include "model/lm_eval.h"
#include "train/step.h"
#include "train/step_pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MICROS = 8, ROWS = 8, STEPS = 40, LINKS = 5, MANY_MAX = 4096, FIRST_T = 100, NEW_T = 17 };

static const step_options adamw = {.optimizer = {OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
                                   .clip = 1};

static void need(hp_status st) {
  if (!st) return;
  fprintf(stderr, "link-bench: %s\n", err_message());
  exit(1);
}

static double processor_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static double median(double *x, size_t n) {
  qsort(x, n, sizeof *x, ascending);
  return x[n / 2];
}

static lm *open_model(const char *dir, const hp_device_options *o, hp_device **d) {
  lm *m;
  need(hp_device_open(o, d));
  need(lm_create(dir, *d, &(lm_options){.compute = HP_F32, .weights = HP_F32}, &m));
  return m;
}

static double prepare(stepper *s, const step_micro *b) {
  double start = processor_s();
  need(stepper_prepare(s, b, MICROS));
  return processor_s() - start;
}

/* Lengths that were there before in a new order, and with one that was not. */
static void link_shapes(const char *dir) {
  hp_device *d;
  stepper *s;
  lm *m = open_model(dir, &(hp_device_options){.threads = 2}, &d);
  step_micro b[MICROS];
  double known[STEPS], new[STEPS];
  uint32_t random = 1;
  need(lm_init(m, 5));
  lm_share_rope(m, 256);
  need(stepper_create(m, &adamw, &s));
  for (int first = 0; first < MICROS; first++) { /* each length as the first and as a later one */
    for (int i = 0; i < MICROS; i++)
      b[i] = (step_micro){.B = ROWS, .T = FIRST_T + (first + i) % MICROS};
    need(stepper_prepare(s, b, MICROS));
  }
  for (int k = 0; k < 2 * STEPS; k++) {
    for (int i = 0; i < MICROS; i++) {
      random = random * 1103515245 + 12345;
      b[i].T = FIRST_T + (random >> 16) % MICROS;
    }
    if (k % 2) b[1].T = NEW_T + k / 2;
    (k % 2 ? new : known)[k / 2] = prepare(s, b);
  }
  printf("known lengths %.1f ms, one new length %.1f ms\n", 1e3 * median(known, STEPS),
         1e3 * median(new, STEPS));
  stepper_free(s);
  lm_free(m);
  hp_device_close(d);
}

static void link_many(const char *dir, int n) {
  hp_device *d;
  lm *m = open_model(dir, &(hp_device_options){.plan_only = true, .cluster = "dgx-h100"}, &d);
  step_pieces pieces = {.m = m, .d = d, .o = adamw, .plan = true, .quiet = true};
  static micro_shape shape[MANY_MAX];
  hp_program_stats stats = {0};
  double time[LINKS];
  for (int i = 0; i < n; i++) shape[i] = (micro_shape){1, 256};
  for (int k = 0; k < LINKS; k++) {
    step_link l;
    need(step_pieces_link(&pieces, shape, n, &l));
    double start = processor_s();
    need(hp_link_plan(l.piece, l.action, l.n, l.rows, &stats, NULL, NULL));
    time[k] = processor_s() - start;
    step_link_free(&l);
  }
  printf("%d instructions in %.2f s, work memory %.0f MB\n", stats.instructions,
         median(time, LINKS), (double)stats.memory.work_bytes / 1e6);
  step_pieces_free(&pieces);
  lm_free(m);
  hp_device_close(d);
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "shapes")) {
    link_shapes(argv[2]);
    return 0;
  }
  int n = argc == 4 && !strcmp(argv[1], "many") ? atoi(argv[3]) : 0;
  if (n < 2 || n > MANY_MAX) {
    fprintf(stderr, "usage: link-bench shapes MODEL_DIR | many MODEL_DIR N, N from 2 to %d\n",
            MANY_MAX);
    return 2;
  }
  link_many(argv[2], n);
  return 0;
}
