/* Training graphs of real families, cut into the stages of a pipeline: what crosses between stages,
 * and the bits of the uncut graph. */
#include "base/mem.h"
#include "ops/stage_join.h"
#include "test.h"
#include "train/step_graph.h"

#include <string.h>

enum { B = 2, T = 12, TOKENS = B * T };

typedef struct {
  const char *model;
  bool tied;     /* the last stage reads the embedding, and sends its gradient, */
  bool head_sum; /* or keeps it, in a sum of its own */
} family;

static const step_options options = {.optimizer = {OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.999,
                                                   .eps = 1e-8},
                                     .clip = 1};

static void open_model(const family *f, hp_device **d, lm **m) {
  char path[512];
  snprintf(path, sizeof path, "tests/golden/cases/%s", f->model);
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, d));
  CHECK_OK(lm_create(path, *d, &(lm_options){.compute = HP_F32, .weights = HP_F32}, m));
  CHECK_OK(lm_load(*m, path));
}

static float *read_sum(const lm *m, const char *of, const model_param *p, float *to) {
  char name[200];
  size_t count = model_param_elements(p);
  snprintf(name, sizeof name, "g.%s", of);
  CHECK_OK(hp_read(m->d, name, to, count * sizeof *to));
  return to + count;
}

/* The loss of a micro-batch, and the sums of its gradients, at the end that of the head. */
static float *run(lm *m, const model_build *b, const hp_graph *g, bool head_sum, size_t *n) {
  hp_program *p;
  int32_t ids[TOKENS], positions[TOKENS], labels[TOKENS], lengths[B] = {T, T};
  float weight = 1.0f / TOKENS, loss;
  for (int i = 0; i < TOKENS; i++) {
    ids[i] = (int32_t)((i * 31 + 5) % m->c.vocab);
    positions[i] = i % T;
    labels[i] = (int32_t)((i * 17 + 3) % m->c.vocab);
  }
  hp_io io[6] = {{"ids", ids, sizeof ids},          {"positions", positions, sizeof positions},
                 {"labels", labels, sizeof labels}, {"weight", &weight, sizeof weight},
                 {"loss", &loss, sizeof loss},      {"lengths", lengths, sizeof lengths}};
  CHECK_OK(lm_make_buffers(m, b, T));
  CHECK_OK(hp_compile(g, m->d, NULL, &p));
  CHECK_OK(hp_run(p, io, m->c.moe.balance > 0 ? 6 : 5));
  hp_program_free(p);
  *n = 1;
  for (size_t i = 0; i < m->trained; i++) *n += model_param_elements(&m->params.at[i]);
  if (head_sum) *n += model_param_elements(lm_tied_param(m));
  float *all = mem_calloc(*n, sizeof *all), *to = all;
  CHECK(all);
  *to++ = loss;
  for (size_t i = 0; i < m->trained; i++)
    to = read_sum(m, m->params.at[i].name, &m->params.at[i], to);
  if (head_sum) read_sum(m, m->c.family->head_name, lm_tied_param(m), to);
  return all;
}

/* Layers in equal runs. */
static void set_stages(lm *m, int stages) {
  uint16_t stage_of[64];
  for (int64_t i = 0; i < m->c.layers; i++) stage_of[i] = (uint16_t)(i * stages / m->c.layers);
  CHECK_OK(lm_set_stages(m, stages, stage_of));
}

static void check_crossings(const family *f, const stage_crossings *x, int stages) {
  int count[2] = {0}, params = 0;
  for (size_t i = 0; i < x->len; i++) {
    const stage_crossing *k = &x->at[i];
    bool back = k->phase == PHASE_BACKWARD;
    if (k->is_param) {
      params++;
      continue;
    }
    if (!f->tied) CHECK_EQ(back ? k->from - k->to : k->to - k->from, 1);
    count[back]++;
  }
  CHECK_EQ(params, f->tied);
  CHECK_EQ(count[0], stages - 1);
  CHECK_EQ(count[1], stages - 1 + (f->tied && !f->head_sum));
}

static void check_family(const family *f) {
  hp_device *d;
  lm *m;
  model_build b;
  const step_place micro = {.part = STEP_FIRST, .B = B, .T = T, .head_sum = f->head_sum};
  size_t n;
  open_model(f, &d, &m);
  CHECK_OK(step_graph_begin(m, &options, &micro, &b));
  float *want = run(m, &b, b.g, f->head_sum, &n);
  lm_graph_end(&b);
  for (int stages = 1; stages <= m->c.layers; stages++) {
    stage_crossings x = {0};
    set_stages(m, stages);
    CHECK_OK(step_graph_begin(m, &options, &micro, &b));
    hp_graph *joined = stage_cut_and_join(b.g, stages, &x);
    if (stages > 1) check_crossings(f, &x, stages);
    float *got = run(m, &b, joined, f->head_sum, &n);
    if (memcmp(want, got, n * sizeof *want))
      test_fail(__FILE__, __LINE__, "%s in %d stages: other bits", f->model, stages);
    mem_free(got);
    graph_free(joined);
    lm_graph_end(&b);
    vec_free(&x);
  }
  mem_free(want);
  lm_free(m);
  hp_device_close(d);
}

TEST(hidden_states_and_tied_embeddings_alone_cross_between_stages) {
  static const family f[] = {{"llama-odd-heads", true, false}, {"mistral-window", true, false},
                             {"gpt2-base-names", true, false}, {"qwen3moe-fused", false, false},
                             {"deepseekv3-yarn", true, false}, {"llama-odd-heads", true, true},
                             {"gpt2-base-names", true, true},  {"deepseekv3-yarn", true, true}};
  for (size_t i = 0; i < sizeof f / sizeof *f; i++) check_family(&f[i]);
}

/* The element of a param, by its place among those of all params; the first is the loss. */
static size_t find_first(const lm *m, const model_param *p) {
  size_t at = 1;
  for (size_t i = 0; i < m->trained && &m->params.at[i] != p; i++)
    at += model_param_elements(&m->params.at[i]);
  return at;
}

static void check_sums(const char *model) {
  hp_device *d;
  lm *m;
  model_build b;
  float *sums[2];
  size_t n[2];
  open_model(&(family){.model = model}, &d, &m);
  for (int apart = 0; apart < 2; apart++) {
    const step_place micro = {.part = STEP_FIRST, .B = B, .T = T, .head_sum = apart};
    CHECK_OK(step_graph_begin(m, &options, &micro, &b));
    sums[apart] = run(m, &b, b.g, apart, &n[apart]);
    lm_graph_end(&b);
  }
  const model_param *p = lm_tied_param(m);
  size_t first = find_first(m, p), count = model_param_elements(p);
  CHECK_EQ(n[1], n[0] + count);
  float *both = sums[0] + first, *rows = sums[1] + first, *head = sums[1] + n[0];
  int apart = 0;
  for (size_t i = 0; i < count; i++) {
    CHECK_NEAR(rows[i] + head[i], both[i], 1e-6);
    apart += rows[i] != 0 && head[i] != 0;
  }
  CHECK(apart > 0);
  CHECK(!memcmp(sums[0], sums[1], first * sizeof *both));
  CHECK(!memcmp(both + count, rows + count, (n[0] - first - count) * sizeof *both));
  mem_free(sums[0]);
  mem_free(sums[1]);
  lm_free(m);
  hp_device_close(d);
}

TEST(sums_of_a_tied_head_and_of_the_lookup_add_up_to_the_gradient) {
  check_sums("gpt2-base-names");
  check_sums("qwen3-bias-tied");
}

/* A tied head's sum goes to the stage of the embedding, once. */
TEST(an_update_gets_the_sum_of_a_tied_head_as_it_is) {
  hp_device *d;
  lm *m;
  model_build b;
  stage_crossings x = {0};
  int tables = 0;
  open_model(&(family){.model = "gpt2-base-names"}, &d, &m);
  set_stages(m, 2);
  CHECK_OK(step_graph_begin(m, &options, &(step_place){.part = STEP_UPDATE, .head_sum = true}, &b));
  hp_graph *joined = stage_cut_and_join(b.g, 2, &x);
  for (size_t i = 0; i < x.len; i++) {
    const ir_value *v = graph_value(b.g, x.at[i].value);
    CHECK_EQ(v->rank, x.at[i].is_param ? 2 : 0);
    if (!x.at[i].is_param) continue;
    tables++;
    CHECK(x.at[i].from == 1 && x.at[i].to == 0);
  }
  CHECK_EQ(tables, 1);
  graph_free(joined);
  vec_free(&x);
  lm_graph_end(&b);
  lm_free(m);
  hp_device_close(d);
}

/* Norms of gradients go to the first stage, and the factor of clipping to all. */
TEST(an_update_is_cut_by_the_stages_of_its_params) {
  family f = {.model = "qwen3moe-fused"};
  hp_device *d;
  lm *m;
  model_build b;
  stage_crossings x = {0};
  size_t away = 0;
  open_model(&f, &d, &m);
  set_stages(m, 2);
  for (size_t i = 0; i < m->trained; i++) away += m->params.at[i].stage == 1;
  CHECK_EQ(lm_find(m, "model.embed_tokens.weight")->stage, 0);
  CHECK_EQ(lm_find(m, "model.norm.weight")->stage, 1);
  CHECK_EQ(lm_find(m, "lm_head.weight")->stage, 1);
  CHECK_OK(step_graph_begin(m, &options, &(step_place){.part = STEP_UPDATE}, &b));
  hp_graph *joined = stage_cut_and_join(b.g, 2, &x);
  CHECK_EQ(x.len, away + 1);
  for (size_t i = 0; i < x.len; i++) {
    const ir_value *v = graph_value(b.g, x.at[i].value);
    CHECK_EQ(v->rank, 0);
    CHECK_EQ(x.at[i].from, i < away ? 1 : 0);
  }
  graph_free(joined);
  vec_free(&x);
  lm_graph_end(&b);
  lm_free(m);
  hp_device_close(d);
}

TEST(layers_go_from_stage_to_stage_in_their_order) {
  family f = {.model = "llama-odd-heads"};
  hp_device *d;
  lm *m;
  open_model(&f, &d, &m);
  CHECK_FAILS(lm_set_stages(m, 2, (uint16_t[]){1, 0, 0, 0}), "layer 1 is on stage 0 of 2");
  CHECK_FAILS(lm_set_stages(m, 2, (uint16_t[]){0, 2, 2, 2}), "layer 1 is on stage 2 of 2");
  lm_free(m);
  hp_device_close(d);
}
