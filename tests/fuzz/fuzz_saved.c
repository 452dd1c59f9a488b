/* Tensors saved by parts: an index, and the files of the first devices.
 *
 * The input is the index, then behind bytes 0xFF the headers of the files of devices 0, 1, ...;
 * each file gets eight times as many bytes of data as the first byte says.  An index that opens is
 * written again and means the same; whatever the files hold, what is read stays inside them. */
#include "folder.h"
#include "fuzz.h"

#include "base/dtype.h"
#include "base/io.h"
#include "base/mem.h"
#include "ckpt/saved.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 4, ELEMENTS_MAX = 1 << 16 };

static void write_file(int device, const str *header, size_t data) {
  size_t n = 8 + header->len + data;
  unsigned char *file = calloc(n, 1);
  char name[48];
  HP_ASSERT(file);
  for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)header->len >> (8 * i));
  if (header->len) memcpy(file + 8, header->at, header->len);
  for (size_t i = 8 + header->len; i < n; i++) file[i] = (unsigned char)i;
  snprintf(name, sizeof name, "x-part-%05d.safetensors", device);
  folder_write(name, file, n);
  free(file);
}

typedef struct {
  char *at;
  int64_t room, given;
  size_t size;
} target;

static hp_status put(void *context, int64_t at, const void *from, int64_t n) {
  target *t = context;
  HP_ASSERT(at >= 0 && n > 0 && at + n <= t->room);
  memcpy(t->at + (size_t)at * t->size, from, (size_t)n * t->size);
  t->given += n;
  return HP_OK;
}

static void read_box(saved *s, size_t k, const box *b, hp_dtype type) {
  target t = {.room = box_elements(b), .size = dtype_size(type)};
  if (t.room > ELEMENTS_MAX || saved_need(s, k, b)) return;
  t.at = malloc((size_t)t.room * t.size + 1);
  HP_ASSERT(t.at);
  HP_ASSERT(!saved_read(s, k, b, b, type, put, &t) && t.given == t.room);
  free(t.at);
}

static void read_tensor(saved *s, size_t k) {
  const saved_tensor *t = saved_get(s, k);
  hp_dtype type = (hp_dtype)t->type.dtype;
  box b = box_of(t->type.dim, t->type.rank);
  read_box(s, k, &b, type);
  for (int d = 0; d < b.rank; d++) b.start[d] = b.stop[d] / 3;
  read_box(s, k, &b, dtype_is_float(type) ? HP_BF16 : type);
  err_clear();
}

/* What has been read is written and read again. */
static void write_again(const saved *s, const char *dir) {
  saved *again;
  size_t n = saved_count(s), k;
  saved_tensor *t = calloc(n + 1, sizeof *t);
  char name[128];
  HP_ASSERT(t);
  for (size_t i = 0; i < n; i++) t[i] = *saved_get(s, i);
  snprintf(name, sizeof name, "%s/y", dir);
  const mesh *m[SAVED_MESHES];
  for (int i = 0; i < saved_meshes(s); i++) m[i] = saved_mesh(s, i);
  HP_ASSERT(!saved_write_index(name, m, saved_meshes(s), t, n) && !saved_open(name, &again));
  HP_ASSERT(saved_count(again) == n && saved_meshes(again) == saved_meshes(s));
  for (int i = 0; i < saved_meshes(s); i++)
    HP_ASSERT(saved_mesh(again, i)->devices == saved_mesh(s, i)->devices);
  for (size_t i = 0; i < n; i++) {
    const saved_tensor *same = saved_find(again, t[i].name, &k);
    HP_ASSERT(same && k == i && layout_equal(&same->l, &t[i].l) && same->replica == t[i].replica);
    HP_ASSERT(value_same_shape(&same->type, &t[i].type) && same->type.dtype == t[i].type.dtype);
  }
  saved_close(again);
  free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  if (!n) return 0;
  const uint8_t *at = bytes + 1, *end = bytes + n;
  str index = folder_part(&at, end);
  const char *dir = folder_fresh();
  char name[128];
  saved *s;
  folder_write("x.parts.json", index.at ? index.at : "", index.len);
  for (int i = 0; i < FILES_MAX && at < end; i++) {
    str header = folder_part(&at, end);
    write_file(i, &header, (size_t)bytes[0] * 8);
    str_free(&header);
  }
  snprintf(name, sizeof name, "%s/x", dir);
  if (!saved_open(name, &s)) {
    for (size_t k = 0; k < saved_count(s) && k < 16; k++) read_tensor(s, k);
    write_again(s, dir);
    saved_close(s);
  }
  err_clear();
  str_free(&index);
  return 0;
}
