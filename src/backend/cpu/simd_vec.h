/* Sixteen float lanes on every CPU: one AVX-512 register, two AVX ones, or four of the plain kind.
 *
 * The type is opaque: use the functions, never operators, so that one source compiles on all.  Each
 * operation is correctly rounded and does the same in every lane on every instruction set, fma
 * included; therefore a kernel written with them gives the same bits everywhere.
 * v16f floats, v16i int32, v16m a mask made by a comparison.  Include backend/cpu/simd.h. */
#ifndef SIMD_VEC_H
#define SIMD_VEC_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

#define SIMD static inline __attribute__((always_inline, unused))

/* --- 4 lanes: what every compiler knows without help ------------------------------------------ */
#if !(defined(__AVX2__) && defined(__FMA__))
typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));
typedef uint32_t v4u __attribute__((vector_size(16)));

SIMD v4f v4_set1(float x) { return (v4f){x, x, x, x}; }
SIMD v4f v4_load(const float *p) {
  v4f v;
  memcpy(&v, p, sizeof v);
  return v;
}
SIMD void v4_store(float *p, v4f v) { memcpy(p, &v, sizeof v); }
SIMD v4f v4_add(v4f a, v4f b) { return a + b; }
SIMD v4f v4_sub(v4f a, v4f b) { return a - b; }
SIMD v4f v4_mul(v4f a, v4f b) { return a * b; }
SIMD v4f v4_div(v4f a, v4f b) { return a / b; }
SIMD v4f v4_fma(v4f a, v4f b, v4f c) {
  return (v4f){fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]),
               fmaf(a[3], b[3], c[3])};
}
SIMD v4f v4_sqrt(v4f a) { return (v4f){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
SIMD v4i v4_lt(v4f a, v4f b) { return a < b; }
SIMD v4i v4_eq(v4f a, v4f b) { return a == b; }
SIMD v4f v4_select(v4i m, v4f a, v4f b) { return (v4f)((m & (v4i)a) | (~m & (v4i)b)); }
SIMD v4f v4_max(v4f a, v4f b) { return v4_select(a > b, a, b); }
SIMD v4f v4_min(v4f a, v4f b) { return v4_select(a < b, a, b); }
SIMD v4i v4_as_i(v4f a) { return (v4i)a; }
SIMD v4i v4_to_i(v4f a) {
  return (v4i){(int32_t)a[0], (int32_t)a[1], (int32_t)a[2], (int32_t)a[3]};
}
SIMD v4i v4i_set1(int32_t x) { return (v4i){x, x, x, x}; }
SIMD v4i v4i_load(const int32_t *p) {
  v4i v;
  memcpy(&v, p, sizeof v);
  return v;
}
SIMD void v4i_store(int32_t *p, v4i v) { memcpy(p, &v, sizeof v); }
SIMD v4i v4i_add(v4i a, v4i b) { return (v4i)((v4u)a + (v4u)b); }
SIMD v4i v4i_sub(v4i a, v4i b) { return (v4i)((v4u)a - (v4u)b); }
SIMD v4i v4i_and(v4i a, v4i b) { return a & b; }
SIMD v4i v4i_or(v4i a, v4i b) { return a | b; }
SIMD v4i v4i_xor(v4i a, v4i b) { return a ^ b; }
SIMD v4i v4i_lt(v4i a, v4i b) { return a < b; }
SIMD v4i v4i_mullo(v4i a, v4i b) { return (v4i)((v4u)a * (v4u)b); }
SIMD v4i v4i_mulhi(v4i a, v4i b) {
  for (int i = 0; i < 4; i++) a[i] = (int32_t)((uint64_t)(uint32_t)a[i] * (uint32_t)b[i] >> 32);
  return a;
}
SIMD v4i v4i_shl(v4i a, int n) { return (v4i)((v4u)a << n); }
SIMD v4i v4i_sar(v4i a, int n) { return a >> n; }
SIMD v4i v4i_shr(v4i a, int n) { return (v4i)((v4u)a >> n); }
SIMD v4f v4i_as_f(v4i a) { return (v4f)a; }
SIMD v4f v4i_to_f(v4i a) { return (v4f){(float)a[0], (float)a[1], (float)a[2], (float)a[3]}; }
#endif

/* Both halves of a vector of 2N lanes (W over H), one operation each. */
#define SIMD_PAIR(W, H, N)                                                                         \
  typedef struct {                                                                                 \
    H##f lo, hi;                                                                                   \
  } W##f;                                                                                          \
  typedef struct {                                                                                 \
    H##i lo, hi;                                                                                   \
  } W##i;                                                                                          \
  SIMD W##f W##_set1(float x) { return (W##f){H##_set1(x), H##_set1(x)}; }                         \
  SIMD W##f W##_load(const float *p) { return (W##f){H##_load(p), H##_load(p + N)}; }              \
  SIMD void W##_store(float *p, W##f v) { H##_store(p, v.lo), H##_store(p + N, v.hi); }            \
  SIMD W##i W##i_set1(int32_t x) { return (W##i){H##i_set1(x), H##i_set1(x)}; }                    \
  SIMD W##i W##i_load(const int32_t *p) { return (W##i){H##i_load(p), H##i_load(p + N)}; }         \
  SIMD void W##i_store(int32_t *p, W##i v) { H##i_store(p, v.lo), H##i_store(p + N, v.hi); }       \
  SIMD W##f W##_fma(W##f a, W##f b, W##f c) {                                                      \
    return (W##f){H##_fma(a.lo, b.lo, c.lo), H##_fma(a.hi, b.hi, c.hi)};                           \
  }                                                                                                \
  SIMD W##f W##_select(W##i m, W##f a, W##f b) {                                                   \
    return (W##f){H##_select(m.lo, a.lo, b.lo), H##_select(m.hi, a.hi, b.hi)};                     \
  }                                                                                                \
  SIMD_PAIR_2(W, H, W##f, W##f, _add)                                                              \
  SIMD_PAIR_2(W, H, W##f, W##f, _sub)                                                              \
  SIMD_PAIR_2(W, H, W##f, W##f, _mul)                                                              \
  SIMD_PAIR_2(W, H, W##f, W##f, _div)                                                              \
  SIMD_PAIR_2(W, H, W##f, W##f, _max)                                                              \
  SIMD_PAIR_2(W, H, W##f, W##f, _min)                                                              \
  SIMD_PAIR_2(W, H, W##i, W##f, _lt)                                                               \
  SIMD_PAIR_2(W, H, W##i, W##f, _eq)                                                               \
  SIMD_PAIR_2(W, H, W##i, W##i, i_add)                                                             \
  SIMD_PAIR_2(W, H, W##i, W##i, i_sub)                                                             \
  SIMD_PAIR_2(W, H, W##i, W##i, i_and)                                                             \
  SIMD_PAIR_2(W, H, W##i, W##i, i_or)                                                              \
  SIMD_PAIR_2(W, H, W##i, W##i, i_xor)                                                             \
  SIMD_PAIR_2(W, H, W##i, W##i, i_lt)                                                              \
  SIMD_PAIR_2(W, H, W##i, W##i, i_mullo)                                                           \
  SIMD_PAIR_2(W, H, W##i, W##i, i_mulhi)                                                           \
  SIMD_PAIR_1(W, H, W##f, W##f, _sqrt)                                                             \
  SIMD_PAIR_1(W, H, W##i, W##f, _as_i)                                                             \
  SIMD_PAIR_1(W, H, W##i, W##f, _to_i)                                                             \
  SIMD_PAIR_1(W, H, W##f, W##i, i_as_f)                                                            \
  SIMD_PAIR_1(W, H, W##f, W##i, i_to_f)                                                            \
  SIMD_PAIR_SHIFT(W, H, i_shl)                                                                     \
  SIMD_PAIR_SHIFT(W, H, i_sar)                                                                     \
  SIMD_PAIR_SHIFT(W, H, i_shr)
#define SIMD_PAIR_1(W, H, R, A, op)                                                                \
  SIMD R W##op(A a) { return (R){H##op(a.lo), H##op(a.hi)}; }
#define SIMD_PAIR_2(W, H, R, A, op)                                                                \
  SIMD R W##op(A a, A b) { return (R){H##op(a.lo, b.lo), H##op(a.hi, b.hi)}; }
#define SIMD_PAIR_SHIFT(W, H, op)                                                                  \
  SIMD W##i W##op(W##i a, int n) { return (W##i){H##op(a.lo, n), H##op(a.hi, n)}; }

/* --- 8 lanes ---------------------------------------------------------------------------------- */
#if defined(__AVX2__) && defined(__FMA__)
typedef __m256 v8f;
typedef __m256i v8i;
typedef uint32_t v8iw __attribute__((vector_size(32)));
typedef int32_t v8ix __attribute__((vector_size(32)));
SIMD v8f v8_set1(float x) { return _mm256_set1_ps(x); }
SIMD v8f v8_load(const float *p) { return _mm256_loadu_ps(p); }
SIMD void v8_store(float *p, v8f v) { _mm256_storeu_ps(p, v); }
SIMD v8f v8_add(v8f a, v8f b) { return _mm256_add_ps(a, b); }
SIMD v8f v8_sub(v8f a, v8f b) { return _mm256_sub_ps(a, b); }
SIMD v8f v8_mul(v8f a, v8f b) { return _mm256_mul_ps(a, b); }
SIMD v8f v8_div(v8f a, v8f b) { return _mm256_div_ps(a, b); }
SIMD v8f v8_fma(v8f a, v8f b, v8f c) { return _mm256_fmadd_ps(a, b, c); }
SIMD v8f v8_sqrt(v8f a) { return _mm256_sqrt_ps(a); }
SIMD v8f v8_max(v8f a, v8f b) { return _mm256_max_ps(a, b); }
SIMD v8f v8_min(v8f a, v8f b) { return _mm256_min_ps(a, b); }
SIMD v8i v8_lt(v8f a, v8f b) { return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
SIMD v8i v8_eq(v8f a, v8f b) { return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)); }
SIMD v8f v8_select(v8i m, v8f a, v8f b) { return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m)); }
SIMD v8i v8_as_i(v8f a) { return _mm256_castps_si256(a); }
SIMD v8i v8_to_i(v8f a) { return _mm256_cvttps_epi32(a); }
SIMD v8i v8i_set1(int32_t x) { return _mm256_set1_epi32(x); }
SIMD v8i v8i_load(const int32_t *p) { return _mm256_loadu_si256((const void *)p); }
SIMD void v8i_store(int32_t *p, v8i v) { _mm256_storeu_si256((void *)p, v); }
SIMD v8i v8i_add(v8i a, v8i b) { return _mm256_add_epi32(a, b); }
SIMD v8i v8i_sub(v8i a, v8i b) { return _mm256_sub_epi32(a, b); }
SIMD v8i v8i_and(v8i a, v8i b) { return _mm256_and_si256(a, b); }
SIMD v8i v8i_or(v8i a, v8i b) { return _mm256_or_si256(a, b); }
SIMD v8i v8i_xor(v8i a, v8i b) { return _mm256_xor_si256(a, b); }
SIMD v8i v8i_lt(v8i a, v8i b) { return _mm256_cmpgt_epi32(b, a); }
SIMD v8i v8i_mullo(v8i a, v8i b) {
  v8i even = _mm256_mul_epu32(a, b);
  v8i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
SIMD v8i v8i_mulhi(v8i a, v8i b) {
  v8i even = _mm256_mul_epu32(a, b);
  v8i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
  return _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}
SIMD v8i v8i_shl(v8i a, int n) { return (v8i)((v8iw)a << n); }
SIMD v8i v8i_sar(v8i a, int n) { return (v8i)((v8ix)a >> n); }
SIMD v8i v8i_shr(v8i a, int n) { return (v8i)((v8iw)a >> n); }
SIMD v8f v8i_as_f(v8i a) { return _mm256_castsi256_ps(a); }
SIMD v8f v8i_to_f(v8i a) { return _mm256_cvtepi32_ps(a); }
/* A mask of the first n lanes: none if n <= 0, all if n >= 8. */
SIMD v8i v8_first(int n) { return v8i_lt(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), v8i_set1(n)); }
#else
SIMD_PAIR(v8, v4, 4)
#endif

/* --- 16 lanes --------------------------------------------------------------------------------- */
#if defined(__AVX512F__)
typedef __m512 v16f;
typedef __m512i v16i;
typedef __mmask16 v16m;
typedef uint32_t v16iw __attribute__((vector_size(64)));
typedef int32_t v16ix __attribute__((vector_size(64)));
SIMD v16f v16_set1(float x) { return _mm512_set1_ps(x); }
SIMD v16f v16_load(const float *p) { return _mm512_loadu_ps(p); }
SIMD void v16_store(float *p, v16f v) { _mm512_storeu_ps(p, v); }
SIMD v16f v16_add(v16f a, v16f b) { return _mm512_add_ps(a, b); }
SIMD v16f v16_sub(v16f a, v16f b) { return _mm512_sub_ps(a, b); }
SIMD v16f v16_mul(v16f a, v16f b) { return _mm512_mul_ps(a, b); }
SIMD v16f v16_div(v16f a, v16f b) { return _mm512_div_ps(a, b); }
SIMD v16f v16_fma(v16f a, v16f b, v16f c) { return _mm512_fmadd_ps(a, b, c); }
SIMD v16f v16_sqrt(v16f a) { return _mm512_sqrt_ps(a); }
SIMD v16f v16_max(v16f a, v16f b) { return _mm512_max_ps(a, b); }
SIMD v16f v16_min(v16f a, v16f b) { return _mm512_min_ps(a, b); }
SIMD v16m v16_lt(v16f a, v16f b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
SIMD v16m v16_eq(v16f a, v16f b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
SIMD v16f v16_select(v16m m, v16f a, v16f b) { return _mm512_mask_blend_ps(m, b, a); }
SIMD v16i v16_as_i(v16f a) { return _mm512_castps_si512(a); }
SIMD v16i v16_to_i(v16f a) { return _mm512_cvttps_epi32(a); }
SIMD v16i v16i_set1(int32_t x) { return _mm512_set1_epi32(x); }
SIMD v16i v16i_load(const int32_t *p) { return _mm512_loadu_si512(p); }
SIMD void v16i_store(int32_t *p, v16i v) { _mm512_storeu_si512(p, v); }
SIMD v16i v16i_add(v16i a, v16i b) { return _mm512_add_epi32(a, b); }
SIMD v16i v16i_sub(v16i a, v16i b) { return _mm512_sub_epi32(a, b); }
SIMD v16i v16i_and(v16i a, v16i b) { return _mm512_and_si512(a, b); }
SIMD v16i v16i_or(v16i a, v16i b) { return _mm512_or_si512(a, b); }
SIMD v16i v16i_xor(v16i a, v16i b) { return _mm512_xor_si512(a, b); }
SIMD v16m v16i_lt(v16i a, v16i b) { return _mm512_cmplt_epi32_mask(a, b); }
SIMD v16i v16i_mullo(v16i a, v16i b) {
  v16i even = _mm512_mul_epu32(a, b);
  v16i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
  return _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
}
SIMD v16i v16i_mulhi(v16i a, v16i b) {
  v16i even = _mm512_mul_epu32(a, b);
  v16i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
  return _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
}
SIMD v16i v16i_shl(v16i a, int n) { return (v16i)((v16iw)a << n); }
SIMD v16i v16i_sar(v16i a, int n) { return (v16i)((v16ix)a >> n); }
SIMD v16i v16i_shr(v16i a, int n) { return (v16i)((v16iw)a >> n); }
SIMD v16f v16i_as_f(v16i a) { return _mm512_castsi512_ps(a); }
SIMD v16f v16i_to_f(v16i a) { return _mm512_cvtepi32_ps(a); }
SIMD v16m v16m_and(v16m a, v16m b) { return a & b; }
SIMD v16m v16m_or(v16m a, v16m b) { return a | b; }
SIMD bool v16m_any(v16m m) { return m != 0; }
#else
SIMD_PAIR(v16, v8, 8)
typedef v16i v16m;
SIMD v16m v16m_and(v16m a, v16m b) { return v16i_and(a, b); }
SIMD v16m v16m_or(v16m a, v16m b) { return v16i_or(a, b); }
SIMD bool v16m_any(v16m m) {
  int32_t lane[16], any = 0;
  v16i_store(lane, m);
  for (int i = 0; i < 16; i++) any |= lane[i];
  return any != 0;
}
#endif

/* Notes on the semantics that are easy to miss:
 *  v16_max(a, b) is a > b ? a : b, so b where either is NaN; v16_min likewise.  Keep the value that
 *  must win in b.   v16_lt, v16_eq are false for NaN.   v16_to_i truncates and
 *  its argument must fit.
 *  v16i_mullo and v16i_mulhi are the halves of an unsigned product; they share the work.
 *  v16i_sar keeps the sign, v16i_shr shifts zeros in. */

SIMD v16f v16_zero(void) { return v16_set1(0.0f); }
SIMD v16f v16_neg(v16f a) { return v16i_as_f(v16i_xor(v16_as_i(a), v16i_set1(INT32_MIN))); }
SIMD v16f v16_abs(v16f a) { return v16i_as_f(v16i_and(v16_as_i(a), v16i_set1(INT32_MAX))); }
/* c - a * b, rounded once */
SIMD v16f v16_fnma(v16f a, v16f b, v16f c) { return v16_fma(v16_neg(a), b, c); }
/* |a| with the sign of s */
SIMD v16f v16_copysign(v16f a, v16f s) {
  return v16i_as_f(v16i_or(v16i_and(v16_as_i(a), v16i_set1(INT32_MAX)),
                           v16i_and(v16_as_i(s), v16i_set1(INT32_MIN))));
}

/* The first n lanes (0 <= n <= 16) of memory, zeros after them. */
SIMD v16f v16_load_n(const float *p, int n) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#elif defined(__AVX2__) && defined(__FMA__)
  return (v16f){_mm256_maskload_ps(p, v8_first(n)), _mm256_maskload_ps(p + 8, v8_first(n - 8))};
#else
  float t[16] = {0};
  memcpy(t, p, sizeof(float) * (size_t)n);
  return v16_load(t);
#endif
}
SIMD void v16_store_n(float *p, v16f v, int n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
#elif defined(__AVX2__) && defined(__FMA__)
  _mm256_maskstore_ps(p, v8_first(n), v.lo);
  _mm256_maskstore_ps(p + 8, v8_first(n - 8), v.hi);
#else
  float t[16];
  v16_store(t, v);
  memcpy(p, t, sizeof(float) * (size_t)n);
#endif
}

/* --- reductions over the lanes: i with i+8, then i+4, i+2, i+1 -------------------------------- */
#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
SIMD v8f v16_half(v16f v, int upper) {
#if defined(__AVX512F__)
  __m512d d = _mm512_castps_pd(v);
  return _mm256_castpd_ps(upper ? _mm512_extractf64x4_pd(d, 1) : _mm512_castpd512_pd256(d));
#else
  return upper ? v.hi : v.lo;
#endif
}
#define SIMD_TREE(name, op)                                                                        \
  SIMD float name(v16f v) {                                                                        \
    v8f a = _mm256_##op##_ps(v16_half(v, 0), v16_half(v, 1));                                      \
    __m128 b = _mm_##op##_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));              \
    b = _mm_##op##_ps(b, _mm_movehl_ps(b, b));                                                     \
    return _mm_cvtss_f32(_mm_##op##_ss(b, _mm_shuffle_ps(b, b, 1)));                               \
  }
#else
#define SIMD_TREE(name, op)                                                                        \
  SIMD float name(v16f v) {                                                                        \
    v8f a = v8_##op(v.lo, v.hi);                                                                   \
    v4f b = v4_##op(a.lo, a.hi);                                                                   \
    b = v4_##op(b, (v4f){b[2], b[3], b[0], b[1]});                                                 \
    return v4_##op(b, (v4f){b[1], b[0], b[3], b[2]})[0];                                           \
  }
#endif
SIMD_TREE(v16_sum, add)
SIMD_TREE(v16_max_lane, max) /* undefined lane order for NaN: do not rely on it to find NaN */

#endif
