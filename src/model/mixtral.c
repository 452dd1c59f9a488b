/* Mixtral: mistral with experts in every layer, weighted by softmax. */
#include "model/moe_layer.h"

static const moe_names names = {"block_sparse_moe", "w1", "w3", "w2"};

static hp_tensor build_experts(model_build *b, int layer, hp_tensor x) {
  return moe_layer(b, layer, x, ROUTE_SOFTMAX, &names);
}

static hp_tensor build_hidden(model_build *b) {
  return decoder_hidden(b, decoder_attention, build_experts);
}

static double count_params(const model_config *c) {
  return decoder_frame_params(c) + (double)c->layers * decoder_attention_params(c) + moe_params(c);
}

static hp_status read_config(const tree_node *root, model_config *c) {
  HP_TRY(config_read_llama(root, c));
  HP_TRY(config_opt_either(root, "num_local_experts", "num_experts", 8, &c->moe.experts));
  c->moe.ffn = c->ffn;
  c->moe.norm = true;
  HP_TRY(tree_opt_double(root, "router_jitter_noise", 0, &c->moe.noise));
  HP_TRY(moe_config_read_balance(root, c));
  return moe_config_read(root, 2, c);
}

static const tensor_cut cuts[] =
    {{"q_proj.weight", 0, CUT_HEADS},          {"k_proj.weight", 0, CUT_KV_HEADS},
     {"v_proj.weight", 0, CUT_KV_HEADS},       {"o_proj.weight", 1, CUT_HEADS},
     {".w1.weight", 1, CUT_ELEMENTS},          {".w3.weight", 1, CUT_ELEMENTS},
     {".w2.weight", 2, CUT_ELEMENTS},          {"lm_head.weight", 0, CUT_ELEMENTS},
     {"embed_tokens.weight", 0, CUT_ELEMENTS}, {NULL, 0, CUT_ELEMENTS}};

extern const model_family family_mixtral;
const model_family family_mixtral =
    {.model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .freezes_pad = true,
     .absent = {.kv_heads = 8, .positions = 131072, .bos = 1, .eos = 2, .eps = 1e-5, .theta = 1e6},
     .window = WINDOW_ALL,
     .balances = true,
     .read = read_config,
     .hidden = build_hidden,
     .head_name = "lm_head.weight",
     .embedding_name = "model.embed_tokens.weight",
     .params = count_params,
     .cuts = cuts};
