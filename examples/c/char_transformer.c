/* A transformer that writes text character by character: two blocks of attention and a feed-forward
 * net, width 64, learned positions, trained with AdamW.
 *
 *   cc -o char_transformer char_transformer.c -lm -lhyperparallel
 *   ./char_transformer [STEPS [TEXT FILE]]
 *
 * Without a file the text is made of short sentences of a small grammar.  At the end it writes some. */
#include <hyperparallel.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 16, T = 32, C = 64, H = 4, F = 4 * C, V = 128, LAYERS = 2, TEXT_MAX = 1 << 20 };

static void check(hp_status s) {
  if (s == HP_OK) return;
  fprintf(stderr, "char_transformer: %s\n", hp_last_error());
  exit(1);
}

static uint32_t chance(uint32_t below) {
  static uint64_t state = 3;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

static char text[TEXT_MAX];

static size_t make_text(void) {
  static const char *who[] = {"cat", "dog", "bird", "fox"}, *does[] = {"sees", "likes", "follows"};
  size_t n = 0;
  while (n < 20000)
    n += (size_t)sprintf(text + n, "the %s %s the %s.\n", who[chance(4)], does[chance(3)],
                         who[chance(4)]);
  return n;
}

/* Bytes above 127 become '?'. */
static size_t read_text(const char *path) {
  FILE *f = fopen(path, "rb");
  size_t n = f ? fread(text, 1, TEXT_MAX, f) : 0;
  if (n <= T) {
    fprintf(stderr, "char_transformer: %s is not there, or shorter than %d bytes\n", path, T + 1);
    exit(1);
  }
  fclose(f);
  for (size_t i = 0; i < n; i++)
    if (text[i] & 0x80) text[i] = '?';
  return n;
}

/* --- the model ---------------------------------------------------------------------------- */

/* The params of a graph, in the order in which the model asks for them. */
typedef struct {
  hp_graph *g;
  hp_tensor param[64];
  hp_shape shape[64];
  char name[64][16];
  int n;
} model;

static hp_tensor param(model *m, hp_shape s) {
  snprintf(m->name[m->n], sizeof m->name[0], "p%d", m->n);
  m->shape[m->n] = s;
  m->param[m->n] = hp_param(m->g, m->name[m->n], HP_F32, s);
  return m->param[m->n++];
}
static hp_tensor matrix(model *m, int out, int in) { return param(m, (hp_shape){2, {out, in}}); }
static hp_tensor linear(model *m, hp_tensor x, int in, int out) {
  return hp_einsum(m->g, "btc,nc->btn", x, matrix(m, out, in));
}
static hp_tensor norm(model *m, hp_tensor x) {
  return hp_rms_norm(m->g, x, param(m, (hp_shape){1, {C}}), 1e-5);
}

/* x [B,T,C]: x + attention(norm(x)), then x + feed-forward(norm(x)). */
static hp_tensor block(model *m, hp_tensor x) {
  const hp_shape heads = {4, {B, T, H, C / H}};
  hp_tensor y = norm(m, x);
  hp_tensor q = hp_reshape(m->g, linear(m, y, C, C), heads);
  hp_tensor k = hp_reshape(m->g, linear(m, y, C, C), heads);
  hp_tensor v = hp_reshape(m->g, linear(m, y, C, C), heads);
  y = hp_attention(m->g, q, k, v, &(hp_attention_options){.causal = true});
  x = hp_add(m->g, x, linear(m, hp_reshape(m->g, y, (hp_shape){3, {B, T, C}}), C, C));
  y = hp_map(m->g, "gelu", linear(m, norm(m, x), C, F), HP_NONE, HP_NONE);
  return hp_add(m->g, x, linear(m, y, F, C));
}

/* Scores of the next character, [B,T,V]. */
static hp_tensor forward(model *m) {
  hp_tensor ids = hp_input(m->g, "ids", HP_I32, (hp_shape){2, {B, T}});
  hp_tensor x = hp_embedding(m->g, matrix(m, V, C), ids, -1);
  x = hp_add(m->g, x, matrix(m, T, C));
  for (int i = 0; i < LAYERS; i++) {
    hp_block(m->g, i + 1);
    x = block(m, x);
  }
  hp_block(m->g, 0);
  return linear(m, norm(m, x), C, V);
}

static void add_training(model *m, hp_tensor scores) {
  hp_tensor grad[64], labels = hp_input(m->g, "labels", HP_I32, (hp_shape){2, {B, T}});
  hp_tensor each = hp_cross_entropy(m->g, scores, labels, -1);
  hp_tensor loss = hp_mean(m->g, each, (int64_t[]){0, 1}, 2, false);
  hp_output(m->g, "loss", loss);
  check(hp_grad(m->g, loss, m->param, m->n, grad));
  hp_update_phase(m->g);
  hp_tensor one = hp_const(m->g, HP_F32, 1), lr = hp_const(m->g, HP_F32, 3e-3);
  hp_tensor step = hp_input(m->g, "step", HP_F32, (hp_shape){0});
  hp_tensor root = hp_input(m->g, "root", HP_F32, (hp_shape){0});
  for (int i = 0; i < m->n; i++) {
    char name[32];
    snprintf(name, sizeof name, "%s.m", m->name[i]);
    hp_tensor mean = hp_param(m->g, name, HP_F32, m->shape[i]);
    snprintf(name, sizeof name, "%s.v", m->name[i]);
    hp_tensor square = hp_param(m->g, name, HP_F32, m->shape[i]);
    hp_adamw(m->g, m->param[i], grad[i], mean, square, one, lr, step, root,
             &(hp_adamw_options){0.9, 0.99, 1e-8, 0.01});
  }
}

static hp_program *compile(hp_device *d, bool training, model *m) {
  hp_program *program;
  *m = (model){0};
  check(hp_graph_create(&m->g));
  hp_tensor scores = forward(m);
  if (training) add_training(m, scores);
  else hp_output(m->g, "next", hp_argmax(m->g, scores));
  check(hp_compile(m->g, d, NULL, &program));
  hp_graph_free(m->g);
  return program;
}

static void fill_params(hp_device *d, const model *m) {
  static float x[F * C];
  for (int i = 0; i < m->n; i++) {
    int64_t rows = m->shape[i].dim[0], cols = m->shape[i].rank == 2 ? m->shape[i].dim[1] : 0;
    int64_t n = cols ? rows * cols : rows;
    for (int64_t k = 0; k < n; k++) /* norms begin with 1 */
      x[k] = cols ? (float)((chance(2001) / 1000.0 - 1) * 1.7 / sqrt((double)cols)) : 1;
    check(hp_write(d, m->name[i], x, (size_t)n * sizeof *x));
  }
}

/* Writes n characters behind a beginning; all rows of the batch are the same one. */
static void write_text(hp_program *answering, const char *begin, int n) {
  static int32_t ids[B][T], next[B][T];
  int at = (int)strlen(begin);
  for (int i = 0; i < at; i++) ids[0][i] = begin[i];
  printf("%s", begin);
  for (int i = 0; i < n; i++) {
    hp_io io[] = {{"ids", ids, sizeof ids}, {"next", next, sizeof next}};
    check(hp_run(answering, io, 2));
    int c = next[0][at - 1];
    putchar(c);
    if (at == T) memmove(ids[0], ids[0] + 1, sizeof(int32_t) * (T - 1));
    else at++;
    ids[0][at - 1] = c;
  }
  putchar('\n');
}

int main(int argc, char **argv) {
  static int32_t ids[B][T], labels[B][T], next[B][T];
  int steps = argc > 1 ? atoi(argv[1]) : 400, right = 0;
  size_t n = argc > 2 ? read_text(argv[2]) : make_text();
  model m;
  hp_device *d;
  check(hp_device_open(NULL, &d));
  hp_program *answering = compile(d, false, &m), *training = compile(d, true, &m);
  fill_params(d, &m);
  for (int i = 1; i <= steps + 1; i++) {
    float loss = 0, root = (float)sqrt(1 - pow(0.99, i)), step = (float)(3e-3 / (1 - pow(0.9, i)));
    for (int b = 0; b < B; b++) {
      size_t from = chance((uint32_t)(n - T));
      for (int t = 0; t < T; t++) ids[b][t] = text[from + (size_t)t], labels[b][t] = text[from + (size_t)t + 1];
    }
    if (i > steps) break; /* the last batch is for the accuracy */
    hp_io io[] = {{"ids", ids, sizeof ids}, {"labels", labels, sizeof labels}, {"step", &step, 4},
                  {"root", &root, 4},       {"loss", &loss, 4}};
    check(hp_run(training, io, 5));
    if (i == 1 || i % 50 == 0) printf("step %4d  loss %.4f\n", i, (double)loss);
  }
  hp_io ask[] = {{"ids", ids, sizeof ids}, {"next", next, sizeof next}};
  check(hp_run(answering, ask, 2));
  for (int b = 0; b < B; b++)
    for (int t = 0; t < T; t++) right += next[b][t] == labels[b][t];
  printf("accuracy %.1f %% of the next characters\n", 100.0 * right / (B * T));
  write_text(answering, "the ", 100);
  hp_program_free(training);
  hp_program_free(answering);
  hp_device_close(d);
  return 0;
}
