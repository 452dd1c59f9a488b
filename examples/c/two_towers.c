/* Two towers into one decoder, each on a group of devices of its own: a tower of patches (an MLP),
 * a tower of text (a transformer, four times as costly), and a decoder that attends to both and
 * tells the colour of the patch that the text asks for.  Texts of a micro-batch are of one length,
 * those of a step of several: micro-batches run in the order in which the groups are least idle.
 *
 *   cc -o two_towers two_towers.c -lm -lhyperparallel
 *   ./two_towers [STEPS [GROUPS [exact]]]
 *
 *   ./two_towers 300                                           on one device
 *   ./two_towers 20 "(2,1)(dp,tp);(2,3)(dp,tp)"                patches on 2 devices, the rest on 6
 *   ./two_towers 20 "(1,1)(dp,tp);(1,3)(dp,tp);(2,2)(dp,tp)"   each on a group: 1 + 3 + 4
 *
 * GROUPS are meshes with their degrees of data and tensor parallelism, one for each stage.  With
 * them the model is also trained on one device, and the differences are told: rounding errors, or
 * none with "exact", which splits no sum over devices. */
#include <hyperparallel.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 12, MICROS = 4 };                     /* samples of a micro-batch, and of a step */
enum { P = 9, IN = 12, COLOURS = 4 };            /* patches of a sample, numbers of a patch */
enum { T = 16, V = 32, C = 48, H = 6, F = 4 * C }; /* most tokens of a text, words, widths */
enum { PARAMS = 24, NAME = 32 };
static const int tokens[MICROS] = {4, T, 8, 12}; /* of the texts, by micro-batch */

static void check(hp_status s) {
  if (s == HP_OK) return;
  fprintf(stderr, "two_towers: %s\n", hp_last_error());
  exit(1);
}

static uint32_t chance(uint64_t *state, uint32_t below) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33) % below;
}

/* --- the model ---------------------------------------------------------------------------- */

/* A graph for texts of some length, and its params so far.  What is built next is of a module, on a
 * stage of the pipeline. */
typedef struct {
  hp_graph *g;
  int tokens;
  const char *module;
  int stage;
  int n;
  hp_tensor param[PARAMS];
  hp_shape shape[PARAMS];
  char name[PARAMS][NAME];
  int stage_of[PARAMS];
} model;

/* The decoder is on the last stage and the text on the second, if there are so many. */
static void begin(model *m, const char *module, int stage, int stages) {
  m->module = module;
  m->stage = stage < stages ? stage : stages - 1;
  hp_at(m->g, module);
  hp_stage(m->g, m->stage);
}

static hp_tensor param(model *m, const char *name, hp_shape s) {
  snprintf(m->name[m->n], NAME, "%s.%s", m->module, name);
  m->shape[m->n] = s;
  m->stage_of[m->n] = m->stage;
  m->param[m->n] = hp_param(m->g, m->name[m->n], HP_F32, s);
  return m->param[m->n++];
}
static hp_tensor matrix(model *m, const char *name, int out, int in) {
  return param(m, name, (hp_shape){2, {out, in}});
}
/* x [B,T,I] -> [B,T,O] */
static hp_tensor linear(model *m, const char *name, hp_tensor x, int in, int out) {
  return hp_einsum(m->g, "btc,nc->btn", x, matrix(m, name, out, in));
}
static hp_tensor norm(model *m, const char *name, hp_tensor x) {
  return hp_rms_norm(m->g, x, param(m, name, (hp_shape){1, {C}}), 1e-5);
}
static hp_tensor mlp(model *m, hp_tensor x, int in) {
  x = hp_map(m->g, "gelu", linear(m, "up", x, in, F), HP_NONE, HP_NONE);
  return linear(m, "down", x, F, C);
}

/* x [B,n,C] attends to y [B,k,C]. */
static hp_tensor attend(model *m, hp_tensor x, int n, hp_tensor y, int k) {
  const hp_shape queries = {4, {B, n, H, C / H}}, keys = {4, {B, k, H, C / H}};
  hp_tensor q = hp_reshape(m->g, linear(m, "q", x, C, C), queries);
  hp_tensor key = hp_reshape(m->g, linear(m, "k", y, C, C), keys);
  hp_tensor value = hp_reshape(m->g, linear(m, "v", y, C, C), keys);
  x = hp_attention(m->g, q, key, value, NULL);
  return linear(m, "o", hp_reshape(m->g, x, (hp_shape){3, {B, n, C}}), C, C);
}

/* [B,P,C] */
static hp_tensor patches_tower(model *m) {
  hp_tensor x = hp_input(m->g, "patches", HP_F32, (hp_shape){3, {B, P, IN}});
  return hp_add(m->g, mlp(m, x, IN), matrix(m, "place", P, C));
}

/* [B,tokens,C] */
static hp_tensor text_tower(model *m) {
  hp_tensor ids = hp_input(m->g, "ids", HP_I32, (hp_shape){2, {B, m->tokens}});
  hp_tensor x = hp_embedding(m->g, matrix(m, "embedding", V, C), ids, -1);
  hp_tensor y = norm(m, "norm_attend", x);
  x = hp_add(m->g, x, attend(m, y, m->tokens, y, m->tokens));
  return hp_add(m->g, x, mlp(m, norm(m, "norm_mlp", x), C));
}

/* The last token reads what both towers have made: scores of the colours, [B,COLOURS]. */
static hp_tensor decoder(model *m, hp_tensor patches, hp_tensor text) {
  hp_tensor both = hp_concat(m->g, (hp_tensor[]){patches, text}, 2, 1);
  hp_tensor last = hp_slice(m->g, text, 1, m->tokens - 1, m->tokens);
  hp_tensor query = norm(m, "norm_query", last);
  hp_tensor y = attend(m, query, 1, norm(m, "norm_both", both), P + m->tokens);
  y = linear(m, "head", norm(m, "norm_head", hp_add(m->g, last, y)), C, COLOURS);
  return hp_reshape(m->g, y, (hp_shape){2, {B, COLOURS}});
}

/* A micro-batch: its loss, and gradients that are added to those of the micro-batches before it. */
static void build_micro(int length, bool is_first, int stages, model *m) {
  hp_tensor grad[PARAMS];
  *m = (model){.tokens = length};
  check(hp_graph_create(&m->g));
  begin(m, "patches", 0, stages);
  hp_tensor patches = patches_tower(m);
  begin(m, "text", 1, stages);
  hp_tensor text = text_tower(m);
  begin(m, "decoder", 2, stages);
  hp_tensor scores = decoder(m, patches, text);
  hp_tensor labels = hp_input(m->g, "labels", HP_I32, (hp_shape){1, {B}});
  hp_tensor each = hp_cross_entropy(m->g, scores, labels, -1);
  hp_tensor loss = hp_mean(m->g, each, (int64_t[]){0}, 1, false);
  hp_output(m->g, "loss", loss);
  check(hp_grad(m->g, loss, m->param, m->n, grad));
  for (int i = 0; i < m->n; i++) {
    char name[NAME + 8];
    snprintf(name, sizeof name, "%s.grad", m->name[i]);
    hp_stage(m->g, m->stage_of[i]);
    hp_tensor sum = hp_param(m->g, name, HP_F32, m->shape[i]);
    hp_assign(m->g, sum, is_first ? grad[i] : hp_add(m->g, sum, grad[i]));
  }
}

/* SGD with momentum, of the mean over the micro-batches. */
static hp_graph *build_update(const model *m) {
  hp_graph *g;
  check(hp_graph_create(&g));
  hp_update_phase(g);
  for (int i = 0; i < m->n; i++) {
    char grad[NAME + 8], momentum[NAME + 12];
    snprintf(grad, sizeof grad, "%s.grad", m->name[i]);
    snprintf(momentum, sizeof momentum, "%s.momentum", m->name[i]);
    hp_stage(g, m->stage_of[i]);
    hp_sgd(g, hp_param(g, m->name[i], HP_F32, m->shape[i]),
           hp_param(g, grad, HP_F32, m->shape[i]), hp_param(g, momentum, HP_F32, m->shape[i]),
           hp_const(g, HP_F32, 1.0 / MICROS), hp_const(g, HP_F32, 0.1), 0.9, 0);
  }
  return g;
}

/* --- devices and programs ----------------------------------------------------------------- */

/* The samples over dp; heads and columns of the feed-forward nets over tp.  A group whose degree is
 * 1 has all of them.  Gradients and momentum are like their params. */
static const hp_layout_rule layouts[] = {
    {"patches", "(dp,None,None)"}, {"ids", "(dp,None)"},    {"labels", "(dp)"},
    {"*.q*", "(tp,None)"},         {"*.k*", "(tp,None)"},   {"*.v*", "(tp,None)"},
    {"*.o*", "(None,tp)"},         {"*.up*", "(tp,None)"},  {"*.down*", "(None,tp)"}};

static hp_device *open_device(const char *groups, bool exact) {
  hp_device *d;
  hp_device_options o = {.mesh = groups,
                         .pipeline = groups && strchr(groups, ';') ? "1f1b" : NULL,
                         .layouts = layouts,
                         .n_layouts = groups ? sizeof layouts / sizeof *layouts : 0,
                         .no_partial_sums = exact};
  check(hp_device_open(&o, &d));
  return d;
}

static hp_piece *compile_micro(hp_device *d, int length, bool is_first, model *m) {
  hp_piece *piece;
  build_micro(length, is_first, hp_device_stages(d), m);
  check(hp_piece_compile(m->g, d, NULL, &piece));
  hp_graph_free(m->g);
  return piece;
}

/* A step: its micro-batches, then the update.  order[k]: the micro-batch that runs k-th, which is
 * looked for if order[0] is -1.  *m tells the params. */
static hp_program *compile_step(hp_device *d, int *order, model *m) {
  enum { FIRST = MICROS, UPDATE, PIECES };
  static const char *const action[PIECES] = {"a", "b", "c", "d", "first", "update"};
  char rows[16 * (MICROS + 1)];
  int at = 0;
  hp_piece *piece[PIECES];
  hp_program *step;
  for (int i = 0; i < MICROS; i++) {
    piece[i] = compile_micro(d, tokens[i], false, m);
    at += sprintf(rows + at, "* %s %d\n", action[i], i);
  }
  if (order[0] < 0) check(hp_link_order(piece, action, MICROS, rows, order));
  piece[FIRST] = compile_micro(d, tokens[order[0]], true, m);
  hp_graph *update = build_update(m);
  check(hp_piece_compile(update, d, NULL, &piece[UPDATE]));
  hp_graph_free(update);
  at = 0;
  for (int k = 0; k < MICROS; k++)
    at += sprintf(rows + at, "* %s %d\n", action[k ? order[k] : FIRST], k);
  sprintf(rows + at, "* update %d\n", MICROS - 1);
  check(hp_link(piece, action, PIECES, rows, &step));
  for (int i = 0; i < PIECES; i++) hp_piece_free(piece[i]);
  return step;
}

static size_t count(hp_shape s) { return (size_t)(s.dim[0] * (s.rank == 2 ? s.dim[1] : 1)); }

/* Norms begin with 1. */
static void fill_params(hp_device *d, const model *m) {
  static float x[F * C];
  uint64_t state = 5;
  for (int i = 0; i < m->n; i++) {
    double range = 1.7 / sqrt((double)(m->shape[i].rank == 2 ? m->shape[i].dim[1] : 1));
    for (size_t k = 0; k < count(m->shape[i]); k++)
      x[k] = m->shape[i].rank < 2 ? 1 : (float)((chance(&state, 2001) / 1000.0 - 1) * range);
    check(hp_write(d, m->name[i], x, count(m->shape[i]) * sizeof *x));
  }
}

/* --- training ----------------------------------------------------------------------------- */

typedef struct {
  int tokens;
  float patches[B][P][IN];
  int32_t ids[B * T], labels[B]; /* ids [B,tokens] */
  float loss;
} batch;

/* A patch is its colour and noise.  The last word of the text, the number of a patch, asks for its
 * colour. */
static void draw(uint64_t *state, batch *b) {
  for (int i = 0; i < B; i++) {
    int colour[P];
    for (int p = 0; p < P; p++) {
      colour[p] = (int)chance(state, COLOURS);
      for (int k = 0; k < IN; k++)
        b->patches[i][p][k] = (float)(k % COLOURS == colour[p]) + (float)chance(state, 100) / 200;
    }
    int32_t *text = &b->ids[i * b->tokens];
    for (int t = 0; t < b->tokens; t++) text[t] = (int32_t)(P + chance(state, V - P));
    int asked = (int)chance(state, P);
    text[b->tokens - 1] = asked;
    b->labels[i] = colour[asked];
  }
}

/* What a training comes to: the loss of each step, and all weights. */
typedef struct {
  float *loss, *weights;
  size_t n;
} result;

static float run_step(hp_program *step, batch *b, uint64_t *state) {
  enum { EACH = 4 };
  char name[EACH * MICROS][16];
  hp_io io[EACH * MICROS];
  float loss = 0;
  for (int i = 0; i < MICROS; i++) {
    const hp_io of[EACH] = {{"patches", b[i].patches, sizeof b[i].patches},
                            {"ids", b[i].ids, sizeof(int32_t[B]) * (size_t)b[i].tokens},
                            {"labels", b[i].labels, sizeof b[i].labels},
                            {"loss", &b[i].loss, sizeof b[i].loss}};
    draw(state, &b[i]);
    for (int k = 0; k < EACH; k++) {
      snprintf(name[EACH * i + k], sizeof name[0], "%s@%d", of[k].name, i);
      io[EACH * i + k] = (hp_io){name[EACH * i + k], of[k].data, of[k].bytes};
    }
  }
  check(hp_run(step, io, EACH * MICROS));
  for (int i = 0; i < MICROS; i++) loss += b[i].loss / MICROS;
  return loss;
}

/* order: of the micro-batches, as compile_step. */
static void train(const char *groups, bool exact, int steps, int *order, result *out) {
  static batch b[MICROS];
  static model m;
  uint64_t state = 1;
  hp_device *d = open_device(groups, exact);
  hp_program *step = compile_step(d, order, &m);
  printf("%s; texts of", hp_device_describe(d));
  for (int k = 0; k < MICROS; k++) printf(" %d", b[k].tokens = tokens[order[k]]);
  printf(" tokens\n");
  fill_params(d, &m);
  *out = (result){.loss = calloc((size_t)steps, sizeof(float)),
                  .weights = calloc((size_t)PARAMS * F * C, sizeof(float))};
  if (!out->loss || !out->weights) {
    fprintf(stderr, "two_towers: out of memory\n");
    exit(1);
  }
  for (int i = 0; i < steps; i++) {
    out->loss[i] = run_step(step, b, &state);
    if (i == 0 || (i + 1) % 10 == 0 || i + 1 == steps)
      printf("step %4d  loss %.5f\n", i + 1, (double)out->loss[i]);
  }
  for (int i = 0; i < m.n; i++) {
    size_t n = count(m.shape[i]);
    check(hp_read(d, m.name[i], out->weights + out->n, n * sizeof(float)));
    out->n += n;
  }
  hp_program_free(step);
  hp_device_close(d);
}

static double largest_difference(const float *a, const float *b, size_t n) {
  double largest = 0;
  for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)a[i] - (double)b[i]));
  return largest;
}

int main(int argc, char **argv) {
  int steps = argc > 1 ? atoi(argv[1]) : 300;
  const char *groups = argc > 2 ? argv[2] : NULL;
  bool exact = argc > 3 && !strcmp(argv[3], "exact");
  int order[MICROS] = {-1};
  result many = {0}, one;
  if (steps < 1 || argc > 4 || (argc > 3 && !exact)) {
    fprintf(stderr, "usage: two_towers [STEPS [GROUPS [exact]]], STEPS at least 1\n");
    return 2;
  }
  if (groups) train(groups, exact, steps, order, &many);
  train(NULL, exact, steps, order, &one);
  if (groups)
    printf("differences to one device: losses %.1e, weights %.1e\n",
           largest_difference(many.loss, one.loss, (size_t)steps),
           largest_difference(many.weights, one.weights, one.n));
  free(many.loss);
  free(many.weights);
  free(one.loss);
  free(one.weights);
  return 0;
}
