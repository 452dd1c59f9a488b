#include "model/moe_layer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const moe_names moe_names_usual = {"mlp", "gate_proj", "up_proj", "down_proj"};

enum { EXPERTS_MAX = 1024 };

/* A layer of experts in a graph. */
typedef struct {
  model_build *b;
  const moe_config *c;
  const moe_names *names;
  place at, usual; /* of the block; the same in the names of other versions */
} block;

/* --- the router ------------------------------------------------------------------------------- */

/* Weights and indices of a token's experts: [B,T,per_token]. */
typedef struct {
  hp_tensor weight, index;
} routing;

static hp_tensor build_router(const block *k, hp_tensor x) {
  model_build *b = k->b;
  place gate = place_in(k->at, "gate"), name = place_in(gate, "weight");
  hp_at(b->g, gate.text);
  hp_tensor w =
      build_param(b, PARAM_MATRIX, 1, 2, (int64_t[]){k->c->experts, b->c->hidden}, "%s", name.text);
  if (strcmp(k->at.text, k->usual.text))
    build_alias(b, name.text, place_in(k->usual, "gate.weight").text, 0, 0);
  return hp_einsum(b->g, "btc,ec->bte", x, hp_cast(b->g, w, HP_F32));
}

/* The scores for choosing experts, without those of all groups but the best.  The score of a
 * group is the sum of its two best experts. */
static hp_tensor limit_to_groups(const block *k, hp_tensor choice) {
  model_build *b = k->b;
  hp_graph *g = b->g;
  int64_t G = k->c->groups, used = k->c->groups_used;
  hp_tensor unused, best;
  choice = hp_reshape(g, choice, (hp_shape){4, {b->B, b->T, G, k->c->experts / G}});
  hp_tensor score = hp_sum(g, hp_topk(g, choice, 2, &unused), (int64_t[]){3}, 1, false);
  hp_topk(g, score, used, &best);
  hp_tensor ones = hp_broadcast(g, hp_const(g, HP_F32, 1), (hp_shape){3, {b->B, b->T, used}});
  hp_tensor open =
      hp_reshape(g, hp_scatter_add(g, ones, best, G), (hp_shape){4, {b->B, b->T, G, 1}});
  open = hp_map(g, "gt", open, hp_const(g, HP_F32, 0), HP_NONE);
  choice = hp_map(g, "select", open, choice, hp_const(g, HP_F32, -INFINITY));
  return hp_reshape(g, choice, (hp_shape){3, {b->B, b->T, k->c->experts}});
}

/* A bias corrects the choice, but not the weights. */
static routing route_sigmoid(const block *k, hp_tensor logits) {
  hp_graph *g = k->b->g;
  hp_tensor scores = hp_map(g, "sigmoid", logits, HP_NONE, HP_NONE);
  hp_tensor bias = build_param(k->b, PARAM_FIXED, 0, 1, &k->c->experts, "%s",
                               place_in(k->at, "gate.e_score_correction_bias").text);
  hp_tensor choice = hp_add(g, scores, bias);
  routing r;
  if (k->c->groups > 1) choice = limit_to_groups(k, choice);
  hp_topk(g, choice, k->c->per_token, &r.index);
  r.weight = hp_gather(g, scores, r.index);
  return r;
}

static void add_to(hp_graph *g, hp_tensor *sum, hp_tensor x) {
  *sum = *sum ? hp_add(g, *sum, x) : x;
}

/* Sum over sequences and tokens. */
static hp_tensor sum_over_tokens(hp_graph *g, hp_tensor x) {
  return hp_sum(g, x, (int64_t[]){0, 1}, 2, false);
}

static void measure_use(const block *k, hp_tensor likely, hp_tensor index) {
  model_build *b = k->b;
  hp_graph *g = b->g;
  hp_tensor counted = hp_reshape(g, b->counted, (hp_shape){3, {b->B, b->T, 1}});
  hp_tensor once = hp_broadcast(g, counted, (hp_shape){3, {b->B, b->T, k->c->per_token}});
  add_to(g, &b->use.chosen, sum_over_tokens(g, hp_scatter_add(g, once, index, k->c->experts)));
  add_to(g, &b->use.likely, sum_over_tokens(g, hp_mul(g, likely, counted)));
  add_to(g, &b->use.rows, sum_over_tokens(g, b->counted));
}

hp_tensor moe_balance(model_build *b) {
  hp_graph *g = b->g;
  if (!b->use.rows) return HP_NONE;
  hp_at(g, "balance");
  hp_tensor chosen = hp_div(g, b->use.chosen, b->use.rows);
  hp_tensor likely = hp_div(g, b->use.likely, b->use.rows);
  hp_tensor sum = hp_sum(g, hp_mul(g, chosen, likely), (int64_t[]){0}, 1, false);
  return hp_scale(g, sum, b->c->moe.balance * (double)b->c->moe.experts);
}

static routing route_softmax(const block *k, hp_tensor logits) {
  routing r;
  hp_tensor likely = hp_softmax(k->b->g, logits);
  r.weight = hp_topk(k->b->g, likely, k->c->per_token, &r.index);
  if (k->b->counted) measure_use(k, likely, r.index);
  return r;
}

static routing route_tokens(const block *k, hp_tensor x, moe_route how) {
  hp_graph *g = k->b->g;
  hp_tensor logits = build_router(k, x);
  routing r = (how == ROUTE_SIGMOID ? route_sigmoid : route_softmax)(k, logits);
  if (k->c->norm) {
    hp_tensor sum = hp_sum(g, r.weight, (int64_t[]){2}, 1, true);
    r.weight = hp_div(g, r.weight, hp_add(g, sum, hp_const(g, HP_F32, 1e-20)));
  }
  if (k->c->scale != 1) r.weight = hp_scale(g, r.weight, k->c->scale);
  return r;
}

/* --- the experts ------------------------------------------------------------------------------ */

/* A projection of each token's experts, with weights [n,k] each; in files of other versions they
 * are rows of the tensor `alias`, from `row` on of `rows`. */
static hp_tensor project_experts(const block *k, hp_tensor x, hp_tensor index, const char *name,
                                 int64_t n, int64_t width, const char *alias, int64_t row,
                                 int64_t rows) {
  model_build *b = k->b;
  place experts = place_in(k->at, "experts"), each = place_in(experts, "*");
  place param = place_in(place_in(each, name), "weight");
  hp_at(b->g, place_in(experts, name).text);
  hp_tensor w =
      build_param(b, PARAM_MATRIX, 1, 3, (int64_t[]){k->c->experts, n, width}, "%s", param.text);
  build_alias(b, param.text, place_in(place_in(k->usual, "experts"), alias).text, row, rows);
  return hp_grouped_matmul(b->g, x, hp_cast(b->g, w, b->compute), index);
}

hp_tensor moe_layer(model_build *b, int layer, hp_tensor x, moe_route how, const moe_names *n) {
  const moe_config *c = &b->c->moe;
  block k = {.b = b,
             .c = c,
             .names = n,
             .at = layer_place(layer, n->block),
             .usual = layer_place(layer, moe_names_usual.block)};
  int64_t h = b->c->hidden, f = c->ffn;
  routing r = route_tokens(&k, x, how);
  x = build_annotated(b, layer, "moe_in", hp_cast(b->g, x, b->compute));
  r.index = build_annotated(b, layer, "moe_ids", r.index);
  r.weight = build_annotated(b, layer, "moe_weight", r.weight);
  hp_tensor gate = project_experts(&k, x, r.index, n->gate, f, h, "gate_up_proj", 0, 2 * f);
  hp_tensor up = project_experts(&k, x, r.index, n->up, f, h, "gate_up_proj", f, 2 * f);
  hp_at(b->g, k.at.text);
  gate = hp_map(b->g, b->c->activation, gate, HP_NONE, HP_NONE);
  hp_tensor y =
      project_experts(&k, hp_mul(b->g, gate, up), r.index, n->down, h, f, "down_proj", 0, h);
  hp_at(b->g, k.at.text);
  hp_tensor weight = hp_reshape(b->g, r.weight, (hp_shape){4, {b->B, b->T, c->per_token, 1}});
  y = hp_mul(b->g, hp_cast(b->g, y, HP_F32), weight);
  return build_annotated(b, layer, "moe_out", hp_sum(b->g, y, (int64_t[]){2}, 1, false));
}

/* --- configuration ---------------------------------------------------------------------------- */

hp_status moe_config_read(const tree_node *root, int64_t absent, model_config *c) {
  moe_config *m = &c->moe;
  HP_TRY(config_opt_size(root, "num_experts_per_tok", absent, &m->per_token));
  if (m->experts > EXPERTS_MAX)
    TREE_FAIL(root, "%lld experts; at most %d are built", (long long)m->experts, EXPERTS_MAX);
  if (m->per_token > m->experts)
    TREE_FAIL(root, "num_experts_per_tok %lld is above the number of experts, %lld",
              (long long)m->per_token, (long long)m->experts);
  m->groups = m->groups_used = 1;
  m->scale = 1;
  m->layer = mem_calloc((size_t)c->layers, sizeof *m->layer);
  HP_TRY_MEM(m->layer);
  for (int64_t i = 0; i < c->layers; i++) m->layer[i] = true;
  return HP_OK;
}

hp_status moe_config_read_balance(const tree_node *root, model_config *c) {
  bool wanted;
  double factor;
  HP_TRY(tree_opt_bool(root, "output_router_logits", false, &wanted));
  HP_TRY(tree_opt_double(root, "router_aux_loss_coef", 0.001, &factor));
  if (!(factor >= 0 && factor < 1e9))
    TREE_FAIL(tree_get(root, "router_aux_loss_coef"), "%g is out of range", factor);
  c->moe.balance = wanted ? factor : 0;
  return HP_OK;
}

double moe_params(const model_config *c) {
  double n = 0, h = (double)c->hidden, e = (double)c->moe.experts, f = (double)c->moe.ffn;
  double experts = e * h + 3 * e * h * f + 3 * h * (double)c->moe.shared;
  for (int64_t i = 0; i < c->layers; i++)
    n += c->moe.layer[i] ? experts : decoder_mlp_params(c, c->ffn);
  return n;
}
