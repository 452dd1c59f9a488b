/* 100 training steps against plain PyTorch: loss and gradient norm of every step. */
#include "base/json.h"
#include "base/safetensors.h"
#include "test.h"
#include "train/step.h"

enum { STEPS = 100, B = 4, T = 64, IGNORE = -100 };
static const double limit = 1e-5; /* relative, against the same training in float64 */

static double number(const tree *t, const char *key, int64_t step) {
  const tree_node *list;
  double x;
  CHECK_OK(tree_need_list(t->root, key, &list));
  CHECK_EQ(list->len, STEPS);
  CHECK_OK(tree_as_double(list->child[step], &x));
  return x;
}

static void near(const char *what, int64_t step, double got, double want) {
  if (!(got - want <= limit * want && want - got <= limit * want))
    test_fail(__FILE__, __LINE__, "step %lld: %s %.9g, want %.9g", (long long)step, what, got,
              want);
}

/* One step on B sequences, as micro-batches of `rows` each. */
static void run_step(stepper *s, const int32_t *ids, int rows, const step_update *u,
                     step_result *out) {
  int32_t labels[B * T];
  for (int i = 0; i < B * T; i++) labels[i] = i % T == T - 1 ? IGNORE : ids[i + 1];
  step_micro m[B];
  for (int at = 0; at < B; at += rows)
    m[at / rows] = (step_micro){.B = rows,
                                .T = T,
                                .ids = ids + at * T,
                                .labels = labels + at * T,
                                .weight = 1.0 / (B * (T - 1))};
  CHECK_OK(stepper_run(s, m, B / rows, u, NULL, out));
}

static void run_curve(const char *name, int rows) {
  char path[512], file[600];
  tree curve;
  st_file tokens;
  hp_device *d;
  lm *m;
  stepper *s;
  CHECK_OK(st_open(test_data("golden/curve_tokens.safetensors"), &tokens));
  const st_tensor *ids = st_find(&tokens, "tokens");
  CHECK(ids && ids->dtype == ST_I32 && ids->bytes == sizeof(int32_t) * STEPS * B * T);
  snprintf(path, sizeof path, "golden/%s", name);
  snprintf(path, sizeof path, "%s", test_data(path));
  snprintf(file, sizeof file, "%s/curve.json", path);
  CHECK_OK(json_load(file, 0, &curve));
  lm_options lo = {.compute = HP_F32, .weights = HP_F32};
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1}, &d));
  CHECK_OK(lm_create(path, d, &lo, &m));
  CHECK_OK(lm_load(m, path));
  step_options o = {.optimizer = {OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
                                  .decay = 0.1},
                    .clip = 1};
  CHECK_OK(stepper_create(m, &o, &s));
  for (int64_t i = 0; i < STEPS; i++) {
    int32_t batch[B * T];
    step_result r;
    memcpy(batch, ids->data + (size_t)i * sizeof batch, sizeof batch);
    run_step(s, batch, rows, &(step_update){.lr = number(&curve, "lr", i), .t = i + 1}, &r);
    near("loss", i, r.loss, number(&curve, "loss_f64", i));
    near("grad_norm", i, r.grad_norm, number(&curve, "grad_norm_f64", i));
  }
  stepper_free(s);
  lm_free(m);
  hp_device_close(d);
  tree_free(&curve);
  st_close(&tokens);
}

TEST(golden_curve_llama_gqa_tied) { run_curve("llama-gqa-tied", B); }
TEST(golden_curve_qwen3_qknorm) { run_curve("qwen3-qknorm", B); }
TEST(golden_curve_mixtral) { run_curve("mixtral-tiny", B); }
TEST(golden_curve_deepseek_v3) { run_curve("deepseekv3-tiny", B); }
TEST(golden_curve_in_two_micro_batches) { run_curve("qwen3-qknorm", 2); }
