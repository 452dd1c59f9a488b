/* Element types: sizes, words, and conversion between the floating ones.
 *
 * Narrowing rounds to nearest, ties to even; too large becomes infinity, too small becomes a
 * subnormal or a zero with its sign.  A NaN stays a NaN: sign and upper payload bits are kept and
 * it is made quiet.  From f64, bf16 and f16 are reached through f32, as in PyTorch. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include "base/status.h"

#include <string.h>

/* Bytes of one element. */
static inline size_t dtype_size(hp_dtype t) {
  static const unsigned char size[HP_DTYPE_COUNT] =
      {[HP_F32] = 4, [HP_BF16] = 2, [HP_F16] = 2, [HP_I32] = 4,
       [HP_I64] = 8, [HP_U8] = 1,   [HP_BOOL] = 1};
  return size[t];
}
static inline bool dtype_is_float(hp_dtype t) { return t == HP_F32 || t == HP_BF16 || t == HP_F16; }

/* "f32", "bf16", "f16", "i32", "i64", "u8", "bool": command line and text forms. */
const char *dtype_name(hp_dtype t);
/* "float32", "bfloat16", ...: config.json and PyTorch. */
const char *dtype_long_name(hp_dtype t);
/* Reads any usual word, in any case: "f32" "fp32" "float32" "float" "torch.float32", "BF16" ...;
 * false when it is none. */
bool dtype_parse(const char *word, hp_dtype *out);

static inline uint32_t f32_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
static inline float f32_from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

static inline float bf16_to_f32(uint16_t h) { return f32_from_bits((uint32_t)h << 16); }

static inline uint16_t f32_to_bf16(float x) {
  uint32_t u = f32_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline float f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) /* infinity and NaN */
    return f32_from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 |
                         (magnitude > 0x7c00u ? 0x400000u : 0));
  /* the exponent bias changes by 112; the product is exact, also for subnormals */
  float x = f32_from_bits(magnitude << 13) * f32_from_bits((127u + 112u) << 23);
  return f32_from_bits(f32_bits(x) | sign);
}

static inline uint16_t f32_to_f16(float x) {
  uint32_t u = f32_bits(x), magnitude = u & 0x7fffffffu;
  uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above */
  if (magnitude < 0x38800000u) {
    /* subnormal: adding 0.5 puts the f16 unit at the last bit of an f32, rounding as it goes */
    float y = f32_from_bits(magnitude) + 0.5f;
    return (uint16_t)(sign | (f32_bits(y) - 0x3f000000u));
  }
  return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}

/* n elements of one type into another.  Both floating, or both the same; else HP_ERR_ARG.
 * `to` and `from` must not overlap; neither needs to be aligned. */
hp_status dtype_convert(hp_dtype to, void *dst, hp_dtype from, const void *src, size_t n);
/* The same from double, to floating types; the doubles of src need no alignment. */
hp_status dtype_from_f64(hp_dtype to, void *dst, const void *src, size_t n);

#endif
