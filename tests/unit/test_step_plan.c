/* What the plan of a training step keeps. */
#include "base/io.h"
#include "base/thread.h"
#include "model/placement.h"
#include "test.h"
#include "train/step.h"
#include "train/step_memory.h"

/* Many tokens for so few weights, so that what is kept for the backward is most at its start. */
enum { B = 4, T = 256, WIDTH = 64, HEADS = 4, WIDE = 256 };

static const char llama[] = "{\"model_type\": \"llama\", \"hidden_size\": 64, "
                            "\"intermediate_size\": 256, \"num_attention_heads\": 4, "
                            "\"num_key_value_heads\": 4, \"num_hidden_layers\": %d, "
                            "\"vocab_size\": 64, \"max_position_embeddings\": 512}";
static const char gpt2[] = "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_inner\": 256, "
                           "\"n_head\": 4, \"n_layer\": %d, \"vocab_size\": 64, "
                           "\"n_positions\": 512, \"activation_function\": \"gelu_new\"}";

static const step_options adamw = {.optimizer = {OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99,
                                                 .eps = 1e-8},
                                   .clip = 1};

static const planned_program whole_step = {{B, T}, 1};

static char test_config[512];

/* The configuration with so many layers, at test_config. */
static void write_config(const char *config, int layers) {
  char text[512];
  int n = snprintf(text, sizeof text, config, layers);
  snprintf(test_config, sizeof test_config, "%s/config.json", test_dir());
  CHECK_OK(file_write(test_config, text, (size_t)n));
}

/* The model with so many layers. */
static lm *open_model(const char *config, int layers, hp_dtype compute, bool plan_only,
                      hp_device **d) {
  lm *m;
  write_config(config, layers);
  hp_device_options o = {.threads = 1, .plan_only = plan_only};
  CHECK_OK(hp_device_open(&o, d));
  CHECK_OK(lm_create(test_config, *d, &(lm_options){.compute = compute, .weights = HP_F32}, &m));
  return m;
}

/* Work memory of a step of the model with so many layers. */
static double work_bytes(const char *config, int layers, hp_dtype compute) {
  hp_device *d;
  step_planner *p;
  step_memory s;
  lm *m = open_model(config, layers, compute, true, &d);
  CHECK_OK(step_planner_create(m, &adamw, &(step_work){&whole_step, 1}, d, false, &p));
  CHECK_OK(step_memory_plan(p, &s, NULL, NULL));
  step_planner_free(p);
  lm_free(m);
  hp_device_close(d);
  return (double)s.stats.memory.work_bytes;
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

enum { INPUTS = 2048 }; /* bytes of a micro-batch, of all of them from the start of the step */

/* Most work memory of n micro-batches of few tokens, so that gradients are most of it. */
static double work_of(int n, double *params) {
  hp_device *d;
  stepper *s;
  lm *m = open_model(llama, 4, HP_F32, false, &d);
  step_micro b[3];
  for (int i = 0; i < n; i++) b[i] = (step_micro){.B = 1, .T = 16};
  CHECK_OK(stepper_create(m, &adamw, &s));
  CHECK_OK(stepper_prepare(s, b, n));
  double bytes = (double)stepper_work_bytes(s);
  *params = 0;
  for (size_t i = 0; i < m->params.len; i++)
    *params += (double)(model_param_elements(&m->params.at[i]) * sizeof(float));
  stepper_free(s);
  lm_free(m);
  hp_device_close(d);
  return bytes;
}

/* Those of one micro-batch lie in work memory; those of several are tensors of the device, and what
 * a micro-batch adds to them is nowhere next to them. */
TEST(gradients_that_are_summed_need_no_work_memory) {
  double params, alone = work_of(1, &params);
  CHECK(alone >= params);
  for (int n = 2; n <= 3; n++) CHECK(work_of(n, &params) <= alone - params * 3 / 4 + n * INPUTS);
}

/* The plan of a step of n micro-batches on the devices of a strategy. */
static hp_memory plan_on(const char *devices, int n, bool serial) {
  step_options how = adamw;
  how.compile.serial = serial;
  planned_program step = {{8, 16}, n};
  placement s;
  const char *on;
  str mesh = {0};
  hp_device *d;
  lm *m;
  step_planner *p;
  step_memory out;
  CHECK_OK(placement_parse(devices, 0, &s));
  CHECK_OK(placement_mesh(&s, &mesh, &on));
  hp_device_options o = {.threads = 1, .plan_only = true, .mesh = on};
  write_config(llama, 8);
  CHECK_OK(hp_device_open(&o, &d));
  str_free(&mesh);
  CHECK_OK(lm_create(test_config, d, &(lm_options){.compute = HP_F32, .weights = HP_F32}, &m));
  CHECK_OK(placement_apply(&s, m, d));
  CHECK_OK(step_planner_create(m, &how, &(step_work){&step, 1}, d, false, &p));
  CHECK_OK(step_memory_plan(p, &out, NULL, NULL));
  step_planner_free(p);
  lm_free(m);
  hp_device_close(d);
  return out.stats.memory;
}

/* Params, sums of gradients and the two states of AdamW are of one size each, whichever piece of
 * the step uses them. */
TEST(tensors_of_a_step_of_several_pieces_have_the_class_of_their_first_use) {
  for (int n = 1; n <= 2; n++) {
    hp_memory m = plan_on(n == 1 ? "dp=1" : "dp=2", 3, false);
    uint64_t params = m.model[HP_MEMORY_PARAMS];
    CHECK(params > 0);
    CHECK_EQ(m.model[HP_MEMORY_GRADIENTS], params);
    CHECK_EQ(m.model[HP_MEMORY_OPTIMIZER], 2 * params);
    CHECK_EQ(m.state[HP_MEMORY_GRADIENTS], m.state[HP_MEMORY_PARAMS]);
  }
}

/* Without a limit, collectives that fall behind computation in one micro-batch do not fall further
 * behind in the next, and so hold no more memory. */
TEST(overlap_in_many_micro_batches_takes_no_more_memory_than_in_few) {
  static const struct {
    const char *devices;
    double most; /* of the memory without overlap; what falls behind takes 1.5 and more */
  } row[] = {{"dp=4", 1.25}, {"dp=4,zero=1", 1.35}, {"dp=2,tp=2,zero=2", 1.15}};
  for (int i = 0; i < 3; i++) {
    double serial = (double)plan_on(row[i].devices, 4, true).work_bytes;
    for (int n = 2; n <= 4; n++)
      CHECK((double)plan_on(row[i].devices, n, false).work_bytes <= row[i].most * serial);
  }
}

/* A gradient is reduced when it is complete: from then on a device has its shard alone. */
TEST(a_backward_holds_few_gradients_that_are_not_reduced) {
  hp_memory m = plan_on("dp=4,zero=3", 2, true);
  CHECK(m.work_bytes < m.model[HP_MEMORY_GRADIENTS]);
}

/* Plans under a limit are taken to need eight times as long as those without one: in four times as
 * long none is begun. */
TEST(the_search_for_limits_keeps_to_its_time) {
  hp_device *d;
  step_planner *p;
  step_memory planned;
  step_limits out;
  double least_s = 1e9;
  lm *m = open_model(llama, 2, HP_F32, true, &d);
  CHECK_OK(step_planner_create(m, &adamw, &(step_work){&whole_step, 1}, d, false, &p));
  for (int i = 0; i < 8; i++) {
    double start = time_now_s();
    CHECK_OK(step_memory_plan(p, &planned, NULL, NULL));
    if (time_now_s() - start < least_s) least_s = time_now_s() - start;
  }
  CHECK_OK(step_memory_limits(p, 0, 4 * least_s, &out));
  CHECK(out.resident > 0);
  CHECK_EQ(out.enough, 0);
  CHECK_OK(step_memory_limits(p, 0, 600, &out));
  CHECK(out.least > 0 && out.least == out.enough && out.least <= out.resident);
  step_planner_free(p);
  lm_free(m);
  hp_device_close(d);
}
