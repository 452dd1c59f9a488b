/* GPT-2: learned positions, layer norms, one projection for q, k and v, weights stored [in,out]. */
#include "model/family.h"

#include <math.h>
#include <stdio.h>

static hp_tensor build_norm(model_build *b, hp_tensor x, const char *name) {
  int64_t width = b->c->hidden;
  hp_at(b->g, name);
  hp_tensor w = build_param(b, PARAM_NORM, 1, 1, &width, "%s.weight", name);
  hp_tensor bias = build_param(b, PARAM_BIAS, 1, 1, &width, "%s.bias", name);
  return hp_layer_norm(b->g, x, w, bias, b->c->norm_eps);
}

typedef struct {
  char text[96];
} place;
static place make_place(int layer, const char *part) {
  place p;
  snprintf(p.text, sizeof p.text, "transformer.h.%d.%s", layer, part);
  return p;
}

/* Scales scores by 1 / sqrt(head dim), and by 1 / layer number, as the configuration says. */
static double score_scale(const model_config *c, int layer) {
  double scale = c->scale_scores ? 1 / sqrt((double)c->head_dim) : 1;
  return c->scale_by_layer ? scale / (layer + 1) : scale;
}

/* Transformers initialises projections back into the residual stream smaller, by 1 / sqrt(2
 * layers). */
static double residual_scale(const model_config *c) { return 1 / sqrt(2 * (double)c->layers); }

static hp_tensor build_self_attention(model_build *b, int layer, hp_tensor x) {
  const model_config *c = b->c;
  int64_t w = c->hidden;
  x = build_annotated(b, layer, "attn_in", hp_cast(b->g, x, b->compute));
  hp_tensor qkv = build_conv1d(b, x, w, 3 * w, 1, make_place(layer, "attn.c_attn").text), part[3];
  for (int i = 0; i < 3; i++) {
    static const char *const name[3] = {"q_proj", "k_proj", "v_proj"};
    part[i] = build_heads(b, hp_slice(b->g, qkv, 2, i * w, (i + 1) * w), c->heads, c->head_dim);
    part[i] = build_annotated(b, layer, name[i], part[i]);
  }
  hp_at(b->g, make_place(layer, "attn." CORE_ATTENTION).text);
  hp_attention_options how = {.scale = score_scale(c, layer)};
  hp_tensor o = build_attention(b, layer, part[0], part[1], part[2], &how);
  o = build_annotated(b, layer, "attn_mid", build_merge(b, o, w));
  o = build_conv1d(b, o, w, w, residual_scale(c), make_place(layer, "attn.c_proj").text);
  return build_annotated(b, layer, "attn_out", o);
}

static hp_tensor build_mlp(model_build *b, int layer, hp_tensor x) {
  const model_config *c = b->c;
  x = build_annotated(b, layer, "mlp_in", hp_cast(b->g, x, b->compute));
  hp_tensor h = build_conv1d(b, x, c->hidden, c->ffn, 1, make_place(layer, "mlp.c_fc").text);
  hp_at(b->g, make_place(layer, "mlp").text);
  h = build_annotated(b, layer, "mlp_act", h);
  h = build_annotated(b, layer, "mlp_mid", hp_map(b->g, c->activation, h, HP_NONE, HP_NONE));
  h = build_conv1d(b, h, c->ffn, c->hidden, residual_scale(c),
                   make_place(layer, "mlp.c_proj").text);
  return build_annotated(b, layer, "mlp_out", h);
}

/* The residual stream h plus the result of a sublayer. */
static hp_tensor add_to(model_build *b, hp_tensor h, hp_tensor x, int layer, const char *part) {
  place p = make_place(layer, part);
  hp_at(b->g, p.text);
  x = build_dropout(b, hp_cast(b->g, x, HP_F32), b->c->dropout.residual, p.text);
  return build_annotated(b, layer, "residual", hp_add(b->g, h, x));
}

static hp_tensor build_hidden(model_build *b) {
  const model_config *c = b->c;
  build_layer(b, -1);
  hp_at(b->g, "transformer.wte");
  hp_tensor table = build_param(b, PARAM_EMBEDDING, 1, 2, (int64_t[]){c->vocab, c->hidden},
                                "transformer.wte.weight");
  hp_tensor places = build_param(b, PARAM_EMBEDDING, 1, 2, (int64_t[]){c->max_length, c->hidden},
                                 "transformer.wpe.weight");
  hp_tensor h = build_embedding(b, table, -1);
  hp_at(b->g, "transformer.wpe");
  h = hp_add(b->g, h, hp_cast(b->g, hp_embedding(b->g, places, b->positions, -1), HP_F32));
  h = build_dropout(b, h, c->dropout.embedding, "transformer.drop");
  h = build_annotated(b, -1, "embedded", h);
  for (int i = 0; i < c->layers; i++) {
    build_layer(b, i);
    h = add_to(b, h, build_self_attention(b, i, build_norm(b, h, make_place(i, "ln_1").text)), i,
               "attn");
    h = add_to(b, h, build_mlp(b, i, build_norm(b, h, make_place(i, "ln_2").text)), i, "mlp");
  }
  build_layer(b, (int)c->layers);
  return build_norm(b, h, "transformer.ln_f");
}

static double count_params(const model_config *c) {
  double h = (double)c->hidden, f = (double)c->ffn;
  double layer = h * 3 * h + 3 * h + h * h + h + h * f + f + f * h + h + 4 * h;
  return (double)c->layers * layer + (double)(c->vocab * (c->tied ? 1 : 2) + c->max_length) * h +
         2 * h;
}

static hp_status read_config(const tree_node *root, model_config *c) {
  HP_TRY(config_need_size(root, "vocab_size", &c->vocab));
  HP_TRY(config_need_size(root, "n_embd", &c->hidden));
  HP_TRY(config_need_size(root, "n_layer", &c->layers));
  HP_TRY(config_need_size(root, "n_head", &c->heads));
  HP_TRY(config_opt_size(root, "n_positions", c->family->absent.positions, &c->max_length));
  HP_TRY(config_opt_size(root, "n_inner", 4 * c->hidden, &c->ffn)); /* null: 4 n_embd */
  HP_TRY(config_read_eps(root, "layer_norm_epsilon", 1e-5, c));
  HP_TRY(config_read_activation(root, "activation_function", "gelu_new", c));
  if (c->hidden % c->heads)
    TREE_FAIL(root, "n_embd %lld is not a multiple of n_head %lld", (long long)c->hidden,
              (long long)c->heads);
  HP_TRY(tree_opt_bool(root, "scale_attn_weights", true, &c->scale_scores));
  HP_TRY(tree_opt_bool(root, "scale_attn_by_inverse_layer_idx", false, &c->scale_by_layer));
  HP_TRY(config_read_dropout(root, "embd_pdrop", 0.1, &c->dropout.embedding));
  HP_TRY(config_read_dropout(root, "attn_pdrop", 0.1, &c->dropout.attention));
  HP_TRY(config_read_dropout(root, "resid_pdrop", 0.1, &c->dropout.residual));
  c->kv_heads = c->heads;
  c->head_dim = c->hidden / c->heads;
  return config_check_sizes(root, c);
}

/* The mlp's weights are stored [in, out].  c_attn holds queries, keys and values next to each
 * other, so a shard of its columns is not a shard of the heads. */
static const tensor_cut cuts[] = {{"mlp.c_fc.weight", 1, CUT_ELEMENTS},
                                  {"mlp.c_fc.bias", 0, CUT_ELEMENTS},
                                  {"mlp.c_proj.weight", 0, CUT_ELEMENTS},
                                  {"wte.weight", 0, CUT_ELEMENTS},
                                  {NULL, 0, CUT_ELEMENTS}};

extern const model_family family_gpt2;
const model_family family_gpt2 = {.model_type = "gpt2",
                                  .architecture = "GPT2LMHeadModel",
                                  .tied_by_default = true,
                                  .absent = {.positions = 1024, .bos = 50256, .eos = 50256},
                                  .read = read_config,
                                  .hidden = build_hidden,
                                  .head_name = "lm_head.weight",
                                  .embedding_name = "transformer.wte.weight",
                                  .params = count_params,
                                  .cuts = cuts};
