/* Gradients of whole models against difference quotients, both in double precision: the reference
 * evaluates forward and backward without rounding.  Sizes are small, odd and unlike each other. */
#include "test.h"

#include "api/api_call.h"
#include "model/lm.h"
#include "ops/random_graph.h"

#include <math.h>
#include <stdlib.h>

enum { T = 5, IGNORE = -100 };

#define SIZES                                                                                      \
  "\"vocab_size\": 11, \"hidden_size\": 7, \"intermediate_size\": 5, \"num_hidden_layers\": 2, "   \
  "\"max_position_embeddings\": 16, \"tie_word_embeddings\": false"

typedef struct {
  model_config c;
  model_build b;
  ref_run ref;
  rng r;
  hp_tensor loss, *grad; /* of the parameters that are trained, in the order of the build */
  size_t trained;
} net;

static val leaf_named(const hp_graph *g, const char *name) {
  for (size_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    if ((n->op == OP_INPUT || n->op == OP_PARAM) && !strcmp(attr_str(g, n, "name"), name))
      return n->out0;
  }
  return 0;
}

/* What an id of the model's builder stands for. */
static val value(const net *x, hp_tensor id) { return api_value(x->b.g, id, "tensor"); }

static void fill_param(net *x, const model_param *p) {
  ref_tensor *to = ref_make(&x->ref, value(x, p->tensor));
  double scale = p->kind == PARAM_NORM ? 0.3 : 0.8;
  for (int64_t i = 0; i < to->n; i++)
    to->f[i] = (p->kind == PARAM_NORM) + scale * (2 * rng_unit(&x->r) - 1);
}

/* Both rotary tables, which are f32 in the product too. */
static void fill_tables(net *x) {
  float cos[T * 8], sin[T * 8];
  if (!x->b.cos) return; /* learned positions */
  CHECK(x->c.rope.dims / 2 <= 8);
  rope_table(&x->c, T, T, cos, sin);
  ref_set(&x->ref, value(x, x->b.cos), cos);
  ref_set(&x->ref, value(x, x->b.sin), sin);
}

static bool is_trained(const model_param *p) { return p->kind < PARAM_FIXED && !p->frozen; }

/* An adapter of all linear layers, or NULL: all of the model is trained. */
static void net_begin(net *x, const char *config, uint64_t seed, const adapter *a) {
  int32_t ids[T], positions[T], labels[T];
  *x = (net){.r = {.seed = seed}};
  CHECK_OK(model_config_parse(config, strlen(config), "config.json", &x->c));
  lm m = {.c = x->c, .compute = HP_F32, .weights = HP_F32, .adapter = (adapter *)(uintptr_t)a};
  m.has_only = a != NULL;
  CHECK_OK(lm_graph_begin(&m, 1, T, NULL, T, &x->b));
  x->b.c = &x->c;
  hp_graph *g = x->b.g;
  hp_tensor to = hp_input(g, "labels", HP_I32, (hp_shape){2, {1, T}});
  hp_tensor logits = lm_head(&x->b, x->c.family->hidden(&x->b));
  x->loss = hp_sum(g, hp_cross_entropy(g, logits, to, IGNORE), (int64_t[]){0, 1}, 2, false);
  size_t n = x->b.params.len;
  hp_tensor *wrt = mem_calloc(n, sizeof *wrt);
  x->grad = mem_calloc(n, sizeof *x->grad);
  CHECK(wrt && x->grad);
  for (size_t i = 0; i < n; i++)
    if (is_trained(&x->b.params.at[i])) wrt[x->trained++] = x->b.params.at[i].tensor;
  CHECK_OK(hp_grad(g, x->loss, wrt, (int)x->trained, x->grad));
  mem_free(wrt);
  CHECK_OK(ops_verify(g));
  ref_begin(&x->ref, g, true);
  for (int i = 0; i < T; i++) {
    ids[i] = rng_below(&x->r, (int)x->c.vocab);
    positions[i] = i;
    labels[i] = i == T - 1 ? IGNORE : rng_below(&x->r, (int)x->c.vocab);
  }
  ref_set(&x->ref, leaf_named(g, "ids"), ids);
  ref_set(&x->ref, leaf_named(g, "positions"), positions);
  ref_set(&x->ref, value(x, to), labels);
  for (size_t i = 0; i < n; i++)
    if (x->b.params.at[i].kind != PARAM_BUFFER) fill_param(x, &x->b.params.at[i]);
  fill_tables(x);
}

static void net_end(net *x) {
  ref_end(&x->ref);
  mem_free(x->grad);
  lm_graph_end(&x->b);
  model_config_free(&x->c);
}

static double loss_along(net *x, hp_tensor param, const double *direction, double step) {
  ref_tensor *p = &x->ref.value[value(x, param)];
  ref_again(&x->ref);
  for (int64_t i = 0; i < p->n; i++) p->f[i] += step * direction[i];
  ref_eval(&x->ref);
  double loss = x->ref.value[value(x, x->loss)].f[0];
  ref_again(&x->ref);
  for (int64_t i = 0; i < p->n; i++) p->f[i] -= step * direction[i];
  return loss;
}

/* A parameter's gradient along a direction drawn by chance. */
static void check_param(net *x, const model_param *p, hp_tensor grad) {
  const double h = 1e-5;
  int64_t n = (int64_t)model_param_elements(p);
  double *direction = mem_calloc((size_t)n, sizeof *direction), got = 0, size = 0;
  for (int64_t k = 0; k < n; k++) direction[k] = 2 * rng_unit(&x->r) - 1;
  double want = (loss_along(x, p->tensor, direction, h) - loss_along(x, p->tensor, direction, -h));
  want /= 2 * h;
  ref_again(&x->ref);
  ref_eval(&x->ref);
  const double *g = x->ref.value[value(x, grad)].f;
  for (int64_t k = 0; k < n; k++) got += g[k] * direction[k], size += fabs(g[k] * direction[k]);
  if (!(fabs(got - want) <= 1e-6 * (1e-3 + size)))
    test_fail(__FILE__, __LINE__, "%s: %.9g, difference quotient %.9g", p->name, got, want);
  mem_free(direction);
}

static void check_adapted(const char *config, const adapter *a) {
  for (uint64_t seed = 1; seed <= 3; seed++) {
    net x;
    net_begin(&x, config, seed, a);
    size_t at = 0;
    for (size_t i = 0; i < x.b.params.len; i++)
      if (is_trained(&x.b.params.at[i])) check_param(&x, &x.b.params.at[i], x.grad[at++]);
    CHECK_EQ(at, x.trained);
    if (a) CHECK_EQ(x.trained, 2 * a->modules.len);
    net_end(&x);
  }
}

static void check_model(const char *config) { check_adapted(config, NULL); }

/* Of an adapter of all linear layers: gradients of A and B, and no others. */
static void check_adapter(const char *config, size_t modules) {
  const char *all[] = {"all"};
  adapter_options o = {.rank = 2, .alpha = 3, .target = {all, 1}};
  net x;
  adapter *a;
  net_begin(&x, config, 1, NULL);
  adapter_subject s = {.linear = x.b.linears.at,
                       .linears = x.b.linears.len,
                       .head = x.c.family->head_name,
                       .path = "model"};
  CHECK_OK(adapter_create(&o, &s, &a));
  CHECK_EQ(a->modules.len, modules);
  net_end(&x);
  check_adapted(config, a);
  adapter_free(a);
}

TEST(gradients_of_an_adapter_of_llama_are_difference_quotients) {
  check_adapter("{\"model_type\": \"llama\", " SIZES ", \"num_attention_heads\": 4, "
                "\"num_key_value_heads\": 2, \"head_dim\": 6, \"attention_bias\": true}",
                2 * 7);
}
TEST(gradients_of_an_adapter_of_gpt2_are_difference_quotients) {
  check_adapter("{\"model_type\": \"gpt2\", \"vocab_size\": 11, \"n_embd\": 6, \"n_inner\": 10, "
                "\"n_layer\": 2, \"n_head\": 2, \"n_positions\": 16}",
                2 * 4);
}

TEST(gradients_of_llama_are_difference_quotients) {
  check_model("{\"model_type\": \"llama\", " SIZES ", \"num_attention_heads\": 4, "
              "\"num_key_value_heads\": 2, \"head_dim\": 6, \"attention_bias\": true}");
}
TEST(gradients_of_mixtral_are_difference_quotients) {
  check_model("{\"model_type\": \"mixtral\", " SIZES ", \"num_attention_heads\": 3, "
              "\"num_key_value_heads\": 1, \"head_dim\": 4, \"num_local_experts\": 5, "
              "\"num_experts_per_tok\": 3}");
}
TEST(gradients_of_qwen3_moe_are_difference_quotients) {
  check_model("{\"model_type\": \"qwen3_moe\", " SIZES ", \"num_attention_heads\": 2, "
              "\"num_key_value_heads\": 2, \"head_dim\": 6, \"num_experts\": 3, "
              "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 4, "
              "\"norm_topk_prob\": false, \"attention_bias\": true}");
}
TEST(gradients_of_deepseek_v3_are_difference_quotients) {
  check_model("{\"model_type\": \"deepseek_v3\", " SIZES ", \"num_attention_heads\": 3, "
              "\"num_key_value_heads\": 3, \"n_routed_experts\": 6, \"num_experts_per_tok\": 2, "
              "\"n_group\": 3, \"topk_group\": 2, \"moe_intermediate_size\": 4, "
              "\"n_shared_experts\": 2, \"first_k_dense_replace\": 1, \"q_lora_rank\": 5, "
              "\"kv_lora_rank\": 4, \"qk_nope_head_dim\": 3, \"qk_rope_head_dim\": 2, "
              "\"v_head_dim\": 5, \"routed_scaling_factor\": 1.7, \"attention_bias\": true}");
}
