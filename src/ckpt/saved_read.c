#include "base/dtype.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/vec.h"
#include "shard/layout_text.h"
#include "ckpt/saved.h"

#include <string.h>

enum { INDEX_MAX = 1 << 30, STAGE = 4096 };

typedef struct {
  int64_t device;
  st_file f;
} shard_file;

struct saved {
  const char *name, *path; /* of the save, and of its index */
  mesh m[SAVED_MESHES];
  int64_t first[SAVED_MESHES]; /* the number of each mesh's first device */
  int meshes;
  VEC(saved_tensor) tensors;
  map number; /* of a tensor, by name */
  VEC(shard_file) files;
  map file_of; /* place in files, by device */
  arena mem;
};

/* --- the index -------------------------------------------------------------------------------- */

/* Adds the place n to the last failure, which is the file's but for memory. */
static hp_status fail_at(const tree_node *n, hp_status st) {
  if (st == HP_ERR_OOM) return st;
  err_report why;
  err_take(st, &why);
  TREE_FAIL(n, "%s", why.message);
}

static hp_status read_mesh(saved *s, const tree_node *n, const char *text, size_t length) {
  layout l;
  bool called;
  str one = {0};
  if (s->meshes == SAVED_MESHES) TREE_FAIL(n, "more than %d meshes", SAVED_MESHES);
  str_add_n(&one, text, length);
  hp_status st = str_status(&one);
  if (!st) st = layout_parse(one.at ? one.at : "", &s->m[s->meshes], &l, &called);
  str_free(&one);
  if (st) return fail_at(n, st);
  int k = s->meshes++;
  if (k && __builtin_add_overflow(s->first[k - 1], s->m[k - 1].devices, &s->first[k]))
    TREE_FAIL(n, "more devices than can be numbered");
  if (called) TREE_FAIL(n, "expected a mesh alone, such as (2,2)(dp,tp)");
  return HP_OK;
}

/* Meshes with ; between them. */
static hp_status read_meshes(saved *s, const tree_node *root) {
  const tree_node *n;
  const char *text;
  HP_TRY(tree_need(root, "mesh", &n));
  HP_TRY(tree_as_string(n, &text));
  for (;; text++) {
    size_t length = strcspn(text, ";");
    HP_TRY(read_mesh(s, n, text, length));
    text += length;
    if (!*text) return HP_OK;
  }
}

static hp_status read_shape(const tree_node *n, ir_value *type) {
  if (n->len > HP_MAX_RANK) TREE_FAIL(n, "%u dims; at most %d", n->len, HP_MAX_RANK);
  type->rank = (uint8_t)n->len;
  for (uint32_t i = 0; i < n->len; i++) {
    HP_TRY(tree_as_int(n->child[i], &type->dim[i]));
    if (type->dim[i] < 0) TREE_FAIL(n->child[i], "expected a size, 0 or more");
  }
  if (!value_fits(type)) TREE_FAIL(n, "more elements than memory can hold");
  return HP_OK;
}

static hp_status read_layout(const saved *s, const tree_node *n, saved_tensor *t) {
  const char *text;
  HP_TRY(tree_as_string(n, &text));
  const mesh *m = &s->m[t->mesh];
  hp_status st = layout_parse_on(text, m, &t->l);
  if (st) return fail_at(n, st);
  if (t->l.rank != t->type.rank)
    TREE_FAIL(n, "has %d dims, the tensor %d", t->l.rank, t->type.rank);
  for (int a = 0; a < m->axes; a++)
    if (t->l.partial[a])
      TREE_FAIL(n, "the tensor is partial over %s; expected a layout without partial sums",
                m->name[a]);
  return HP_OK;
}

static hp_status read_tensor(saved *s, const tree_node *n) {
  saved_tensor t = {.name = arena_strdup(&s->mem, n->key)};
  const tree_node *dtype, *shape, *entries;
  const char *word;
  hp_dtype type;
  HP_TRY_MEM(t.name);
  if (memchr(n->key, 0, n->key_len)) TREE_FAIL(n, "its name holds a NUL character");
  HP_TRY(tree_need(n, "dtype", &dtype));
  HP_TRY(tree_as_string(dtype, &word));
  if (!dtype_parse(word, &type)) TREE_FAIL(dtype, "\"%.40s\" is no dtype", word);
  t.type.dtype = (uint8_t)type;
  HP_TRY(tree_need_list(n, "shape", &shape));
  HP_TRY(read_shape(shape, &t.type));
  int64_t on = 0;
  HP_TRY(tree_opt_int(n, "mesh", 0, &on));
  if (on < 0 || on >= s->meshes)
    TREE_FAIL(n, "mesh %lld; there are %d, from 0", (long long)on, s->meshes);
  t.mesh = (int)on;
  HP_TRY(tree_need(n, "layout", &entries));
  HP_TRY(read_layout(s, entries, &t));
  HP_TRY(map_set(&s->number, t.name, strlen(t.name), (uint32_t)s->tensors.len));
  return vec_push(&s->tensors, t) ? HP_OK : HP_ERR_OOM;
}

static hp_status read_index(saved *s, const tree_node *root) {
  const tree_node *tensors;
  int64_t format;
  HP_TRY(tree_expect(root, TREE_MAP));
  HP_TRY(tree_need_int(root, "format", &format));
  if (format != SAVED_FORMAT)
    TREE_FAIL(root, "format %lld; this version reads format %d", (long long)format, SAVED_FORMAT);
  HP_TRY(read_meshes(s, root));
  HP_TRY(tree_need_map(root, "tensors", &tensors));
  for (uint32_t i = 0; i < tensors->len; i++) {
    HP_TRY(tree_expect(tensors->child[i], TREE_MAP));
    HP_TRY(read_tensor(s, tensors->child[i]));
  }
  for (int k = 0; k < s->meshes; k++) saved_share_out(&s->m[k], k, s->tensors.at, s->tensors.len);
  return HP_OK;
}

hp_status saved_open(const char *name, saved **out) {
  str path = {0};
  tree index = {0};
  HP_TRY(saved_index_path(name, &path));
  saved *s = mem_calloc(1, sizeof *s);
  hp_status st = s ? HP_OK : HP_ERR_OOM;
  if (s) {
    s->name = arena_strdup(&s->mem, name);
    s->path = arena_strdup(&s->mem, path.at);
    if (!s->name || !s->path) st = HP_ERR_OOM;
  }
  if (!st) st = json_load(path.at, INDEX_MAX, &index);
  if (!st) st = read_index(s, index.root);
  tree_free(&index);
  str_free(&path);
  if (st) saved_close(s);
  else *out = s;
  return st;
}

void saved_close(saved *s) {
  if (!s) return;
  for (size_t i = 0; i < s->files.len; i++) st_close(&s->files.at[i].f);
  vec_free(&s->files);
  vec_free(&s->tensors);
  map_free(&s->file_of);
  map_free(&s->number);
  for (int k = 0; k < s->meshes; k++) mesh_free(&s->m[k]);
  arena_free(&s->mem);
  mem_free(s);
}

int saved_meshes(const saved *s) { return s->meshes; }
const mesh *saved_mesh(const saved *s, int k) { return &s->m[k]; }
const char *saved_path(const saved *s) { return s->path; }
size_t saved_count(const saved *s) { return s->tensors.len; }
const saved_tensor *saved_get(const saved *s, size_t k) { return &s->tensors.at[k]; }

const saved_tensor *saved_find(const saved *s, const char *name, size_t *k) {
  uint32_t number;
  if (!map_get(&s->number, name, strlen(name), &number)) return NULL;
  *k = number;
  return &s->tensors.at[number];
}

/* --- the files of the devices ----------------------------------------------------------------- */

static const mesh *mesh_of(const saved *s, const saved_tensor *t) { return &s->m[t->mesh]; }

/* Does the device of that number save something of the tensor, and which box? */
static bool is_saved_by(const saved *s, const saved_tensor *t, int64_t device, box *shard) {
  int64_t position = device - s->first[t->mesh];
  const mesh *m = mesh_of(s, t);
  return position >= 0 && position < m->devices && saved_by(m, t, position, shard);
}

/* The number of the device that saves the shard whose first holder is `first`. */
static int64_t saver_of(const saved *s, const saved_tensor *t, int64_t first) {
  return s->first[t->mesh] + saved_saver(mesh_of(s, t), t, first);
}

/* Refuses a tensor of a file that is not the shard described by the index. */
static hp_status check_shard(const saved *s, int64_t device, const st_file *f, const char *name,
                             const char *says) {
  size_t k = 0;
  box shard = {0};
  str want = {0};
  hp_dtype type = HP_F32;
  const saved_tensor *t = saved_find(s, name, &k);
  const st_tensor *x = st_find(f, name);
  bool here = t && x && is_saved_by(s, t, device, &shard);
  if (!here)
    HP_FAIL(HP_ERR_INPUT,
            "%s: holds something of tensor \"%.100s\"; by %s it should not; the files are not of "
            "one save",
            f->path, name, s->path);
  box_print(&shard, &want);
  HP_TRY(str_status(&want));
  bool fits = st_dtype_to_hp(x->dtype, &type) && type == t->type.dtype && x->rank == shard.rank &&
              !strcmp(want.at, says);
  for (int d = 0; d < shard.rank && fits; d++) fits = x->dim[d] == shard.stop[d] - shard.start[d];
  hp_status st = HP_OK;
  if (!fits)
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: tensor \"%.100s\": holds %.100s in %s; by %s expected %s in %s", f->path,
                 name, says, st_dtype_name(x->dtype), s->path, want.at,
                 dtype_name((hp_dtype)t->type.dtype));
  str_free(&want);
  return st;
}

static hp_status check_file(const saved *s, int64_t device, const st_file *f) {
  if (f->n != f->n_metadata)
    HP_FAIL(HP_ERR_INPUT, "%s: %zu tensors, and the boxes of %zu; expected a box for each", f->path,
            f->n, f->n_metadata);
  for (size_t i = 0; i < f->n; i++)
    HP_TRY(check_shard(s, device, f, f->metadata[i].key, f->metadata[i].value));
  return HP_OK;
}

static const st_file *find_file(const saved *s, int64_t device) {
  uint32_t i;
  if (!map_get(&s->file_of, &device, sizeof device, &i)) return NULL;
  return &s->files.at[i].f;
}

static hp_status open_file(saved *s, int64_t device) {
  shard_file p = {.device = device};
  str path = {0};
  hp_status st = saved_shard_path(s->name, device, &path);
  const char *kept = st ? NULL : arena_strdup(&s->mem, path.at);
  str_free(&path);
  HP_TRY(st);
  HP_TRY_MEM(kept);
  if (!path_exists(kept))
    HP_FAIL(HP_ERR_INPUT, "%s: is missing; by %s device %lld has saved it", kept, s->path,
            (long long)device);
  HP_TRY(st_open(kept, &p.f));
  st = check_file(s, device, &p.f);
  if (!st) st = map_set(&s->file_of, &device, sizeof device, (uint32_t)s->files.len);
  if (!st && !vec_push(&s->files, p)) st = HP_ERR_OOM;
  if (st) st_close(&p.f);
  return st;
}

hp_status saved_need(saved *s, size_t k, const box *b) {
  const saved_tensor *t = &s->tensors.at[k];
  overlapping_shards p;
  for (shards_begin(&p, mesh_of(s, t), &t->l, t->type.dim, b); p.more; shards_next(&p)) {
    int64_t device = saver_of(s, t, p.first);
    if (!find_file(s, device)) HP_TRY(open_file(s, device));
    const st_file *f = find_file(s, device);
    if (st_find(f, t->name)) continue;
    HP_FAIL(HP_ERR_INPUT,
            "%s: has nothing of tensor \"%.100s\"; by %s it should; the files are "
            "not of one save",
            f->path, t->name, s->path);
  }
  return HP_OK;
}

/* --- elements --------------------------------------------------------------------------------- */

typedef struct {
  hp_dtype from, to;
  saved_put *put;
  void *ctx;
} giver;

/* n contiguous elements, converted if necessary. */
static hp_status give_run(const giver *g, int64_t at, const unsigned char *src, int64_t n) {
  float stage[STAGE];
  if (g->from == g->to) return g->put(g->ctx, at, src, n);
  for (int64_t done = 0, some; done < n; done += some) {
    some = n - done < STAGE ? n - done : STAGE;
    HP_TRY(dtype_convert(g->to, stage, g->from, src + (size_t)done * dtype_size(g->from),
                         (size_t)some));
    HP_TRY(g->put(g->ctx, at + done, stage, some));
  }
  return HP_OK;
}

hp_status saved_read(const saved *s, size_t k, const box *b, const box *to, hp_dtype type,
                     saved_put *put, void *ctx) {
  const saved_tensor *t = &s->tensors.at[k];
  giver g = {(hp_dtype)t->type.dtype, type, put, ctx};
  overlapping_shards p;
  box_runs r;
  for (shards_begin(&p, mesh_of(s, t), &t->l, t->type.dim, b); p.more; shards_next(&p)) {
    box shard = box_of_shard(mesh_of(s, t), &t->l, t->type.dim, p.first);
    const st_tensor *x = st_find(find_file(s, saver_of(s, t, p.first)), t->name);
    for (runs_begin(&r, &p.common, &shard, to); r.n; runs_next(&r))
      HP_TRY(give_run(&g, r.to, x->data + (size_t)r.from * dtype_size(g.from), r.n));
    file_map_release(x->data, x->bytes);
  }
  return HP_OK;
}
