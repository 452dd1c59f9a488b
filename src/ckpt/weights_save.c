#include "ckpt/weights.h"

#include "base/json.h"
#include "base/vec.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 64, SHARDS_MAX = 99999 };

/* One file of the save. */
typedef struct {
  VEC(uint32_t) number; /* its tensors: numbers into the list to be saved */
  char name[NAME_BYTES];
} shard;

typedef struct {
  const char *dir;
  const st_tensor *tensor;
  size_t n;
  const weights_options *o;
  VEC(shard) shards;
  uint64_t total_bytes, elements;
} saver;

static const char index_name[] = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";
static const char waiting[] = ".new"; /* suffix of a file that waits for the others */

/* Moves a shard to the end of the list. */
static hp_status add_shard(saver *s, shard *from) {
  if (!vec_push(&s->shards, *from)) return HP_ERR_OOM;
  *from = (shard){0};
  return HP_OK;
}

/* A tensor above the limit gets a file of its own, before the one that is being filled. */
static hp_status add_large(saver *s, uint32_t number) {
  shard own = {0};
  hp_status st = vec_push(&own.number, number) ? add_shard(s, &own) : HP_ERR_OOM;
  vec_free(&own.number);
  return st;
}

/* In the order given; a file is closed when the next tensor would not fit. */
static hp_status split_files(saver *s, uint64_t limit, shard *open) {
  uint64_t filled = 0;
  for (size_t i = 0; i < s->n; i++) {
    const st_tensor *t = &s->tensor[i];
    uint64_t size, elements;
    if (!st_size(t->dtype, t->rank, t->dim, &size) || !st_size(ST_U8, t->rank, t->dim, &elements) ||
        __builtin_add_overflow(s->total_bytes, size, &s->total_bytes))
      HP_FAIL(HP_ERR_ARG, "%s: tensor \"%.100s\": its shape gives no possible size", s->dir,
              t->name);
    s->elements += elements;
    if (size > limit) {
      HP_TRY(add_large(s, (uint32_t)i));
      continue;
    }
    if (filled + size > limit) {
      HP_TRY(add_shard(s, open));
      filled = 0;
    }
    if (!vec_push(&open->number, (uint32_t)i)) return HP_ERR_OOM;
    filled += size;
  }
  return open->number.len || !s->shards.len ? add_shard(s, open) : HP_OK;
}

static hp_status name_shards(saver *s) {
  if (s->shards.len > SHARDS_MAX)
    HP_FAIL(HP_ERR_ARG, "%s: %zu shards are too many; allow larger ones", s->dir, s->shards.len);
  for (size_t i = 0; i < s->shards.len; i++) {
    char *name = s->shards.at[i].name;
    if (s->shards.len == 1) snprintf(name, NAME_BYTES, "%s", single_name);
    else snprintf(name, NAME_BYTES, "model-%05zu-of-%05zu.safetensors", i + 1, s->shards.len);
  }
  return HP_OK;
}

static hp_status join_path(str *out, const char *dir, const char *name, const char *end) {
  HP_TRY(path_join(out, dir, name));
  str_add(out, end);
  return str_status(out);
}

static hp_status write_data(const saver *s, const shard *f, st_writer *w) {
  for (size_t i = 0; i < f->number.len; i++) {
    size_t number = f->number.at[w->order[i]];
    const st_tensor *t = &s->tensor[number];
    if (s->o && s->o->write) HP_TRY(s->o->write(s->o->ctx, number, w));
    else if (t->bytes) HP_TRY(st_writer_write(w, t->data, t->bytes));
  }
  return HP_OK;
}

/* One file under its waiting name. */
static hp_status write_shard(const saver *s, const shard *f) {
  static const st_pair format = {"format", "pt"};
  st_writer w;
  str path = {0};
  hp_status st = HP_OK;
  st_tensor *list = mem_calloc(f->number.len, sizeof *list);
  HP_TRY_MEM(list);
  for (size_t i = 0; i < f->number.len; i++) list[i] = s->tensor[f->number.at[i]];
  HP_TRY_GOTO(join_path(&path, s->dir, f->name, waiting), st);
  HP_TRY_GOTO(st_writer_open(path.at, list, f->number.len, &format, 1, &w), st);
  st = write_data(s, f, &w);
  if (st) st_writer_abort(&w);
  else st = st_writer_commit(&w);
done:
  mem_free(list);
  str_free(&path);
  return st;
}

/* --- index ---------------------------------------------------------------------------- */

typedef struct {
  const char *tensor, *file;
} place;

static int compare_by_tensor(const void *a, const void *b) {
  return strcmp(((const place *)a)->tensor, ((const place *)b)->tensor);
}

/* json.dumps(index, indent=2, sort_keys=True) and a new line */
static void print_index(const saver *s, const place *places, str *out) {
  json_writer w = {.out = out, .indent = 2};
  int64_t parameters = s->o && s->o->parameters ? s->o->parameters : (int64_t)s->elements;
  json_open_map(&w);
  json_put_key(&w, "metadata");
  json_open_map(&w);
  json_put_key(&w, "total_parameters");
  json_put_int(&w, parameters);
  json_put_key(&w, "total_size");
  json_put_int(&w, (int64_t)s->total_bytes);
  json_close(&w);
  json_put_key(&w, "weight_map");
  json_open_map(&w);
  for (size_t i = 0; i < s->n; i++) {
    json_put_key(&w, places[i].tensor);
    json_put_string(&w, places[i].file);
  }
  json_close(&w);
  json_close(&w);
  str_add_char(out, '\n');
}

static hp_status write_index(const saver *s) {
  str text = {0}, path = {0};
  hp_status st = HP_OK;
  size_t n = 0;
  place *places = mem_calloc(s->n, sizeof *places);
  HP_TRY_MEM(places);
  for (size_t i = 0; i < s->shards.len; i++) {
    const shard *f = &s->shards.at[i];
    for (size_t k = 0; k < f->number.len; k++)
      places[n++] = (place){s->tensor[f->number.at[k]].name, f->name};
  }
  HP_ASSERT(n == s->n);
  qsort(places, n, sizeof *places, compare_by_tensor);
  for (size_t i = 1; i < n; i++)
    if (!compare_by_tensor(&places[i - 1], &places[i]))
      HP_FAIL_GOTO(st, HP_ERR_ARG, "%s: two tensors are called \"%.100s\"", s->dir,
                   places[i].tensor);
  print_index(s, places, &text);
  HP_TRY_GOTO(str_status(&text), st);
  HP_TRY_GOTO(join_path(&path, s->dir, index_name, waiting), st);
  HP_TRY_GOTO(file_write(path.at, text.at, text.len), st);
done:
  mem_free(places);
  str_free(&text);
  str_free(&path);
  return st;
}

/* --- publishing ----------------------------------------------------------------------- */

static hp_status remove_file(const char *dir, const char *name) {
  str path = {0};
  hp_status st = path_join(&path, dir, name);
  if (!st && unlink(path.at) && errno != ENOENT)
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot remove: %s", path.at, strerror(errno));
  str_free(&path);
  return st;
}

/* From its waiting name to its own. */
static hp_status rename_file(const char *dir, const char *name) {
  str from = {0}, to = {0};
  hp_status st = join_path(&from, dir, name, waiting);
  if (!st) st = path_join(&to, dir, name);
  if (!st) st = file_rename(from.at, to.at);
  str_free(&from);
  str_free(&to);
  return st;
}

/* True for model-00001-of-00002.safetensors, waiting or not. */
static bool is_shard_name(const char *name) {
  int end = 0;
  (void)sscanf(name, "model-%*5[0-9]-of-%*5[0-9].safetensors%n", &end);
  return end == 32 && (!name[end] || !strcmp(name + end, waiting));
}

/* Leftovers of an earlier save that died, under waiting names. */
static bool is_waiting(const char *name) {
  size_t n = strlen(name), end = sizeof waiting - 1;
  if (n < end || strcmp(name + n - end, waiting)) return false;
  n -= end;
  return (n == sizeof single_name - 1 && !memcmp(name, single_name, n)) ||
         (n == sizeof index_name - 1 && !memcmp(name, index_name, n));
}

/* Removes shards of earlier saves that are not part of this one. */
static hp_status remove_stale(const saver *s) {
  DIR *d = opendir(s->dir);
  if (!d) HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", s->dir, strerror(errno));
  hp_status st = HP_OK;
  for (struct dirent *e; !st && !(st = dir_next(d, s->dir, &e)) && e;) {
    bool keep = !is_shard_name(e->d_name) && !is_waiting(e->d_name);
    for (size_t i = 0; i < s->shards.len && !keep; i++)
      keep = !strcmp(e->d_name, s->shards.at[i].name);
    if (!keep) st = remove_file(s->dir, e->d_name);
  }
  closedir(d);
  return st;
}

static hp_status shard_exists(const saver *s, bool *out) {
  str path = {0};
  hp_status st = HP_OK;
  *out = false;
  for (size_t i = 0; i < s->shards.len && !st && !*out; i++) {
    st = path_join(&path, s->dir, s->shards.at[i].name);
    *out = !st && file_exists(path.at);
  }
  str_free(&path);
  return st;
}

/* Makes the waiting files the weights of the folder.  A reader prefers model.safetensors to the
 * index, so a single file replaces everything at its rename.  Shards become valid once the index
 * is renamed and model.safetensors is gone; if they overwrite shards of an old index, that index
 * is removed first, so that no index ever names a mixture. */
static hp_status publish_files(const saver *s) {
  if (s->shards.len == 1) {
    HP_TRY(rename_file(s->dir, single_name));
    HP_TRY(dir_sync(s->dir));
    HP_TRY(remove_file(s->dir, index_name));
    return remove_stale(s);
  }
  bool overwrites;
  HP_TRY(shard_exists(s, &overwrites));
  if (overwrites) {
    HP_TRY(remove_file(s->dir, index_name));
    HP_TRY(dir_sync(s->dir));
  }
  for (size_t i = 0; i < s->shards.len; i++) HP_TRY(rename_file(s->dir, s->shards.at[i].name));
  HP_TRY(dir_sync(s->dir));
  HP_TRY(rename_file(s->dir, index_name));
  HP_TRY(dir_sync(s->dir));
  HP_TRY(remove_file(s->dir, single_name));
  HP_TRY(dir_sync(s->dir));
  return remove_stale(s);
}

/* After a failure: removes the files that were written and not published. */
static void remove_waiting(const saver *s) {
  str name = {0};
  for (size_t i = 0; i <= s->shards.len; i++) {
    str_clear(&name);
    str_printf(&name, "%s%s", i < s->shards.len ? s->shards.at[i].name : index_name, waiting);
    if (!str_status(&name)) (void)remove_file(s->dir, name.at);
  }
  str_free(&name);
}

hp_status weights_save(const char *dir, const st_tensor *tensor, size_t n,
                       const weights_options *o) {
  saver s = {.dir = dir, .tensor = tensor, .n = n, .o = o};
  uint64_t limit = o && o->max_shard_bytes ? o->max_shard_bytes : 50000000000u;
  shard open = {0};
  hp_status st;
  if (n > UINT32_MAX) HP_FAIL(HP_ERR_ARG, "%s: %zu tensors are too many", dir, n);
  HP_TRY_GOTO(split_files(&s, limit, &open), st);
  HP_TRY_GOTO(name_shards(&s), st);
  HP_TRY_GOTO(dir_create(dir), st);
  for (size_t i = 0; i < s.shards.len; i++) HP_TRY_GOTO(write_shard(&s, &s.shards.at[i]), st);
  if (s.shards.len > 1) HP_TRY_GOTO(write_index(&s), st);
  HP_TRY_GOTO(publish_files(&s), st);
done:
  if (st) remove_waiting(&s);
  for (size_t i = 0; i < s.shards.len; i++) vec_free(&s.shards.at[i].number);
  vec_free(&open.number);
  vec_free(&s.shards);
  return st;
}
