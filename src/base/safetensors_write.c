#include "base/safetensors.h"

#include "base/json.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 100000000 };

typedef struct {
  const st_tensor *t;
  uint32_t number;
} item;

static int by_dtype_then_name(const void *a, const void *b) {
  const item *x = a, *y = b;
  if (x->t->dtype != y->t->dtype) return x->t->dtype > y->t->dtype ? -1 : 1;
  return strcmp(x->t->name, y->t->name);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const item *)a)->t->name, ((const item *)b)->t->name);
}

static hp_status check_name(const char *path, const char *name) {
  size_t n = strlen(name);
  uint32_t c;
  if (!strcmp(name, "__metadata__"))
    HP_FAIL(HP_ERR_ARG, "%s: a tensor cannot be called __metadata__", path);
  for (size_t i = 0, len; i < n; i += len) {
    len = utf8_decode(name + i, n - i, &c);
    if (!len) HP_FAIL(HP_ERR_ARG, "%s: the tensor name \"%.100s\" is not valid UTF-8", path, name);
  }
  return HP_OK;
}

static hp_status sort_items(const char *path, const st_tensor *tensor, size_t n, item *items) {
  for (size_t i = 0; i < n; i++) {
    HP_TRY(check_name(path, tensor[i].name));
    items[i] = (item){&tensor[i], (uint32_t)i};
  }
  qsort(items, n, sizeof *items, by_name);
  for (size_t i = 1; i < n; i++)
    if (!by_name(&items[i - 1], &items[i]))
      HP_FAIL(HP_ERR_ARG, "%s: two tensors are called \"%.100s\"", path, items[i].t->name);
  qsort(items, n, sizeof *items, by_dtype_then_name);
  return HP_OK;
}

/* The header text for sorted items, padded; *data_len is the sum of their sizes. */
static hp_status make_header(const char *path, const item *items, size_t n, const st_pair *metadata,
                             size_t n_metadata, str *out, uint64_t *data_len) {
  json_writer w = {.out = out, .compact = true, .utf8 = true};
  uint64_t at = 0;
  json_open_map(&w);
  if (n_metadata) {
    json_put_key(&w, "__metadata__");
    json_open_map(&w);
    for (size_t i = 0; i < n_metadata; i++) {
      json_put_key(&w, metadata[i].key);
      json_put_string(&w, metadata[i].value);
    }
    json_close(&w);
  }
  for (size_t i = 0; i < n; i++) {
    const st_tensor *t = items[i].t;
    uint64_t size, end;
    if (!st_size(t->dtype, t->rank, t->dim, &size) || __builtin_add_overflow(at, size, &end) ||
        end > INT64_MAX)
      HP_FAIL(HP_ERR_ARG, "%s: tensor \"%.100s\": its shape gives no possible size", path, t->name);
    json_put_key(&w, t->name);
    json_open_map(&w);
    json_put_key(&w, "dtype");
    json_put_string(&w, st_dtype_name(t->dtype));
    json_put_key(&w, "shape");
    json_open_list(&w);
    for (int k = 0; k < t->rank; k++) json_put_int(&w, t->dim[k]);
    json_close(&w);
    json_put_key(&w, "data_offsets");
    json_open_list(&w);
    json_put_int(&w, (int64_t)at);
    json_put_int(&w, (int64_t)end);
    json_close(&w);
    json_close(&w);
    at = end;
  }
  json_close(&w);
  while (out->len % 8 && !out->failed) str_add_char(out, ' ');
  HP_TRY(str_status(out));
  if (out->len > HEADER_MAX)
    HP_FAIL(HP_ERR_ARG,
            "%s: a header of %zu bytes, the format allows %d; write fewer tensors to a file", path,
            out->len, HEADER_MAX);
  *data_len = at;
  return HP_OK;
}

hp_status st_writer_open(const char *path, const st_tensor *tensor, size_t n,
                         const st_pair *metadata, size_t n_metadata, st_writer *w) {
  hp_status st = HP_OK;
  str header = {0};
  uint64_t data_len = 0;
  st_writer v = {.out.fd = -1};
  item *items = NULL;
  if (n > UINT32_MAX) HP_FAIL(HP_ERR_ARG, "%s: %zu tensors are too many", path, n);
  items = mem_calloc(n, sizeof *items);
  v.order = mem_calloc(n, sizeof *v.order);
  if (!items || !v.order) HP_TRY_GOTO(HP_ERR_OOM, st);
  HP_TRY_GOTO(sort_items(path, tensor, n, items), st);
  for (size_t i = 0; i < n; i++) v.order[i] = items[i].number;
  HP_TRY_GOTO(make_header(path, items, n, metadata, n_metadata, &header, &data_len), st);
  v.total = 8 + header.len + data_len;
  unsigned char prefix[8];
  for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)header.len >> (8 * i));
  HP_TRY_GOTO(file_writer_open(path, &v.out), st);
  HP_TRY_GOTO(file_writer_write(&v.out, prefix, sizeof prefix), st);
  HP_TRY_GOTO(file_writer_write(&v.out, header.at, header.len), st);
done:
  mem_free(items);
  str_free(&header);
  if (st) st_writer_abort(&v);
  else *w = v;
  return st;
}

hp_status st_writer_write(st_writer *w, const void *bytes, size_t len) {
  if (len > w->total - w->out.written)
    HP_FAIL(HP_ERR_INTERNAL, "%s: more data than its tensors need", w->out.path);
  return file_writer_write(&w->out, bytes, len);
}

void st_writer_abort(st_writer *w) {
  file_writer_abort(&w->out);
  mem_free(w->order);
  w->order = NULL;
}

hp_status st_writer_commit(st_writer *w) {
  hp_status st = HP_OK;
  if (w->out.written != w->total)
    st = err_set(HP_ERR_INTERNAL, __FILE__, __LINE__, "%s: %llu bytes of data are missing",
                 w->out.path, (unsigned long long)(w->total - w->out.written));
  else st = file_writer_commit(&w->out);
  st_writer_abort(w);
  return st;
}

hp_status st_save(const char *path, const st_tensor *tensor, size_t n, const st_pair *metadata,
                  size_t n_metadata) {
  st_writer w;
  hp_status st = HP_OK;
  for (size_t i = 0; i < n; i++) {
    uint64_t size;
    if (!st_size(tensor[i].dtype, tensor[i].rank, tensor[i].dim, &size) || size != tensor[i].bytes)
      HP_FAIL(HP_ERR_ARG, "%s: tensor \"%.100s\" is given as %zu bytes, which its shape is not",
              path, tensor[i].name, tensor[i].bytes);
  }
  HP_TRY(st_writer_open(path, tensor, n, metadata, n_metadata, &w));
  for (size_t i = 0; i < n && !st; i++) {
    const st_tensor *t = &tensor[w.order[i]];
    if (t->bytes) st = st_writer_write(&w, t->data, t->bytes);
  }
  if (!st) return st_writer_commit(&w);
  st_writer_abort(&w);
  return st;
}
