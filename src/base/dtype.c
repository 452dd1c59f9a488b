#include "base/dtype.h"

#include <strings.h>

static const struct {
  const char *name, *long_name;
  const char *also[4]; /* further words, lower case */
} words[HP_DTYPE_COUNT] = {
    [HP_F32] = {"f32", "float32", {"fp32", "float", "single"}},
    [HP_BF16] = {"bf16", "bfloat16", {"bfloat"}},
    [HP_F16] = {"f16", "float16", {"fp16", "half"}},
    [HP_I32] = {"i32", "int32", {"int"}},
    [HP_I64] = {"i64", "int64", {"long"}},
    [HP_U8] = {"u8", "uint8", {"byte"}},
    [HP_BOOL] = {"bool", "bool", {NULL}},
};

const char *dtype_name(hp_dtype t) { return words[t].name; }
const char *dtype_long_name(hp_dtype t) { return words[t].long_name; }

bool dtype_parse(const char *word, hp_dtype *out) {
  if (!strncasecmp(word, "torch.", 6)) word += 6;
  for (int t = 0; t < HP_DTYPE_COUNT; t++) {
    bool same = !strcasecmp(word, words[t].name) || !strcasecmp(word, words[t].long_name);
    for (int i = 0; i < 4 && words[t].also[i]; i++)
      same = same || !strcasecmp(word, words[t].also[i]);
    if (!same) continue;
    *out = (hp_dtype)t;
    return true;
  }
  return false;
}

/* Loads and stores by memcpy: the views of a file are not aligned. */
static inline float load_f32(const void *p, size_t i) {
  float x;
  memcpy(&x, (const char *)p + i * 4, 4);
  return x;
}
static inline void store_f32(void *p, size_t i, float x) { memcpy((char *)p + i * 4, &x, 4); }
static inline uint16_t load_u16(const void *p, size_t i) {
  uint16_t x;
  memcpy(&x, (const char *)p + i * 2, 2);
  return x;
}
static inline void store_u16(void *p, size_t i, uint16_t x) { memcpy((char *)p + i * 2, &x, 2); }

/* Statement x for i = 0 .. n - 1, mostly in runs of a fixed length, which become vectors. */
#define EACH(x)                                                                                    \
  do {                                                                                             \
    enum { RUN = 16 };                                                                             \
    size_t runs = n - n % RUN;                                                                     \
    for (size_t first = 0; first < runs; first += RUN)                                             \
      for (size_t k = 0; k < RUN; k++) {                                                           \
        size_t i = first + k;                                                                      \
        x;                                                                                         \
      }                                                                                            \
    for (size_t i = runs; i < n; i++) x;                                                           \
  } while (0)

static void convert(int pair, void *restrict to, const void *restrict from, size_t n) {
  switch (pair) {
  case HP_BF16 *HP_DTYPE_COUNT + HP_F32:
    EACH(store_f32(to, i, bf16_to_f32(load_u16(from, i))));
    break;
  case HP_F16 *HP_DTYPE_COUNT + HP_F32:
    EACH(store_f32(to, i, f16_to_f32(load_u16(from, i))));
    break;
  case HP_F32 *HP_DTYPE_COUNT + HP_BF16:
    EACH(store_u16(to, i, f32_to_bf16(load_f32(from, i))));
    break;
  case HP_F32 *HP_DTYPE_COUNT + HP_F16:
    EACH(store_u16(to, i, f32_to_f16(load_f32(from, i))));
    break;
  case HP_F16 *HP_DTYPE_COUNT + HP_BF16:
    EACH(store_u16(to, i, f32_to_bf16(f16_to_f32(load_u16(from, i)))));
    break;
  default: /* bf16 to f16 */
    EACH(store_u16(to, i, f32_to_f16(bf16_to_f32(load_u16(from, i)))));
    break;
  }
}

hp_status dtype_convert(hp_dtype to, void *dst, hp_dtype from, const void *src, size_t n) {
  if (to != from && (!dtype_is_float(to) || !dtype_is_float(from)))
    HP_FAIL(HP_ERR_ARG, "cannot convert %s to %s: only f32, bf16 and f16 convert to each other",
            dtype_name(from), dtype_name(to));
  if (to != from) convert(from * HP_DTYPE_COUNT + to, dst, src, n);
  else if (n) memcpy(dst, src, n * dtype_size(to));
  return HP_OK;
}

hp_status dtype_from_f64(hp_dtype to, void *dst, const void *src, size_t n) {
  if (!dtype_is_float(to)) HP_FAIL(HP_ERR_ARG, "cannot convert f64 to %s", dtype_name(to));
  for (size_t i = 0; i < n; i++) {
    double x;
    memcpy(&x, (const char *)src + i * 8, 8);
    float y = (float)x;
    if (to == HP_F32) store_f32(dst, i, y);
    else store_u16(dst, i, to == HP_BF16 ? f32_to_bf16(y) : f32_to_f16(y));
  }
  return HP_OK;
}
