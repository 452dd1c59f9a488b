/* Writes weights in another floating type than the one in memory. */
#include "base/dtype.h"
#include "ckpt/weights.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 16384 }; /* elements */

static float get_element(hp_dtype t, const void *x, size_t i) {
  if (t == HP_BF16) return bf16_to_f32(((const uint16_t *)x)[i]);
  return t == HP_F16 ? f16_to_f32(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* n floats as `to`.  A number that becomes infinite is refused. */
static hp_status narrow_floats(const char *name, const float *x, size_t n, hp_dtype to,
                               void *room) {
  HP_TRY(dtype_convert(to, room, HP_F32, x, n));
  for (size_t i = 0; i < n; i++)
    if (isinf(get_element(to, room, i)) && isfinite(x[i]))
      HP_FAIL(HP_ERR_INPUT,
              "tensor \"%s\": its value %g is too large for %s; choose bf16 or f32 (export_dtype "
              "of a run, --dtype of convert)",
              name, (double)x[i], dtype_name(to));
  return HP_OK;
}

hp_status weights_write_as(st_writer *out, const char *name, const float *x, size_t n,
                           hp_dtype to) {
  if (to == HP_F32) return st_writer_write(out, x, n * sizeof *x);
  void *room = mem_calloc(CHUNK, dtype_size(to));
  hp_status st = room ? HP_OK : HP_ERR_OOM;
  for (size_t i = 0, some; i < n && !st; i += some) {
    some = n - i < CHUNK ? n - i : CHUNK;
    st = narrow_floats(name, x + i, some, to, room);
    if (!st) st = st_writer_write(out, room, some * dtype_size(to));
  }
  mem_free(room);
  return st;
}

/* --- a list of tensors ------------------------------------------------------------------------ */

/* Is it a floating type?  Integers, booleans and complex numbers stay as they are in a cast. */
static bool can_cast(st_dtype t) {
  static const st_dtype whole[] = {ST_BOOL, ST_U8,  ST_I8,  ST_I16, ST_U16,
                                   ST_I32,  ST_U32, ST_I64, ST_U64, ST_C64};
  for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
    if (t == whole[i]) return false;
  return true;
}

typedef struct {
  const st_tensor *from;
  hp_dtype to;
} cast;

static hp_status write_cast(void *ctx, size_t i, st_writer *out) {
  const cast *c = ctx;
  const st_tensor *t = &c->from[i];
  if (!can_cast(t->dtype)) return t->bytes ? st_writer_write(out, t->data, t->bytes) : HP_OK;
  size_t n = t->bytes / (st_dtype_bits(t->dtype) / 8);
  float *x = mem_calloc(CHUNK, sizeof *x);
  hp_status st = x ? HP_OK : HP_ERR_OOM;
  for (size_t k = 0, some; k < n && !st; k += some) {
    some = n - k < CHUNK ? n - k : CHUNK;
    st = weights_read(t, k, some, HP_F32, x);
    if (!st) st = weights_write_as(out, t->name, x, some, c->to);
  }
  mem_free(x);
  return st;
}

hp_status weights_save_as(const char *dir, const st_tensor *tensor, size_t n, hp_dtype to) {
  cast c = {tensor, to};
  weights_options o = {.write = write_cast, .ctx = &c};
  st_tensor *list = mem_calloc(n, sizeof *list);
  hp_status st = list ? HP_OK : HP_ERR_OOM;
  for (size_t i = 0; i < n && !st; i++) {
    float probe;
    list[i] = tensor[i];
    if (!can_cast(list[i].dtype)) continue;
    st = weights_read(&tensor[i], 0, 0, HP_F32, &probe); /* can this type be read at all? */
    list[i].dtype = st_dtype_from_hp(to);
    if (!st && !st_size(list[i].dtype, list[i].rank, list[i].dim, &list[i].bytes))
      st = err_set(HP_ERR_ARG, __FILE__, __LINE__, "tensor \"%s\" is too large", list[i].name);
  }
  if (!st) st = weights_save(dir, list, n, &o);
  mem_free(list);
  return st;
}
