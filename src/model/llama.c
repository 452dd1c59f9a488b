/* Llama and what differs from it by a few switches: mistral, qwen2, qwen3.
 *
 *   h = embedding(ids)
 *   h += o(attention(rope(q(norm(h))), rope(k(norm(h))), v(norm(h))))      per layer
 *   h += down(act(gate(norm(h))) * up(norm(h)))
 *   norm(h)
 *
 * The residual stream is f32 whatever the dtype of the products. */
#include "model/family.h"

#include <stdio.h>

static hp_tensor norm(model_build *b, hp_tensor x, int64_t width, const char *name) {
  hp_at(b->g, name);
  hp_tensor w = build_param(b, PARAM_NORM, 1, 1, &width, "%s.weight", name);
  return hp_rms_norm(b->g, x, w, b->c->norm_eps);
}

/* Place in the model: "model.layers.3.mlp.up_proj". */
typedef struct {
  char text[128];
} place;
static place at(int layer, const char *part) {
  place p;
  snprintf(p.text, sizeof p.text, "model.layers.%d.%s", layer, part);
  return p;
}

/* Queries or keys: projected, split into heads, normed per head (qwen3), turned. */
static hp_tensor project(model_build *b, int layer, hp_tensor x, int64_t heads, const char *proj,
                         const char *head_norm) {
  const model_config *c = b->c;
  hp_tensor y =
      build_linear(b, x, c->hidden, heads * c->head_dim, c->qkv_bias, 1, at(layer, proj).text);
  y = build_heads(b, y, heads, c->head_dim);
  if (c->qk_norm && head_norm) y = norm(b, y, c->head_dim, at(layer, head_norm).text);
  return head_norm ? build_rope(b, y) : y;
}

static hp_tensor attention(model_build *b, int layer, hp_tensor x) {
  const model_config *c = b->c;
  hp_tensor q = project(b, layer, x, c->heads, "self_attn.q_proj", "self_attn.q_norm");
  hp_tensor k = project(b, layer, x, c->kv_heads, "self_attn.k_proj", "self_attn.k_norm");
  hp_tensor v = project(b, layer, x, c->kv_heads, "self_attn.v_proj", NULL);
  hp_at(b->g, at(layer, "self_attn").text);
  hp_attention_options how = {.window = c->windowed[layer] ? c->window : 0};
  hp_tensor o = build_attention(b, layer, q, k, v, &how);
  int64_t width = c->heads * c->head_dim;
  return build_linear(b, build_merge(b, o, width), width, c->hidden, c->o_bias, 1,
                      at(layer, "self_attn.o_proj").text);
}

static hp_tensor mlp(model_build *b, int layer, hp_tensor x) {
  const model_config *c = b->c;
  hp_tensor gate =
      build_linear(b, x, c->hidden, c->ffn, c->mlp_bias, 1, at(layer, "mlp.gate_proj").text);
  hp_tensor up =
      build_linear(b, x, c->hidden, c->ffn, c->mlp_bias, 1, at(layer, "mlp.up_proj").text);
  hp_at(b->g, at(layer, "mlp").text);
  hp_tensor h = hp_mul(b->g, hp_map(b->g, c->activation, gate, HP_NONE, HP_NONE), up);
  return build_linear(b, h, c->ffn, c->hidden, c->mlp_bias, 1, at(layer, "mlp.down_proj").text);
}

static hp_tensor hidden(model_build *b) {
  const model_config *c = b->c;
  hp_at(b->g, "model.embed_tokens");
  hp_tensor table = build_param(b, PARAM_EMBEDDING, 1, 2, (int64_t[]){c->vocab, c->hidden},
                                "model.embed_tokens.weight");
  hp_tensor h = hp_cast(b->g, hp_embedding(b->g, table, b->ids, c->frozen), HP_F32);
  for (int i = 0; i < c->layers; i++) {
    hp_block(b->g, i + 1);
    hp_tensor a = attention(b, i, norm(b, h, c->hidden, at(i, "input_layernorm").text));
    hp_at(b->g, at(i, "self_attn").text);
    h = hp_add(b->g, h, hp_cast(b->g, a, HP_F32));
    hp_tensor m = mlp(b, i, norm(b, h, c->hidden, at(i, "post_attention_layernorm").text));
    hp_at(b->g, at(i, "mlp").text);
    h = hp_add(b->g, h, hp_cast(b->g, m, HP_F32));
  }
  hp_block(b->g, 0);
  return norm(b, h, c->hidden, "model.norm");
}

static double params(const model_config *c) {
  double q = (double)(c->heads * c->head_dim), kv = (double)(c->kv_heads * c->head_dim);
  double h = (double)c->hidden, f = (double)c->ffn;
  double layer = 2 * h * q + 2 * h * kv + 3 * h * f + 2 * h;
  if (c->qkv_bias) layer += q + 2 * kv;
  if (c->o_bias) layer += h;
  if (c->mlp_bias) layer += 2 * f + h;
  if (c->qk_norm) layer += 2 * (double)c->head_dim;
  return (double)c->layers * layer + (double)c->vocab * h * (c->tied ? 1 : 2) + h;
}

static hp_status read_llama(const tree_node *root, model_config *c) {
  HP_TRY(tree_opt_bool(root, "attention_bias", false, &c->qkv_bias));
  c->o_bias = c->qkv_bias;
  HP_TRY(tree_opt_bool(root, "mlp_bias", false, &c->mlp_bias));
  return config_read_llama(root, c);
}

static hp_status read_qwen2(const tree_node *root, model_config *c) {
  c->qkv_bias = true;
  return config_read_llama(root, c);
}

static hp_status read_qwen3(const tree_node *root, model_config *c) {
  c->qk_norm = true;
  HP_TRY(tree_opt_bool(root, "attention_bias", false, &c->qkv_bias));
  c->o_bias = c->qkv_bias;
  return config_read_llama(root, c);
}

static hp_status read_mistral(const tree_node *root, model_config *c) {
  return config_read_llama(root, c);
}

/* Heads and the wide middle of the mlp: columns first, then rows, one reduction a block. */
static const tensor_cut cuts[] = {{"q_proj.weight", 0},  {"k_proj.weight", 0},
                                  {"v_proj.weight", 0},  {"q_proj.bias", 0},
                                  {"k_proj.bias", 0},    {"v_proj.bias", 0},
                                  {"o_proj.weight", 1},  {"gate_proj.weight", 0},
                                  {"up_proj.weight", 0}, {"gate_proj.bias", 0},
                                  {"up_proj.bias", 0},   {"down_proj.weight", 1},
                                  {"lm_head.weight", 0}, {NULL, 0}};

#define LLAMA_ROW(id, class_name, ...)                                                             \
  extern const model_family family_##id;                                                           \
  const model_family family_##id = {.model_type = #id,                                             \
                                    .architecture = class_name,                                    \
                                    .freezes_pad = true,                                           \
                                    .absent = {__VA_ARGS__},                                       \
                                    .read = read_##id,                                             \
                                    .hidden = hidden,                                              \
                                    .head_name = "lm_head.weight",                                 \
                                    .embedding_name = "model.embed_tokens.weight",                 \
                                    .params = params,                                              \
                                    .cuts = cuts}
LLAMA_ROW(llama, "LlamaForCausalLM", .positions = 2048, .bos = 1, .eos = 2);
LLAMA_ROW(mistral, "MistralForCausalLM", .kv_heads = 8, .positions = 131072, .window = 4096,
          .bos = 1, .eos = 2);
LLAMA_ROW(qwen2, "Qwen2ForCausalLM", .kv_heads = 32, .positions = 32768, .window = 4096, .bos = -1,
          .eos = -1);
LLAMA_ROW(qwen3, "Qwen3ForCausalLM", .kv_heads = 32, .head_dim = 128, .positions = 32768,
          .window = 4096, .bos = -1, .eos = -1);
