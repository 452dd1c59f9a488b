/* Rows of a step in any order that keeps the order of sums give the bits of the order of its
 * micro-batches, for models of several families, sharded or not. */
#include "base/io.h"
#include "base/philox.h"
#include "base/str.h"
#include "model/placement.h"
#include "test.h"
#include "train/step_pieces.h"

#include <stdlib.h>

enum { MICROS = 3, ACTIONS_OF_MICRO = 3, ROWS = 4, TOKENS = 16, VOCAB = 64, ALL = 1 << 20 };

#define GPT2                                                                                       \
  "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_inner\": 48, \"n_head\": 4, \"n_layer\": 2, "    \
  "\"vocab_size\": 64, \"n_positions\": 64, \"activation_function\": \"gelu_new\", "               \
  "\"embd_pdrop\": 0.1, \"resid_pdrop\": 0.1, \"attn_pdrop\": 0.1}"
#define MOE                                                                                        \
  "{\"model_type\": \"mixtral\", \"hidden_size\": 32, \"intermediate_size\": 48, "                 \
  "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"num_hidden_layers\": 2, "             \
  "\"vocab_size\": 64, \"max_position_embeddings\": 64, \"num_local_experts\": 4, "                \
  "\"num_experts_per_tok\": 2, \"output_router_logits\": true, \"router_aux_loss_coef\": 0.02}"
#define TIED                                                                                       \
  "{\"model_type\": \"llama\", \"hidden_size\": 32, \"intermediate_size\": 48, "                   \
  "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"num_hidden_layers\": 2, "             \
  "\"vocab_size\": 64, \"max_position_embeddings\": 64, \"tie_word_embeddings\": true}"

static const struct {
  const char *config, *devices;
  bool dropout, remat;
  hp_dtype compute;
  uint64_t chunk_bytes;
  int64_t interleave;
} cases[] = {
    {TIED, NULL, false, true, HP_BF16, 4096, 0},
    {GPT2, "dp=2,tp=2", true, true, HP_F32, 0, 0},
    {MOE, "dp=2,ep=2,zero=2", false, false, HP_F32, 0, 2},
};

typedef struct {
  hp_device *d;
  lm *m;
  step_pieces pieces;
  float *state; /* of all params, one after the other */
  size_t n;
} job;

static void open_job(int i, job *j) {
  char path[512];
  const char *on = NULL;
  str mesh = {0};
  placement s;
  *j = (job){.state = calloc(ALL, sizeof(float))};
  snprintf(path, sizeof path, "%s/config.json", test_dir());
  CHECK_OK(file_write(path, cases[i].config, strlen(cases[i].config)));
  hp_device_options o = {.threads = 1, .interpret = true};
  if (cases[i].devices) CHECK_OK(placement_parse(cases[i].devices, 0, &s));
  if (cases[i].devices) CHECK_OK(placement_mesh(&s, &mesh, &on));
  o.mesh = on;
  CHECK_OK(hp_device_open(&o, &j->d));
  str_free(&mesh);
  lm_options how = {.compute = cases[i].compute, .weights = HP_F32};
  CHECK_OK(lm_create(path, j->d, &how, &j->m));
  if (cases[i].devices) CHECK_OK(placement_apply(&s, j->m, j->d));
  CHECK_OK(lm_init(j->m, 5));
  j->pieces = (step_pieces){.m = j->m, .d = j->d};
  j->pieces.o =
      (step_options){.optimizer = {OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8},
                     .clip = 1,
                     .dropout = cases[i].dropout,
                     .interleave = cases[i].interleave};
  j->pieces.o.compile.remat = cases[i].remat;
  j->pieces.o.compile.chunk_bytes = cases[i].chunk_bytes;
}

static void close_job(job *j) {
  step_pieces_free(&j->pieces);
  lm_free(j->m);
  hp_device_close(j->d);
  free(j->state);
}

static int micro_of(const char *name) {
  const char *at = strrchr(name, '@');
  return at ? atoi(at + 1) : 0;
}

/* The value of input `name` of the program for element k. */
static void fill(const char *name, hp_dtype t, size_t n, void *to) {
  int m = micro_of(name);
  for (size_t k = 0; k < n; k++) {
    int64_t x = (int64_t)(philox_u32(7, (uint64_t)m, k) % VOCAB);
    float y = !strncmp(name, "weight", 6) ? 0.01f : !strncmp(name, "lr", 2) ? 1e-2f : 1;
    if (!strncmp(name, "labels", 6)) x = (x * 5 + 1) % VOCAB;
    if (!strncmp(name, "positions", 9)) x = (int64_t)k % TOKENS;
    if (!strncmp(name, "lengths", 7)) x = TOKENS - (int64_t)k;
    if (t == HP_F32) ((float *)to)[k] = y;
    else if (t == HP_I32) ((int32_t *)to)[k] = (int32_t)x;
    else ((int64_t *)to)[k] = 1000 + m;
  }
}

static void run(hp_program *p) {
  enum { IOS = 64 };
  hp_io io[IOS];
  int n = hp_program_io_count(p);
  CHECK(n <= IOS);
  for (int i = 0; i < n; i++) {
    const char *name;
    hp_dtype t;
    hp_shape s;
    bool is_output;
    size_t count = 1;
    CHECK_OK(hp_program_io_info(p, i, &name, &t, &s, &is_output));
    for (int k = 0; k < s.rank; k++) count *= (size_t)s.dim[k];
    size_t bytes = count * (t == HP_I64 ? 8 : 4);
    io[i] = (hp_io){name, calloc(1, bytes), bytes};
    if (!is_output) fill(name, t, count, io[i].data);
  }
  for (int k = 0; k < 2; k++) CHECK_OK(hp_run(p, io, n));
  for (int i = 0; i < n; i++) free(io[i].data);
}

static void read_state(job *j) {
  for (int i = 0; i < hp_param_count(j->d); i++) {
    const char *name;
    hp_dtype t;
    hp_shape s;
    size_t count = 1;
    CHECK_OK(hp_param_info(j->d, i, &name, &t, &s));
    for (int k = 0; k < s.rank; k++) count *= (size_t)s.dim[k];
    if (t != HP_F32 || !strncmp(name, "g.", 2)) continue; /* partial sums */
    CHECK(j->n + count <= ALL);
    CHECK_OK(hp_read(j->d, name, j->state + j->n, count * sizeof(float)));
    j->n += count;
  }
}

/* Rows NAME:F, NAME:B, NAME:W of the micro-batches, drawn from those that may come next: each
 * action keeps the order of the micro-batches.  Seed 0: all forwards, backwards, weights. */
static void shuffle(const step_link *l, const char *const *name, uint64_t seed, str *rows) {
  int next[ACTIONS_OF_MICRO] = {0};
  for (uint64_t k = 0; k < ACTIONS_OF_MICRO * MICROS;) {
    int a = 0;
    for (uint64_t tries = 0; seed && tries < 99; tries++) {
      a = (int)(philox_u32(seed, k, tries) % ACTIONS_OF_MICRO);
      if (next[a] < MICROS && (!a || next[a] < next[a - 1])) break;
    }
    while (!seed && next[a] == MICROS) a++;
    str_printf(rows, "0 %s:%c %d\n", name[next[a]], "FBW"[a], next[a]);
    next[a]++;
    k++;
  }
  str_printf(rows, "0 %s %d\n", l->action[l->n - 1], MICROS - 1);
}

/* Seed -1: in the order of the micro-batches. */
static void run_order(int i, int seed, job *j) {
  static const micro_shape shape[MICROS] = {{ROWS, TOKENS}, {ROWS, TOKENS}, {ROWS, TOKENS}};
  step_link l;
  hp_program *p;
  str rows = {0};
  open_job(i, j);
  CHECK_OK(step_pieces_link(&j->pieces, &(step_spec){.shape = shape, .n = MICROS}, &l));
  const char *name[MICROS] = {l.action[0], l.action[1], l.action[1]};
  CHECK_EQ(l.n, 3);
  if (seed >= 0) shuffle(&l, name, (uint64_t)seed, &rows);
  CHECK_OK(hp_link(l.piece, l.action, l.n, seed < 0 ? l.rows : rows.at, &p));
  run(p);
  read_state(j);
  hp_program_free(p);
  step_link_free(&l);
  str_free(&rows);
}

TEST(rows_in_any_order_that_keeps_sums_give_the_same_bits) {
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    job in_order;
    run_order(i, -1, &in_order);
    for (int seed = 0; seed < 2; seed++) {
      job other;
      run_order(i, seed, &other);
      CHECK_EQ(other.n, in_order.n);
      CHECK_EQ(memcmp(other.state, in_order.state, other.n * sizeof *other.state), 0);
      close_job(&other);
    }
    close_job(&in_order);
  }
}
