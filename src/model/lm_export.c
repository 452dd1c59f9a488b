#include "model/lm_files.h"

#include "base/io.h"
#include "base/log.h"
#include "ckpt/model_files.h"

typedef struct {
  const lm *m;
  const lm_place *from;
  st_tensor *tensor;
} exporting;

static hp_status write_tensor(void *ctx, size_t i, st_writer *out) {
  enum { PIECE = 4096 };
  const exporting *e = ctx;
  const lm_tensor *t = &e->m->tensors.at[i];
  hp_dtype type;
  float x[PIECE];
  size_t n = 1;
  HP_ASSERT(st_dtype_to_hp(e->tensor[i].dtype, &type));
  for (int d = 0; d < t->shape.rank; d++) n *= (size_t)t->shape.dim[d];
  for (size_t done = 0, some; done < n; done += some) {
    some = n - done < PIECE ? n - done : PIECE;
    HP_TRY(lm_read_merged(e->m, &e->from[i], t, done, some, x));
    HP_TRY(weights_write_as(out, t->name, x, some, type));
  }
  return HP_OK;
}

/* Returns the type of most numbers. */
static hp_dtype list_tensors(const lm *m, const hp_dtype *type, st_tensor *list) {
  uint64_t count[HP_DTYPE_COUNT] = {0};
  hp_dtype most = HP_F32;
  for (size_t i = 0; i < m->tensors.len; i++) {
    const lm_tensor *t = &m->tensors.at[i];
    hp_dtype as = type ? *type : t->stored;
    list[i] = (st_tensor){.name = t->name,
                          .dim = t->shape.dim,
                          .rank = t->shape.rank,
                          .dtype = st_dtype_from_hp(as)};
    HP_ASSERT(st_size(list[i].dtype, list[i].rank, list[i].dim, &list[i].bytes));
    count[as] += list[i].bytes;
  }
  for (int k = 0; k < HP_DTYPE_COUNT; k++)
    if (count[k] > count[most]) most = (hp_dtype)k;
  return most;
}

/* config.json is written last: without it the folder is no model. */
static hp_status write_folder(lm *m, const model_files *with, const weights *w, const char *to,
                              const hp_dtype *type, uint64_t max_shard_bytes) {
  size_t n = m->tensors.len;
  exporting e = {m, mem_calloc(n, sizeof *e.from), mem_calloc(n, sizeof *e.tensor)};
  weights_options o = {.write = write_tensor, .ctx = &e, .max_shard_bytes = max_shard_bytes};
  str text = {0}, path = {0};
  hp_dtype most = HP_F32;
  hp_status st = e.from && e.tensor ? HP_OK : HP_ERR_OOM;
  if (!st) st = lm_find_places(m, w, (lm_place *)(uintptr_t)e.from);
  if (!st) most = list_tensors(m, type, e.tensor);
  if (!st) st = weights_save(to, e.tensor, n, &o);
  if (!st) st = model_files_write(with, to);
  if (!st) model_config_print(m->c.source.root, most, &text);
  if (!st) st = str_status(&text);
  if (!st) st = path_join(&path, to, "config.json");
  if (!st) st = file_write(path.at, text.at, text.len);
  str_free(&text);
  str_free(&path);
  mem_free((void *)(uintptr_t)e.from);
  mem_free(e.tensor);
  return st;
}

hp_status lm_export(lm *m, const char *from, const model_files *with, const char *to,
                    const hp_dtype *type, uint64_t max_shard_bytes) {
  weights *w;
  if (weights_are_sharded(from, "model"))
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s is a checkpoint of several devices; write it as one model first: hyper convert %s "
            "FOLDER",
            from, from);
  HP_TRY(weights_open(from, &w));
  hp_status st = write_folder(m, with, w, to, type, max_shard_bytes);
  weights_free(w);
  return st;
}
