#include "model/adapter_files.h"

#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "ckpt/weights.h"
#include "model/adapter_match.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A module's matrices in f32, for merging. */
typedef struct adapter_factors {
  float *A, *B; /* [rank,in], [out,rank] */
  float *size;  /* [out], with DoRA */
  float *grow;  /* [out] factors of rows, of adapter_file_measure */
  int64_t rank, in, out;
  bool transposed;
  float scale;
} adapter_factors;

static const char *const ends[] = {"lora_A.weight", "lora_B.weight", "lora_magnitude_vector"};
enum { A, B, SIZE, ENDS };

/* --- adapter_model.safetensors ---------------------------------------------------------------- */

static const model_linear *find_linear(const adapter_subject *s, const char *name, size_t n) {
  for (size_t i = 0; i < s->linears; i++)
    if (strlen(s->linear[i].name) == n && !memcmp(s->linear[i].name, name, n)) return &s->linear[i];
  return NULL;
}

static const model_param *find_param(const adapter_subject *s, const char *name) {
  return model_param_find(s->param, s->params, name);
}

/* The model that it says it was trained for. */
static hp_status find_base(const adapter_file *f, const char **out) {
  return tree_opt_string(f->a->config.root, "base_model_name_or_path", "another model", out);
}

static hp_status refuse_tensor(const adapter_file *f, const adapter_subject *s,
                               const st_tensor *t) {
  const char *base;
  HP_TRY(find_base(f, &base));
  HP_FAIL(HP_ERR_INPUT,
          "%s: tensor \"%s\" has no place in the model of %s; expected an adapter of this model; "
          "this one is for %s",
          f->path, t->name, s->path, base);
}

static hp_status check_dims(const adapter_file *f, const adapter_subject *s, const st_tensor *t,
                            int rank, const int64_t *dim) {
  str have = {0}, want = {0};
  const char *base;
  bool fits = t->rank == rank;
  for (int i = 0; fits && i < rank; i++) fits = dim[i] < 0 || t->dim[i] == dim[i];
  if (fits) return HP_OK;
  for (int i = 0; i < t->rank; i++) str_printf(&have, i ? ",%lld" : "%lld", (long long)t->dim[i]);
  for (int i = 0; i < rank; i++)
    if (dim[i] < 0) str_add(&want, i ? ",rank" : "rank");
    else str_printf(&want, i ? ",%lld" : "%lld", (long long)dim[i]);
  hp_status st = find_base(f, &base);
  if (!st)
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: tensor \"%s\" is [%s], the model of %s makes it [%s]; expected an adapter of "
                 "this model; this one is for %s",
                 f->path, t->name, have.at ? have.at : "", s->path, want.at ? want.at : "", base);
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
  HP_TRY(adapter_add_module(f->a, l->name, rank, f->a->o.alpha));
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

/* --- both ------------------------------------------------------------------------------------- */

/* Modules that one of the files has and the other does not. */
typedef struct {
  int n;
  const char *first;
} odd_modules;

static void count_odd(odd_modules *of, const char *module) {
  if (!of->n++) of->first = module;
}

static hp_status tell_odd(const adapter_file *f, const odd_modules *more, const odd_modules *less) {
  if (!f->a->modules.len && more->n)
    HP_FAIL(HP_ERR_INPUT,
            "%s: has tensors of \"%s\", and " ADAPTER_CONFIG
            " beside it means no module that has any (target_modules, exclude_modules, "
            "layers_to_transform); expected two files of one adapter",
            f->path, more->first);
  if (more->n)
    log_warn("%s: tensors of %d modules are not used, the first is \"%s\": " ADAPTER_CONFIG
             " beside it does not mean them (target_modules, exclude_modules, layers_to_transform)",
             f->path, more->n, more->first);
  if (less->n)
    log_warn("%s: has no tensors of %d modules that " ADAPTER_CONFIG
             " beside it means, the first is \"%s\": they have no adapter",
             f->path, less->n, less->first);
  return HP_OK;
}

static hp_status take_module(const adapter_file *f, adapter_match *match, const adapter_module *m,
                             adapter *to) {
  double rank = (double)f->a->o.rank, alpha = f->a->o.alpha;
  HP_TRY(adapter_match_values(match, m->name, &rank, &alpha));
  if (rank != (double)m->rank)
    HP_FAIL(HP_ERR_INPUT,
            "%s: module \"%s\" has rank %lld, " ADAPTER_CONFIG
            " beside it says %g (r, rank_pattern); expected two files of one adapter",
            f->path, m->name, (long long)m->rank, rank);
  return adapter_add_module(to, m->name, m->rank, alpha);
}

/* The modules of the model that have tensors and that the configuration means, in the order of the
 * model.  peft, too, leaves out tensors of other modules, and goes on without some. */
static hp_status choose_modules(adapter_file *f, const adapter_subject *s, adapter_match *match) {
  adapter found = {0};
  odd_modules more = {0}, less = {0};
  hp_status st = HP_OK;
  bool meant;
  for (size_t i = 0; !st && i < s->linears; i++) {
    const char *name = s->linear[i].name;
    const adapter_module *m = adapter_find(f->a, name);
    st = adapter_match_target(match, name, &meant);
    if (st) continue;
    if (m && meant) st = take_module(f, match, m, &found);
    else if (m) count_odd(&more, name);
    else if (meant) count_odd(&less, name);
  }
  vec_free(&f->a->modules);
  map_free(&f->a->module_of);
  f->a->modules.at = found.modules.at, f->a->modules.len = found.modules.len,
  f->a->modules.cap = found.modules.cap;
  f->a->module_of = found.module_of;
  return st ? st : tell_odd(f, &more, &less);
}

static hp_status check_whole(const adapter_file *f) {
  const adapter_names *names = &f->a->o.whole;
  for (size_t i = 0; i < names->n; i++) {
    bool any = false;
    for (size_t k = 0; k < f->a->whole.len && !any; k++)
      any = adapter_is_of_module(f->a->whole.at[k], names->at[i]);
    if (!any)
      HP_FAIL(HP_ERR_INPUT,
              "%s: has no tensor of \"%s\", which " ADAPTER_CONFIG
              " beside it names in modules_to_save; expected two files of one adapter",
              f->path, names->at[i]);
  }
  return HP_OK;
}

static hp_status compare_files(adapter_file *f, const adapter_subject *s) {
  adapter_match *match;
  HP_TRY(adapter_match_create(f->a->config.root, &match));
  hp_status st = choose_modules(f, s, match);
  adapter_match_free(match);
  return st ? st : check_whole(f);
}

static hp_status refuse_pickle(const char *dir) {
  HP_FAIL(HP_ERR_UNSUPPORTED,
          "%s: has adapter_model.bin, a pickle, which is not read; expected " ADAPTER_WEIGHTS
          ". Convert it there: python3 -c \"import torch, safetensors.torch as s; "
          "s.save_file({k: v.contiguous() for k, v in torch.load('adapter_model.bin', "
          "map_location='cpu', weights_only=True).items()}, '" ADAPTER_WEIGHTS "')\"",
          dir);
}

/* The path of the tensors. */
static hp_status find_weights(const char *dir, str *path) {
  HP_TRY(path_join(path, dir, "adapter_model.bin"));
  bool pickle = path_exists(path->at);
  HP_TRY(path_join(path, dir, ADAPTER_WEIGHTS));
  return pickle && !path_exists(path->at) ? refuse_pickle(dir) : HP_OK;
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
  if (!st && !path_exists(path.at))
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: there is no such file; expected the folder of an adapter, as hyper train and "
                 "peft write it",
                 path.at);
  if (!st) st = json_load(path.at, 1 << 24, &f->a->config);
  if (!st) st = adapter_read_config(f->a);
  if (!st) st = find_weights(dir, &path);
  if (!st) snprintf(f->path, sizeof f->path, "%s", path.at);
  if (!st) st = weights_open(path.at, &f->w);
  for (size_t i = 0; !st && i < weights_count(f->w); i++)
    st = take_tensor(f, s, weights_get(f->w, i));
  if (!st) st = check_modules(f);
  if (!st) st = compare_files(f, s);
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
                           .transposed = l->transposed,
                           .scale = (float)adapter_scale(a, m)};
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
        sum[i] += m->transposed ? m->B[at * m->rank + k] * m->A[k * m->in + row]
                                : m->B[row * m->rank + k] * m->A[k * m->in + at];
      }
    for (size_t i = 0; i < some; i++) x[done + i] += m->scale * sum[i];
  }
}

/* The place in [out] of element i of the weight. */
static int64_t row_of(const adapter_factors *m, size_t i) {
  return (int64_t)(m->transposed ? i % (size_t)m->out : i / (size_t)m->in);
}

static void add_products(const adapter_factors *m, size_t first, size_t n, float *x) {
  size_t width = (size_t)(m->transposed ? m->out : m->in);
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
