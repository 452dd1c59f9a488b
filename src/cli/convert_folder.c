#include "base/dtype.h"
#include "base/io.h"
#include "base/vec.h"
#include "cli/convert.h"
#include "ckpt/manifest.h"
#include "ckpt/model_files.h"
#include "ckpt/weights.h"
#include "ckpt/saved.h"

#include <string.h>
#include <sys/stat.h>

/* --- from shards ------------------------------------------------------------------------------ */

/* A tensor of the folder to be written: one of the checkpoint, or a slice of one.  A name with a
 * star is of a stack, whose slices along dim 0 have numbers in its place. */
typedef struct {
  size_t number; /* in the index */
  int64_t slice; /* -1: all of it */
} origin;

typedef struct {
  saved *from;
  VEC(st_tensor) tensors;
  VEC(origin) origins;
  arena mem;
  const hp_dtype *to; /* type of floating tensors; NULL: their own */
} sharded_model;

/* Of tensor k in the files to be written. */
static hp_dtype type_to_write(const sharded_model *p, size_t k) {
  hp_dtype own = (hp_dtype)saved_get(p->from, k)->type.dtype;
  return p->to && dtype_is_float(own) ? *p->to : own;
}

static hp_status add_tensor(sharded_model *p, size_t number, int64_t slice) {
  const saved_tensor *t = saved_get(p->from, number);
  int first = slice >= 0;
  const char *star = first ? strchr(t->name, '*') : NULL;
  st_tensor x = {.name = t->name,
                 .dim = t->type.dim + first,
                 .rank = t->type.rank - first,
                 .dtype = st_dtype_from_hp(type_to_write(p, number))};
  if (star)
    x.name = arena_printf(&p->mem, "%.*s%lld%s", (int)(star - t->name), t->name, (long long)slice,
                          star + 1);
  HP_TRY_MEM(x.name);
  origin o = {number, slice};
  return vec_push(&p->tensors, x) && vec_push(&p->origins, o) ? HP_OK : HP_ERR_OOM;
}

static hp_status list_tensors(sharded_model *p) {
  for (size_t k = 0; k < saved_count(p->from); k++) {
    const saved_tensor *t = saved_get(p->from, k);
    bool stack = t->type.rank && strchr(t->name, '*');
    int64_t slices = stack ? t->type.dim[0] : 1;
    for (int64_t i = 0; i < slices; i++) HP_TRY(add_tensor(p, k, stack ? i : -1));
  }
  return HP_OK;
}

typedef struct {
  char *at;
  size_t size;
} target;

static hp_status write_at(void *context, int64_t at, const void *from, int64_t n) {
  const target *t = context;
  memcpy(t->at + (size_t)at * t->size, from, (size_t)n * t->size);
  return HP_OK;
}

static hp_status write_tensor(void *context, size_t i, st_writer *out) {
  sharded_model *p = context;
  origin o = p->origins.at[i];
  const ir_value *type = &saved_get(p->from, o.number)->type;
  hp_dtype own = (hp_dtype)type->dtype, to = type_to_write(p, o.number);
  hp_dtype dtype = to == own ? own : HP_F32; /* what is read */
  box b = box_of(type->dim, type->rank);
  if (o.slice >= 0) b.start[0] = o.slice, b.stop[0] = o.slice + 1;
  target t = {.size = dtype_size(dtype)};
  size_t bytes = (size_t)box_elements(&b) * t.size;
  t.at = mem_calloc(bytes, 1);
  HP_TRY_MEM(t.at);
  hp_status st = saved_need(p->from, o.number, &b);
  if (!st) st = saved_read(p->from, o.number, &b, &b, dtype, write_at, &t);
  if (!st && to == own) st = st_writer_write(out, t.at, bytes);
  else if (!st)
    st = weights_write_as(out, p->tensors.at[i].name, (float *)t.at, bytes / t.size, to);
  mem_free(t.at);
  return st;
}

static hp_status convert_sharded(const char *from, const char *to, const hp_dtype *type) {
  sharded_model p = {.to = type};
  str name = {0};
  weights_options o = {.write = write_tensor, .ctx = &p};
  hp_status st = path_join(&name, from, "model");
  if (!st) st = saved_open(name.at, &p.from);
  if (!st) st = list_tensors(&p);
  if (!st) st = weights_save(to, p.tensors.at, p.tensors.len, &o);
  saved_close(p.from);
  vec_free(&p.tensors);
  vec_free(&p.origins);
  arena_free(&p.mem);
  str_free(&name);
  return st;
}

/* --- from global tensors ---------------------------------------------------------------------- */

static hp_status convert_global(const char *from, const char *to, const hp_dtype *type) {
  weights *w;
  HP_TRY(weights_open(from, &w));
  size_t n = weights_count(w);
  st_tensor *list = mem_calloc(n, sizeof *list);
  for (size_t i = 0; list && i < n; i++) list[i] = *weights_get(w, i);
  hp_status st = list ? HP_OK : HP_ERR_OOM;
  if (!st) st = type ? weights_save_as(to, list, n, *type) : weights_save(to, list, n, NULL);
  mem_free(list);
  weights_free(w);
  return st;
}

/* --- the folder ------------------------------------------------------------------------------- */

static bool is_same(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A checkpoint of a run has a manifest, which is verified. */
static hp_status verify_folder(const char *from) {
  tree manifest;
  bool there;
  HP_TRY(manifest_find(from, &there));
  if (!there) return HP_OK;
  HP_TRY(manifest_read(from, &manifest));
  hp_status st = manifest_verify(from, &manifest);
  tree_free(&manifest);
  return st;
}

hp_status convert_folder(const char *from, const char *to, const hp_dtype *type) {
  str config = {0};
  if (is_same(from, to)) HP_FAIL(HP_ERR_ARG, "%s: cannot be written onto itself", to);
  HP_TRY(manifest_check_target(to));
  HP_TRY(verify_folder(from));
  bool is_sharded = weights_are_sharded(from, "model");
  HP_TRY(is_sharded ? convert_sharded(from, to, type) : convert_global(from, to, type));
  HP_TRY(model_files_copy(from, to));
  hp_status st = path_join(&config, from, "config.json");
  if (!st && path_exists(config.at))
    st = type ? model_config_copy(config.at, *type, to) : model_file_copy(config.at, to);
  str_free(&config);
  return st;
}
