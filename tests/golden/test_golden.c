/* Models against what Transformers computes from the same files: logits, loss, gradients, greedy
 * text.  A case is a folder as tools/golden/make.py writes it.  Those of HYPER_DATA/golden run
 * with compiled loop kernels, the committed ones with interpreted kernels. */
#include "golden/golden_case.h"
#include "serve/generate.h"
#include "test.h"

#include <math.h>

/* Largest relative error allowed of a sound f32 implementation (golden/README.md). */
static const double f32_limit = 1e-5, loss_limit = 1e-6;
/* bf16 may be off by so many times what Transformers in bf16 is. */
static const double bf16_factor = 3;

typedef struct {
  hp_device *d;
  lm *m;
} model;

static void open_model(const golden_case *c, hp_dtype compute, bool interpret, model *out) {
  hp_device_options o = {.threads = 1, .interpret = interpret};
  lm_options lo = {.compute = compute, .weights = HP_F32};
  CHECK_OK(hp_device_open(&o, &out->d));
  CHECK_OK(lm_create(c->path, out->d, &lo, &out->m));
  CHECK_OK(lm_load(out->m, c->path));
}

static void close_model(model *x) {
  lm_free(x->m);
  hp_device_close(x->d);
}

static size_t elements(const st_tensor *t) {
  size_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= (size_t)t->dim[i];
  return n;
}

static const st_tensor *need(const golden_case *c, const char *name) {
  const st_tensor *t = st_find(&c->expect, name);
  if (!t) test_fail(__FILE__, __LINE__, "%s/expect.safetensors lacks %s", c->path, name);
  CHECK_EQ(t->dtype, ST_F32);
  return t;
}

/* Errors are counted, so that one run shows all of them. */
static void judge(golden_case *c, const char *what, double error, double limit) {
  if (error <= limit) return;
  printf("%s: %s is off by %.3g, the limit is %.3g\n", c->path, what, error, limit);
  c->failures++;
}

static void check_logits(golden_case *c, const model *x, double limit) {
  for (int k = 0; k < 2; k++) {
    char name[16];
    snprintf(name, sizeof name, "logits.%d", k);
    const st_tensor *t = need(c, name);
    CHECK_EQ(t->rank, 2);
    CHECK_EQ(t->dim[0], c->sequence[k].n);
    CHECK_EQ(t->dim[1], x->m->c.vocab);
    float *got = mem_calloc(elements(t), sizeof *got);
    CHECK(got);
    CHECK_OK(lm_logits(x->m, &c->sequence[k], got));
    judge(c, name, golden_error(got, t, 0), limit);
    mem_free(got);
  }
}

/* Name of a gradient in the file: with the parameter's name, or without the prefix that base models
 * are saved without. */
static const st_tensor *find_grad(const golden_case *c, const char *param) {
  char name[200];
  snprintf(name, sizeof name, "grad.%s", param);
  const st_tensor *t = st_find(&c->expect, name);
  if (t) return t;
  CHECK(strchr(param, '.'));
  snprintf(name, sizeof name, "grad.%s", strchr(param, '.') + 1);
  return need(c, name);
}

static void check_grads(golden_case *c, const model *x, double limit, double loss_relative) {
  lm_gradients g;
  CHECK_OK(lm_grads(x->m, &c->sequence[0], &g));
  float loss = 0;
  memcpy(&loss, need(c, "loss.0")->data, sizeof loss);
  judge(c, "loss", fabs((double)(g.loss - loss)) / (double)loss, loss_relative);
  size_t n = lm_trained_tensors(x->m);
  CHECK_EQ(c->expect.n, n + 3); /* two logits, the loss, and every gradient */
  double largest = 0;
  for (size_t i = 0; i < n; i++) {
    double m = golden_largest(find_grad(c, x->m->tensors.at[i].name));
    if (m > largest) largest = m;
  }
  for (size_t i = 0; i < n; i++) {
    const lm_tensor *p = &x->m->tensors.at[i];
    const st_tensor *t = find_grad(c, p->name);
    CHECK_EQ(t->rank, p->shape.rank);
    for (int k = 0; k < t->rank; k++) CHECK_EQ(t->dim[k], p->shape.dim[k]);
    /* what is zero in exact arithmetic is measured against the largest gradient of the model */
    bool zero = golden_is_zero(c, t->name + strlen("grad."));
    judge(c, t->name, golden_error(g.grad[p->param] + p->at, t, zero ? largest : 0),
          zero ? limit / 10 : limit);
  }
  lm_gradients_free(x->m, &g);
}

static void check_greedy(golden_case *c, const model *x) {
  generation g = {.sampling = {.top_p = 1, .repetition_penalty = 1}, .max_new_tokens = c->greedy.n};
  generation_result r;
  CHECK_OK(generate_run(x->m, NULL, &c->sequence[1], &g, &r));
  CHECK_EQ(r.ids.len, c->greedy.n);
  for (int64_t i = 0; i < c->greedy.n; i++)
    if (r.ids.at[i] != c->greedy.ids[i]) {
      printf("%s: greedy token %lld is %d, want %d\n", c->path, (long long)i, r.ids.at[i],
             c->greedy.ids[i]);
      c->failures++;
      break;
    }
  generation_result_free(&r);
}

static int run_f32(const char *path, bool interpret) {
  golden_case c;
  model x;
  golden_open(path, &c);
  open_model(&c, HP_F32, interpret, &x);
  check_logits(&c, &x, f32_limit);
  check_grads(&c, &x, f32_limit, loss_limit);
  check_greedy(&c, &x);
  close_model(&x);
  return golden_close(&c);
}

static int run_bf16(const char *path, bool interpret) {
  golden_case c;
  model x;
  golden_open(path, &c);
  open_model(&c, HP_BF16, interpret, &x);
  check_logits(&c, &x, bf16_factor * c.bf16_logits);
  check_grads(&c, &x, bf16_factor * c.bf16_grad, bf16_factor * c.bf16_logits);
  close_model(&x);
  return golden_close(&c);
}

/* Runs every case below `root` whose name begins with the prefix; at least `least` of them. */
static void run_all(const char *root, const char *prefix, bool interpret, int least,
                    int (*run)(const char *path, bool interpret)) {
  golden_list list;
  int failures = 0;
  golden_find(root, prefix, &list);
  for (int i = 0; i < list.n; i++) failures += run(list.path[i], interpret);
  printf("%d cases\n", list.n);
  CHECK(list.n >= least);
  CHECK_EQ(failures, 0);
}

#define COMMITTED "tests/golden/cases"
TEST(golden_llama_f32) { run_all(test_data("golden"), "llama-", false, 7, run_f32); }
TEST(golden_llama_bf16) { run_all(test_data("golden"), "llama-", false, 7, run_bf16); }
TEST(golden_qwen2_f32) { run_all(test_data("golden"), "qwen2-", false, 1, run_f32); }
TEST(golden_qwen2_bf16) { run_all(test_data("golden"), "qwen2-", false, 1, run_bf16); }
TEST(golden_qwen3_f32) { run_all(test_data("golden"), "qwen3-", false, 1, run_f32); }
TEST(golden_qwen3_bf16) { run_all(test_data("golden"), "qwen3-", false, 1, run_bf16); }
TEST(golden_mixtral_f32) { run_all(test_data("golden"), "mixtral-", false, 1, run_f32); }
TEST(golden_mixtral_bf16) { run_all(test_data("golden"), "mixtral-", false, 1, run_bf16); }
TEST(golden_qwen3_moe_f32) { run_all(test_data("golden"), "qwen3moe-", false, 1, run_f32); }
TEST(golden_qwen3_moe_bf16) { run_all(test_data("golden"), "qwen3moe-", false, 1, run_bf16); }
TEST(golden_deepseek_v3_f32) { run_all(test_data("golden"), "deepseekv3-", false, 1, run_f32); }
TEST(golden_committed_f32) { run_all(COMMITTED, "", true, 12, run_f32); }
TEST(golden_committed_bf16) { run_all(COMMITTED, "", true, 12, run_bf16); }
