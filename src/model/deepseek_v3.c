/* DeepSeek-V3: queries, keys and values are computed from narrow vectors (latent attention).
 * All layers but the first few have one expert that all tokens use, and others that a sigmoid
 * router with a correction bias chooses within groups.  Layers after the last, which predict
 * tokens farther ahead, are not used. */
#include "model/moe_layer.h"

#include <math.h>
#include <string.h>

static const double latent_eps = 1e-6; /* Transformers' default, independent of rms_norm_eps */

/* --- attention -------------------------------------------------------------------------------- */

static place attention_place(int layer, const char *part) {
  return place_in(layer_place(layer, "self_attn"), part);
}

/* Elements start..+n of the last dim of x [B,T,H,...] or [B,T,...]. */
static hp_tensor slice_last_dim(model_build *b, hp_tensor x, int64_t start, int64_t n) {
  return hp_slice(b->g, x, hp_shape_of(b->g, x).rank - 1, start, start + n);
}

/* [B,T,H,plain + rotated]; the second part has its position. */
static hp_tensor build_queries(model_build *b, int layer, hp_tensor x) {
  const model_config *c = b->c;
  const latent_config *l = &c->latent;
  int64_t in = c->hidden, dims = l->plain + l->rotated;
  const char *name = "q_proj";
  if (l->q_rank) {
    x = build_linear(b, x, in, l->q_rank, c->qkv_bias, 1, attention_place(layer, "q_a_proj").text);
    in = l->q_rank;
    x = decoder_norm(b, x, in, latent_eps, attention_place(layer, "q_a_layernorm").text);
    name = "q_b_proj";
  }
  hp_tensor q =
      build_linear(b, x, in, c->heads * dims, false, 1, attention_place(layer, name).text);
  q = build_annotated(b, layer, "q_proj", build_heads(b, q, c->heads, dims));
  hp_tensor part[2] = {slice_last_dim(b, q, 0, l->plain),
                       build_rope(b, slice_last_dim(b, q, l->plain, l->rotated))};
  return hp_concat(b->g, part, 2, 3);
}

/* k [B,T,H,plain + rotated], with the second part shared by all heads, and v [B,T,H,v_dim]. */
static void build_keys_and_values(model_build *b, int layer, hp_tensor x, hp_tensor *k,
                                  hp_tensor *v) {
  const model_config *c = b->c;
  const latent_config *l = &c->latent;
  hp_tensor narrow = build_linear(b, x, c->hidden, l->kv_rank + l->rotated, c->qkv_bias, 1,
                                  attention_place(layer, "kv_a_proj_with_mqa").text);
  hp_tensor rotated =
      build_heads(b, slice_last_dim(b, narrow, l->kv_rank, l->rotated), 1, l->rotated);
  hp_tensor latent = decoder_norm(b, slice_last_dim(b, narrow, 0, l->kv_rank), l->kv_rank,
                                  latent_eps, attention_place(layer, "kv_a_layernorm").text);
  hp_tensor kv = build_linear(b, latent, l->kv_rank, c->heads * (l->plain + l->v_dim), false, 1,
                              attention_place(layer, "kv_b_proj").text);
  kv = build_heads(b, kv, c->heads, l->plain + l->v_dim);
  kv = build_annotated(b, layer, "k_proj", kv);
  rotated =
      hp_broadcast(b->g, build_rope(b, rotated), (hp_shape){4, {b->B, b->T, c->heads, l->rotated}});
  hp_tensor part[2] = {slice_last_dim(b, kv, 0, l->plain), rotated};
  *k = hp_concat(b->g, part, 2, 3);
  *v = slice_last_dim(b, kv, l->plain, l->v_dim);
}

static hp_tensor build_mla(model_build *b, int layer, hp_tensor x) {
  const model_config *c = b->c;
  int64_t width = c->heads * c->latent.v_dim;
  x = build_annotated(b, layer, "attn_in", hp_cast(b->g, x, b->compute));
  hp_tensor q = build_queries(b, layer, x), k, v;
  build_keys_and_values(b, layer, x, &k, &v);
  hp_at(b->g, attention_place(layer, CORE_ATTENTION).text);
  hp_attention_options how = {.scale = c->latent.score_scale};
  hp_tensor o = build_attention(b, layer, q, k, v, &how);
  return decoder_attention_out(b, layer, o, width);
}

static hp_tensor build_mlp(model_build *b, int layer, hp_tensor x) {
  const moe_config *m = &b->c->moe;
  if (!m->layer[layer]) return decoder_mlp(b, layer, x);
  hp_tensor y = moe_layer(b, layer, x, ROUTE_SIGMOID, &moe_names_usual);
  if (!m->shared) return y;
  hp_tensor all = decoder_mlp_of(b, layer, x, m->shared, layer_place(layer, "mlp.shared_experts"));
  return hp_add(b->g, y, hp_cast(b->g, all, HP_F32));
}

static hp_tensor build_hidden(model_build *b) { return decoder_hidden(b, build_mla, build_mlp); }

static double count_params(const model_config *c) {
  const latent_config *l = &c->latent;
  double h = (double)c->hidden, heads = (double)c->heads, kv = (double)l->kv_rank;
  double q = heads * (double)(l->plain + l->rotated), rank = (double)l->q_rank;
  double n = rank > 0 ? h * rank + rank + rank * q : h * q;
  n += h * (kv + (double)l->rotated) + kv + kv * heads * (double)(l->plain + l->v_dim);
  n += heads * (double)l->v_dim * h;
  if (c->qkv_bias) n += rank + kv + (double)l->rotated + h;
  return decoder_frame_params(c) + (double)c->layers * n + moe_params(c);
}

/* --- configuration ---------------------------------------------------------------------------- */

static hp_status read_attention(const tree_node *root, model_config *c) {
  latent_config *l = &c->latent;
  HP_TRY(tree_opt_bool(root, "attention_bias", false, &c->qkv_bias));
  c->o_bias = c->qkv_bias;
  HP_TRY(config_read_size(root, "q_lora_rank", 1536, 0, &l->q_rank));
  HP_TRY(config_opt_size(root, "kv_lora_rank", 512, &l->kv_rank));
  HP_TRY(config_opt_size(root, "qk_nope_head_dim", 128, &l->plain));
  HP_TRY(config_opt_size(root, "qk_rope_head_dim", 64, &l->rotated));
  HP_TRY(config_opt_size(root, "v_head_dim", 128, &l->v_dim));
  if (c->kv_heads != c->heads)
    TREE_FAIL(tree_get(root, "num_key_value_heads"),
              "%lld is not num_attention_heads, %lld: here every head has keys of its own",
              (long long)c->kv_heads, (long long)c->heads);
  int64_t keys = l->plain + l->rotated;
  c->head_dim = keys > l->v_dim ? keys : l->v_dim;
  c->rope.dims = l->rotated;
  HP_TRY(tree_opt_bool(root, "rope_interleave", true, &c->rope.interleaved));
  HP_TRY(config_check_sizes(root, c));
  HP_TRY(config_read_rope(root, c));
  double m = c->rope.kind == ROPE_DEFAULT || c->rope.mscale_all_dim == 0
                 ? 1
                 : rope_mscale(c->rope.factor, c->rope.mscale_all_dim);
  l->score_scale = m * m / sqrt((double)keys);
  return HP_OK;
}

static hp_status read_groups(const tree_node *root, moe_config *m) {
  HP_TRY(config_opt_size(root, "n_group", 8, &m->groups));
  HP_TRY(config_opt_size(root, "topk_group", 4, &m->groups_used));
  int64_t each = m->experts / m->groups;
  if (m->experts % m->groups || (m->groups > 1 && each < 2))
    TREE_FAIL(root, "n_group %lld does not divide the %lld experts into groups of two or more",
              (long long)m->groups, (long long)m->experts);
  if (m->groups_used > m->groups || m->groups_used * each < m->per_token)
    TREE_FAIL(root, "topk_group %lld of %lld groups of %lld experts; %lld experts are to be chosen",
              (long long)m->groups_used, (long long)m->groups, (long long)each,
              (long long)m->per_token);
  return HP_OK;
}

/* Refuses all but the one supported value of a key. */
static hp_status check_only_word(const tree_node *root, const char *key, const char *built) {
  const char *word;
  HP_TRY(tree_opt_string(root, key, built, &word));
  if (strcmp(word, built))
    TREE_FAIL(tree_get(root, key), "\"%s\" is not built; expected %s", word, built);
  return HP_OK;
}

static hp_status read_experts(const tree_node *root, model_config *c) {
  moe_config *m = &c->moe;
  int64_t shared, first;
  HP_TRY(check_only_word(root, "scoring_func", "sigmoid"));
  HP_TRY(check_only_word(root, "topk_method", "noaux_tc"));
  HP_TRY(config_opt_either(root, "n_routed_experts", "num_local_experts", 256, &m->experts));
  HP_TRY(config_opt_size(root, "moe_intermediate_size", 2048, &m->ffn));
  HP_TRY(config_opt_count(root, "n_shared_experts", 1, &shared));
  HP_TRY(config_opt_count(root, "first_k_dense_replace", 3, &first));
  HP_TRY(moe_config_read(root, 8, c));
  HP_TRY(read_groups(root, m));
  HP_TRY(tree_opt_bool(root, "norm_topk_prob", true, &m->norm));
  HP_TRY(tree_opt_double(root, "routed_scaling_factor", 2.5, &m->scale));
  m->shared = shared * m->ffn;
  for (int64_t i = 0; i < c->layers; i++) m->layer[i] = i >= first;
  return HP_OK;
}

static hp_status read_config(const tree_node *root, model_config *c) {
  HP_TRY(config_read_decoder(root, c));
  HP_TRY(read_attention(root, c));
  HP_TRY(read_experts(root, c));
  HP_TRY(config_opt_count(root, "num_nextn_predict_layers", 1, &c->layers_ahead));
  return config_opt_count(root, "num_mtp_layers", c->layers_ahead, &c->layers_ahead);
}

extern const model_family family_deepseek_v3;
const model_family family_deepseek_v3 = {.model_type = "deepseek_v3",
                                         .architecture = "DeepseekV3ForCausalLM",
                                         .freezes_pad = true,
                                         .absent = {.positions = 4096, .bos = 0, .eos = 1},
                                         .read = read_config,
                                         .hidden = build_hidden,
                                         .head_name = "lm_head.weight",
                                         .embedding_name = "model.embed_tokens.weight",
                                         .params = count_params,
                                         .cuts = decoder_cuts};
