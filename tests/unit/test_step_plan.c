/* What the plan of a training step keeps. */
#include "base/io.h"
#include "test.h"
#include "train/step.h"

/* Many tokens for so few weights, so that what is kept for the backward is most at its start. */
enum { B = 4, T = 256, WIDTH = 64, HEADS = 4, WIDE = 256 };

static const char llama[] = "{\"model_type\": \"llama\", \"hidden_size\": 64, "
                            "\"intermediate_size\": 256, \"num_attention_heads\": 4, "
                            "\"num_key_value_heads\": 4, \"num_hidden_layers\": %d, "
                            "\"vocab_size\": 64, \"max_position_embeddings\": 512}";
static const char gpt2[] = "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_inner\": 256, "
                           "\"n_head\": 4, \"n_layer\": %d, \"vocab_size\": 64, "
                           "\"n_positions\": 512, \"activation_function\": \"gelu_new\"}";

/* Work memory of a step of the model with so many layers. */
static double work_bytes(const char *config, int layers, hp_dtype compute) {
  char path[512], text[512];
  hp_device *d;
  lm *m;
  hp_program_stats s;
  int n = snprintf(text, sizeof text, config, layers);
  snprintf(path, sizeof path, "%s/config.json", test_dir());
  CHECK_OK(file_write(path, text, (size_t)n));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .plan_only = true}, &d));
  CHECK_OK(lm_create(path, d, &(lm_options){.compute = compute, .weights = HP_F32}, &m));
  step_options o = {.optimizer = STEP_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1};
  CHECK_OK(stepper_plan(m, &o, B, T, d, &s, NULL, NULL));
  lm_free(m);
  hp_device_close(d);
  return (double)s.work_bytes;
}

/* Bytes that a layer more takes, as f32 numbers a token. */
static double kept(const char *config, hp_dtype compute) {
  double more = work_bytes(config, 3, compute) - work_bytes(config, 2, compute);
  return more / (B * T * sizeof(float));
}

/* Numbers of rows: what attention and norms keep, and a bit more. */
enum { ROWS = HEADS + 8 };

/* x twice, q, k, v, what attention gives, and of the MLP what its activation is made of; not what
 * norms give, nor the activation. */
TEST(a_layer_keeps_what_no_loop_makes_again_from_what_is_kept) {
  CHECK(kept(llama, HP_F32) <= 6 * WIDTH + 2 * WIDE + ROWS);
  CHECK(kept(gpt2, HP_F32) <= 6 * WIDTH + WIDE + ROWS);
}

/* All but x is of bf16, and so is a copy of the weights. */
TEST(a_layer_of_bf16_products_keeps_no_f32_beside_them) {
  double weights = (4.0 * WIDTH * WIDTH + 3 * WIDTH * WIDE) / 2 / (B * T);
  CHECK(kept(llama, HP_BF16) <= 2 * WIDTH + (4 * WIDTH + 2 * WIDE) / 2 + weights + ROWS);
}
