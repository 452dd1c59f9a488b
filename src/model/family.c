#include "model/family.h"

#include "base/hash.h"
#include "model/adapter.h"
#include "model/kv_cache.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const model_family *model_family_find(const char *model_type) {
  const model_family *const *f = model_families;
  while (*f && strcmp((*f)->model_type, model_type)) f++;
  return *f;
}

void model_family_names(str *out) {
  for (size_t i = 0; model_families[i]; i++)
    str_printf(out, i ? ", %s" : "%s", model_families[i]->model_type);
}

const model_param *model_param_find(const model_param *p, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(p[i].name, name)) return &p[i];
  return NULL;
}

size_t model_param_elements(const model_param *p) {
  size_t n = 1;
  for (int i = 0; i < p->shape.rank; i++) n *= (size_t)p->shape.dim[i];
  return n;
}

hp_shape model_param_stored(const model_param *p) {
  const int64_t *d = p->shape.dim;
  hp_shape part = {.rank = p->shape.rank - 1};
  memcpy(part.dim, d + 1, (size_t)part.rank * sizeof *d);
  switch (p->order) {
  case ORDER_PACKED_ROWS: return (hp_shape){2, {d[0] * d[2], d[1]}};
  case ORDER_PACKED_COLUMNS: return (hp_shape){2, {d[1], d[0] * d[2]}};
  case ORDER_STORED: break;
  }
  return strchr(p->name, '*') ? part : p->shape;
}

bool model_param_is_adapter(const model_param *p) {
  return p->kind >= PARAM_LORA_A && p->kind <= PARAM_LORA_SIZE;
}

bool model_param_is_value_head(const model_param *p) { return !strncmp(p->name, "v_head.", 7); }

bool model_param_is_extra(const model_param *p) {
  return model_param_is_adapter(p) || model_param_is_value_head(p);
}

int64_t model_param_parts(const model_param *p) {
  return strchr(p->name, '*') ? p->shape.dim[0] : 1;
}

void model_param_part_name(const model_param *p, int64_t part, char name[160]) {
  const char *star = strchr(p->name, '*');
  if (star)
    snprintf(name, sizeof p->name, "%.*s%lld%s", (int)(star - p->name), p->name, (long long)part,
             star + 1);
  else snprintf(name, sizeof p->name, "%s", p->name);
}

static model_param *find_param(const model_build *b, const char *name) {
  uint32_t i;
  bool known = map_get(&b->param_of, name, strlen(name), &i) && i < b->params.len;
  return known ? &b->params.at[i] : NULL;
}

hp_tensor build_find_param(const model_build *b, const char *name) {
  const model_param *p = find_param(b, name);
  return p ? p->tensor : HP_NONE;
}

void build_alias(model_build *b, const char *name, const char *alias, int64_t row, int64_t rows) {
  model_param *p = find_param(b, name);
  if (!p) return;
  snprintf(p->alias, sizeof p->alias, "%s", alias);
  p->alias_row = row;
  p->alias_rows = rows;
}

void build_layer(model_build *b, int layer) {
  bool inside = layer >= 0 && layer < b->c->layers;
  b->layer = layer;
  hp_block(b->g, inside ? layer + 1 : 0);
  if (!b->stage_of) return;
  hp_stage(b->g, inside ? b->stage_of[layer] : layer < 0 ? 0 : b->stages - 1);
}

hp_tensor build_param(model_build *b, param_kind kind, double init_scale, int rank,
                      const int64_t *dim, const char *fmt, ...) {
  model_param p = {.kind = kind,
                   .init_scale = init_scale,
                   .shape = {.rank = rank},
                   .layer = b->layer};
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(p.name, sizeof p.name, fmt, ap);
  va_end(ap);
  memcpy(p.shape.dim, dim, (size_t)rank * sizeof *dim);
  bool matrix = kind == PARAM_MATRIX || kind == PARAM_EMBEDDING;
  uint32_t yes;
  p.frozen =
      b->only && !model_param_is_extra(&p) && !map_get(b->only, p.name, strlen(p.name), &yes);
  if (b->value_head && !b->c->tied) p.frozen |= !strcmp(p.name, b->c->family->head_name);
  p.dtype =
      matrix && !model_param_is_value_head(&p) && (!b->only || p.frozen) ? b->weights : HP_F32;
  hp_tensor have = build_find_param(b, p.name);
  if (have) return have;
  p.tensor = hp_param(b->g, p.name, p.dtype, p.shape);
  if (map_set(&b->param_of, p.name, strlen(p.name), (uint32_t)b->params.len) ||
      !vec_push(&b->params, p))
    b->failed = true;
  return p.tensor;
}

static hp_tensor add_bias(model_build *b, hp_tensor y, int64_t out, const char *name) {
  hp_tensor bias = build_param(b, PARAM_BIAS, 1, 1, &out, "%s.bias", name);
  return hp_add(b->g, y, hp_cast(b->g, bias, b->compute));
}

/* The module of the weight "NAME.weight", as a linear layer of the model. */
static model_linear linear_of(const matrix_spec *m, const char *weight) {
  model_linear l = {.in = m->in, .out = m->out, .transposed = m->transposed};
  const char *end = strrchr(weight, '.');
  snprintf(l.name, sizeof l.name, "%.*s", (int)(end ? end - weight : 0), weight);
  return l;
}

/* A linear layer in a graph, of a param that is not packed. */
typedef struct {
  const model_linear *l;
  hp_tensor x, y, w; /* y = w x */
  const char *eq;
} built_linear;

/* What brings the rows of W + scale B A to the sizes of the adapter: [out], f32. */
static hp_tensor row_factors(model_build *b, const built_linear *k, hp_tensor A, hp_tensor B,
                             double scale) {
  hp_graph *g = b->g;
  const int64_t in = k->l->transposed ? 0 : 1;
  hp_tensor size =
      build_param(b, PARAM_LORA_SIZE, 1, 1, &k->l->out, "%s.lora_magnitude_vector", k->l->name);
  hp_tensor ba =
      k->l->transposed ? hp_einsum(g, "nr,rc->cn", B, A) : hp_einsum(g, "nr,rc->nc", B, A);
  hp_tensor v = hp_add(g, hp_cast(g, k->w, HP_F32), hp_scale(g, ba, scale));
  hp_tensor sum = hp_sum(g, hp_mul(g, v, v), &in, 1, false);
  hp_tensor norm = hp_map(g, "sqrt", sum, HP_NONE, HP_NONE);
  return hp_div(g, size, hp_map(g, "stop_gradient", norm, HP_NONE, HP_NONE));
}

/* y with rows of another size: f y + f d, where d is what the adapter adds.  With dropout only what
 * is added to y reads the input without some elements. */
static hp_tensor add_sized(model_build *b, const built_linear *k, hp_tensor x, hp_tensor d,
                           hp_tensor f) {
  hp_graph *g = b->g;
  hp_dtype t = hp_dtype_of(g, k->y);
  if (x == k->x) return hp_mul(g, hp_add(g, k->y, d), hp_cast(g, f, t));
  hp_tensor again = hp_einsum_to(g, k->eq, x, hp_cast(g, k->w, b->compute), t);
  hp_tensor more = hp_cast(g, hp_sub(g, f, hp_const(g, HP_F32, 1)), t);
  hp_tensor y = hp_add(g, k->y, hp_mul(g, again, more));
  return hp_add(g, y, hp_mul(g, d, hp_cast(g, f, t)));
}

/* y plus what the adapter adds to it.  The scale is applied between A and B, where tensors are
 * narrow. */
static hp_tensor add_adapter(model_build *b, const built_linear *k) {
  const adapter *a = b->adapter;
  const model_linear *l = k->l;
  const adapter_module *m = adapter_find(a, l->name);
  char place[200];
  if (!m) return k->y;
  snprintf(place, sizeof place, "%s.lora_dropout", l->name);
  double scale = adapter_scale(a, m);
  hp_tensor x = a->o.dropout > 0 ? build_dropout(b, k->x, a->o.dropout, place) : k->x;
  const int64_t down[] = {m->rank, l->in}, up[] = {l->out, m->rank};
  hp_tensor A = build_param(b, PARAM_LORA_A, 1, 2, down, "%s.lora_A.weight", l->name);
  hp_tensor B = build_param(b, PARAM_LORA_B, 1, 2, up, "%s.lora_B.weight", l->name);
  snprintf(place, sizeof place, "%s.lora", l->name);
  hp_at(b->g, place);
  hp_tensor h = hp_einsum(b->g, "btc,rc->btr", x, hp_cast(b->g, A, b->compute));
  h = hp_scale(b->g, h, scale);
  h = hp_einsum_to(b->g, "btr,nr->btn", h, hp_cast(b->g, B, b->compute), hp_dtype_of(b->g, k->y));
  if (!a->o.dora) return hp_add(b->g, k->y, h);
  return add_sized(b, k, x, h, row_factors(b, k, A, B, scale));
}

hp_tensor build_matrix(model_build *b, hp_tensor x, const matrix_spec *m, const char *name) {
  const model_param *have = find_param(b, name); /* a tied head: the unpacked embedding */
  bool packed = have ? have->order : b->packed && m->out % PARAM_PACK == 0;
  const int64_t stored[] = {m->transposed ? m->in : m->out, m->transposed ? m->out : m->in};
  const int64_t packed_dims[] = {m->out / PARAM_PACK, m->in, PARAM_PACK};
  const char *eq = packed ? "btc,ncl->btnl" : m->transposed ? "btc,cn->btn" : "btc,nc->btn";
  hp_tensor w = build_param(b, PARAM_MATRIX, m->init_scale, packed ? 3 : 2,
                            packed ? packed_dims : stored, "%s", name);
  if (m->weight) w = m->weight;
  model_param *p = find_param(b, name);
  if (packed && p) p->order = m->transposed ? ORDER_PACKED_COLUMNS : ORDER_PACKED_ROWS;
  x = hp_cast(b->g, x, b->compute);
  hp_tensor y = hp_einsum_to(b->g, eq, x, hp_cast(b->g, w, b->compute), m->result);
  hp_shape s = hp_shape_of(b->g, y);
  if (packed) y = hp_reshape(b->g, y, (hp_shape){3, {s.dim[0], s.dim[1], m->out}});
  if (have && have->kind == PARAM_EMBEDDING) return y; /* a tied head is no linear layer */
  const model_linear l = linear_of(m, name);
  if (!have && !vec_push(&b->linears, l)) b->failed = true; /* have: a second pass (stage kto) */
  return b->adapter ? add_adapter(b, &(built_linear){&l, x, y, w, eq}) : y;
}

/* The weight of a layer, and its bias if there is one. */
static hp_tensor build_with_bias(model_build *b, hp_tensor x, const matrix_spec *m, bool bias,
                                 const char *name) {
  char weight[160];
  snprintf(weight, sizeof weight, "%.150s.weight", name);
  hp_at(b->g, name);
  hp_tensor y = build_matrix(b, x, m, weight);
  return bias ? add_bias(b, y, m->out, name) : y;
}

hp_tensor build_linear(model_build *b, hp_tensor x, int64_t in, int64_t out, bool bias,
                       double init_scale, const char *name) {
  matrix_spec m = {.in = in, .out = out, .init_scale = init_scale, .result = b->compute};
  return build_with_bias(b, x, &m, bias, name);
}

hp_tensor build_conv1d(model_build *b, hp_tensor x, int64_t in, int64_t out, double init_scale,
                       const char *name) {
  matrix_spec m = {in, out, true, init_scale, b->compute, HP_NONE};
  return build_with_bias(b, x, &m, true, name);
}

hp_tensor build_value_head(model_build *b, hp_tensor hidden) {
  int64_t width = b->c->hidden;
  hp_at(b->g, "v_head");
  hp_tensor w = build_param(b, PARAM_MATRIX, 1, 2, (int64_t[]){1, width}, "v_head.summary.weight");
  hp_tensor bias = build_param(b, PARAM_BIAS, 0, 1, (int64_t[]){1}, "v_head.summary.bias");
  hp_tensor x = hp_cast(b->g, hidden, HP_F32);
  x = build_dropout(b, x, b->c->dropout.value_head, "v_head");
  w = hp_reshape(b->g, hp_cast(b->g, w, HP_F32), (hp_shape){1, {width}});
  hp_tensor v = hp_einsum_to(b->g, "btc,c->bt", x, w, HP_F32);
  return hp_add(b->g, v, bias);
}

hp_tensor build_rows(model_build *b, hp_tensor x, int64_t i, int64_t n) {
  hp_shape s = hp_shape_of(b->g, x);
  int64_t B = s.dim[0] / n, T = s.dim[1];
  if (n == 1) return x;
  x = hp_slice(b->g, hp_reshape(b->g, x, (hp_shape){3, {B, n, T}}), 1, i, i + 1);
  return hp_reshape(b->g, x, (hp_shape){2, {B, T}});
}

hp_tensor build_heads(model_build *b, hp_tensor x, int64_t heads, int64_t dim) {
  return hp_reshape(b->g, x, (hp_shape){4, {b->B, b->T, heads, dim}});
}

hp_tensor build_merge(model_build *b, hp_tensor x, int64_t width) {
  return hp_reshape(b->g, x, (hp_shape){3, {b->B, b->T, width}});
}

hp_tensor build_annotated(model_build *b, int layer, const char *what, hp_tensor x) {
  model_annotation m;
  if (layer < 0) snprintf(m.name, sizeof m.name, "%s", what);
  else snprintf(m.name, sizeof m.name, "layers.%d.%s", layer, what);
  if (!vec_push(&b->annotations, m)) b->failed = true;
  return hp_annotate(b->g, m.name, x);
}

hp_tensor build_rope(model_build *b, hp_tensor x) {
  int64_t dim[2] = {b->rope_length, b->c->rope.dims / 2};
  b->cos = build_param(b, PARAM_BUFFER, 0, 2, dim, "rope.%lld.cos", (long long)b->rope_length);
  b->sin = build_param(b, PARAM_BUFFER, 0, 2, dim, "rope.%lld.sin", (long long)b->rope_length);
  return hp_rope(b->g, x, b->cos, b->sin, b->positions, b->c->rope.interleaved);
}

static int64_t find_stream(const char *name) { return (int64_t)hash_bytes(name, strlen(name)); }

hp_tensor build_embedding(model_build *b, hp_tensor table, int64_t frozen) {
  hp_tensor h = hp_cast(b->g, hp_embedding(b->g, table, b->ids, frozen), HP_F32);
  if (!b->noise_seed) return h;
  hp_shape shape = {3, {b->B, b->T, b->c->hidden}};
  double most = b->noise / sqrt((double)b->T * (double)b->c->hidden);
  hp_tensor u = hp_uniform(b->g, b->noise_seed, find_stream("neftune"), HP_F32, shape);
  hp_tensor centred = hp_sub(b->g, u, hp_const(b->g, HP_F32, 0.5));
  return hp_add(b->g, h, hp_scale(b->g, centred, 2 * most));
}

hp_tensor build_dropout(model_build *b, hp_tensor x, double p, const char *name) {
  if (!b->dropout_seed) return x;
  hp_at(b->g, name);
  return hp_dropout(b->g, x, p, b->dropout_seed, find_stream(name));
}

hp_tensor build_attention(model_build *b, int layer, hp_tensor q, hp_tensor k, hp_tensor v,
                          const hp_attention_options *o) {
  hp_attention_options all = {.scale = o->scale,
                              .causal = true,
                              .window = o->window,
                              .span = b->span};
  if (b->dropout_seed) {
    char name[64];
    snprintf(name, sizeof name, "layer.%d.attention", layer);
    all.dropout = b->c->dropout.attention;
    all.seed = b->dropout_seed;
    all.stream = find_stream(name);
  }
  q = build_annotated(b, layer, "q", q);
  k = build_annotated(b, layer, "k", k);
  v = build_annotated(b, layer, "v", v);
  return b->cache.blocks ? build_cached_attention(b, layer, q, k, v, &all)
                         : hp_attention(b->g, q, k, v, &all);
}
