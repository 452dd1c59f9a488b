/* Llama and its variants with a few switches: mistral, qwen2, qwen3. */
#include "model/decoder.h"

static hp_tensor build_hidden(model_build *b) {
  return decoder_hidden(b, decoder_attention, decoder_mlp);
}

static double count_params(const model_config *c) {
  double layer = decoder_attention_params(c) + decoder_mlp_params(c, c->ffn);
  return decoder_frame_params(c) + (double)c->layers * layer;
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

#define LLAMA_ROW(id, class_name, windows, ...)                                                    \
  extern const model_family family_##id;                                                           \
  const model_family family_##id = {.model_type = #id,                                             \
                                    .architecture = class_name,                                    \
                                    .freezes_pad = true,                                           \
                                    .absent = {__VA_ARGS__},                                       \
                                    .window = windows,                                             \
                                    .read = read_##id,                                             \
                                    .hidden = build_hidden,                                        \
                                    .head_name = "lm_head.weight",                                 \
                                    .embedding_name = "model.embed_tokens.weight",                 \
                                    .params = count_params,                                        \
                                    .cuts = decoder_cuts}
LLAMA_ROW(llama, "LlamaForCausalLM", WINDOW_NEVER, .positions = 2048, .bos = 1, .eos = 2);
LLAMA_ROW(mistral, "MistralForCausalLM", WINDOW_ALL, .kv_heads = 8, .positions = 131072,
          .window = 4096, .bos = 1, .eos = 2);
LLAMA_ROW(qwen2, "Qwen2ForCausalLM", WINDOW_FROM_LAYER, .kv_heads = 32, .positions = 32768,
          .window = 4096, .bos = -1, .eos = -1);
LLAMA_ROW(qwen3, "Qwen3ForCausalLM", WINDOW_FROM_LAYER, .kv_heads = 32, .head_dim = 128,
          .positions = 32768, .window = 4096, .bos = -1, .eos = -1);
