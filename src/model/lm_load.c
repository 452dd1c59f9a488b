/* Loads parameters from the files of a checkpoint. */
#include "base/dtype.h"
#include "base/log.h"
#include "base/milestone.h"
#include "ckpt/manifest.h"
#include "ckpt/weights.h"
#include "model/adapter_files.h"
#include "model/lm_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The place of element i in the order of the files. */
static uint64_t place_of(const lm_place *s, size_t i) {
  return s->place + (s->first + i) * (st_dtype_bits(s->t->dtype) / 8);
}

/* Name in the checkpoint: as it is, or without the wrapper's prefix, as base models are saved. */
static const st_tensor *find_tensor(const weights *w, const char *name) {
  const st_tensor *t = weights_find(w, name);
  const char *dot = strchr(name, '.');
  if (!t && dot && (!strncmp(name, "model.", 6) || !strncmp(name, "transformer.", 12)))
    t = weights_find(w, dot + 1);
  return t;
}

/* Do the files tie the head to the embedding? */
static bool is_tied(const lm *m) { return m->c.tied || m->untied; }

/* In a tied model, the other tensor with the numbers of `name`: the head for the embedding, and
 * the embedding for the head; NULL: none. */
static const st_tensor *find_tied_tensor(const lm *m, const weights *w, const char *name) {
  const model_family *f = m->c.family;
  if (is_tied(m) && !strcmp(name, f->embedding_name)) return weights_find(w, f->head_name);
  return is_tied(m) && !strcmp(name, f->head_name) ? find_tensor(w, f->embedding_name) : NULL;
}

/* A tied head may be in the files, too, or alone, but not with other values. */
static hp_status check_tied(const lm *m, const weights *w) {
  const char *name = m->c.family->embedding_name;
  const st_tensor *head = find_tied_tensor(m, w, name), *table = find_tensor(w, name);
  if (!head || !table) return HP_OK;
  if (head->dtype == table->dtype && head->bytes == table->bytes &&
      !memcmp(head->data, table->data, head->bytes))
    return HP_OK;
  HP_FAIL(HP_ERR_INPUT,
          "%s: tensors \"%s\" and \"%s\" differ, but config.json ties them; write "
          "tie_word_embeddings: false there to use both, or leave the first out of the file",
          m->path, head->name, table->name);
}

static void print_dims(str *out, const int64_t *dim, int rank) {
  for (int i = 0; i < rank; i++) str_printf(out, i ? ",%lld" : "%lld", (long long)dim[i]);
}

static hp_status check_shape(const lm *m, const st_tensor *t, const hp_shape *want) {
  bool fits = t->rank == want->rank;
  for (int i = 0; fits && i < want->rank; i++) fits = t->dim[i] == want->dim[i];
  if (fits) return HP_OK;
  str have = {0}, made = {0};
  print_dims(&have, t->dim, t->rank);
  print_dims(&made, want->dim, want->rank);
  hp_status st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                         "%s: tensor \"%s\" is [%s], config.json makes it [%s]", m->path, t->name,
                         have.at ? have.at : "", made.at ? made.at : "");
  str_free(&have);
  str_free(&made);
  return st;
}

/* The same under the name of other versions: a stack is one tensor there, which may contain rows
 * of other stacks. */
static hp_status find_alias(const lm *m, const weights *w, const lm_tensor *want, lm_place *out) {
  const model_param *p = &m->params.at[want->param];
  const st_tensor *t = *p->alias ? find_tensor(w, p->alias) : NULL;
  if (!t) return HP_OK;
  hp_shape shape = p->shape;
  int rows = shape.rank - 2;
  size_t row = (size_t)shape.dim[rows + 1], part = want->at / (row * (size_t)shape.dim[rows]);
  if (p->alias_rows) shape.dim[rows] = p->alias_rows;
  HP_TRY(check_shape(m, t, &shape));
  *out = (lm_place){t, (part * (size_t)shape.dim[rows] + (size_t)p->alias_row) * row, 0};
  return HP_OK;
}

/* A tensor of the model in the files; refused by name if it is missing or differs from
 * config.json. */
static hp_status find_source(const lm *m, const weights *w, const lm_tensor *want, lm_place *out) {
  *out = (lm_place){.t = find_tensor(w, want->name)};
  if (!out->t) out->t = find_tied_tensor(m, w, want->name);
  if (out->t) HP_TRY(check_shape(m, out->t, &want->shape));
  else HP_TRY(find_alias(m, w, want, out));
  const st_tensor *t = out->t;
  if (!t)
    HP_FAIL(HP_ERR_INPUT, "%s: tensor \"%s\" is missing; config.json requires it (model_type %s%s)",
            m->path, want->name, m->c.model_type, m->c.tied ? "" : ", tie_word_embeddings false");
  if (t->dtype != ST_F32 && t->dtype != ST_BF16 && t->dtype != ST_F16 && t->dtype != ST_F64)
    HP_FAIL(HP_ERR_INPUT, "%s: tensor \"%s\" is %s; expected F32, BF16, F16 or F64", m->path,
            t->name, st_dtype_name(t->dtype));
  out->place = weights_place(w, t);
  return HP_OK;
}

/* A load in progress: the sources of all tensors of the model. */
typedef struct {
  const lm *m;
  weights *w;
  lm_place *from;
} loading;

bool lm_is_merged(const lm *m, const lm_tensor *t) {
  for (size_t i = 0; i < m->merged.len; i++)
    if (adapter_file_changes(m->merged.at[i], t->name)) return true;
  return false;
}

/* With the first `files` of them. */
static hp_status read_merged(const lm *m, size_t files, const lm_place *from, const lm_tensor *t,
                             size_t first, size_t n, float *x) {
  HP_TRY(weights_read(from->t, from->first + first, n, HP_F32, x));
  for (size_t i = 0; i < files; i++)
    if (adapter_file_changes(m->merged.at[i], t->name))
      HP_TRY(adapter_file_merge(m->merged.at[i], t->name, first, n, x));
  return HP_OK;
}

hp_status lm_read_merged(const lm *m, const lm_place *from, const lm_tensor *t, size_t first,
                         size_t n, float *x) {
  return read_merged(m, m->merged.len, from, t, first, n, x);
}

typedef struct {
  const lm *m;
  size_t files;
  const lm_place *from;
  const lm_tensor *t;
} measuring;

static hp_status read_before(void *ctx, size_t first, size_t n, float *x) {
  const measuring *k = ctx;
  return read_merged(k->m, k->files, k->from, k->t, first, n, x);
}

/* Factors of rows, of DoRA: those of a file follow from what the files before it have made. */
static hp_status measure_merged(const lm *m, const lm_place *from) {
  for (size_t i = 0; i < m->merged.len; i++)
    for (size_t k = 0; k < m->tensors.len; k++) {
      measuring x = {m, i, &from[k], &m->tensors.at[k]};
      if (from[k].t) HP_TRY(adapter_file_measure(m->merged.at[i], x.t->name, read_before, &x));
    }
  return HP_OK;
}

/* The same as the parameter's type. */
static hp_status load_merged(const lm *m, const lm_place *from, const lm_tensor *t, size_t first,
                             size_t n, char *to) {
  enum { PIECE = 512 };
  hp_dtype want = m->params.at[t->param].dtype;
  float x[PIECE];
  for (size_t done = 0, some; done < n; done += some, to += some * dtype_size(want)) {
    some = n - done < PIECE ? n - done : PIECE;
    HP_TRY(lm_read_merged(m, from, t, first + done, some, x));
    HP_TRY(dtype_convert(want, to, HP_F32, x, some));
  }
  return HP_OK;
}

static hp_status load_source(void *ctx, const lm_tensor *t, size_t first, size_t n, void *room,
                             const void **at) {
  const loading *l = ctx;
  const lm_place *s = &l->from[t - l->m->tensors.at];
  hp_dtype want = l->m->params.at[t->param].dtype, have;
  weights_wait(l->w, place_of(s, first + n));
  *at = room;
  if (lm_is_merged(l->m, t)) return load_merged(l->m, s, t, first, n, room);
  first += s->first;
  if (!st_dtype_to_hp(s->t->dtype, &have) || have != want)
    return weights_read(s->t, first, n, want, room);
  *at = s->t->data + first * dtype_size(want);
  return HP_OK;
}

/* A parameter to be read: its first tensor, and the place of its bytes in the files. */
typedef struct {
  size_t tensor;
  uint64_t begin, end;
} turn;

static int by_begin(const void *a, const void *b) {
  const turn *x = a, *y = b;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Files are read once, from front to back. */
static hp_status load_in_turn(loading *l, turn *turns) {
  const lm *m = l->m;
  size_t turns_n = 0;
  for (size_t i = 0, at = 0; i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    size_t parts = (size_t)model_param_parts(p), n = model_param_elements(p) / parts;
    if (model_param_is_extra(p)) {
      at += parts;
      continue;
    }
    turn *x = &turns[turns_n++];
    *x = (turn){at, UINT64_MAX, 0};
    for (size_t end = at + parts; at < end; at++) {
      uint64_t first = place_of(&l->from[at], 0), last = place_of(&l->from[at], n);
      if (first < x->begin) x->begin = first;
      if (last > x->end) x->end = last;
    }
  }
  qsort(turns, turns_n, sizeof *turns, by_begin);
  for (size_t i = 0; i < turns_n; i++) {
    weights_move(l->w, turns[i].begin, turns[i].end);
    HP_TRY(lm_fill_param(m, &m->tensors.at[turns[i].tensor], load_source, l));
  }
  return HP_OK;
}

/* --- what else the files have --------------------------------------------------------------- */

static hp_status add_known(map *known, const char *name) {
  const char *dot = strchr(name, '.');
  HP_TRY(map_set(known, name, strlen(name), 1));
  return dot ? map_set(known, dot + 1, strlen(dot + 1), 1) : HP_OK;
}

/* Names that tensors of the files may have, with the wrapper's prefix and without. */
static hp_status collect_known_names(const lm *m, map *known) {
  for (size_t i = 0; i < m->tensors.len; i++) HP_TRY(add_known(known, m->tensors.at[i].name));
  for (size_t i = 0; i < m->params.len; i++)
    if (*m->params.at[i].alias) HP_TRY(add_known(known, m->params.at[i].alias));
  return is_tied(m) ? add_known(known, m->c.family->head_name) : HP_OK;
}

/* A buffer saved by old versions, or an empty tensor. */
static bool is_nothing(const st_tensor *t) {
  return strstr(t->name, "rotary_emb.inv_freq") || strstr(t->name, ".attn.bias") ||
         strstr(t->name, ".attn.masked_bias") || t->bytes == 0;
}

/* Does it belong to a layer after the last, which predicts tokens farther ahead? */
static bool is_ahead(const lm *m, const char *name) {
  const char *at = strstr(name, "layers.");
  long long layer;
  return at && sscanf(at, "layers.%lld.", &layer) == 1 && layer >= m->c.layers &&
         layer < m->c.layers + m->c.layers_ahead;
}

/* Unused tensors.  Outside the decoder (another head) they are reported; inside it (a layer or a
 * bias more than in config.json) they are refused, since the model would not be the saved one. */
static hp_status check_unused(const lm *m, const weights *w, const map *known) {
  const char *embedding = m->c.family->embedding_name, *first = NULL;
  size_t prefix = (size_t)(strchr(embedding, '.') - embedding) + 1;
  bool bare = !weights_find(w, embedding);
  int unused = 0;
  for (size_t i = 0; i < weights_count(w); i++) {
    const char *name = weights_get(w, i)->name;
    uint32_t yes;
    if (map_get(known, name, strlen(name), &yes) || is_nothing(weights_get(w, i))) continue;
    if ((bare || !strncmp(name, embedding, prefix)) && !is_ahead(m, name))
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

static uint64_t count_params_bytes(const lm *m) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < m->params.len; i++)
    bytes += model_param_elements(&m->params.at[i]) * dtype_size(m->params.at[i].dtype);
  return bytes;
}

static hp_status find_places(lm *m, const weights *w, lm_place *from, map *known) {
  for (size_t i = 0; i < m->tensors.len; i++) {
    lm_tensor *t = &m->tensors.at[i];
    t->stored = HP_F32;
    if (model_param_is_extra(&m->params.at[t->param])) continue;
    HP_TRY(find_source(m, w, t, &from[i]));
    if (!st_dtype_to_hp(from[i].t->dtype, &t->stored)) t->stored = HP_F32; /* F64 */
  }
  HP_TRY(check_tied(m, w));
  HP_TRY(collect_known_names(m, known));
  HP_TRY(check_unused(m, w, known));
  return measure_merged(m, from);
}

hp_status lm_find_places(lm *m, const weights *w, lm_place *from) {
  map known = {0};
  hp_status st = find_places(m, w, from, &known);
  map_free(&known);
  return st;
}

static hp_status load_all(lm *m, weights *w, lm_place *from) {
  /* all are checked before any memory is allocated */
  HP_TRY(lm_find_places(m, w, from));
  HP_TRY(lm_make_params(m));
  weights_read_ahead(w, count_params_bytes(m));
  turn *turns = mem_calloc(m->params.len, sizeof *turns);
  HP_TRY_MEM(turns);
  hp_status st = load_in_turn(&(loading){m, w, from}, turns);
  mem_free(turns);
  return st;
}

/* A checkpoint of several devices: it holds the parameters under their own names, in f32. */
static hp_status load_parts(lm *m, const char *dir) {
  size_t n = 0;
  str path = {0};
  if (m->merged.len)
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s: an adapter is not merged into a checkpoint of several devices; use the model that "
            "its run wrote into output_dir",
            dir);
  const char **name = mem_calloc(m->params.len, sizeof *name);
  HP_TRY_MEM(name);
  for (size_t i = 0; i < m->params.len; i++)
    if (!model_param_is_extra(&m->params.at[i])) name[n++] = m->params.at[i].name;
  hp_status st = path_join(&path, dir, "model");
  if (!st) st = lm_make_params(m);
  if (!st) st = hp_params_load(m->d, path.at, name, (int)n);
  mem_free(name);
  str_free(&path);
  return st;
}

/* Process 0 handles unclaimed files: the states of the optimizer, shards. */
static hp_status start_check(manifest_check *check) {
  int rank, size;
  HP_TRY(hp_world(&rank, &size));
  return rank ? HP_OK : manifest_check_start(check);
}

static hp_status load_global(lm *m, const char *dir, manifest_check *check) {
  weights *w;
  HP_TRY(weights_open(dir, &w));
  weights_claim(w, check);
  lm_place *from = mem_calloc(m->tensors.len, sizeof *from);
  hp_status st = from ? start_check(check) : HP_ERR_OOM;
  if (!st) st = load_all(m, w, from);
  if (!st) st = weights_give(w, check);
  mem_free(from);
  weights_free(w);
  return st;
}

hp_status lm_load(lm *m, const char *dir) {
  manifest_check *check;
  HP_TRY(manifest_check_begin(dir, &check));
  const char *before = milestone_set_activity("loading the weights");
  hp_status st = HP_OK;
  if (!weights_are_sharded(dir, "model")) {
    st = load_global(m, dir, check);
  } else {
    st = start_check(check);
    if (!st) st = load_parts(m, dir);
  }
  st = manifest_check_end(check, st);
  if (!st) st = lm_fill_adapter(m);
  milestone_set_activity(before);
  return st;
}
