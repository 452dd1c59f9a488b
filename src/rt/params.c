#include "rt/params.h"

#include "base/dtype.h"
#include "base/milestone.h"
#include "base/safetensors.h"
#include "ckpt/saved.h"
#include "rt/stage_meshes.h"
#include "rt/state_io.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { STAGE_BYTES = 1 << 20 };

/* The params that are being saved or loaded. */
typedef struct {
  device_mesh *dm; /* all of them; */
  device_mesh *at; /* the mesh at hand, its number, and that of its first device */
  int k;
  int64_t first;
  const char *to;
  saved_tensor *tensor;
  size_t n;
  saved *from;    /* of a load */
  size_t *number; /* of a tensor in its index */
} transfer;

static void transfer_free(transfer *t) {
  saved_close(t->from);
  mem_free(t->tensor);
  mem_free(t->number);
}

/* Param i of the list, or of all: on the first mesh that has it. */
static hp_status collect_one(transfer *t, const char *const *name, size_t i) {
  int on = 0;
  uint32_t index = (uint32_t)i;
  if (name) on = stage_meshes_where(t->dm, name[i], &index);
  else if (is_pipeline(t->dm)) (void)stage_meshes_param(t->dm, (int)i, &on, &index);
  if (on < 0) HP_FAIL(HP_ERR_ARG, "the device has no param \"%s\"", name[i]);
  const device_mesh *dm = stage_mesh(t->dm, on);
  const device_mesh_state *s = &dm->states.at[index];
  t->tensor[i] = (saved_tensor){intern_get(&dm->names, s->name, NULL), s->type, s->l, 0, on};
  return HP_OK;
}

static hp_status collect(transfer *t, const char *const *name, int n) {
  t->n = n ? (size_t)n : (size_t)stage_meshes_params(t->dm);
  t->tensor = mem_calloc(t->n, sizeof *t->tensor);
  t->number = mem_calloc(t->n, sizeof *t->number);
  HP_TRY_MEM(t->tensor && t->number);
  for (size_t i = 0; i < t->n; i++) HP_TRY(collect_one(t, n ? name : NULL, i));
  for (int k = 0; k < stage_meshes_count(t->dm); k++)
    saved_share_out(&stage_mesh(t->dm, k)->m, k, t->tensor, t->n);
  return HP_OK;
}

/* The work on each device of this process, mesh by mesh. */
static hp_status each_mesh(transfer *t, hp_status (*work)(void *, int)) {
  t->first = 0;
  for (t->k = 0; t->k < stage_meshes_count(t->dm); t->k++) {
    t->at = stage_mesh(t->dm, t->k);
    HP_TRY(device_mesh_each(t->at, &(team_work){NULL, work, t}));
    t->first += t->at->n;
  }
  return HP_OK;
}

static const state_tensor *shard_of(const device *d, const char *name) {
  uint32_t index;
  HP_ASSERT(device_find(d, name, &index));
  return &d->states.at[index];
}

/* --- saving ----------------------------------------------------------------------------------- */

/* One device, and the buffer of bytes for its file. */
typedef struct {
  const transfer *t;
  const device *d;
  st_writer *out;
  char *stage;
  size_t filled;
} shard_writer;

static hp_status flush(shard_writer *w) {
  size_t n = w->filled;
  w->filled = 0;
  return n ? st_writer_write(w->out, w->stage, n) : HP_OK;
}

static hp_status write_run(shard_writer *w, state_io *io, uint64_t from, size_t n) {
  while (n) {
    size_t some = STAGE_BYTES - w->filled < n ? STAGE_BYTES - w->filled : n;
    HP_TRY(state_io_read(io, from, w->stage + w->filled, some));
    w->filled += some;
    from += some;
    n -= some;
    if (w->filled == STAGE_BYTES) HP_TRY(flush(w));
  }
  return HP_OK;
}

static hp_status write_shard(void *context, size_t k, const box *own, st_writer *out) {
  shard_writer *w = context;
  const saved_tensor *t = &w->t->tensor[k];
  box room = box_room(&w->t->at->m, &t->l, t->type.dim, w->d->position);
  size_t size = dtype_size((hp_dtype)t->type.dtype);
  box_runs r;
  w->out = out;
  state_io io;
  hp_status st = state_io_begin(w->d, shard_of(w->d, t->name), &io);
  for (runs_begin(&r, own, &room, own); !st && r.n; runs_next(&r))
    st = write_run(w, &io, (uint64_t)r.from * size, (size_t)r.n * size);
  st = state_io_end(&io, st);
  return st ? st : flush(w);
}

static hp_status save_device(void *context, int i) {
  const transfer *t = context;
  shard_writer w = {.t = t, .d = t->at->member[i]};
  const saved_place at = {&t->at->m, t->k, t->first};
  w.stage = mem_calloc(STAGE_BYTES, 1);
  HP_TRY_MEM(w.stage);
  hp_status st = saved_write_file(t->to, &at, t->tensor, t->n, w.d->position, write_shard, &w);
  mem_free(w.stage);
  return st;
}

static hp_status forget_index(const char *to) {
  str file = {0};
  hp_status st = saved_index_path(to, &file);
  if (!st && unlink(file.at) && errno != ENOENT)
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot be replaced: %s", file.at,
                 strerror(errno));
  str_free(&file);
  return st;
}

static hp_status write_index(const transfer *t) {
  const mesh *m[SAVED_MESHES];
  int meshes = stage_meshes_count(t->dm);
  if (meshes > SAVED_MESHES)
    HP_FAIL(HP_ERR_UNSUPPORTED, "%d meshes of a pipeline; at most %d are saved", meshes,
            SAVED_MESHES);
  for (int k = 0; k < meshes; k++) m[k] = &stage_mesh(t->dm, k)->m;
  return saved_write_index(t->to, m, meshes, t->tensor, t->n);
}

hp_status params_save(device_mesh *dm, const char *to, const char *const *name, int n) {
  HP_TRY(device_mesh_settle(dm));
  transfer t = {.dm = dm, .to = to};
  bool leads = device_mesh_first(dm) != NULL;
  hp_status st = collect(&t, name, n);
  if (!st && leads) st = forget_index(to);
  if (!st) st = each_mesh(&t, save_device);
  if (!st && leads) st = write_index(&t);
  transfer_free(&t);
  return st;
}

/* --- loading ---------------------------------------------------------------------------------- */

static hp_status refuse_type(const transfer *t, const saved_tensor *have,
                             const saved_tensor *want) {
  str text = {0};
  value_print(&have->type, &text);
  str_add(&text, ", expected ");
  value_print(&want->type, &text);
  hp_status st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                         "%s: tensor \"%.100s\" is %s; it is a checkpoint of another model",
                         saved_path(t->from), want->name, text.at ? text.at : "another");
  str_free(&text);
  return st;
}

static hp_status find(transfer *t, size_t i) {
  const saved_tensor *want = &t->tensor[i];
  const saved_tensor *have = saved_find(t->from, want->name, &t->number[i]);
  if (!have)
    HP_FAIL(HP_ERR_INPUT, "%s: has no tensor \"%.100s\"; it is a checkpoint of another model",
            saved_path(t->from), want->name);
  hp_dtype a = (hp_dtype)have->type.dtype, b = (hp_dtype)want->type.dtype;
  bool same = a == b || (dtype_is_float(a) && dtype_is_float(b));
  if (!same || !value_same_shape(&have->type, &want->type)) return refuse_type(t, have, want);
  return HP_OK;
}

/* A tensor of the index that was not requested. */
static hp_status refuse_more(const transfer *t) {
  map asked = {0};
  hp_status st = HP_OK;
  uint32_t i;
  for (size_t k = 0; k < t->n && !st; k++)
    st = map_set(&asked, t->tensor[k].name, strlen(t->tensor[k].name), 0);
  for (size_t k = 0; k < saved_count(t->from) && !st; k++) {
    const char *name = saved_get(t->from, k)->name;
    if (map_get(&asked, name, strlen(name), &i)) continue;
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: tensor \"%.100s\" has no place here; it is a checkpoint of another model",
                 saved_path(t->from), name);
  }
  map_free(&asked);
  return st;
}

/* What the i-th device of the mesh at hand has of tensor k. */
static box own_box(const transfer *t, size_t k, int i) {
  const saved_tensor *x = &t->tensor[k];
  return box_of_shard(&t->at->m, &x->l, x->type.dim, t->at->member[i]->position);
}

static hp_status need_device(const transfer *t, int i) {
  for (size_t k = 0; k < t->n; k++) {
    if (t->tensor[k].mesh != t->k) continue;
    box own = own_box(t, k, i);
    HP_TRY(saved_need(t->from, t->number[k], &own));
  }
  return HP_OK;
}

static hp_status check(transfer *t) {
  for (size_t k = 0; k < t->n; k++) HP_TRY(find(t, k));
  if (saved_count(t->from) > t->n) HP_TRY(refuse_more(t));
  for (t->k = 0; t->k < stage_meshes_count(t->dm); t->k++) {
    t->at = stage_mesh(t->dm, t->k);
    for (int i = 0; i < t->at->own; i++) HP_TRY(need_device(t, i));
  }
  return HP_OK;
}

typedef struct {
  state_io io;
  size_t size;
} shard_reader;

static hp_status put(void *context, int64_t at, const void *from, int64_t n) {
  shard_reader *r = context;
  return state_io_write(&r->io, (uint64_t)at * r->size, from, (uint64_t)n * r->size);
}

static hp_status load_device(void *context, int i) {
  const transfer *t = context;
  const device *d = t->at->member[i];
  for (size_t k = 0; k < t->n; k++) {
    milestone_count_work();
    const saved_tensor *x = &t->tensor[k];
    if (x->mesh != t->k) continue;
    hp_dtype type = (hp_dtype)x->type.dtype;
    shard_reader r = {.size = dtype_size(type)};
    box own = own_box(t, k, i), room = box_room(&t->at->m, &x->l, x->type.dim, d->position);
    hp_status st = state_io_begin(d, shard_of(d, x->name), &r.io);
    if (!st) st = saved_read(t->from, t->number[k], &own, &room, type, put, &r);
    HP_TRY(state_io_end(&r.io, st));
  }
  return HP_OK;
}

hp_status params_load(device_mesh *dm, const char *from, const char *const *name, int n) {
  HP_TRY(device_mesh_settle(dm));
  transfer t = {.dm = dm};
  hp_status st = collect(&t, name, n);
  if (!st) st = saved_open(from, &t.from);
  if (!st) st = check(&t);
  if (!st) st = each_mesh(&t, load_device);
  transfer_free(&t);
  return st;
}
