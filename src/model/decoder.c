#include "model/decoder.h"

#include <stdio.h>

place layer_place(int layer, const char *part) {
  place p;
  snprintf(p.text, sizeof p.text, "model.layers.%d.%s", layer, part);
  return p;
}

place place_in(place p, const char *part) {
  place q;
  snprintf(q.text, sizeof q.text, "%.80s.%s", p.text, part);
  return q;
}

hp_tensor decoder_norm(model_build *b, hp_tensor x, int64_t width, double eps, const char *name) {
  hp_at(b->g, name);
  hp_tensor w = build_param(b, PARAM_NORM, 1, 1, &width, "%s.weight", name);
  return hp_rms_norm(b->g, x, w, eps);
}

/* Queries or keys: projected, split into heads, normed per head (qwen3), rotated (RoPE). */
static hp_tensor project_heads(model_build *b, int layer, hp_tensor x, int64_t heads,
                               const char *proj, const char *head_norm) {
  const model_config *c = b->c;
  place name = place_in(layer_place(layer, "self_attn"), proj);
  hp_tensor y = build_linear(b, x, c->hidden, heads * c->head_dim, c->qkv_bias, 1, name.text);
  y = build_annotated(b, layer, proj, build_heads(b, y, heads, c->head_dim));
  if (c->qk_norm && head_norm)
    y = decoder_norm(b, y, c->head_dim, c->norm_eps, layer_place(layer, head_norm).text);
  return head_norm ? build_rope(b, y) : y;
}

hp_tensor decoder_attention(model_build *b, int layer, hp_tensor x) {
  const model_config *c = b->c;
  x = build_annotated(b, layer, "attn_in", hp_cast(b->g, x, b->compute));
  hp_tensor q = project_heads(b, layer, x, c->heads, "q_proj", "self_attn.q_norm");
  hp_tensor k = project_heads(b, layer, x, c->kv_heads, "k_proj", "self_attn.k_norm");
  hp_tensor v = project_heads(b, layer, x, c->kv_heads, "v_proj", NULL);
  hp_at(b->g, layer_place(layer, "self_attn." CORE_ATTENTION).text);
  hp_attention_options how = {.window = c->windowed[layer] ? c->window : 0};
  hp_tensor o = build_attention(b, layer, q, k, v, &how);
  return decoder_attention_out(b, layer, o, c->heads * c->head_dim);
}

hp_tensor decoder_attention_out(model_build *b, int layer, hp_tensor o, int64_t width) {
  const model_config *c = b->c;
  o = build_annotated(b, layer, "attn_mid", build_merge(b, o, width));
  return build_linear(b, o, width, c->hidden, c->o_bias, 1,
                      layer_place(layer, "self_attn.o_proj").text);
}

hp_tensor decoder_mlp_of(model_build *b, int layer, hp_tensor x, int64_t width, place at) {
  const model_config *c = b->c;
  x = build_annotated(b, layer, "mlp_in", hp_cast(b->g, x, b->compute));
  hp_tensor gate =
      build_linear(b, x, c->hidden, width, c->mlp_bias, 1, place_in(at, "gate_proj").text);
  hp_tensor up = build_linear(b, x, c->hidden, width, c->mlp_bias, 1, place_in(at, "up_proj").text);
  hp_at(b->g, at.text);
  gate = build_annotated(b, layer, "mlp_act", gate);
  up = build_annotated(b, layer, "mlp_act", up);
  hp_tensor h = hp_mul(b->g, hp_map(b->g, c->activation, gate, HP_NONE, HP_NONE), up);
  h = build_annotated(b, layer, "mlp_mid", h);
  return build_linear(b, h, width, c->hidden, c->mlp_bias, 1, place_in(at, "down_proj").text);
}

hp_tensor decoder_mlp(model_build *b, int layer, hp_tensor x) {
  return decoder_mlp_of(b, layer, x, b->c->ffn, layer_place(layer, "mlp"));
}

/* The residual stream h plus the result of a sublayer. */
static hp_tensor add_part(model_build *b, int layer, hp_tensor h, decoder_part part,
                          const char *name, const char *annotation, const char *norm) {
  const model_config *c = b->c;
  hp_tensor x = decoder_norm(b, h, c->hidden, c->norm_eps, layer_place(layer, norm).text);
  x = build_annotated(b, layer, annotation, part(b, layer, x));
  hp_at(b->g, layer_place(layer, name).text);
  return build_annotated(b, layer, "residual", hp_add(b->g, h, hp_cast(b->g, x, HP_F32)));
}

hp_tensor decoder_hidden(model_build *b, decoder_part attention, decoder_part mlp) {
  const model_config *c = b->c;
  build_layer(b, -1);
  hp_at(b->g, "model.embed_tokens");
  hp_tensor table = build_param(b, PARAM_EMBEDDING, 1, 2, (int64_t[]){c->vocab, c->hidden},
                                "model.embed_tokens.weight");
  hp_tensor h = build_embedding(b, table, c->frozen);
  h = build_annotated(b, -1, "embedded", h);
  for (int i = 0; i < c->layers; i++) {
    build_layer(b, i);
    h = add_part(b, i, h, attention, "self_attn", "attn_out", "input_layernorm");
    h = add_part(b, i, h, mlp, "mlp", "mlp_out", "post_attention_layernorm");
  }
  build_layer(b, (int)c->layers);
  return decoder_norm(b, h, c->hidden, c->norm_eps, "model.norm");
}

double decoder_attention_params(const model_config *c) {
  double h = (double)c->hidden, q = (double)(c->heads * c->head_dim);
  double kv = (double)(c->kv_heads * c->head_dim), n = 2 * h * q + 2 * h * kv;
  if (c->qkv_bias) n += q + 2 * kv;
  if (c->o_bias) n += h;
  if (c->qk_norm) n += 2 * (double)c->head_dim;
  return n;
}

double decoder_mlp_params(const model_config *c, int64_t width) {
  double h = (double)c->hidden, f = (double)width;
  return 3 * h * f + (c->mlp_bias ? 2 * f + h : 0);
}

double decoder_frame_params(const model_config *c) {
  double h = (double)c->hidden;
  return (double)c->vocab * h * (c->tied ? 1 : 2) + (double)(2 * c->layers + 1) * h;
}

/* Heads and the wide middle of the mlp, also of an expert: first columns, then rows, with one
 * reduction per block. */
const tensor_cut decoder_cuts[] =
    {{"q_proj.weight", 0, CUT_HEADS},          {"q_b_proj.weight", 0, CUT_HEADS},
     {"kv_b_proj.weight", 0, CUT_HEADS},       {"k_proj.weight", 0, CUT_KV_HEADS},
     {"v_proj.weight", 0, CUT_KV_HEADS},       {"q_proj.bias", 0, CUT_HEADS},
     {"k_proj.bias", 0, CUT_KV_HEADS},         {"v_proj.bias", 0, CUT_KV_HEADS},
     {"o_proj.weight", 1, CUT_HEADS},          {".*.gate_proj.weight", 1, CUT_ELEMENTS},
     {".*.up_proj.weight", 1, CUT_ELEMENTS},   {".*.down_proj.weight", 2, CUT_ELEMENTS},
     {"gate_proj.weight", 0, CUT_ELEMENTS},    {"up_proj.weight", 0, CUT_ELEMENTS},
     {"gate_proj.bias", 0, CUT_ELEMENTS},      {"up_proj.bias", 0, CUT_ELEMENTS},
     {"down_proj.weight", 1, CUT_ELEMENTS},    {"lm_head.weight", 0, CUT_ELEMENTS},
     {"embed_tokens.weight", 0, CUT_ELEMENTS}, {NULL, 0, CUT_ELEMENTS}};
