#include "model/adapter_files.h"

#include "base/json.h"
#include "ckpt/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A module's matrices in f32, for merging. */
typedef struct adapter_factors {
  float *A, *B; /* [rank,in], [out,rank] */
  float *size;  /* [out], with DoRA */
  float *grow;  /* [out] factors of rows, of adapter_file_measure */
  int64_t rank, in, out;
  bool turned;
  float scale;
} adapter_factors;

static const char *const ends[] = {"lora_A.weight", "lora_B.weight", "lora_magnitude_vector"};
enum { A, B, SIZE, ENDS };

/* --- adapter_config.json ---------------------------------------------------------------------- */

/* Keys that change what is computed, and are built with this value only. */
static hp_status refuse_others(const tree_node *root) {
  static const char *const key[] =
      {"lora_bias",         "use_qalora",   "alora_invocation_tokens", "layer_replication",
       "target_parameters", "arrow_config", "trainable_token_indices", "alpha_pattern",
       "megatron_config"};
  for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
    const tree_node *n = tree_get(root, key[i]);
    bool nothing = !n || n->kind == TREE_NULL || (n->kind == TREE_BOOL && !n->boolean) ||
                   ((n->kind == TREE_MAP || n->kind == TREE_LIST) && !n->len);
    if (!nothing) TREE_FAIL(n, "%s is not built", tree_what(n).text);
  }
  return HP_OK;
}

static hp_status need_word(const tree_node *root, const char *key, const char *absent,
                           const char *built) {
  const char *word;
  HP_TRY(tree_opt_string(root, key, absent, &word));
  if (!strcmp(word, built)) return HP_OK;
  if (!tree_get(root, key)) TREE_FAIL(root, "%s is missing; expected %s", key, built);
  TREE_FAIL(tree_get(root, key), "\"%s\" is not built; expected %s", word, built);
}

/* A list of names, or nothing; a text, which is a pattern, says nothing that the tensors do not. */
static hp_status read_names(const tree_node *root, const char *key, arena *mem,
                            adapter_names *out) {
  const tree_node *n = tree_get(root, key);
  *out = (adapter_names){0};
  if (!n || n->kind == TREE_NULL || n->kind == TREE_STRING) return HP_OK;
  HP_TRY(tree_expect(n, TREE_LIST));
  const char **at = arena_alloc(mem, n->len ? n->len : 1, sizeof *at);
  HP_TRY_MEM(at);
  for (uint32_t i = 0; i < n->len; i++) HP_TRY(tree_as_string(n->child[i], &at[i]));
  *out = (adapter_names){at, n->len};
  return HP_OK;
}

/* Adapters that go with what was left of the weights when they were made. */
static hp_status refuse_residual(const tree_node *root) {
  static const char *const inits[] = {"pissa", "corda", "olora", "loftq", "lora_ga"};
  const tree_node *n = tree_get(root, "init_lora_weights");
  for (size_t i = 0; n && n->kind == TREE_STRING && i < sizeof inits / sizeof *inits; i++)
    if (!strncmp(n->string, inits[i], strlen(inits[i])))
      TREE_FAIL(
          n,
          "the adapter belongs to the rest of weights from which \"%s\" took a part, and not to "
          "the model; expected a plain adapter: train with pissa_convert: true and use the "
          "folder pissa_converted in its output_dir",
          n->string);
  return HP_OK;
}

static hp_status read_config(adapter *a) {
  const tree_node *root = a->config.root;
  adapter_options *o = &a->o;
  HP_TRY(tree_expect(root, TREE_MAP));
  HP_TRY(need_word(root, "peft_type", "", "LORA"));
  HP_TRY(need_word(root, "bias", "none", "none"));
  HP_TRY(refuse_others(root));
  HP_TRY(refuse_residual(root));
  HP_TRY(tree_opt_int(root, "r", 8, &o->rank));
  HP_TRY(tree_opt_double(root, "lora_alpha", 8, &o->alpha));
  HP_TRY(tree_opt_double(root, "lora_dropout", 0, &o->dropout));
  HP_TRY(tree_opt_bool(root, "use_dora", false, &o->dora));
  HP_TRY(tree_opt_bool(root, "use_rslora", false, &o->rslora));
  if (o->rank < 1 || o->rank > INT32_MAX)
    TREE_FAIL(tree_get(root, "r"), "%lld; expected a rank of 1 or more", (long long)o->rank);
  if (!isfinite(o->alpha))
    TREE_FAIL(tree_get(root, "lora_alpha"), "%g; expected a number", o->alpha);
  if (!(o->dropout >= 0 && o->dropout < 1))
    TREE_FAIL(tree_get(root, "lora_dropout"), "%g; expected 0 or more, and less than 1",
              o->dropout);
  if (tree_get(root, "rank_pattern")) HP_TRY(tree_expect(tree_get(root, "rank_pattern"), TREE_MAP));
  HP_TRY(read_names(root, "target_modules", &a->mem, &o->target));
  return read_names(root, "modules_to_save", &a->mem, &o->whole);
}

/* --- adapter_model.safetensors ---------------------------------------------------------------- */

static const model_linear *find_linear(const adapter_subject *s, const char *name, size_t n) {
  for (size_t i = 0; i < s->linears; i++)
    if (strlen(s->linear[i].name) == n && !memcmp(s->linear[i].name, name, n)) return &s->linear[i];
  return NULL;
}

static const model_param *find_param(const adapter_subject *s, const char *name) {
  return model_param_find(s->param, s->params, name);
}

static hp_status refuse_tensor(const adapter_file *f, const adapter_subject *s,
                               const st_tensor *t) {
  HP_FAIL(HP_ERR_INPUT,
          "%s: tensor \"%s\" has no place in the model of %s; expected an adapter of this model",
          f->path, t->name, s->path);
}

static hp_status check_dims(const adapter_file *f, const adapter_subject *s, const st_tensor *t,
                            int rank, const int64_t *dim) {
  str have = {0}, want = {0};
  bool fits = t->rank == rank;
  for (int i = 0; fits && i < rank; i++) fits = dim[i] < 0 || t->dim[i] == dim[i];
  if (fits) return HP_OK;
  for (int i = 0; i < t->rank; i++) str_printf(&have, i ? ",%lld" : "%lld", (long long)t->dim[i]);
  for (int i = 0; i < rank; i++)
    if (dim[i] < 0) str_add(&want, i ? ",rank" : "rank");
    else str_printf(&want, i ? ",%lld" : "%lld", (long long)dim[i]);
  hp_status st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                         "%s: tensor \"%s\" is [%s], the model of %s makes it [%s]", f->path,
                         t->name, have.at ? have.at : "", s->path, want.at ? want.at : "");
  str_free(&have);
  str_free(&want);
  return st;
}

/* Where the ending of the name of a module's tensor begins, and which it is; NULL: it is of none.
 */
static const char *find_ending(const adapter *a, const char *name, int *which) {
  for (int i = 0; i < (a->o.dora ? ENDS : SIZE); i++) {
    size_t n = strlen(name), k = strlen(ends[i]);
    *which = i;
    if (n > k && name[n - k - 1] == '.' && !strcmp(name + n - k, ends[i])) return name + n - k - 1;
  }
  return NULL;
}

static hp_status take_factor(adapter_file *f, const adapter_subject *s, const st_tensor *t,
                             const char *name, const char *ending, int which) {
  const model_linear *l = find_linear(s, name, (size_t)(ending - name));
  if (!l) return refuse_tensor(f, s, t);
  const int64_t dim[ENDS][2] = {{-1, l->in}, {l->out, -1}, {l->out}};
  HP_TRY(check_dims(f, s, t, which == SIZE ? 1 : 2, dim[which]));
  if (which == SIZE) return HP_OK;
  int64_t rank = t->dim[which == A ? 0 : 1];
  if (rank < 1 || rank > INT32_MAX)
    HP_FAIL(HP_ERR_INPUT, "%s: tensor \"%s\" has rank %lld; expected 1 or more", f->path, t->name,
            (long long)rank);
  HP_TRY(adapter_add_module(f->a, l->name, rank));
  if (adapter_find(f->a, l->name)->rank != rank)
    HP_FAIL(HP_ERR_INPUT, "%s: tensor \"%s\" has rank %lld, the other one of the module %lld",
            f->path, t->name, (long long)rank, (long long)adapter_find(f->a, l->name)->rank);
  return HP_OK;
}

/* A tensor is A or B of a module, or that of a module which is trained whole. */
static hp_status take_tensor(adapter_file *f, const adapter_subject *s, const st_tensor *t) {
  const char *name = t->name + strlen(ADAPTER_PREFIX), *ending;
  int which;
  if (strncmp(t->name, ADAPTER_PREFIX, strlen(ADAPTER_PREFIX))) return refuse_tensor(f, s, t);
  if (t->dtype != ST_F32 && t->dtype != ST_BF16 && t->dtype != ST_F16 && t->dtype != ST_F64)
    HP_FAIL(HP_ERR_INPUT, "%s: tensor \"%s\" is %s; expected F32, BF16, F16 or F64", f->path,
            t->name, st_dtype_name(t->dtype));
  if (strstr(name, ".base_layer.")) return HP_OK; /* peft saves a head's own weight with it */
  if (strstr(name, ".lora_embedding_"))
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s: tensor \"%s\": adapters of embeddings are not built; train the module whole "
            "(additional_target)",
            f->path, t->name);
  ending = find_ending(f->a, name, &which);
  if (ending) return take_factor(f, s, t, name, ending, which);
  const model_param *p = find_param(s, name);
  if (!p) return refuse_tensor(f, s, t);
  hp_shape shape = model_param_stored(p);
  HP_TRY(check_dims(f, s, t, shape.rank, shape.dim));
  return adapter_add_whole(f->a, p->name);
}

/* Is it the rank of adapter_config.json, or one of its rank_pattern? */
static bool is_known_rank(const adapter *a, int64_t rank) {
  const tree_node *pattern = tree_get(a->config.root, "rank_pattern");
  bool known = rank == a->o.rank;
  for (uint32_t i = 0; !known && pattern && i < pattern->len; i++)
    known = pattern->child[i]->kind == TREE_INT && pattern->child[i]->integer == rank;
  return known;
}

static hp_status check_ranks(const adapter_file *f) {
  for (size_t i = 0; i < f->a->modules.len; i++) {
    const adapter_module *m = &f->a->modules.at[i];
    if (!is_known_rank(f->a, m->rank))
      HP_FAIL(HP_ERR_INPUT,
              "%s: module \"%s\" has rank %lld, " ADAPTER_CONFIG
              " beside it says r: %lld; expected two files of one adapter",
              f->path, m->name, (long long)m->rank, (long long)f->a->o.rank);
  }
  return HP_OK;
}

/* Each module has all of its tensors. */
static hp_status check_modules(const adapter_file *f) {
  const int n = f->a->o.dora ? ENDS : SIZE;
  char name[192];
  for (size_t i = 0; i < f->a->modules.len; i++)
    for (int k = 0; k < n; k++) {
      snprintf(name, sizeof name, "%s.%s", f->a->modules.at[i].name, ends[k]);
      if (!adapter_file_find(f, name))
        HP_FAIL(HP_ERR_INPUT, "%s: tensor \"" ADAPTER_PREFIX "%s\" is missing", f->path, name);
    }
  if (!f->a->modules.len && !f->a->whole.len)
    HP_FAIL(HP_ERR_INPUT, "%s: holds no tensors of an adapter", f->path);
  return HP_OK;
}

/* In the order of the model, whatever that of the file is. */
static hp_status sort_modules(adapter *a, const adapter_subject *s) {
  adapter found = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < s->linears; i++) {
    const adapter_module *m = adapter_find(a, s->linear[i].name);
    if (m) st = adapter_add_module(&found, m->name, m->rank);
  }
  vec_free(&a->modules);
  map_free(&a->module_of);
  a->modules.at = found.modules.at, a->modules.len = found.modules.len,
  a->modules.cap = found.modules.cap;
  a->module_of = found.module_of;
  return st;
}

static hp_status open_files(const char *dir, const adapter_subject *s, adapter_file *f) {
  str path = {0};
  if (weights_are_sharded(dir, "adapter_model"))
    HP_FAIL(
        HP_ERR_UNSUPPORTED,
        "%s: is a checkpoint of several devices, whose adapter is in shards; use the adapter that "
        "its run wrote into output_dir, or resume_from_checkpoint",
        dir);
  f->a = mem_calloc(1, sizeof *f->a);
  HP_TRY_MEM(f->a);
  hp_status st = path_join(&path, dir, ADAPTER_CONFIG);
  if (!st) st = json_load(path.at, 1 << 24, &f->a->config);
  if (!st) st = read_config(f->a);
  if (!st) st = path_join(&path, dir, ADAPTER_WEIGHTS);
  if (!st) snprintf(f->path, sizeof f->path, "%s", path.at);
  if (!st) st = weights_open(path.at, &f->w);
  for (size_t i = 0; !st && i < weights_count(f->w); i++)
    st = take_tensor(f, s, weights_get(f->w, i));
  if (!st) st = check_modules(f);
  if (!st) st = check_ranks(f);
  if (!st) st = sort_modules(f->a, s);
  str_free(&path);
  return st;
}

static hp_status read_factor(const adapter_file *f, const char *module, int which, float **out) {
  char name[192];
  snprintf(name, sizeof name, "%s.%s", module, ends[which]);
  const st_tensor *t = adapter_file_find(f, name);
  size_t n = (size_t)(t->dim[0] * (which == SIZE ? 1 : t->dim[1]));
  *out = mem_calloc(n, sizeof **out);
  HP_TRY_MEM(*out);
  return weights_read(t, 0, n, HP_F32, *out);
}

static hp_status read_factors(adapter_file *f, const adapter_subject *s) {
  const adapter *a = f->a;
  f->factors = mem_calloc(a->modules.len + 1, sizeof *f->factors);
  HP_TRY_MEM(f->factors);
  for (size_t i = 0; i < a->modules.len; i++) {
    const adapter_module *m = &a->modules.at[i];
    const model_linear *l = find_linear(s, m->name, strlen(m->name));
    adapter_factors *x = &f->factors[f->n++];
    *x = (adapter_factors){.rank = m->rank,
                           .in = l->in,
                           .out = l->out,
                           .turned = l->turned,
                           .scale = (float)adapter_scale(a, m->rank)};
    HP_TRY(read_factor(f, m->name, A, &x->A));
    HP_TRY(read_factor(f, m->name, B, &x->B));
    if (a->o.dora) HP_TRY(read_factor(f, m->name, SIZE, &x->size));
    HP_TRY(map_set(&f->factors_of, m->name, strlen(m->name), (uint32_t)i));
  }
  return HP_OK;
}

hp_status adapter_file_open(const char *dir, const adapter_subject *s, adapter_file **out) {
  adapter_file *f = mem_calloc(1, sizeof *f);
  HP_TRY_MEM(f);
  hp_status st = open_files(dir, s, f);
  if (!st) st = read_factors(f, s);
  if (st) adapter_file_close(f);
  else *out = f;
  return st;
}

void adapter_file_close(adapter_file *f) {
  if (!f) return;
  for (size_t i = 0; i < f->n; i++) {
    mem_free(f->factors[i].A);
    mem_free(f->factors[i].B);
    mem_free(f->factors[i].size);
    mem_free(f->factors[i].grow);
  }
  mem_free(f->factors);
  map_free(&f->factors_of);
  adapter_free(f->a);
  weights_free(f->w);
  mem_free(f);
}

const st_tensor *adapter_file_find(const adapter_file *f, const char *param) {
  char name[240];
  snprintf(name, sizeof name, ADAPTER_PREFIX "%s", param);
  return weights_find(f->w, name);
}

/* --- merging ---------------------------------------------------------------------------------- */

static const adapter_factors *find_factors(const adapter_file *f, const char *tensor) {
  const char *end = strrchr(tensor, '.');
  uint32_t i;
  if (!end || strcmp(end, ".weight")) return NULL;
  return map_get(&f->factors_of, tensor, (size_t)(end - tensor), &i) ? &f->factors[i] : NULL;
}

bool adapter_file_changes(const adapter_file *f, const char *tensor) {
  return find_factors(f, tensor) || adapter_file_find(f, tensor);
}

/* n elements of a row of the weight, from column `column` on; in f32, as peft adds them. */
static void add_product(const adapter_factors *m, int64_t row, int64_t column, size_t n, float *x) {
  enum { PIECE = 128 };
  for (size_t done = 0, some; done < n; done += some, column += (int64_t)some) {
    float sum[PIECE] = {0};
    some = n - done < PIECE ? n - done : PIECE;
    for (int64_t k = 0; k < m->rank; k++)
      for (size_t i = 0; i < some; i++) {
        int64_t at = column + (int64_t)i;
        sum[i] += m->turned ? m->B[at * m->rank + k] * m->A[k * m->in + row]
                            : m->B[row * m->rank + k] * m->A[k * m->in + at];
      }
    for (size_t i = 0; i < some; i++) x[done + i] += m->scale * sum[i];
  }
}

/* The place in [out] of element i of the weight. */
static int64_t row_of(const adapter_factors *m, size_t i) {
  return (int64_t)(m->turned ? i % (size_t)m->out : i / (size_t)m->in);
}

static void add_products(const adapter_factors *m, size_t first, size_t n, float *x) {
  size_t width = (size_t)(m->turned ? m->out : m->in);
  for (size_t done = 0, some; done < n; done += some, first += some) {
    size_t left = width - first % width;
    some = left < n - done ? left : n - done;
    add_product(m, (int64_t)(first / width), (int64_t)(first % width), some, x + done);
  }
}

hp_status adapter_file_merge(const adapter_file *f, const char *tensor, size_t first, size_t n,
                             float *x) {
  const adapter_factors *m = find_factors(f, tensor);
  if (!m) return weights_read(adapter_file_find(f, tensor), first, n, HP_F32, x);
  add_products(m, first, n, x);
  for (size_t i = 0; m->size && i < n; i++) x[i] *= m->grow[row_of(m, first + i)];
  return HP_OK;
}

hp_status adapter_file_measure(adapter_file *f, const char *tensor, adapter_reader *read,
                               void *ctx) {
  enum { PIECE = 1024 };
  adapter_factors *m = (adapter_factors *)(uintptr_t)find_factors(f, tensor);
  float x[PIECE];
  if (!m || !m->size) return HP_OK;
  size_t all = (size_t)m->in * (size_t)m->out;
  double *sum = mem_calloc((size_t)m->out, sizeof *sum);
  if (!m->grow) m->grow = mem_calloc((size_t)m->out, sizeof *m->grow);
  hp_status st = sum && m->grow ? HP_OK : HP_ERR_OOM;
  for (size_t done = 0, some; !st && done < all; done += some) {
    some = all - done < PIECE ? all - done : PIECE;
    st = read(ctx, done, some, x);
    if (!st) add_products(m, done, some, x);
    for (size_t i = 0; !st && i < some; i++)
      sum[row_of(m, done + i)] += (double)x[i] * (double)x[i];
  }
  for (int64_t i = 0; !st && i < m->out; i++) m->grow[i] = m->size[i] / (float)sqrt(sum[i]);
  mem_free(sum);
  return st;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void put_names(json_writer *w, const char *key, const adapter_names *names) {
  json_put_key(w, key);
  if (!names->n) {
    json_put_null(w);
    return;
  }
  json_open_list(w);
  for (size_t i = 0; i < names->n; i++) json_put_string(w, names->at[i]);
  json_close(w);
}

/* The last components of the modules' names, each once. */
static hp_status put_targets(json_writer *w, const adapter *a) {
  map seen = {0};
  hp_status st = HP_OK;
  json_put_key(w, "target_modules");
  json_open_list(w);
  for (size_t i = 0; !st && i < a->modules.len; i++) {
    const char *dot = strrchr(a->modules.at[i].name, '.');
    const char *last = dot ? dot + 1 : a->modules.at[i].name;
    uint32_t yes;
    if (map_get(&seen, last, strlen(last), &yes)) continue;
    st = map_set(&seen, last, strlen(last), 1);
    json_put_string(w, last);
  }
  json_close(w);
  map_free(&seen);
  return st;
}

/* As it was read, but for where the base model is. */
static void print_again(const tree_node *root, const char *base, json_writer *w) {
  json_open_map(w);
  for (uint32_t i = 0; i < root->len; i++) {
    const tree_node *n = root->child[i];
    json_put_key(w, n->key);
    if (!strcmp(n->key, "base_model_name_or_path")) json_put_string(w, base);
    else if (!strcmp(n->key, "inference_mode")) json_put_bool(w, true);
    else json_put_tree(w, n);
  }
  json_close(w);
}

static void put_start(json_writer *w, const adapter *a) {
  char name[40] = "pissa";
  if (a->o.pissa_iter >= 0)
    snprintf(name, sizeof name, "pissa_niter_%lld", (long long)a->o.pissa_iter);
  if (a->o.pissa) json_key_string(w, "init_lora_weights", name);
  else json_key_bool(w, "init_lora_weights", true);
}

static hp_status print_anew(const adapter *a, const char *base, bool turned, json_writer *w) {
  bool all = a->o.target.n == 1 && !strcmp(a->o.target.at[0], "all");
  hp_status st = HP_OK;
  json_open_map(w);
  json_put_key(w, "alpha_pattern"), json_open_map(w), json_close(w);
  json_put_key(w, "auto_mapping"), json_put_null(w);
  json_key_string(w, "base_model_name_or_path", base);
  json_key_string(w, "bias", "none");
  json_key_bool(w, "fan_in_fan_out", turned);
  json_key_bool(w, "inference_mode", true);
  put_start(w, a);
  json_put_key(w, "lora_alpha");
  if (a->o.alpha == floor(a->o.alpha)) json_put_int(w, (int64_t)a->o.alpha);
  else json_put_double(w, a->o.alpha);
  json_key_double(w, "lora_dropout", a->o.dropout);
  put_names(w, "modules_to_save", &a->o.whole);
  json_key_string(w, "peft_type", "LORA");
  json_key_int(w, "r", a->o.rank);
  json_put_key(w, "rank_pattern"), json_open_map(w), json_close(w);
  json_put_key(w, "revision"), json_put_null(w);
  if (all) st = put_targets(w, a);
  else put_names(w, "target_modules", &a->o.target);
  json_key_string(w, "task_type", "CAUSAL_LM");
  json_key_bool(w, "use_dora", a->o.dora);
  json_key_bool(w, "use_rslora", a->o.rslora);
  json_close(w);
  return st;
}

hp_status adapter_print_config(const adapter *a, const char *base, bool turned, str *out) {
  json_writer w = {.out = out, .indent = 2};
  hp_status st = HP_OK;
  if (a->config.root) print_again(a->config.root, base, &w);
  else st = print_anew(a, base, turned, &w);
  str_add_char(out, '\n');
  return st ? st : str_status(out);
}
