/* Adapters that peft made, next to the committed cases: logits where they are merged, and where
 * they are applied loss and gradients, against peft's.  tools/golden/check_adapters.py writes them.
 */
#include "base/io.h"
#include "golden/golden_case.h"
#include "model/lm_adapter.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS = 8 };
static const double limit = 1e-5;

typedef struct {
  hp_device *d;
  lm *m;
  st_file expect;
} adapted;

/* The case's model with the adapter, merged or applied. */
static void open_adapted(const char *name, const char *kind, bool merged, adapted *x) {
  char model[256], dir[256], file[512];
  lm_options o = {.compute = HP_F32, .weights = HP_F32, .packed = merged};
  snprintf(model, sizeof model, "tests/golden/cases/%s", name);
  snprintf(dir, sizeof dir, "tests/golden/adapters/%s-%s", name, kind);
  snprintf(file, sizeof file, "%s/expect.safetensors", dir);
  CHECK_OK(st_open(file, &x->expect));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &x->d));
  CHECK_OK(lm_create(model, x->d, &o, &x->m));
  CHECK_OK(lm_open_adapter_list(x->m, dir, !merged));
  CHECK_OK(lm_load(x->m, model));
}

static void close_adapted(adapted *x) {
  lm_free(x->m);
  hp_device_close(x->d);
  st_close(&x->expect);
}

static const st_tensor *need(const adapted *x, const char *name) {
  const st_tensor *t = st_find(&x->expect, name);
  if (!t) test_fail(__FILE__, __LINE__, "%s lacks %s", x->expect.path, name);
  return t;
}

static void check_logits(const adapted *x, lm_tokens *tokens) {
  float *logits = mem_calloc((size_t)(TOKENS * x->m->c.vocab), sizeof *logits);
  CHECK_OK(lm_logits(x->m, tokens, logits));
  CHECK_NEAR(golden_error(logits, need(x, "logits"), 0), 0, limit);
  mem_free(logits);
}

static void check_gradients(const adapted *x, lm_tokens *tokens) {
  lm_gradients g;
  float loss;
  CHECK_OK(lm_grads(x->m, tokens, &g));
  memcpy(&loss, need(x, "loss")->data, sizeof loss);
  CHECK_NEAR(g.loss, loss, 1e-6 * fabs((double)loss));
  CHECK_EQ(x->expect.n, lm_trained_tensors(x->m) + 2);
  for (size_t i = 0; i < lm_trained_tensors(x->m); i++) {
    char name[200];
    snprintf(name, sizeof name, "grad.%.160s", x->m->tensors.at[i].name);
    double error = golden_error(g.grad[i], need(x, name), 0);
    if (!(error <= limit)) test_fail(__FILE__, __LINE__, "%s is off by %.3g", name, error);
  }
  lm_gradients_free(x->m, &g);
}

static void check(const char *name, const char *kind) {
  int32_t ids[TOKENS] = {3, 1, 4, 1, 5, 9, 2, 6};
  lm_tokens tokens = {ids, TOKENS};
  adapted x;
  open_adapted(name, kind, true, &x);
  check_logits(&x, &tokens);
  close_adapted(&x);
  open_adapted(name, kind, false, &x);
  check_logits(&x, &tokens);
  check_gradients(&x, &tokens);
  close_adapted(&x);
}

TEST(an_adapter_of_peft_computes_what_it_does_there) { check("qwen2-window-old", "lora"); }
TEST(an_adapter_of_peft_with_rslora) { check("qwen3-bias-tied", "rslora"); }
TEST(an_adapter_of_peft_with_dora_of_transposed_weights) { check("gpt2-base-names", "dora"); }
TEST(an_adapter_of_peft_with_an_embedding_and_a_head_that_were_tied) {
  check("llama-odd-heads", "saved");
}
