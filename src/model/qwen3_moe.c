/* Qwen3-MoE: qwen3 with experts in some layers, weighted by softmax. */
#include "model/moe_layer.h"

static hp_tensor build_experts_or_mlp(model_build *b, int layer, hp_tensor x) {
  return b->c->moe.layer[layer] ? moe_layer(b, layer, x, ROUTE_SOFTMAX, &moe_names_usual)
                                : decoder_mlp(b, layer, x);
}

static hp_tensor build_hidden(model_build *b) {
  return decoder_hidden(b, decoder_attention, build_experts_or_mlp);
}

static double count_params(const model_config *c) {
  return decoder_frame_params(c) + (double)c->layers * decoder_attention_params(c) + moe_params(c);
}

/* Every decoder_sparse_step-th layer has experts, but for those of mlp_only_layers. */
static hp_status read_layers(const tree_node *root, model_config *c) {
  const tree_node *plain;
  int64_t step;
  HP_TRY(config_opt_size(root, "decoder_sparse_step", 1, &step));
  HP_TRY(tree_opt_list(root, "mlp_only_layers", &plain));
  for (int64_t i = 0; i < c->layers; i++) c->moe.layer[i] = (i + 1) % step == 0;
  for (uint32_t i = 0; plain && i < plain->len; i++) {
    int64_t layer;
    HP_TRY(tree_as_int(plain->child[i], &layer));
    if (layer >= 0 && layer < c->layers) c->moe.layer[layer] = false;
  }
  return HP_OK;
}

static hp_status read_config(const tree_node *root, model_config *c) {
  c->qk_norm = true;
  HP_TRY(tree_opt_bool(root, "attention_bias", false, &c->qkv_bias));
  c->o_bias = c->qkv_bias;
  HP_TRY(config_read_llama(root, c));
  HP_TRY(config_opt_either(root, "num_experts", "num_local_experts", 128, &c->moe.experts));
  HP_TRY(config_opt_size(root, "moe_intermediate_size", 768, &c->moe.ffn));
  HP_TRY(tree_opt_bool(root, "norm_topk_prob", false, &c->moe.norm));
  HP_TRY(moe_config_read_balance(root, c));
  HP_TRY(moe_config_read(root, 8, c));
  return read_layers(root, c);
}

extern const model_family family_qwen3_moe;
const model_family family_qwen3_moe =
    {.model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .freezes_pad = true,
     .absent = {.kv_heads = 4, .positions = 32768, .window = 4096, .bos = -1, .eos = -1},
     .window = WINDOW_IF_USED,
     .balances = true,
     .read = read_config,
     .hidden = build_hidden,
     .head_name = "lm_head.weight",
     .embedding_name = "model.embed_tokens.weight",
     .params = count_params,
     .cuts = decoder_cuts};
