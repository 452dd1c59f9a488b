/* The widest float vector of the instruction set that a GEMM kernel is compiled for, and no more
 * operations than those kernels use.  For files in backend/cpu/isa only. */
#ifndef GEMM_VEC_H
#define GEMM_VEC_H

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/gemm_isa.h"
#include "base/dtype.h"

#include <math.h>

#define GEMM_INLINE static inline __attribute__((always_inline, unused))
#if defined(__clang__)
#define GEMM_UNROLL _Pragma("unroll")
#else
#define GEMM_UNROLL _Pragma("GCC unroll 32")
#endif

#if defined(__AVX512F__)
#include <immintrin.h>
enum { VL = 16, TILE_ROWS = 14, STREAM_ROWS = 8 };
typedef __m512 vf;
GEMM_INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
GEMM_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
GEMM_INLINE void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
GEMM_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
GEMM_INLINE vf vf_load_n(const float *p, int64_t n) {
  return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
GEMM_INLINE void vf_store_n(float *p, vf v, int64_t n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
GEMM_INLINE __m256i vf_half_words(const uint16_t *p, int64_t n) {
  return n == VL ? _mm256_loadu_si256((const __m256i *)(const void *)p)
                 : _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
}
GEMM_INLINE vf vf_load_bf16(const uint16_t *p, int64_t n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(vf_half_words(p, n)), 16));
}
GEMM_INLINE vf vf_load_f16(const uint16_t *p, int64_t n) {
  return _mm512_cvtph_ps(vf_half_words(p, n));
}
/* Rounded to the nearest bf16, as floats. */
GEMM_INLINE vf vf_round_bf16(vf v) {
  __m512i u = _mm512_castps_si512(v), one = _mm512_set1_epi32(1);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), one);
  __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
  return _mm512_castsi512_ps(_mm512_and_si512(r, _mm512_set1_epi32(-0x10000)));
}
/* n (0..2 VL) neighbours as pairs, the first of each in the upper half, zeros after them. */
GEMM_INLINE vf vf_load_pairs(const uint16_t *p, int64_t n) {
  __m512i x = n == 2 * VL ? _mm512_loadu_si512(p)
                          : _mm512_maskz_loadu_epi16((__mmask32)((1ull << n) - 1), p);
  return _mm512_castsi512_ps(_mm512_rol_epi32(x, 16));
}
/* Pairs of n elements at hi and n at lo; lo may be NULL, for zeros. */
GEMM_INLINE vf vf_join_pairs(const uint16_t *hi, const uint16_t *lo, int64_t n) {
  __m512i x = _mm512_slli_epi32(_mm512_cvtepu16_epi32(vf_half_words(hi, n)), 16);
  if (lo) x = _mm512_or_si512(x, _mm512_cvtepu16_epi32(vf_half_words(lo, n)));
  return _mm512_castsi512_ps(x);
}
#if defined(__AVX512BF16__)
/* The same of f32, rounded. */
GEMM_INLINE __m512i vf_round_two(vf low, vf high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}
GEMM_INLINE vf vf_round_pairs(const float *p, int64_t n) {
  vf low = n >= VL ? vf_load(p) : vf_load_n(p, n);
  vf high = n == 2 * VL ? vf_load(p + VL)
            : n > VL    ? vf_load_n(p + VL, n - VL)
                        : _mm512_setzero_ps();
  return _mm512_castsi512_ps(_mm512_rol_epi32(vf_round_two(low, high), 16));
}
/* The pairs of two rows that lie in the halves of a register. */
GEMM_INLINE vf vf_pair_up(__m512i rows) {
  static const uint16_t order[2 * VL] = {16, 0,  17, 1,  18, 2,  19, 3,  20, 4,  21,
                                         5,  22, 6,  23, 7,  24, 8,  25, 9,  26, 10,
                                         27, 11, 28, 12, 29, 13, 30, 14, 31, 15};
  return _mm512_castsi512_ps(_mm512_permutexvar_epi16(_mm512_loadu_si512(order), rows));
}
GEMM_INLINE vf vf_round_join(const float *hi, const float *lo, int64_t n) {
  vf first = n == VL ? vf_load(hi) : vf_load_n(hi, n);
  vf second = !lo ? _mm512_setzero_ps() : n == VL ? vf_load(lo) : vf_load_n(lo, n);
  return vf_pair_up(vf_round_two(first, second));
}
/* Two steps of chains: sum + a.upper * b.upper, then + a.lower * b.lower. */
GEMM_INLINE vf vf_dot(vf a, vf b, vf sum) {
  return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
}
#endif
/* r[i][j] becomes r[j][i]. */
GEMM_INLINE void vf_transpose(vf r[VL]) {
  vf t[VL];
  GEMM_UNROLL for (int i = 0; i < VL; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  GEMM_UNROLL for (int i = 0; i < VL; i += 4) {
    GEMM_UNROLL for (int j = 0; j < 2; j++) {
      __m512d x = _mm512_castps_pd(t[i + j]), y = _mm512_castps_pd(t[i + 2 + j]);
      r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
      r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
  }
  GEMM_UNROLL for (int i = 0; i < VL; i += 8) {
    GEMM_UNROLL for (int j = 0; j < 4; j++) {
      t[i + j] = _mm512_shuffle_f32x4(r[i + j], r[i + 4 + j], 0x88);
      t[i + 4 + j] = _mm512_shuffle_f32x4(r[i + j], r[i + 4 + j], 0xdd);
    }
  }
  GEMM_UNROLL for (int j = 0; j < 8; j++) {
    r[j] = _mm512_shuffle_f32x4(t[j], t[8 + j], 0x88);
    r[8 + j] = _mm512_shuffle_f32x4(t[j], t[8 + j], 0xdd);
  }
}

#elif defined(__AVX2__)
#include <immintrin.h>
enum { VL = 8, TILE_ROWS = 6, STREAM_ROWS = 4 };
typedef __m256 vf;
GEMM_INLINE vf vf_set1(float x) { return _mm256_set1_ps(x); }
GEMM_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
GEMM_INLINE void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
GEMM_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
GEMM_INLINE vf vf_load_n(const float *p, int64_t n) {
  float t[VL] = {0};
  memcpy(t, p, sizeof *p * (size_t)n);
  return vf_load(t);
}
GEMM_INLINE void vf_store_n(float *p, vf v, int64_t n) {
  float t[VL];
  vf_store(t, v);
  memcpy(p, t, sizeof *p * (size_t)n);
}
GEMM_INLINE __m128i vf_half_words(const uint16_t *p, int64_t n) {
  uint16_t t[VL] = {0};
  memcpy(t, p, sizeof *p * (size_t)n);
  return _mm_loadu_si128((const __m128i *)(const void *)t);
}
GEMM_INLINE vf vf_load_bf16(const uint16_t *p, int64_t n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(vf_half_words(p, n)), 16));
}
GEMM_INLINE vf vf_load_f16(const uint16_t *p, int64_t n) {
  return _mm256_cvtph_ps(vf_half_words(p, n));
}
GEMM_INLINE vf vf_round_bf16(vf v) {
  __m256i u = _mm256_castps_si256(v);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  vf even = _mm256_blendv_ps(_mm256_castsi256_ps(r), _mm256_castsi256_ps(quiet),
                             _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_and_ps(even, _mm256_castsi256_ps(_mm256_set1_epi32(-0x10000)));
}
GEMM_INLINE void vf_transpose(vf r[VL]) {
  vf t[VL];
  GEMM_UNROLL for (int i = 0; i < VL; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  GEMM_UNROLL for (int i = 0; i < VL; i += 4) {
    GEMM_UNROLL for (int j = 0; j < 2; j++) {
      r[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + 2 + j], 0x44);
      r[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + 2 + j], 0xee);
    }
  }
  GEMM_UNROLL for (int j = 0; j < 4; j++) {
    t[j] = _mm256_permute2f128_ps(r[j], r[4 + j], 0x20);
    t[4 + j] = _mm256_permute2f128_ps(r[j], r[4 + j], 0x31);
  }
  GEMM_UNROLL for (int j = 0; j < VL; j++) r[j] = t[j];
}

#else
enum { VL = 4, TILE_ROWS = 4, STREAM_ROWS = 4 };
typedef float vf __attribute__((vector_size(16)));
GEMM_INLINE vf vf_set1(float x) { return (vf){x, x, x, x}; }
GEMM_INLINE vf vf_load(const float *p) {
  vf v;
  memcpy(&v, p, sizeof v);
  return v;
}
GEMM_INLINE void vf_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
GEMM_INLINE vf vf_fma(vf a, vf b, vf c) {
  return (vf){fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]),
              fmaf(a[3], b[3], c[3])};
}
GEMM_INLINE vf vf_load_n(const float *p, int64_t n) {
  float t[VL] = {0};
  memcpy(t, p, sizeof *p * (size_t)n);
  return vf_load(t);
}
GEMM_INLINE void vf_store_n(float *p, vf v, int64_t n) { memcpy(p, &v, sizeof *p * (size_t)n); }
GEMM_INLINE vf vf_load_bf16(const uint16_t *p, int64_t n) {
  float t[VL] = {0};
  for (int64_t i = 0; i < n; i++) t[i] = bf16_to_f32(p[i]);
  return vf_load(t);
}
GEMM_INLINE vf vf_load_f16(const uint16_t *p, int64_t n) {
  float t[VL] = {0};
  for (int64_t i = 0; i < n; i++) t[i] = f16_to_f32(p[i]);
  return vf_load(t);
}
GEMM_INLINE vf vf_round_bf16(vf v) {
  for (int i = 0; i < VL; i++) v[i] = bf16_to_f32(f32_to_bf16(v[i]));
  return v;
}
GEMM_INLINE void vf_transpose(vf r[VL]) {
  float t[VL][VL];
  for (int i = 0; i < VL; i++)
    for (int j = 0; j < VL; j++) t[j][i] = r[i][j];
  for (int i = 0; i < VL; i++) r[i] = vf_load(t[i]);
}
#endif

enum { TILE_COLS = 2 * VL > 16 ? 2 * VL : 16, TILE_VECS = TILE_COLS / VL };

/* X(n) for every number of rows that kernels of few rows are made for. */
#if defined(__AVX512F__)
#define EACH_STREAM_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#else
#define EACH_STREAM_ROWS(X) X(1) X(2) X(3) X(4)
#endif

GEMM_INLINE vf vf_zero(void) { return vf_set1(0.0f); }

/* Address of element i of an array of `type`. */
GEMM_INLINE const void *elem_at(const void *p, hp_dtype type, int64_t i) {
  return (const char *)p + i * (type == HP_F32 ? 4 : 2);
}
/* Element i of an array of `type`, widened. */
GEMM_INLINE float elem_load(const void *p, hp_dtype type, int64_t i) {
  const void *at = elem_at(p, type, i);
  if (type == HP_F32) return *(const float *)at;
  uint16_t h = *(const uint16_t *)at;
  return type == HP_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}
GEMM_INLINE void elem_store(void *p, hp_dtype type, int64_t i, float x) {
  if (type == HP_F32) ((float *)p)[i] = x;
  else ((uint16_t *)p)[i] = type == HP_BF16 ? f32_to_bf16(x) : f32_to_f16(x);
}
/* n (0..VL) elements of `type` at p, widened, zeros after them. */
GEMM_INLINE vf vf_load_as(const void *p, hp_dtype type, int64_t n) {
  if (type == HP_F32) return n == VL ? vf_load(p) : vf_load_n(p, n);
  return type == HP_BF16 ? vf_load_bf16(p, n) : vf_load_f16(p, n);
}

/* The functions of gemm_kernels for this instruction set; contracts in gemm_isa.h. */
void ISA_NAME(gemm_pack_rows)(float *to, int64_t pitch, const gemm_source *x);
void ISA_NAME(gemm_pack_panels)(float *to, const gemm_source *x);
void gemm_pack_rows_dot(float *to, int64_t pitch, const gemm_source *x);
void gemm_pack_panels_dot(float *to, const gemm_source *x);
void ISA_NAME(gemm_rows)(int64_t rows, int64_t cols, int64_t k, const float *a, int64_t lda,
                         const void *b, hp_dtype type, int64_t b_k, int64_t b_n, float *c,
                         int64_t ldc, bool load);
void ISA_NAME(gemm_rows_packed)(int64_t rows, int64_t cols, int64_t k, const float *a, int64_t lda,
                                const void *b, hp_dtype type, int64_t pack, int64_t b_k, float *c,
                                int64_t ldc, bool load);
void gemm_rows_packed_dot(int64_t rows, int64_t cols, int64_t k, const float *a, int64_t lda,
                          const void *b, hp_dtype type, int64_t pack, int64_t b_k, float *c,
                          int64_t ldc, bool load);
void ISA_NAME(gemm_finish)(const float *s, int64_t lds, int64_t rows, int64_t cols, float alpha,
                           const float *bias_m, const float *bias_n, void *out, hp_dtype type,
                           int64_t o_m, int64_t o_n);
void ISA_NAME(gemm_start)(float *s, int64_t lds, int64_t rows, int64_t cols, const void *c,
                          hp_dtype type, int64_t c_m, int64_t c_n);
void gemm_finish_dot(const float *s, int64_t lds, int64_t rows, int64_t cols, float alpha,
                     const float *bias_m, const float *bias_n, void *out, hp_dtype type,
                     int64_t o_m, int64_t o_n);
void gemm_start_dot(float *s, int64_t lds, int64_t rows, int64_t cols, const void *c, hp_dtype type,
                    int64_t c_m, int64_t c_n);

#endif
