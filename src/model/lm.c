#include "model/lm.h"

#include "base/log.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/philox.h"
#include "ckpt/weights.h"
#include "model/lm_pissa.h"
#include "model/lm_rows.h"
#include "model/adapter_files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- graphs --------------------------------------------------------------------------------- */

bool lm_shares_rope(const lm *m, int64_t length) {
  const model_config *c = &m->c;
  if (c->rope.kind == ROPE_DYNAMIC) return length <= c->max_length;
  return c->rope.kind != ROPE_LONGROPE || (double)length <= c->rope.original_length;
}

void lm_share_rope(lm *m, int64_t length) { m->rope_rows = lm_shares_rope(m, length) ? length : 0; }

hp_status lm_graph_begin(const lm *m, int64_t B, int64_t T, const model_cache *cache,
                         int64_t rope_length, model_build *b) {
  *b = (model_build){.c = &m->c,
                     .compute = m->compute,
                     .weights = m->weights,
                     .packed = m->packed,
                     .B = B,
                     .T = T,
                     .cache = cache ? *cache : (model_cache){0},
                     .groups = m->groups ? m->groups : 1,
                     .stage_of = m->stage_of,
                     .stages = m->stages,
                     .adapter = m->adapter,
                     .value_head = m->value_head,
                     .label_smoothing = m->label_smoothing,
                     .only = m->has_only ? &m->only : NULL,
                     .rope_length =
                         cache || rope_length > m->rope_rows ? rope_length : m->rope_rows};
  HP_TRY(hp_graph_create(&b->g));
  b->ids = hp_input(b->g, "ids", HP_I32, (hp_shape){2, {B, T}});
  b->positions = hp_input(b->g, "positions", HP_I32, (hp_shape){2, {B, T}});
  if (cache || m->spans) b->span = hp_input(b->g, "span", HP_I32, (hp_shape){3, {B, T, 2}});
  if (cache) {
    b->table = hp_input(b->g, "table", HP_I32, (hp_shape){2, {B, cache->width}});
    b->cache_at = hp_input(b->g, "cache_at", HP_I32, (hp_shape){1, {B}});
    b->cache_copy = hp_input(b->g, "cache_copy", HP_I32, (hp_shape){1, {B}});
  }
  if (cache && cache->sparse) {
    b->kv_blocks = hp_input(b->g, "kv_blocks", HP_I32, (hp_shape){2, {B, cache->blocks}});
    b->kv_copy = hp_input(b->g, "kv_copy", HP_I32, (hp_shape){1, {B}});
  }
  if (cache && cache->tier) {
    int64_t all = cache->tail + cache->parts * cache->slots;
    b->kv_fetch = hp_input(b->g, "kv_fetch", HP_I32, (hp_shape){2, {b->groups, all}});
    b->kv_store = hp_input(b->g, "kv_store", HP_I32, (hp_shape){2, {b->groups, cache->tail}});
  }
  return HP_OK;
}

void lm_set_spans(lm *m) { m->spans = true; }

void lm_graph_end(model_build *b) {
  hp_graph_free(b->g);
  vec_free(&b->params);
  vec_free(&b->annotations);
  vec_free(&b->linears);
  map_free(&b->param_of);
  b->g = NULL;
}

hp_tensor lm_tied_head(model_build *b) {
  const char *name = b->c->family->embedding_name;
  hp_tensor table = build_find_param(b, name);
  if (!b->head_apart) return table;
  if (!b->head) b->head = hp_param(b->g, name, hp_dtype_of(b->g, table), hp_shape_of(b->g, table));
  return b->head;
}

/* A tied head is the embedding.  With packed weights it is a packed copy: a product reads it a
 * third faster than the rows of the embedding. */
hp_tensor lm_head(model_build *b, hp_tensor hidden) {
  const model_config *c = b->c;
  bool own = !c->tied || (b->packed && c->vocab % PARAM_PACK == 0);
  const char *name = own ? c->family->head_name : c->family->embedding_name;
  matrix_spec head = {.in = c->hidden,
                      .out = c->vocab,
                      .init_scale = 1,
                      .result = HP_F32,
                      .weight = own ? HP_NONE : lm_tied_head(b)};
  hp_at(b->g, name);
  hidden = build_annotated(b, -1, "final", hp_cast(b->g, hidden, b->compute));
  return build_annotated(b, -1, "logits", build_matrix(b, hidden, &head, name));
}

hp_status lm_make_buffers(const lm *m, const model_build *b, int64_t length) {
  for (size_t i = 0; i < b->params.len; i++) {
    const model_param *p = &b->params.at[i];
    if (p->kind != PARAM_BUFFER || !strstr(p->name, ".cos")) continue;
    hp_dtype t;
    hp_shape s;
    bool there = !hp_param_find(m->d, p->name, &t, &s);
    err_clear();
    if (there && !rope_depends_on_length(&m->c.rope)) continue;
    char sin_name[160];
    snprintf(sin_name, sizeof sin_name, "%.*s.sin", (int)strlen(p->name) - 4, p->name);
    size_t n = (size_t)(p->shape.dim[0] * p->shape.dim[1]);
    float *table = mem_calloc(n, 2 * sizeof *table);
    HP_TRY_MEM(table);
    rope_table(&m->c, p->shape.dim[0], length, table, table + n);
    hp_status st = hp_device_stage(m->d, p->name, -1);
    if (!st) st = hp_device_stage(m->d, sin_name, -1);
    if (!st) st = hp_param_create(m->d, p->name, HP_F32, p->shape);
    if (!st) st = hp_param_create(m->d, sin_name, HP_F32, p->shape);
    if (!st) st = hp_write(m->d, p->name, table, n * sizeof *table);
    if (!st) st = hp_write(m->d, sin_name, table + n, n * sizeof *table);
    mem_free(table);
    HP_TRY(st);
  }
  return HP_OK;
}

double lm_elements_used(const lm *m, const model_param *p) {
  double n = (double)model_param_elements(p);
  return strchr(p->name, '*') ? n * (double)m->c.moe.per_token / (double)m->c.moe.experts : n;
}

bool lm_is_product(const lm *m, const model_param *p) {
  const model_family *f = m->c.family;
  bool embedding = m->c.tied && !lm_find(m, f->head_name) && !strcmp(p->name, f->embedding_name);
  return p->kind == PARAM_MATRIX || embedding;
}

double lm_flops_per_token(const lm *m, int64_t length) {
  const model_config *c = &m->c;
  double matrices = 0;
  for (size_t i = 0; i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    if (lm_is_product(m, p)) matrices += lm_elements_used(m, p);
  }
  return 2 * matrices + 2 * (double)(c->layers * c->heads * c->head_dim) * (double)length;
}

/* --- parameters ------------------------------------------------------------------------------- */

/* Adds a parameter and its tensors of the checkpoint. */
static hp_status add_param(lm *m, const model_param *p) {
  int64_t parts = model_param_parts(p);
  lm_tensor t = {.param = m->params.len, .shape = model_param_stored(p)};
  if (!vec_push(&m->params, *p) || !vec_reserve(&m->tensors, (size_t)parts)) return HP_ERR_OOM;
  for (int64_t i = 0; i < parts; i++, t.at += model_param_elements(p) / (size_t)parts) {
    model_param_part_name(p, i, t.name);
    m->tensors.at[m->tensors.len++] = t;
  }
  return HP_OK;
}

static hp_status add_marks(lm *m, const model_build *b) {
  for (size_t i = 0; i < b->annotations.len; i++)
    if (!vec_push(&m->annotations, b->annotations.at[i])) return HP_ERR_OOM;
  for (size_t i = 0; i < b->linears.len; i++)
    if (!vec_push(&m->linears, b->linears.at[i])) return HP_ERR_OOM;
  return HP_OK;
}

/* The smallest graph with all parameters and annotations of the model; ended by lm_graph_end, also
 * after a failure. */
static hp_status build_smallest(const lm *m, model_build *b) {
  HP_TRY(lm_graph_begin(m, 1, 1, NULL, 1, b));
  hp_tensor hidden = m->c.family->hidden(b);
  lm_head(b, hidden);
  if (m->value_head) build_value_head(b, hidden);
  HP_TRY(hp_graph_status(b->g));
  return b->failed ? HP_ERR_OOM : HP_OK;
}

static bool is_trained(const model_param *p) { return p->kind < PARAM_FIXED && !p->frozen; }

static hp_status list_names(lm *m) {
  model_build b;
  hp_status st = build_smallest(m, &b);
  m->params.len = m->tensors.len = m->annotations.len = m->linears.len = 0;
  for (size_t i = 0; !st && i < b.params.len; i++)
    if (is_trained(&b.params.at[i])) st = add_param(m, &b.params.at[i]);
  m->trained = m->params.len;
  for (size_t i = 0; !st && i < b.params.len; i++)
    if (!is_trained(&b.params.at[i]) && b.params.at[i].kind != PARAM_BUFFER)
      st = add_param(m, &b.params.at[i]);
  if (!st) st = add_marks(m, &b);
  lm_graph_end(&b);
  return st;
}

hp_status lm_set_stages(lm *m, int stages, const uint16_t *stage_of) {
  size_t layers = (size_t)m->c.layers;
  for (size_t i = 0; i < layers; i++)
    if (stage_of[i] >= stages || (i && stage_of[i] < stage_of[i - 1]))
      HP_FAIL(HP_ERR_ARG, "layer %zu is on stage %u of %d, behind one on stage %u", i, stage_of[i],
              stages, i ? stage_of[i - 1] : 0);
  uint16_t *copy = mem_calloc(layers, sizeof *copy);
  HP_TRY_MEM(copy);
  memcpy(copy, stage_of, layers * sizeof *copy);
  mem_free(m->stage_of);
  m->stage_of = copy;
  m->stages = stages;
  for (size_t i = 0; i < m->params.len; i++) {
    model_param *p = &m->params.at[i];
    bool inside = p->layer >= 0 && (size_t)p->layer < layers;
    p->stage = inside ? copy[p->layer] : (uint16_t)(p->layer < 0 ? 0 : stages - 1);
  }
  return HP_OK;
}

static bool has_file(const char *dir, const char *name) {
  str path = {0};
  bool there = !path_join(&path, dir, name) && file_exists(path.at);
  str_free(&path);
  return there;
}

/* The folder of an adapter has no model in it. */
static hp_status check_is_model(const char *dir) {
  if (!dir_exists(dir) || has_file(dir, "config.json") || !has_file(dir, ADAPTER_CONFIG))
    return HP_OK;
  HP_FAIL(HP_ERR_INPUT,
          "%s: is an adapter, not a model; give its base model's folder as --model "
          "(model_name_or_path), and this one as --adapter (adapter_name_or_path)",
          dir);
}

hp_status lm_create(const char *dir, hp_device *d, const lm_options *o, lm **out) {
  lm *m = mem_calloc(1, sizeof *m);
  HP_TRY_MEM(m);
  m->d = d;
  m->compute = o->compute;
  m->weights = o->weights;
  m->packed = o->packed && !weights_are_sharded(dir, "model"); /* sharded files are not packed */
  snprintf(m->path, sizeof m->path, "%s", dir);
  hp_status st = check_is_model(dir);
  if (!st) st = model_config_load(dir, &m->c);
  if (!st) st = list_names(m);
  if (st) lm_free(m);
  else *out = m;
  return st;
}

void lm_free(lm *m) {
  if (!m) return;
  model_config_free(&m->c);
  mem_free(m->stage_of);
  vec_free(&m->params);
  vec_free(&m->tensors);
  vec_free(&m->annotations);
  vec_free(&m->linears);
  adapter_free(m->adapter);
  adapter_file_close(m->start);
  for (size_t i = 0; i < m->merged.len; i++) adapter_file_close(m->merged.at[i]);
  vec_free(&m->merged);
  map_free(&m->only);
  mem_free(m);
}

adapter_subject lm_subject(const lm *m) {
  return (adapter_subject){.linear = m->linears.at,
                           .linears = m->linears.len,
                           .param = m->params.at,
                           .params = m->params.len,
                           .head = m->c.family->head_name,
                           .path = m->path};
}

hp_status lm_untie(lm *m) {
  static const char key[] = "tie_word_embeddings";
  if (!m->c.tied) return HP_OK;
  tree_node *no = tree_new(&m->c.source.mem, TREE_BOOL, m->c.source.root->source, 0, 0);
  HP_TRY_MEM(no);
  no->key = key;
  no->key_len = sizeof key - 1;
  HP_TRY(tree_set(&m->c.source.mem, m->c.source.root, no));
  m->c.tied = false;
  m->untied = true;
  return list_names(m);
}

hp_status lm_train_only(lm *m, const char *const *name, size_t n) {
  m->has_only = true;
  map_free(&m->only);
  for (size_t i = 0; i < n; i++) HP_TRY(map_set(&m->only, name[i], strlen(name[i]), 1));
  return list_names(m);
}

hp_status lm_set_value_head(lm *m) {
  m->value_head = true;
  return list_names(m);
}

hp_status lm_set_adapter(lm *m, adapter *a) {
  adapter_free(m->adapter);
  m->adapter = a;
  return lm_train_only(m, a->whole.at, a->whole.len);
}

hp_status lm_set_adapter_file(lm *m, adapter_file *f) {
  adapter_file_close(m->start);
  m->start = f;
  adapter *a = f->a;
  f->a = NULL;
  return lm_set_adapter(m, a);
}

hp_status lm_merge(lm *m, adapter_file *f) {
  if (vec_push(&m->merged, f)) return HP_OK;
  adapter_file_close(f);
  return HP_ERR_OOM;
}

const model_param *lm_find(const lm *m, const char *name) {
  return model_param_find(m->params.at, m->params.len, name);
}

const model_param *lm_tied_param(const lm *m) {
  const model_family *f = m->c.family;
  bool shares = m->c.tied && !m->value_head && !lm_find(m, f->head_name);
  const model_param *p = shares ? lm_find(m, f->embedding_name) : NULL;
  return p && (size_t)(p - m->params.at) < m->trained ? p : NULL;
}

size_t lm_trained_tensors(const lm *m) {
  size_t n = 0;
  while (n < m->tensors.len && m->tensors.at[n].param < m->trained) n++;
  return n;
}

hp_status lm_make_params(lm *m) {
  for (size_t i = 0; i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    HP_TRY(hp_param_create(m->d, p->name, p->dtype, p->shape));
  }
  return HP_OK;
}

/* The source of random values. */
typedef struct {
  const lm *m;
  uint64_t seed;
} chance;

static void init_values(const chance *c, const lm_tensor *t, size_t first, size_t n, float *x) {
  const lm *m = c->m;
  const model_param *p = &m->params.at[t->param];
  const model_family *f = m->c.family;
  bool shares = m->c.tied || m->untied; /* the head has the embedding's numbers */
  bool tied = shares && !strcmp(t->name, f->head_name);
  const char *name = tied ? f->embedding_name : t->name;
  bool frozen = m->c.frozen >= 0 && !strcmp(name, f->embedding_name);
  uint64_t stream = hash_bytes(name, strlen(name));
  float scale = (float)(m->c.init_range * p->init_scale);
  float bound = p->kind == PARAM_LORA_A ? (float)(1 / sqrt((double)p->shape.dim[1])) : 0;
  for (size_t i = 0; i < n; i++) switch (p->kind) {
    case PARAM_MATRIX:
    case PARAM_EMBEDDING: x[i] = scale * philox_normal(c->seed, stream, first + i); break;
    case PARAM_NORM: x[i] = 1; break;
    case PARAM_LORA_A: x[i] = bound * (2 * philox_uniform(c->seed, stream, first + i) - 1); break;
    case PARAM_LORA_B:
    case PARAM_LORA_SIZE:
    case PARAM_BIAS:
    case PARAM_FIXED:
    case PARAM_BUFFER: x[i] = 0; break;
    }
  for (size_t i = 0; i < n && frozen; i++)
    if ((first + i) / (size_t)t->shape.dim[1] == (size_t)m->c.frozen) x[i] = 0;
}

static hp_status init_source(void *ctx, const lm_tensor *t, size_t first, size_t n, void *room,
                             const void **at) {
  enum { PIECE = 256 };
  const chance *c = ctx;
  hp_dtype type = c->m->params.at[t->param].dtype;
  float x[PIECE];
  *at = room;
  for (size_t i = 0, some; i < n; i += some) {
    some = n - i < PIECE ? n - i : PIECE;
    init_values(c, t, first + i, some, x);
    HP_TRY(dtype_convert(type, (char *)room + i * dtype_size(type), HP_F32, x, some));
  }
  return HP_OK;
}

/* Params of the adapter, or all others. */
static hp_status init_params(lm *m, uint64_t seed, bool of_adapter) {
  chance c = {m, seed};
  const lm_tensor *t = m->tensors.at;
  for (size_t i = 0; i < m->params.len; t += model_param_parts(&m->params.at[i++]))
    if (model_param_is_adapter(&m->params.at[i]) == of_adapter)
      HP_TRY(lm_fill_param(m, t, init_source, &c));
  return HP_OK;
}

static hp_status start_source(void *ctx, const lm_tensor *t, size_t first, size_t n, void *room,
                              const void **at) {
  const adapter_file *f = ctx;
  *at = room;
  return weights_read(adapter_file_find(f, t->name), first, n, HP_F32, room);
}

static hp_status file_source(void *ctx, const lm_tensor *t, size_t first, size_t n, void *room,
                             const void **at) {
  (void)t;
  *at = room;
  return weights_read(ctx, first, n, HP_F32, room);
}

hp_status lm_fill_adapter(lm *m) {
  const lm_tensor *t = m->tensors.at;
  if (!m->adapter) return HP_OK;
  if (!m->start) {
    HP_TRY(init_params(m, m->adapter->o.seed, true));
    if (m->adapter->o.dora) HP_TRY(lm_measure_rows(m));
    return m->adapter->o.pissa ? lm_split_weights(m) : HP_OK;
  }
  for (size_t i = 0; i < m->trained; t += model_param_parts(&m->params.at[i++]))
    if (adapter_file_find(m->start, t->name)) HP_TRY(lm_fill_param(m, t, start_source, m->start));
  return HP_OK;
}

/* Those of the value head by a file in dir, or at random. */
hp_status lm_fill_value_head(lm *m, const char *dir, uint64_t seed) {
  str path = {0};
  weights *w = NULL;
  chance c = {m, seed};
  if (!m->value_head) return HP_OK;
  hp_status st = path_join(&path, dir, VALUE_HEAD_FILE);
  bool there = !st && file_exists(path.at);
  if (!st && !there) log_info("%s: there is no %s: a new value head", dir, VALUE_HEAD_FILE);
  if (!st && there) st = weights_open(path.at, &w);
  for (size_t i = 0; i < m->tensors.len && !st; i++) {
    const lm_tensor *t = &m->tensors.at[i];
    if (!model_param_is_value_head(&m->params.at[t->param])) continue;
    const st_tensor *have = NULL;
    if (there) st = weights_need_shape(w, t->name, t->shape.rank, t->shape.dim, &have);
    if (!st)
      st = there ? lm_fill_param(m, t, file_source, (void *)(uintptr_t)have)
                 : lm_fill_param(m, t, init_source, &c);
  }
  weights_free(w);
  str_free(&path);
  return st;
}

hp_status lm_init(lm *m, uint64_t seed) {
  HP_TRY(lm_make_params(m));
  HP_TRY(init_params(m, seed, false));
  return lm_fill_adapter(m);
}
