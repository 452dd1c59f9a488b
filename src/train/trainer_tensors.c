#include "train/trainer_tensors.h"

#include "base/dtype.h"
#include "ckpt/weights.h"
#include "model/adapter_files.h"
#include "train/train_mesh.h"

#include <string.h>

/* --- lists ------------------------------------------------------------------------------------ */

/* A tensor in files: of the tensor t of a param, under this prefix. */
static hp_status add_tensor(trainer_tensors *x, const char *prefix, const lm_tensor *t,
                            const hp_shape *shape, size_t at) {
  st_tensor *s = &x->tensor[x->n];
  uint64_t bytes;
  *s = (st_tensor){.rank = shape->rank, .dtype = ST_F32};
  s->name = arena_printf(&x->mem, "%s%s", prefix, t->name);
  int64_t *dim = arena_alloc(&x->mem, HP_MAX_RANK, sizeof *dim);
  if (!s->name || !dim) return HP_ERR_OOM;
  memcpy(dim, shape->dim, sizeof shape->dim);
  s->dim = dim;
  HP_ASSERT(st_size(s->dtype, s->rank, s->dim, &bytes));
  s->bytes = bytes;
  x->place[x->n].on = x->n_on - 1;
  x->place[x->n++].at = at;
  x->on[x->n_on - 1].tensors++;
  return HP_OK;
}

/* A state of p, and its tensors in files, one for each of p, which begin at t. */
static hp_status add_state(trainer_tensors *x, const model_param *p, const lm_tensor *t,
                           param_state state) {
  const char *prefix = param_state_prefix(state);
  device_tensor *on = &x->on[x->n_on++];
  *on = (device_tensor){.name = arena_printf(&x->mem, "%s%s", prefix, p->name),
                        .shape = param_state_shape(state, p->shape)};
  HP_TRY_MEM(on->name);
  if (x->adapter) prefix = ADAPTER_PREFIX;
  size_t at = 0;
  for (int64_t k = 0; k < model_param_parts(p); k++) {
    hp_shape shape = param_state_shape(state, t[k].shape);
    HP_TRY(add_tensor(x, prefix, &t[k], &shape, at));
    at += x->tensor[x->n - 1].bytes / sizeof(float);
  }
  return HP_OK;
}

static bool has_state(const optimizer_options *o, const model_param *p, param_state state) {
  param_state has[OPTIMIZER_STATES];
  int n = optimizers[o->kind].states(o, p, has);
  for (int i = 0; i < n; i++)
    if (has[i] == state) return true;
  return false;
}

static bool is_listed(const trainer_tensors *x, const run_model *m, const model_param *p,
                      param_state state) {
  if (state != STATE_PARAM) return has_state(&m->options.optimizer, p, state);
  return x->part == TENSORS_ALL ||
         model_param_is_value_head(p) == (x->part == TENSORS_OF_VALUE_HEAD);
}

/* These states of the first params of the model. */
static hp_status list_tensors(const train_config *c, const run_job *job, const run_model *m,
                              size_t params, param_state from, param_state to, trainer_tensors *x) {
  size_t n = (size_t)(to - from + 1);
  x->d = m->d;
  x->writes = job->writes;
  x->sharded = train_mesh_is_many(c);
  x->on = arena_alloc(&x->mem, params * n, sizeof *x->on);
  x->tensor = arena_alloc(&x->mem, m->m->tensors.len * n, sizeof *x->tensor);
  x->place = arena_alloc(&x->mem, m->m->tensors.len * n, sizeof *x->place);
  hp_status st = x->on && x->tensor && x->place ? HP_OK : HP_ERR_OOM;
  for (param_state s = from; s <= to; s++) {
    const lm_tensor *t = m->m->tensors.at;
    for (size_t i = 0; i < params && !st; i++) {
      const model_param *p = &m->m->params.at[i];
      if (is_listed(x, m, p, s)) st = add_state(x, p, t, s);
      t += model_param_parts(p);
    }
  }
  if (st) trainer_tensors_free(x);
  return st;
}

hp_status trainer_tensors_model(const train_config *c, const run_job *job, const run_model *m,
                                tensors_part part, trainer_tensors *out) {
  if (part == TENSORS_OF_VALUE_HEAD) {
    *out = (trainer_tensors){.part = part, .kind = "value_head", .file = VALUE_HEAD_FILE};
    return list_tensors(c, job, m, m->m->params.len, STATE_PARAM, STATE_PARAM, out);
  }
  *out = (trainer_tensors){.part = part,
                           .is_model = true,
                           .kind = "model",
                           .file = "model.safetensors"};
  if (!m->m->adapter)
    return list_tensors(c, job, m, m->m->params.len, STATE_PARAM, STATE_PARAM, out);
  *out = (trainer_tensors){.part = part,
                           .adapter = true,
                           .kind = "adapter_model",
                           .file = ADAPTER_WEIGHTS};
  return list_tensors(c, job, m, m->m->trained, STATE_PARAM, STATE_PARAM, out);
}

hp_status trainer_tensors_states(const train_config *c, const run_job *job, const run_model *m,
                                 trainer_tensors *out) {
  *out = (trainer_tensors){.kind = "optimizer", .file = "optimizer.safetensors"};
  return list_tensors(c, job, m, m->m->trained, STATE_M, PARAM_STATES - 1, out);
}

void trainer_tensors_free(trainer_tensors *x) {
  for (size_t i = 0; i < x->n_on; i++) mem_free(x->on[i].held);
  arena_free(&x->mem);
  *x = (trainer_tensors){0};
}

static size_t bytes_of(const device_tensor *t) {
  size_t n = sizeof *t->held;
  for (int d = 0; d < t->shape.rank; d++) n *= (size_t)t->shape.dim[d];
  return n;
}

/* Files have their own order, in which the tensors of several stacks may take turns: a stack is
 * held from its first tensor to its last. */
static hp_status hold(device_tensor *t) {
  if (!t->held) t->held = mem_calloc(bytes_of(t), 1);
  HP_TRY_MEM(t->held);
  return HP_OK;
}

static bool is_last(device_tensor *t) {
  t->done = (t->done + 1) % t->tensors;
  return t->done == 0;
}

static void let_go(device_tensor *t) {
  mem_free(t->held);
  t->held = NULL;
}

/* --- saving ----------------------------------------------------------------------------------- */

enum { NO_MORE = -1 };

/* Of several processes, only the one that writes knows the order of its files: it names the tensor
 * that it reads next, until there are no more, and the others give it their shards. */
static hp_status name_next(int64_t on) { return hp_world_broadcast(&on, sizeof on); }

/* A tensor that cannot be read fails in all of them, and the one that writes says that no more
 * come. */
static hp_status give_shards(const trainer_tensors *x) {
  int64_t on = NO_MORE;
  err_report why;
  hp_status st = HP_OK;
  for (;;) {
    HP_TRY(hp_world_broadcast(&on, sizeof on));
    if (on == NO_MORE) return st ? err_give(&why) : HP_OK;
    hp_status read = hp_read(x->d, x->on[on].name, NULL, bytes_of(&x->on[on]));
    if (read) err_take(st = read, &why);
  }
}

static hp_status read_global(trainer_tensors *x, size_t on) {
  HP_TRY(name_next((int64_t)on));
  return hp_read(x->d, x->on[on].name, x->on[on].held, bytes_of(&x->on[on]));
}

static hp_status write_tensor(void *ctx, size_t i, st_writer *out) {
  trainer_tensors *x = ctx;
  device_tensor *t = &x->on[x->place[i].on];
  bool first = !t->held;
  HP_TRY(hold(t));
  if (first) HP_TRY(read_global(x, x->place[i].on));
  hp_dtype type;
  HP_ASSERT(st_dtype_to_hp(x->tensor[i].dtype, &type));
  size_t n = x->tensor[i].bytes / dtype_size(type);
  HP_TRY(weights_write_as(out, x->tensor[i].name, t->held + x->place[i].at, n, type));
  if (is_last(t)) let_go(t);
  return HP_OK;
}

/* All of them as shards, by one of the two calls. */
static hp_status move_shards(trainer_tensors *x, const char *path,
                             hp_status (*move)(hp_device *d, const char *path,
                                               const char *const *name, int n)) {
  const char **name = mem_calloc(x->n_on, sizeof *name);
  HP_TRY_MEM(name);
  for (size_t i = 0; i < x->n_on; i++) name[i] = x->on[i].name;
  hp_status st = move(x->d, path, name, (int)x->n_on);
  mem_free(name);
  return st;
}

/* As peft's files say of what framework they are. */
static const st_pair metadata[] = {{"format", "pt"}};

static hp_status save_global(trainer_tensors *x, const char *file) {
  st_writer w;
  HP_TRY(st_writer_open(file, x->tensor, x->n, metadata,
                        x->adapter || x->part == TENSORS_OF_VALUE_HEAD, &w));
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < x->n; i++) st = write_tensor(x, w.order[i], &w);
  if (!st) return st_writer_commit(&w);
  st_writer_abort(&w);
  return st;
}

static hp_status export_global(trainer_tensors *x, const char *dir) {
  weights_options o = {.write = write_tensor, .ctx = x};
  str path = {0};
  if (x->is_model) return weights_save(dir, x->tensor, x->n, &o);
  hp_status st = path_join(&path, dir, x->file);
  if (!st) st = save_global(x, path.at);
  str_free(&path);
  return st;
}

hp_status trainer_tensors_export(trainer_tensors *x, const char *dir) {
  if (!x->writes) return give_shards(x);
  hp_status st = export_global(x, dir);
  err_report why;
  err_take(st, &why); /* the others are not left waiting for the next tensor */
  hp_status told = name_next(NO_MORE);
  return st ? err_give(&why) : told;
}

hp_status trainer_tensors_save(trainer_tensors *x, const char *dir) {
  str path = {0};
  bool sharded = x->sharded && x->n_on;
  if (!sharded && !x->writes) return HP_OK;
  if (!sharded && x->is_model) return trainer_tensors_export(x, dir);
  hp_status st = path_join(&path, dir, sharded ? x->kind : x->file);
  if (!st) st = sharded ? move_shards(x, path.at, hp_params_save) : save_global(x, path.at);
  str_free(&path);
  return st;
}

hp_dtype trainer_tensors_cast(trainer_tensors *x, const lm *m, int by) {
  static const hp_dtype asked[] =
      {[EXPORT_F32] = HP_F32,     [EXPORT_BF16] = HP_BF16,     [EXPORT_F16] = HP_F16,
       [EXPORT_FLOAT32] = HP_F32, [EXPORT_BFLOAT16] = HP_BF16, [EXPORT_FLOAT16] = HP_F16};
  uint64_t count[HP_DTYPE_COUNT] = {0};
  hp_dtype most = HP_F32;
  for (size_t i = 0; i < x->n; i++) {
    st_tensor *s = &x->tensor[i];
    hp_dtype type = by != EXPORT_AUTO ? asked[by] : x->adapter ? HP_F32 : m->tensors.at[i].stored;
    count[type] += s->bytes / sizeof(float);
    s->bytes = s->bytes / sizeof(float) * dtype_size(type);
    s->dtype = st_dtype_from_hp(type);
  }
  for (int k = 0; k < HP_DTYPE_COUNT; k++)
    if (count[k] > count[most]) most = (hp_dtype)k;
  return most;
}

/* --- loading ---------------------------------------------------------------------------------- */

static hp_status read_tensor(trainer_tensors *x, size_t i, const weights *w) {
  const st_tensor *to = &x->tensor[i], *have;
  device_tensor *t = &x->on[x->place[i].on];
  HP_TRY(weights_need_shape(w, to->name, to->rank, to->dim, &have));
  HP_TRY(hold(t));
  HP_TRY(weights_read(have, 0, to->bytes / sizeof *t->held, HP_F32, t->held + x->place[i].at));
  file_map_release(have->data, have->bytes);
  if (!is_last(t)) return HP_OK;
  HP_TRY(hp_write(x->d, t->name, t->held, bytes_of(t)));
  let_go(t);
  return HP_OK;
}

static hp_status refuse_more(trainer_tensors *x, const weights *w, const char *path) {
  for (size_t k = 0; k < weights_count(w); k++) {
    const char *name = weights_get(w, k)->name;
    bool asked = false;
    for (size_t i = 0; i < x->n && !asked; i++) asked = !strcmp(x->tensor[i].name, name);
    if (!asked)
      HP_FAIL(HP_ERR_INPUT,
              "%s: tensor \"%.100s\" has no place here; it is a checkpoint of another model", path,
              name);
  }
  return HP_OK;
}

static hp_status load_global(trainer_tensors *x, const char *path) {
  weights *w;
  HP_TRY(weights_open(path, &w));
  hp_status st = weights_count(w) > x->n ? refuse_more(x, w, path) : HP_OK;
  for (size_t i = 0; !st && i < x->n; i++) st = read_tensor(x, i, w);
  weights_free(w);
  return st;
}

hp_status trainer_tensors_load(trainer_tensors *x, const char *dir) {
  str path = {0};
  for (size_t i = 0; i < x->n_on; i++)
    HP_TRY(hp_param_create(x->d, x->on[i].name, HP_F32, x->on[i].shape));
  bool sharded;
  HP_TRY(weights_find_sharded(dir, x->kind, &sharded));
  if (!sharded && x->is_model) return load_global(x, dir);
  hp_status st = path_join(&path, dir, sharded ? x->kind : x->file);
  if (!st) st = sharded ? move_shards(x, path.at, hp_params_load) : load_global(x, path.at);
  str_free(&path);
  return st;
}
