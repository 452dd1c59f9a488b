/* Steps of two towers and a decoder on 8 emulated devices, measured next to the plan: all layers as
 * a chain, and modules on groups of 2 and 6 devices.
 *
 *   bench/two_towers/run measure     builds and runs it; a table of Markdown
 *
 * Layers of tower A (4), tower B (16) and the decoder (4, on the tokens of B, which read a mean of
 * A's) are alike.  "Drawn": the tokens of A and of B are drawn anew for each of 32 micro-batches, 8
 * to 24; means of three draws.
 * Computation and links take the time of a cluster file, so that devices need no core each. */
#include "hyperparallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 6, C = 64, MICROS = 32, SIZES = 5, DEVICES = 8, DRAWS = 3, STEPS = 2 };
enum { LAYERS_A = 4, LAYERS_B = 16, LAYERS_D = 4, LAYERS = LAYERS_A + LAYERS_B + LAYERS_D };
static const int tokens[SIZES] = {8, 12, 16, 20, 24};

static const char cluster_text[] = "name: emulated\n"
                                   "device: {flops: 4e7, bandwidth_gb_s: 4}\n"
                                   "links: [{name: link, bandwidth_gb_s: 1, latency_us: 20}]\n"
                                   "emulate: true\n"
                                   "emulate_compute: true\n";

static void check(hp_status st) {
  if (!st) return;
  fprintf(stderr, "measure: %s\n", hp_last_error());
  exit(1);
}

typedef struct {
  const char *what, *mesh, *schedule;
  int stages;
  int end[8]; /* the layer behind the last of each stage */
} division;

typedef struct {
  int a[MICROS], b[MICROS]; /* of each micro-batch, places in `tokens` */
} lengths;

/* --- a micro-batch ---------------------------------------------------------------------------- */

typedef struct {
  hp_graph *g;
  const division *v;
  hp_tensor w[LAYERS];
  int stage[LAYERS];
} model;

static void set_stage(model *m, int layer) {
  int s = 0;
  while (layer >= m->v->end[s]) s++;
  hp_stage(m->g, m->stage[layer] = s);
}

static hp_tensor apply(model *m, hp_tensor x, int first, int end) {
  for (int i = first; i < end; i++) {
    char name[8];
    snprintf(name, sizeof name, "w%d", i);
    set_stage(m, i);
    m->w[i] = hp_param(m->g, name, HP_F32, (hp_shape){2, {C, C}});
    x = hp_map(m->g, "tanh", hp_einsum(m->g, "btc,cd->btd", x, m->w[i]), HP_NONE, HP_NONE);
  }
  return x;
}

static hp_graph *build(const division *v, int a, int b, bool adds) {
  const int d = LAYERS_A + LAYERS_B;
  model m = {.v = v};
  hp_tensor grad[LAYERS];
  check(hp_graph_create(&m.g));
  set_stage(&m, 0);
  hp_tensor x = hp_input(m.g, "a", HP_F32, (hp_shape){3, {B, a, C}});
  x = apply(&m, x, 0, LAYERS_A);
  set_stage(&m, LAYERS_A);
  hp_tensor y = hp_input(m.g, "b", HP_F32, (hp_shape){3, {B, b, C}});
  y = apply(&m, y, LAYERS_A, d);
  set_stage(&m, d);
  y = hp_add(m.g, y, hp_mean(m.g, x, (int64_t[]){1}, 1, true));
  y = apply(&m, y, d, LAYERS);
  hp_tensor loss = hp_mean(m.g, hp_mul(m.g, y, y), (int64_t[]){0, 1, 2}, 3, false);
  hp_output(m.g, "loss", loss);
  check(hp_grad(m.g, loss, m.w, LAYERS, grad));
  for (int i = 0; i < LAYERS; i++) {
    char name[8];
    snprintf(name, sizeof name, "g%d", i);
    hp_stage(m.g, m.stage[i]);
    hp_tensor sum = hp_param(m.g, name, HP_F32, (hp_shape){2, {C, C}});
    hp_assign(m.g, sum, adds ? hp_add(m.g, sum, grad[i]) : grad[i]);
  }
  return m.g;
}

/* --- a step ----------------------------------------------------------------------------------- */

typedef struct {
  hp_piece *piece[2 * SIZES * SIZES];
  char name[2 * SIZES * SIZES][16];
  const char *action[2 * SIZES * SIZES];
  int n;
} pieces;

/* The action of a micro-batch of such lengths, compiled when it is the first. */
static const char *find_piece(pieces *p, const division *v, hp_device *d, int a, int b, bool adds) {
  char name[16];
  snprintf(name, sizeof name, "m%d_%d%s", a, b, adds ? "_add" : "");
  for (int i = 0; i < p->n; i++)
    if (!strcmp(p->name[i], name)) return p->name[i];
  hp_graph *g = build(v, tokens[a], tokens[b], adds);
  check(hp_piece_compile(g, d, NULL, &p->piece[p->n]));
  hp_graph_free(g);
  memcpy(p->name[p->n], name, sizeof name);
  p->action[p->n] = p->name[p->n];
  return p->name[p->n++];
}

static void write_rows(pieces *p, const division *v, const lengths *l, hp_device *d, char *rows) {
  size_t at = 0;
  for (int k = 0; k < MICROS; k++) {
    const char *action = find_piece(p, v, d, l->a[k], l->b[k], k > 0);
    at += (size_t)sprintf(rows + at, "* %s %d\n", action, k);
  }
}

/* ordered: micro-batches in the order in which the pipeline is least idle. */
static hp_program *link_step(const division *v, lengths *l, bool ordered, hp_device *d) {
  static char rows[32 * MICROS];
  static pieces p;
  int order[MICROS];
  const lengths drawn = *l;
  hp_program *step;
  p = (pieces){.n = 0};
  write_rows(&p, v, l, d, rows);
  if (ordered) {
    check(hp_link_order(p.piece, p.action, p.n, rows, order));
    for (int k = 0; k < MICROS; k++) l->a[k] = drawn.a[order[k]], l->b[k] = drawn.b[order[k]];
    write_rows(&p, v, l, d, rows);
  }
  check(hp_link(p.piece, p.action, p.n, rows, &step));
  for (int i = 0; i < p.n; i++) hp_piece_free(p.piece[i]);
  return step;
}

/* Gradients are partial sums, not reduced after each micro-batch. */
static hp_device *open_device(const division *v, const char *cluster) {
  static const hp_layout_rule layouts[] = {{"a", "(dp,None,None)"},
                                           {"b", "(dp,None,None)"},
                                           {"g*", "(None,None)+sum:dp"}};
  hp_device *d;
  check(hp_device_open(&(hp_device_options){.mesh = v->mesh,
                                            .pipeline = v->mesh ? v->schedule : NULL,
                                            .cluster = cluster,
                                            .layouts = layouts,
                                            .n_layouts = v->mesh ? 3 : 0,
                                            .threads = 1},
                       &d));
  return d;
}

static double run_step(hp_program *step, const lengths *l) {
  static float x[2 * MICROS][B * 24 * C];
  char name[2 * MICROS][8];
  hp_io io[2 * MICROS];
  hp_program_stats stats;
  for (int k = 0; k < 2 * MICROS; k++) {
    const int n = tokens[k % 2 ? l->b[k / 2] : l->a[k / 2]];
    snprintf(name[k], sizeof name[k], "%c@%d", k % 2 ? 'b' : 'a', k / 2);
    io[k] = (hp_io){name[k], x[k], (size_t)(B * n * C) * sizeof(float)};
  }
  check(hp_run(step, io, 2 * MICROS));
  check(hp_program_stats_get(step, &stats));
  return stats.run_s;
}

/* --- the table -------------------------------------------------------------------------------- */

/* Seconds of one device for all of it. */
static double work_of(lengths l, const char *cluster) {
  const division one = {.end = {LAYERS}};
  hp_program_stats stats;
  hp_device *d = open_device(&one, cluster);
  hp_program *step = link_step(&one, &l, false, d);
  check(hp_program_stats_get(step, &stats));
  hp_program_free(step);
  hp_device_close(d);
  return stats.predicted_s;
}

/* Means of n steps with other lengths: planned and measured seconds, and those without idle time.
 */
static void print_row(const division *v, const char *micros, const lengths *l, int n,
                      const char *cluster) {
  const bool ordered = strstr(micros, "ordered");
  double planned = 0, measured = 0, work = 0;
  for (int i = 0; i < n; i++) {
    hp_program_stats stats;
    hp_device *d = open_device(v, cluster);
    lengths own = l[i];
    hp_program *step = link_step(v, &own, ordered, d);
    double best = run_step(step, &own);
    for (int k = 1; k < STEPS; k++) {
      const double again = run_step(step, &own);
      if (again < best) best = again;
    }
    check(hp_program_stats_get(step, &stats));
    planned += stats.predicted_s / n;
    measured += best / n;
    work += work_of(own, cluster) / DEVICES / n;
    hp_program_free(step);
    hp_device_close(d);
  }
  printf("| %s | %s | %s | %.3f s | %.3f s | %.1f %% | %.1f %% |\n", v->what, v->schedule, micros,
         planned, measured, 100 * (1 - work / planned), 100 * (1 - work / measured));
  fflush(stdout);
}

static int draw_size(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (int)(*state >> 40) % SIZES;
}

static void draw(uint64_t state, lengths *l) {
  for (int k = 0; k < MICROS; k++) {
    l->a[k] = draw_size(&state);
    l->b[k] = draw_size(&state);
  }
}

int main(int argc, char **argv) {
  static const char *const schedule[] = {"1f1b", "zb-h1"};
  const char *cluster = argc > 1 ? argv[1] : "two_towers.yaml";
  const division chain = {"all layers as a chain on 8",
                          "(1)(dp);(1)(dp);(1)(dp);(1)(dp);(1)(dp);"
                          "(1)(dp);(1)(dp);(1)(dp)",
                          "1f1b",
                          8,
                          {3, 6, 9, 12, 15, 18, 21, 24}};
  division cut = {"exact cut on 2 + 6", "(2)(dp);(6)(dp)", "1f1b", 2, {LAYERS_A + 2, LAYERS}};
  lengths alike, drawn[DRAWS];
  FILE *f = fopen(cluster, "w");
  if (!f || fputs(cluster_text, f) < 0 || fclose(f)) {
    fprintf(stderr, "measure: %s cannot be written\n", cluster);
    return 1;
  }
  for (int k = 0; k < MICROS; k++) alike.a[k] = alike.b[k] = SIZES / 2;
  for (int i = 0; i < DRAWS; i++) draw((uint64_t)i + 1, &drawn[i]);
  printf("| | schedule | micro-batches | planned | measured | idle, planned | idle, measured |\n"
         "|---|---|---|---|---|---|---|\n");
  print_row(&chain, "alike", &alike, 1, cluster);
  print_row(&chain, "drawn", drawn, DRAWS, cluster);
  for (int i = 0; i < 2; i++) {
    cut.schedule = schedule[i];
    print_row(&cut, "alike", &alike, 1, cluster);
    print_row(&cut, "drawn", drawn, DRAWS, cluster);
    print_row(&cut, "drawn, ordered by cost", drawn, DRAWS, cluster);
  }
  return 0;
}
