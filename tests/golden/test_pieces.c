/* Training steps whose logits are made in pieces: the bits of steps that store them whole, with
 * padding, dropout, several micro-batches and parts of them side by side. */
#include "base/mem.h"
#include "test.h"
#include "train/step.h"

enum { B = 4, T = 24, TOKENS = B * T, MICROS = 2, STEPS = 2, IGNORE = -100 };
static const int32_t lengths[B] = {T, 17, 3, T};
static const uint64_t never = UINT64_MAX;

typedef struct {
  const char *model;
  bool dropout;
  int64_t interleave;
  hp_dtype compute;
} setting;

/* What is left of some steps: their results, and the bytes of all parameters. */
typedef struct {
  step_result result[STEPS];
  char *weights;
  size_t bytes;
} outcome;

static void fill(const lm *m, int micro, int32_t *ids, int32_t *labels) {
  for (int i = 0; i < TOKENS; i++) ids[i] = (int32_t)((i * 31 + micro * 11 + 5) % m->c.vocab);
  for (int i = 0; i < TOKENS; i++) labels[i] = i % T + 1 < lengths[i / T] ? ids[i + 1] : IGNORE;
}

static void run_steps(const lm *m, stepper *s, outcome *out) {
  int32_t ids[MICROS][TOKENS], labels[MICROS][TOKENS];
  step_micro b[MICROS];
  for (int k = 0; k < MICROS; k++) {
    fill(m, k, ids[k], labels[k]);
    b[k] = (step_micro){.B = B,
                        .T = T,
                        .ids = ids[k],
                        .labels = labels[k],
                        .lengths = lengths,
                        .weight = 1.0 / (MICROS * TOKENS)};
  }
  for (int step = 0; step < STEPS; step++)
    CHECK_OK(stepper_run(s, b, MICROS, &(step_update){.lr = 1e-2, .t = step + 1}, NULL,
                         &out->result[step]));
}

static void read_weights(const lm *m, outcome *out) {
  for (size_t i = 0; i < m->trained; i++)
    out->bytes += (size_t)model_param_elements(&m->params.at[i]) * sizeof(float);
  CHECK((out->weights = mem_calloc(out->bytes, 1)));
  char *at = out->weights;
  for (size_t i = 0; i < m->trained; i++) {
    size_t n = (size_t)model_param_elements(&m->params.at[i]) * sizeof(float);
    CHECK_OK(hp_read(m->d, m->params.at[i].name, at, n));
    at += n;
  }
}

/* Is the logits' value told to be in pieces? */
static bool in_pieces(const stepper *s) {
  char *text;
  CHECK_OK(hp_explain(stepper_program(s), "memory", &text));
  bool found = strstr(text, "never stored") != NULL;
  hp_free(text);
  return found;
}

static void train(const setting *c, bool pieces, outcome *out) {
  char path[512];
  hp_device *d;
  lm *m;
  stepper *s;
  snprintf(path, sizeof path, "tests/golden/cases/%s", c->model);
  *out = (outcome){0};
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 2, .interpret = true}, &d));
  CHECK_OK(lm_create(path, d, &(lm_options){.compute = c->compute, .weights = HP_F32}, &m));
  CHECK_OK(lm_load(m, path));
  step_options o = {.optimizer = {OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
                    .clip = 1,
                    .dropout = c->dropout,
                    .seed = 3,
                    .interleave = c->interleave,
                    .compile = {.chunk_bytes =
                                    pieces ? (uint64_t)(TOKENS * m->c.vocab) / 2 : never}};
  CHECK_OK(stepper_create(m, &o, &s));
  run_steps(m, s, out);
  CHECK_EQ(in_pieces(s), pieces);
  read_weights(m, out);
  stepper_free(s);
  lm_free(m);
  hp_device_close(d);
}

static void compare(setting c) {
  outcome whole, pieces;
  train(&c, false, &whole);
  train(&c, true, &pieces);
  CHECK(whole.result[0].loss > 0);
  CHECK(!memcmp(whole.result, pieces.result, sizeof whole.result));
  CHECK_EQ(whole.bytes, pieces.bytes);
  CHECK(!memcmp(whole.weights, pieces.weights, whole.bytes));
  mem_free(whole.weights);
  mem_free(pieces.weights);
}

TEST(chunks_of_padded_sequences_have_the_bits_of_the_whole) {
  compare((setting){.model = "qwen3-bias-tied"});
  compare((setting){.model = "mixtral-pad"});
  compare((setting){.model = "deepseekv3-yarn"});
}

TEST(chunks_of_a_model_with_dropout_have_the_bits_of_the_whole) {
  compare((setting){.model = "gpt2-base-names", .dropout = true});
}

TEST(chunks_of_interleaved_parts_have_the_bits_of_the_whole) {
  compare((setting){.model = "qwen3-bias-tied", .interleave = 2});
}

TEST(chunks_of_16_bit_products_have_the_bits_of_the_whole) {
  compare((setting){.model = "qwen3-bias-tied", .compute = HP_BF16});
}
