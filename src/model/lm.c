#include "model/lm.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/philox.h"
#include "data/weights.h"

#include <stdio.h>
#include <string.h>

/* --- graphs --------------------------------------------------------------------------------- */

hp_status lm_graph_begin(const lm *m, int64_t B, int64_t T, int64_t cache, int64_t rope_length,
                         model_build *b) {
  *b = (model_build){.c = &m->c,
                     .compute = m->compute,
                     .weights = m->weights,
                     .B = B,
                     .T = T,
                     .cache = cache,
                     .rope_length = rope_length};
  HP_TRY(hp_graph_create(&b->g));
  b->ids = hp_input(b->g, "ids", HP_I32, (hp_shape){2, {B, T}});
  b->positions = hp_input(b->g, "positions", HP_I32, (hp_shape){2, {B, T}});
  if (cache) {
    b->span = hp_input(b->g, "span", HP_I32, (hp_shape){3, {B, T, 2}});
    b->cache_at = hp_input(b->g, "cache_at", HP_I32, (hp_shape){0});
  }
  return HP_OK;
}

void lm_graph_end(model_build *b) {
  hp_graph_free(b->g);
  vec_free(&b->params);
  map_free(&b->param_of);
  b->g = NULL;
}

hp_tensor lm_head(model_build *b, hp_tensor hidden) {
  const model_config *c = b->c;
  const char *name = c->tied ? c->family->embedding_name : c->family->head_name;
  hp_at(b->g, name);
  hp_tensor w = build_param(b, c->tied ? PARAM_EMBEDDING : PARAM_MATRIX, 1, 2,
                            (int64_t[]){c->vocab, c->hidden}, "%s", name);
  w = hp_cast(b->g, w, b->compute);
  return hp_einsum_to(b->g, "btc,vc->btv", hp_cast(b->g, hidden, b->compute), w, HP_F32);
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
    hp_status st = hp_param_create(m->d, p->name, HP_F32, p->shape);
    if (!st) st = hp_param_create(m->d, sin_name, HP_F32, p->shape);
    if (!st) st = hp_write(m->d, p->name, table, n * sizeof *table);
    if (!st) st = hp_write(m->d, sin_name, table + n, n * sizeof *table);
    mem_free(table);
    HP_TRY(st);
  }
  return HP_OK;
}

double lm_flops_per_token(const lm *m, int64_t length) {
  const model_config *c = &m->c;
  double matrices = 0;
  for (size_t i = 0; i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    bool head = !strcmp(p->name, c->tied ? c->family->embedding_name : c->family->head_name);
    if (p->kind == PARAM_MATRIX || head)
      matrices += (double)p->shape.dim[0] * (double)p->shape.dim[1];
  }
  return 2 * matrices + 2 * (double)(c->layers * c->heads * c->head_dim) * (double)length;
}

/* --- parameters ------------------------------------------------------------------------------- */

/* Builds the smallest graph to learn which parameters the model has. */
static hp_status list_params(lm *m) {
  model_build b;
  HP_TRY(lm_graph_begin(m, 1, 1, 0, 1, &b));
  lm_head(&b, m->c.family->hidden(&b));
  hp_status st = hp_graph_status(b.g);
  if (!st && b.failed) st = HP_ERR_OOM;
  for (size_t i = 0; !st && i < b.params.len; i++) {
    const model_param *p = &b.params.at[i];
    if (p->kind == PARAM_BUFFER) continue;
    if (!vec_push(&m->params, *p)) st = HP_ERR_OOM;
  }
  lm_graph_end(&b);
  return st;
}

hp_status lm_create(const char *dir, hp_device *d, const lm_options *o, lm **out) {
  lm *m = mem_calloc(1, sizeof *m);
  HP_TRY_MEM(m);
  m->d = d;
  m->compute = o->compute;
  m->weights = o->weights;
  snprintf(m->path, sizeof m->path, "%s", dir);
  hp_status st = model_config_load(dir, &m->c);
  if (!st) st = list_params(m);
  if (st) lm_free(m);
  else *out = m;
  return st;
}

void lm_free(lm *m) {
  if (!m) return;
  model_config_free(&m->c);
  vec_free(&m->params);
  mem_free(m);
}

const model_param *lm_find(const lm *m, const char *name) {
  for (size_t i = 0; i < m->params.len; i++)
    if (!strcmp(m->params.at[i].name, name)) return &m->params.at[i];
  return NULL;
}

static hp_status make_params(lm *m) {
  for (size_t i = 0; i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    HP_TRY(hp_param_create(m->d, p->name, p->dtype, p->shape));
  }
  return HP_OK;
}

/* Name in the checkpoint: as it is, or without the wrapper's prefix, as base models are saved. */
static const st_tensor *lookup(const weights *w, const char *name) {
  const st_tensor *t = weights_find(w, name);
  const char *dot = strchr(name, '.');
  if (!t && dot && (!strncmp(name, "model.", 6) || !strncmp(name, "transformer.", 12)))
    t = weights_find(w, dot + 1);
  return t;
}

/* The head's own tensor of a model whose head is tied to the embedding `name`; NULL: none. */
static const st_tensor *stored_head(const lm *m, const weights *w, const char *name) {
  const model_family *f = m->c.family;
  return m->c.tied && !strcmp(name, f->embedding_name) ? weights_find(w, f->head_name) : NULL;
}

/* A tied head may be in the file too, or alone, but not with other values. */
static hp_status check_tied(const lm *m, const weights *w) {
  const char *name = m->c.family->embedding_name;
  const st_tensor *head = stored_head(m, w, name), *table = lookup(w, name);
  if (!head || !table) return HP_OK;
  if (head->dtype == table->dtype && head->bytes == table->bytes &&
      !memcmp(head->data, table->data, head->bytes))
    return HP_OK;
  HP_FAIL(HP_ERR_INPUT,
          "%s: tensors \"%s\" and \"%s\" differ, but config.json ties them; write "
          "tie_word_embeddings: false there to use both, or leave the first out of the file",
          m->path, head->name, table->name);
}

/* The tensor of a parameter; refused by name when it is missing or not what config.json asks for.
 */
static hp_status find_tensor(const lm *m, const weights *w, const model_param *p,
                             const st_tensor **out) {
  const st_tensor *t = lookup(w, p->name);
  if (!t) t = stored_head(m, w, p->name);
  if (!t)
    HP_FAIL(HP_ERR_INPUT, "%s: tensor \"%s\" is missing; config.json asks for it (model_type %s%s)",
            m->path, p->name, m->c.model_type, m->c.tied ? "" : ", tie_word_embeddings false");
  bool fits = t->rank == p->shape.rank;
  for (int i = 0; fits && i < p->shape.rank; i++) fits = t->dim[i] == p->shape.dim[i];
  if (!fits) {
    str have = {0};
    for (int i = 0; i < t->rank; i++) str_printf(&have, i ? ",%lld" : "%lld", (long long)t->dim[i]);
    hp_status st =
        err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                "%s: tensor \"%s\" is [%s], config.json makes it [%lld%s%.0lld]", m->path, p->name,
                have.at ? have.at : "", (long long)p->shape.dim[0], p->shape.rank > 1 ? "," : "",
                (long long)(p->shape.rank > 1 ? p->shape.dim[1] : 0));
    str_free(&have);
    return st;
  }
  if (t->dtype != ST_F32 && t->dtype != ST_BF16 && t->dtype != ST_F16 && t->dtype != ST_F64)
    HP_FAIL(HP_ERR_INPUT, "%s: tensor \"%s\" is %s; expected F32, BF16, F16 or F64", m->path,
            p->name, st_dtype_name(t->dtype));
  *out = t;
  return HP_OK;
}

static hp_status load_param(lm *m, const st_tensor *t, const model_param *p) {
  size_t n = model_param_elements(p), bytes = n * dtype_size(p->dtype);
  void *buffer = mem_calloc(n, dtype_size(p->dtype));
  HP_TRY_MEM(buffer);
  hp_status st = weights_read(t, 0, n, p->dtype, buffer);
  if (!st) st = hp_write(m->d, p->name, buffer, bytes);
  mem_free(buffer);
  return st;
}

/* Is this tensor of the file a parameter, or a buffer that old versions saved? */
static bool is_known(const lm *m, const char *name) {
  if (strstr(name, "rotary_emb.inv_freq") || strstr(name, ".attn.bias") ||
      strstr(name, ".attn.masked_bias") || (m->c.tied && !strcmp(name, m->c.family->head_name)))
    return true;
  for (size_t k = 0; k < m->params.len; k++) {
    const char *mine = m->params.at[k].name, *dot = strchr(mine, '.');
    if (!strcmp(mine, name) || (dot && !strcmp(dot + 1, name))) return true;
  }
  return false;
}

/* Tensors that nothing reads.  Outside the decoder (another head) they are told; inside it (a layer
 * or a bias more than config.json says) the model would not be the one that was saved. */
static hp_status check_unused(const lm *m, const weights *w) {
  const char *embedding = m->c.family->embedding_name, *first = NULL;
  size_t prefix = (size_t)(strchr(embedding, '.') - embedding) + 1;
  bool bare = !weights_find(w, embedding);
  int unused = 0;
  for (size_t i = 0; i < weights_count(w); i++) {
    const char *name = weights_get(w, i)->name;
    if (is_known(m, name)) continue;
    if (bare || !strncmp(name, embedding, prefix))
      HP_FAIL(HP_ERR_INPUT,
              "%s: tensor \"%s\" of the checkpoint has no place in the model that config.json "
              "describes; expected the config.json that it was saved with",
              m->path, name);
    if (unused++ == 0) first = name;
  }
  if (unused)
    log_warn("%s: %d tensors of the checkpoint are not used, the first is \"%s\"", m->path, unused,
             first);
  return HP_OK;
}

hp_status lm_load(lm *m, const char *dir) {
  weights *w;
  HP_TRY(weights_open(dir, &w));
  size_t n = m->params.len;
  const st_tensor **t = mem_calloc(n, sizeof *t);
  hp_status st = t ? HP_OK : HP_ERR_OOM;
  /* all are looked at before any memory is taken for one */
  for (size_t i = 0; !st && i < n; i++) st = find_tensor(m, w, &m->params.at[i], &t[i]);
  if (!st) st = check_tied(m, w);
  if (!st) st = check_unused(m, w);
  if (!st) st = make_params(m);
  for (size_t i = 0; !st && i < n; i++) st = load_param(m, t[i], &m->params.at[i]);
  mem_free(t);
  weights_free(w);
  return st;
}

static void init_values(const lm *m, const model_param *p, uint64_t seed, float *x, int64_t n) {
  uint64_t stream = hash_bytes(p->name, strlen(p->name));
  double scale = m->c.init_range * p->init_scale;
  for (int64_t i = 0; i < n; i++) switch (p->kind) {
    case PARAM_MATRIX:
    case PARAM_EMBEDDING: x[i] = (float)scale * philox_normal(seed, stream, (uint64_t)i); break;
    case PARAM_NORM: x[i] = 1; break;
    case PARAM_BIAS:
    case PARAM_BUFFER: x[i] = 0; break;
    }
  if (m->c.frozen >= 0 && !strcmp(p->name, m->c.family->embedding_name))
    memset(x + m->c.frozen * p->shape.dim[1], 0, (size_t)p->shape.dim[1] * sizeof *x);
}

hp_status lm_init(lm *m, uint64_t seed) {
  HP_TRY(make_params(m));
  for (size_t i = 0; i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    int64_t n = (int64_t)model_param_elements(p);
    float *x = mem_calloc((size_t)n, sizeof *x);
    void *y = mem_calloc((size_t)n, dtype_size(p->dtype));
    hp_status st = x && y ? HP_OK : HP_ERR_OOM;
    if (!st) {
      init_values(m, p, seed, x, n);
      st = dtype_convert(p->dtype, y, HP_F32, x, (size_t)n);
      if (!st) st = hp_write(m->d, p->name, y, (size_t)n * dtype_size(p->dtype));
    }
    mem_free(x);
    mem_free(y);
    HP_TRY(st);
  }
  return HP_OK;
}
