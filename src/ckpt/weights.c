#include "ckpt/weights.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/vec.h"
#include "ckpt/manifest.h"
#include "ckpt/read_ahead.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct weights {
  char *path;
  VEC(st_file) files;
  VEC(const st_tensor *) tensors;
  map names;         /* -> number in tensors */
  read_ahead *ahead; /* NULL: none */
  bool claimed;      /* it hashes the files */
};

void weights_free(weights *w) {
  if (!w) return;
  read_ahead_free(w->ahead);
  for (size_t i = 0; i < w->files.len; i++) st_close(&w->files.at[i]);
  vec_free(&w->files);
  vec_free(&w->tensors);
  map_free(&w->names);
  mem_free(w->path);
  mem_free(w);
}

size_t weights_count(const weights *w) { return w->tensors.len; }
const st_tensor *weights_get(const weights *w, size_t i) { return w->tensors.at[i]; }

const st_tensor *weights_find(const weights *w, const char *name) {
  uint32_t i;
  return map_get(&w->names, name, strlen(name), &i) ? w->tensors.at[i] : NULL;
}

/* --- other formats -------------------------------------------------------------------- */

#define CONVERT                                                                                    \
  "; save the model as safetensors, in Python: "                                                   \
  "AutoModelForCausalLM.from_pretrained(...).save_pretrained(...)"
#define PICKLE "a Python pickle, which can run code, so it is not read" CONVERT

static const struct {
  const char *magic;
  size_t n;
  const char *what;
} foreign[] = {
    {"PK\x03\x04", 4, "a zip archive, as PyTorch's files are: it holds " PICKLE},
    {"\x80\x02", 2, PICKLE},
    {"\x80\x03", 2, PICKLE},
    {"\x80\x04", 2, PICKLE},
    {"\x80\x05", 2, PICKLE},
    {"GGUF", 4, "a GGUF file of llama.cpp; get the model's safetensors files"},
    {"version https://git-lfs", 23, "a Git LFS pointer, not the file; run `git lfs pull` there"},
    {"\x89HDF", 4, "an HDF5 file of Keras; get the model's safetensors files"},
    {"\x93NUMPY", 6, "a NumPy array; expected a safetensors file"},
    {"7z\xbc\xaf\x27\x1c", 6, "a 7z archive; expected a safetensors file"},
    {"\x1f\x8b", 2, "a gzip archive; unpack it first"},
    {"<!DOCTYPE html", 14, "a web page, not the file; download it again"},
};

/* The kind of a file whose first bytes are those of another format; else NULL.  A pickle's
 * second byte is its protocol; a safetensors header of that length would have "{" at 8. */
static const char *recognize_format(const char *path) {
  char head[32];
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return NULL;
  ssize_t n = read(fd, head, sizeof head);
  close(fd);
  if (n > 8 && head[8] == '{') return NULL;
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    if (n >= (ssize_t)foreign[i].n && !memcmp(head, foreign[i].magic, foreign[i].n))
      return foreign[i].what;
  return NULL;
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && !strcmp(s + n - m, end);
}

static bool is_foreign_name(const char *name) {
  static const char *const ends[] = {".bin", ".pt",      ".pth", ".gguf",
                                     ".h5",  ".msgpack", ".npz", ".ckpt"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (ends_with(name, ends[i])) return true;
  return false;
}

hp_status weights_find_sharded(const char *dir, const char *kind, bool *there) {
  str path = {0};
  *there = false;
  hp_status st = path_join(&path, dir, kind);
  str_add(&path, ".parts.json");
  if (!st) st = str_status(&path);
  if (!st) st = path_look(path.at, there);
  str_free(&path);
  return st;
}

bool weights_are_sharded(const char *dir, const char *kind) {
  bool there;
  if (weights_find_sharded(dir, kind, &there)) err_clear();
  return there;
}

/* The folder has no readable weights: reports what it has instead. */
static hp_status refuse_folder(const char *path) {
  if (weights_are_sharded(path, "model"))
    HP_FAIL(HP_ERR_INPUT,
            "%s: its weights are sharded files of several devices; `hyper convert %s "
            "FOLDER` writes them as one model",
            path, path);
  DIR *d = opendir(path);
  if (!d) HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", path, strerror(errno));
  /* the first of each kind by name, so that the message does not depend on the file system */
  char other[256] = "", safe[256] = "";
  for (struct dirent *e; (e = readdir(d));) {
    char *first = ends_with(e->d_name, ".safetensors") ? safe
                  : is_foreign_name(e->d_name)         ? other
                                                       : NULL;
    if (first && (!*first || strcmp(e->d_name, first) < 0))
      snprintf(first, sizeof other, "%.255s", e->d_name);
  }
  closedir(d);
  if (*safe)
    HP_FAIL(HP_ERR_INPUT,
            "%s: there is %s, but no model.safetensors and no model.safetensors.index.json; was a "
            "save or download interrupted? A single file is opened by its own path",
            path, safe);
  if (!*other)
    HP_FAIL(HP_ERR_INPUT,
            "%s: no weights there; expected model.safetensors, or model.safetensors.index.json and "
            "its shards",
            path);
  str full = {0};
  HP_TRY(path_join(&full, path, other));
  const char *what = recognize_format(full.at);
  hp_status st =
      err_set(HP_ERR_UNSUPPORTED, __FILE__, __LINE__, "%s is %s", full.at,
              what ? what : "no safetensors file; expected model.safetensors next to it");
  str_free(&full);
  return st;
}

/* --- opening -------------------------------------------------------------------------- */

static hp_status open_file(weights *w, const char *path) {
  st_file f;
  const char *what = recognize_format(path);
  if (what) HP_FAIL(HP_ERR_UNSUPPORTED, "%s is %s", path, what);
  HP_TRY(st_open(path, &f));
  if (vec_push(&w->files, f)) return HP_OK;
  st_close(&f);
  return HP_ERR_OOM;
}

static hp_status add_tensor(weights *w, const st_tensor *t) {
  HP_TRY(map_set(&w->names, t->name, strlen(t->name), (uint32_t)w->tensors.len));
  return vec_push(&w->tensors, t) ? HP_OK : HP_ERR_OOM;
}

static hp_status open_single(weights *w, const char *path) {
  HP_TRY(open_file(w, path));
  const st_file *f = &w->files.at[0];
  for (size_t i = 0; i < f->n; i++) HP_TRY(add_tensor(w, &f->tensor[i]));
  return HP_OK;
}

/* Opens the shard that a value of the index names; it must be a plain file name. */
static hp_status open_shard(weights *w, const char *dir, const tree_node *value, const char *name) {
  if (!*name || *name == '.' || strchr(name, '/') || strchr(name, '\\'))
    TREE_FAIL(value, "\"%.100s\" is not the name of a file in this folder", name);
  str path = {0};
  HP_TRY(path_join(&path, dir, name));
  hp_status st = HP_OK;
  if (!path_exists(path.at))
    st = tree_error(value, __FILE__, __LINE__,
                    "the shard %.100s is missing; copy or download it into the folder", name);
  else st = open_file(w, path.at);
  str_free(&path);
  return st;
}

/* Opens every file once; shards maps their names to numbers in w->files. */
static hp_status open_shards(weights *w, const char *dir, const tree_node *names, map *shards) {
  for (uint32_t i = 0; i < names->len; i++) {
    const char *name;
    uint32_t file;
    HP_TRY(tree_as_string(names->child[i], &name));
    if (map_get(shards, name, strlen(name), &file)) continue;
    HP_TRY(open_shard(w, dir, names->child[i], name));
    HP_TRY(map_set(shards, name, strlen(name), (uint32_t)w->files.len - 1));
  }
  return HP_OK;
}

/* Looks up the tensors of the index in their files, all of which are open. */
static hp_status find_tensors(weights *w, const tree_node *names, const map *shards) {
  size_t held = 0;
  for (uint32_t i = 0; i < names->len; i++) {
    const tree_node *value = names->child[i];
    uint32_t file = 0;
    HP_ASSERT(map_get(shards, value->string, value->len, &file));
    const st_tensor *t = st_find(&w->files.at[file], value->key);
    if (!t || strlen(t->name) != value->key_len)
      TREE_FAIL(value,
                "the index says that %.100s holds this tensor, but it does not; the index and the "
                "shards are not of one save",
                value->string);
    HP_TRY(add_tensor(w, t));
  }
  for (size_t i = 0; i < w->files.len; i++) held += w->files.at[i].n;
  if (held > names->len)
    log_warn("%s: the shards hold %zu tensors that the index does not name; they are left out",
             names->source, held - names->len);
  return HP_OK;
}

static hp_status open_index(weights *w, const char *dir, const char *path) {
  tree index;
  map shards = {0};
  const tree_node *names;
  HP_TRY(json_load(path, 0, &index));
  hp_status st = tree_need_map(index.root, "weight_map", &names);
  if (!st) st = open_shards(w, dir, names, &shards);
  if (!st) st = find_tensors(w, names, &shards);
  map_free(&shards);
  tree_free(&index);
  return st;
}

static hp_status open_folder(weights *w, const char *dir) {
  str path = {0};
  bool single = false, index = false;
  hp_status st = path_join(&path, dir, "model.safetensors");
  if (!st) st = path_look(path.at, &single);
  if (!st && single) st = open_single(w, path.at);
  if (!st && !single) {
    st = path_join(&path, dir, "model.safetensors.index.json");
    if (!st) st = path_look(path.at, &index);
    if (!st) st = index ? open_index(w, dir, path.at) : refuse_folder(dir);
  }
  str_free(&path);
  return st;
}

hp_status weights_open(const char *path, weights **out) {
  weights *w = mem_calloc(1, sizeof *w);
  HP_TRY_MEM(w);
  str copy = {0};
  str_add(&copy, path);
  w->path = str_take(&copy);
  hp_status st = HP_ERR_OOM;
  if (w->path) st = dir_exists(path) ? open_folder(w, path) : open_single(w, path);
  if (st) weights_free(w);
  else *out = w;
  return st;
}

/* --- reading ahead ------------------------------------------------------------------------- */

uint64_t weights_place(const weights *w, const st_tensor *t) {
  uint64_t place = 0;
  for (size_t i = 0; i < w->files.len; i++) {
    const file_map *m = &w->files.at[i].map;
    if (t->data >= m->at && t->data <= m->at + m->len) return place + (uint64_t)(t->data - m->at);
    place += m->len;
  }
  HP_ASSERT(!"a tensor of these files");
}

/* A failure only costs speed. */
void weights_read_ahead(weights *w, uint64_t made) {
  uint64_t room = mem_physical();
  bool drop = made > room;
  for (size_t i = 0; i < w->files.len && !drop; i++) {
    drop = w->files.at[i].map.len > room - made;
    made += w->files.at[i].map.len;
  }
  if (!w->ahead && read_ahead_create(w->files.at, w->files.len, drop, w->claimed, &w->ahead))
    err_clear();
}

void weights_claim(weights *w, manifest_check *c) {
  w->claimed = c != NULL;
  for (size_t i = 0; i < w->files.len; i++) manifest_check_claim(c, w->files.at[i].path);
}

hp_status weights_give(weights *w, manifest_check *c) {
  if (!w->claimed || !w->ahead) return HP_OK;
  const hash128 *hash = read_ahead_hashes(w->ahead);
  for (size_t i = 0; i < w->files.len; i++)
    HP_TRY(manifest_check_give(c, w->files.at[i].path, hash[i]));
  return HP_OK;
}

void weights_move(weights *w, uint64_t begin, uint64_t end) {
  if (w->ahead) read_ahead_move(w->ahead, begin, end);
}

void weights_wait(const weights *w, uint64_t place) {
  if (w->ahead) read_ahead_wait(w->ahead, place);
}

/* --- looking up and reading ----------------------------------------------------------- */

hp_status weights_need(const weights *w, const char *name, const st_tensor **out) {
  const st_tensor *t = weights_find(w, name);
  if (t) {
    *out = t;
    return HP_OK;
  }
  const char *near = NULL;
  int best = (int)strlen(name) / 3 + 1;
  for (size_t i = 0; i < w->tensors.len; i++) {
    int d = str_distance(name, w->tensors.at[i]->name, best);
    if (d >= best) continue;
    best = d;
    near = w->tensors.at[i]->name;
  }
  if (near)
    HP_FAIL(HP_ERR_INPUT, "%s: has no tensor \"%s\"; the nearest is \"%s\"", w->path, name, near);
  HP_FAIL(HP_ERR_INPUT, "%s: has no tensor \"%s\"", w->path, name);
}

static void add_shape(str *s, int rank, const int64_t *dim) {
  str_add_char(s, '[');
  for (int i = 0; i < rank; i++) str_printf(s, "%s%lld", i ? ", " : "", (long long)dim[i]);
  str_add_char(s, ']');
}

hp_status weights_need_shape(const weights *w, const char *name, int rank, const int64_t *dim,
                             const st_tensor **out) {
  const st_tensor *t = NULL;
  HP_TRY(weights_need(w, name, &t));
  bool same = t->rank == rank;
  for (int i = 0; i < rank && same; i++) same = t->dim[i] == dim[i];
  if (same) {
    *out = t;
    return HP_OK;
  }
  str s = {0};
  add_shape(&s, t->rank, t->dim);
  str_add(&s, ", expected ");
  add_shape(&s, rank, dim);
  hp_status st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                         "%s: tensor \"%s\" is %s; config.json and the weights do not fit", w->path,
                         name, s.at ? s.at : "of another shape");
  str_free(&s);
  return st;
}

hp_status weights_read(const st_tensor *t, size_t first, size_t n, hp_dtype to, void *dst) {
  hp_dtype from = HP_F32;
  size_t size = st_dtype_bits(t->dtype) / 8;
  bool ours = st_dtype_to_hp(t->dtype, &from);
  if (!size || n > t->bytes / size || first > t->bytes / size - n)
    HP_FAIL(HP_ERR_INTERNAL, "tensor \"%s\": %zu elements from %zu on are not in it", t->name, n,
            first);
  const unsigned char *src = first ? t->data + first * size : t->data; /* NULL where none is read */
  if (t->dtype == ST_F64 && dtype_is_float(to)) return dtype_from_f64(to, dst, src, n);
  if (ours && (from == to || (dtype_is_float(from) && dtype_is_float(to))))
    return dtype_convert(to, dst, from, src, n);
  HP_FAIL(HP_ERR_UNSUPPORTED,
          "tensor \"%s\" is %s, which cannot be read as %s: F64, F32, BF16 and F16 can be read as "
          "any floating type, others only as they are",
          t->name, st_dtype_name(t->dtype), dtype_name(to));
}
