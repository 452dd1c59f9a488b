#include "ckpt/saved.h"

#include "base/dtype.h"
#include "base/json.h"
#include "shard/layout_text.h"

/* --- names and places ------------------------------------------------------------------------- */

hp_status saved_shard_path(const char *name, int64_t device, str *out) {
  str_clear(out);
  str_printf(out, "%s-part-%05lld.safetensors", name, (long long)device);
  return str_status(out);
}

hp_status saved_index_path(const char *name, str *out) {
  str_clear(out);
  str_printf(out, "%s.parts.json", name);
  return str_status(out);
}

/* --- who saves what --------------------------------------------------------------------------- */

static double count_shard_bytes(const mesh *m, const saved_tensor *t) {
  double n = (double)dtype_size((hp_dtype)t->type.dtype);
  for (int d = 0; d < t->type.rank; d++)
    n *= (double)layout_shard_size(m, &t->l, d, t->type.dim[d]);
  return n;
}

/* All shards in order are divided by bytes into as many ranges as there are replicas; the middle
 * of a shard decides its range. */
void saved_share_out(const mesh *m, int k, saved_tensor *t, size_t n) {
  double all = 0, before = 0;
  for (size_t i = 0; i < n; i++)
    if (t[i].mesh == k) all += count_shard_bytes(m, &t[i]);
  for (size_t i = 0; i < n; i++) {
    double own = t[i].mesh == k ? count_shard_bytes(m, &t[i]) : 0;
    if (own > 0)
      t[i].replica = (int64_t)((before + own / 2) / all * (double)layout_repeat(m, &t[i].l));
    before += own;
  }
}

int64_t saved_saver(const mesh *m, const saved_tensor *t, int64_t first) {
  return layout_replica(m, &t->l, first, t->replica);
}

bool saved_by(const mesh *m, const saved_tensor *t, int64_t device, box *shard) {
  *shard = box_of_shard(m, &t->l, t->type.dim, device);
  return saved_saver(m, t, layout_first(m, &t->l, device)) == device && box_elements(shard);
}

/* --- a device's file -------------------------------------------------------------------------- */

/* The tensors of the file, as lists that the container takes. */
typedef struct {
  arena mem;
  st_tensor *shard;
  st_pair *where; /* name and box */
  box *own;
  size_t *number; /* of the tensor in the index */
  size_t n;
} file_list;

static hp_status list_shard(file_list *f, const saved_tensor *t, size_t k, const box *own) {
  str text = {0};
  int64_t *dim = arena_alloc(&f->mem, (size_t)own->rank, sizeof *dim);
  box_print(own, &text);
  const char *kept = text.failed ? NULL : arena_strdup(&f->mem, text.at);
  str_free(&text);
  HP_TRY_MEM(dim && kept);
  for (int d = 0; d < own->rank; d++) dim[d] = own->stop[d] - own->start[d];
  st_dtype type = st_dtype_from_hp((hp_dtype)t->type.dtype);
  f->shard[f->n] = (st_tensor){.name = t->name, .dim = dim, .rank = own->rank, .dtype = type};
  f->where[f->n] = (st_pair){t->name, kept};
  f->own[f->n] = *own;
  f->number[f->n++] = k;
  return HP_OK;
}

static hp_status list_shards(file_list *f, const saved_place *at, const saved_tensor *t, size_t n,
                             int64_t device) {
  box own;
  f->shard = arena_alloc(&f->mem, n, sizeof *f->shard);
  f->where = arena_alloc(&f->mem, n, sizeof *f->where);
  f->own = arena_alloc(&f->mem, n, sizeof *f->own);
  f->number = arena_alloc(&f->mem, n, sizeof *f->number);
  HP_TRY_MEM(f->shard && f->where && f->own && f->number);
  for (size_t k = 0; k < n; k++)
    if (t[k].mesh == at->k && saved_by(at->m, &t[k], device, &own))
      HP_TRY(list_shard(f, &t[k], k, &own));
  return HP_OK;
}

static hp_status write_shards(const file_list *f, const char *path, saved_write *write, void *ctx) {
  st_writer w;
  hp_status st = HP_OK;
  HP_TRY(st_writer_open(path, f->shard, f->n, f->where, f->n, &w));
  for (size_t i = 0; i < f->n && !st; i++) {
    uint32_t x = w.order[i];
    st = write(ctx, f->number[x], &f->own[x], &w);
  }
  if (!st) return st_writer_commit(&w);
  st_writer_abort(&w);
  return st;
}

hp_status saved_write_file(const char *name, const saved_place *at, const saved_tensor *t, size_t n,
                           int64_t device, saved_write *write, void *ctx) {
  file_list f = {.n = 0};
  str path = {0};
  hp_status st = list_shards(&f, at, t, n, device);
  if (!st) st = saved_shard_path(name, at->first + device, &path);
  if (!st && f.n) st = write_shards(&f, path.at, write, ctx);
  arena_free(&f.mem);
  str_free(&path);
  return st;
}

/* --- the index -------------------------------------------------------------------------------- */

/* "name": {"dtype": "f32", "shape": [16, 8], "layout": "(tp,None)"}, and "mesh": 1 */
static void print_tensor(const mesh *m, bool several, const saved_tensor *t, str *out) {
  json_writer w = {.out = out, .utf8 = true};
  json_put_string(&w, t->name);
  str_printf(out, ": {\"dtype\": \"%s\", \"shape\": ", dtype_name((hp_dtype)t->type.dtype));
  json_open_list(&w);
  for (int d = 0; d < t->type.rank; d++) json_put_int(&w, t->type.dim[d]);
  json_close(&w);
  str_add(out, ", \"layout\": \"");
  layout_print_on(m, &t->l, out); /* names of axes have no quotes */
  str_add(out, "\"");
  if (several) str_printf(out, ", \"mesh\": %d", t->mesh);
  str_add(out, "}");
}

hp_status saved_write_index(const char *name, const mesh *const *m, int meshes,
                            const saved_tensor *t, size_t n) {
  str out = {0}, path = {0};
  str_printf(&out, "{\"format\": %d, \"mesh\": \"", SAVED_FORMAT);
  for (int k = 0; k < meshes; k++) {
    if (k) str_add(&out, ";");
    mesh_print(m[k], &out);
    mesh_print_ranks(m[k], &out);
  }
  str_add(&out, "\",\n\"tensors\": {");
  for (size_t k = 0; k < n; k++) {
    str_add(&out, k ? ",\n" : "\n");
    print_tensor(m[t[k].mesh], meshes > 1, &t[k], &out);
  }
  str_add(&out, "}}\n");
  hp_status st = str_status(&out);
  if (!st) st = saved_index_path(name, &path);
  if (!st) st = file_write(path.at, out.at, out.len);
  str_free(&out);
  str_free(&path);
  return st;
}
