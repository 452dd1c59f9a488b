/* Vector arithmetic for the CPU kernels: simd_vec.h's sixteen lanes, and on them our own exp, log,
 * tanh, erf, and the conversions to and from bf16 and f16.
 *
 * No branches, no tables, no libm (except fmaf, sqrtf): every function gives the same bits on
 * every instruction set (except the payload of a NaN), and lane i depends on lane i alone.  The
 * comment of each function states its error, measured over all floats; the tests check it.
 * Polynomials: minimax fits in the variable named. */
#ifndef SIMD_H
#define SIMD_H

#include "backend/cpu/simd_vec.h"
#include "base/dtype.h"

/* c[n-1] + x * (c[n-2] + ...): Horner over coefficients given from the highest power down. */
#define SIMD_POLY(p, x, ...)                                                                       \
  do {                                                                                             \
    static const float poly_c_[] = {__VA_ARGS__};                                                  \
    (p) = v16_set1(poly_c_[0]);                                                                    \
    for (unsigned poly_i_ = 1; poly_i_ < sizeof poly_c_ / sizeof *poly_c_; poly_i_++)              \
      (p) = v16_fma((p), (x), v16_set1(poly_c_[poly_i_]));                                         \
  } while (0)

/* p * 2^n for p near 1 and integer n in [-152, 129], rounded once: down to denormals, up to inf. */
SIMD v16f v16_scale2(v16f p, v16f n) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(p, n);
#else
  v16i i = v16_to_i(n), half = v16i_sar(i, 1), bias = v16i_set1(127);
  v16f s1 = v16i_as_f(v16i_shl(v16i_add(half, bias), 23));
  v16f s2 = v16i_as_f(v16i_shl(v16i_add(v16i_sub(i, half), bias), 23));
  return v16_mul(v16_mul(p, s1), s2);
#endif
}

/* x[k] = e^x[k] for k < n, a constant.  <= 1 ulp; 0 below -104, inf above 88.73, NaN for NaN, 1
 * for 0.  Each is a chain of 16 dependent operations, so SIMD_WIDE of them are interleaved. */
#if defined(__AVX512F__)
enum { SIMD_WIDE = 8 };
#else
enum { SIMD_WIDE = 2 };
#endif
SIMD void v16_exps(v16f *x, const int n) {
  const v16f magic = v16_set1(0x1.8p23f);
  static const float poly[] = {0x1.6a234ep-10f, 0x1.123a6cp-7f, 0x1.5558f4p-5f, 0x1.555490p-3f,
                               0x1.fffffcp-2f};
  v16f e[SIMD_WIDE], r[SIMD_WIDE], p[SIMD_WIDE];
  /* bounds first: NaN is kept, as the second operand */
  for (int k = 0; k < n; k++) x[k] = v16_max(v16_set1(-105.0f), x[k]);
  for (int k = 0; k < n; k++) x[k] = v16_min(v16_set1(89.0f), x[k]);
  for (int k = 0; k < n; k++) e[k] = v16_fma(x[k], v16_set1(0x1.715476p0f), magic);
  for (int k = 0; k < n; k++) e[k] = v16_sub(e[k], magic);
  for (int k = 0; k < n; k++) r[k] = v16_fma(e[k], v16_set1(-0x1.62e400p-1f), x[k]);
  for (int k = 0; k < n; k++) r[k] = v16_fma(e[k], v16_set1(-0x1.7f7d1cp-20f), r[k]);
  for (int k = 0; k < n; k++) p[k] = v16_set1(poly[0]);
  for (unsigned c = 1; c < sizeof poly / sizeof *poly; c++)
    for (int k = 0; k < n; k++) p[k] = v16_fma(p[k], r[k], v16_set1(poly[c]));
  for (int k = 0; k < n; k++) p[k] = v16_fma(v16_mul(r[k], r[k]), p[k], r[k]);
  for (int k = 0; k < n; k++) p[k] = v16_add(p[k], v16_set1(1.0f));
#if !defined(__AVX512F__)
  for (int k = 0; k < n; k++)
    e[k] = v16_select(v16_eq(x[k], x[k]), e[k], v16_zero()); /* no integer is NaN */
#endif
  for (int k = 0; k < n; k++) x[k] = v16_scale2(p[k], e[k]);
}
SIMD v16f v16_exp(v16f x) {
  v16_exps(&x, 1);
  return x;
}

/* x[k] = 2^x[k] for k < n, a constant; interleaved as in v16_exps, with two thirds of its work.
 * poly: of 2^r, |r| <= 1/2, coefficients from the highest.  0 below -150, inf from 128, NaN for
 * NaN, 1 for 0. */
SIMD void v16_exp2s_by(v16f *x, const int n, const float *poly, const int terms) {
  v16f e[SIMD_WIDE], r[SIMD_WIDE], p[SIMD_WIDE]; /* x = e, the nearest integer, + r */
#if defined(__AVX512F__)
  for (int k = 0; k < n; k++) r[k] = _mm512_reduce_ps(x[k], _MM_FROUND_TO_NEAREST_INT);
  for (int k = 0; k < n; k++) e[k] = v16_sub(x[k], r[k]);
#else
  const v16f magic = v16_set1(0x1.8p23f);
  for (int k = 0; k < n; k++) x[k] = v16_min(v16_set1(129.0f), v16_max(v16_set1(-152.0f), x[k]));
  for (int k = 0; k < n; k++) e[k] = v16_sub(v16_add(x[k], magic), magic);
  for (int k = 0; k < n; k++) r[k] = v16_sub(x[k], e[k]);
  for (int k = 0; k < n; k++)
    e[k] = v16_select(v16_eq(x[k], x[k]), e[k], v16_zero()); /* no integer is NaN */
#endif
  for (int k = 0; k < n; k++) p[k] = v16_set1(poly[0]);
  for (int c = 1; c < terms; c++)
    for (int k = 0; k < n; k++) p[k] = v16_fma(p[k], r[k], v16_set1(poly[c]));
  for (int k = 0; k < n; k++) x[k] = v16_scale2(p[k], e[k]);
}
/* Within 2 ulp. */
SIMD void v16_exp2s(v16f *x, const int n) {
  static const float poly[] = {0x1.5bba0ep-10f, 0x1.3cea88p-7f, 0x1.c6b752p-5f,
                               0x1.ebf9bcp-3f,  0x1.62e42ap-1f, 1.0f};
  v16_exp2s_by(x, n, poly, sizeof poly / sizeof *poly);
}
/* Within 2^-18 of the result: for 16-bit operands, which are less precise. */
SIMD void v16_exp2s_half(v16f *x, const int n) {
  static const float poly[] = {0x1.3a02ccp-7f, 0x1.c9fc46p-5f, 0x1.ec0378p-3f, 0x1.62e12cp-1f,
                               1.0f};
  v16_exp2s_by(x, n, poly, sizeof poly / sizeof *poly);
}

/* ln x.  <= 1 ulp; -inf for 0, NaN below, inf for inf; denormals too. */
SIMD v16f v16_log(v16f x) {
  const v16f one = v16_set1(1.0f);
  v16m tiny = v16_lt(x, v16_set1(0x1p-126f));
  v16f y = v16_select(tiny, v16_mul(x, v16_set1(0x1p24f)), x);
  /* exponent so that the mantissa m is in [sqrt(1/2), sqrt(2)) */
  v16i e = v16i_sar(v16i_sub(v16_as_i(y), v16i_set1(0x3f3504f3)), 23);
  v16f m = v16i_as_f(v16i_sub(v16_as_i(y), v16i_shl(e, 23)));
  v16f n = v16_sub(v16i_to_f(e), v16_select(tiny, v16_set1(24.0f), v16_zero()));
  v16f f = v16_sub(m, one), f2 = v16_mul(f, f), p;
  SIMD_POLY(p, f, 0x1.145750p-4f, -0x1.de3c18p-4f, 0x1.e6f096p-4f, -0x1.fc220ap-4f, 0x1.233766p-3f,
            -0x1.555c4ep-3f, 0x1.99a4b6p-3f, -0x1.000006p-2f, 0x1.555548p-2f);
  p = v16_mul(v16_mul(p, f), f2);
  p = v16_fma(n, v16_set1(0x1.7f7d1cp-20f), p);
  p = v16_fma(f2, v16_set1(-0.5f), p);
  v16f r = v16_fma(n, v16_set1(0x1.62e400p-1f), v16_add(f, p));
  r = v16_select(v16_lt(x, v16_set1(INFINITY)), r, x); /* inf and NaN are kept */
  r = v16_select(v16_lt(x, v16_zero()), v16_set1(NAN), r);
  return v16_select(v16_eq(x, v16_zero()), v16_set1(-INFINITY), r);
}

/* tanh x.  <= 1.5 ulp. */
SIMD v16f v16_tanh(v16f x) {
  v16f a = v16_abs(x), x2 = v16_mul(x, x), p;
  SIMD_POLY(p, x2, -0x1.75e1c2p-8f, 0x1.52269ap-6f, -0x1.b83c5ap-5f, 0x1.110726p-3f,
            -0x1.555532p-2f);
  p = v16_fma(v16_mul(p, x2), x, x);
  v16f e = v16_add(v16_exp(v16_add(a, a)), v16_set1(1.0f));
  v16f q = v16_sub(v16_set1(1.0f), v16_div(v16_set1(2.0f), e));
  return v16_copysign(v16_select(v16_lt(a, v16_set1(0.625f)), p, q), x);
}

/* erf x: x + x p(x^2) below 1, 1 - exp(q(|x|)) beyond.  <= 1.5 ulp. */
SIMD v16f v16_erf(v16f x) {
  v16f x2 = v16_mul(x, x), p, q;
  v16f a = v16_min(v16_set1(4.0f), v16_abs(x)); /* erf(4) is 1 in f32 */
  SIMD_POLY(p, x2, 0x1.49a190p-14f, -0x1.a40d6cp-11f, 0x1.54092ep-8f, -0x1.b7f992p-6f,
            0x1.ce2d00p-4f, -0x1.81273ep-2f, 0x1.06eba8p-3f);
  p = v16_fma(p, x, x);
  SIMD_POLY(q, a, -0x1.6be1d8p-16f, 0x1.cecdb4p-12f, -0x1.138f3cp-8f, 0x1.9d04c6p-6f,
            -0x1.bc15d0p-4f, -0x1.443550p-1f, -0x1.212c12p+0f, 0x1.8a8250p-13f);
  q = v16_sub(v16_set1(1.0f), v16_exp(q));
  return v16_copysign(v16_select(v16_lt(a, v16_set1(1.0f)), p, q), x);
}

/* 1 / (1 + e^-x), from e^-|x| so that nothing overflows.  <= 2.5 ulp. */
SIMD v16f v16_sigmoid(v16f x) {
  v16f one = v16_set1(1.0f), t = v16_exp(v16_neg(v16_abs(x)));
  return v16_div(v16_select(v16_lt(x, v16_zero()), t, one), v16_add(one, t));
}

/* --- bf16 and f16 ----------------------------------------------------------------------------- */

#if defined(__AVX512F__)
SIMD v16f v16_widen_bf16(__m256i u) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(u), 16));
}
SIMD v16f v16_load_bf16(const uint16_t *p) {
  return v16_widen_bf16(_mm256_loadu_si256((const void *)p));
}
/* The nearest bf16 of every lane, in its upper half. */
SIMD v16i v16_round_bf16(v16f v) {
  v16i u = v16_as_i(v), r = v16i_add(u, v16i_set1(0x7fff));
  r = _mm512_mask_add_epi32(r, _mm512_test_epi32_mask(u, v16i_set1(0x10000)), r, v16i_set1(1));
  return _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), u, v16i_set1(0x400000));
}
SIMD __m256i v16_narrow_bf16(v16f v) {
  return _mm512_cvtepi32_epi16(v16i_shr(v16_round_bf16(v), 16));
}
SIMD void v16_store_bf16(uint16_t *p, v16f v) {
  _mm256_storeu_si256((void *)p, v16_narrow_bf16(v));
}
SIMD v16f v16_load_f16(const uint16_t *p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}
SIMD __m256i v16_narrow_f16(v16f v) { return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }
SIMD void v16_store_f16(uint16_t *p, v16f v) { _mm256_storeu_si256((void *)p, v16_narrow_f16(v)); }
#elif defined(__AVX2__) && defined(__F16C__)
SIMD v8f v8_load_bf16(const uint16_t *p) {
  __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}
SIMD v8i v8_round_bf16(v8f v) {
  v8i u = v8_as_i(v), high = v8i_shr(u, 16), odd = v8i_and(high, v8i_set1(1));
  v8i r = v8i_shr(v8i_add(u, v8i_add(odd, v8i_set1(0x7fff))), 16);
  return _mm256_blendv_epi8(v8i_or(high, v8i_set1(0x40)), r, v8_eq(v, v));
}
SIMD v16f v16_load_bf16(const uint16_t *p) { return (v16f){v8_load_bf16(p), v8_load_bf16(p + 8)}; }
SIMD void v16_store_bf16(uint16_t *p, v16f v) {
  __m256i r = _mm256_packus_epi32(v8_round_bf16(v.lo), v8_round_bf16(v.hi));
  _mm256_storeu_si256((void *)p, _mm256_permute4x64_epi64(r, 0xd8));
}
SIMD v16f v16_load_f16(const uint16_t *p) {
  return (v16f){_mm256_cvtph_ps(_mm_loadu_si128((const void *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 8)))};
}
SIMD void v16_store_f16(uint16_t *p, v16f v) {
  _mm_storeu_si128((void *)p, _mm256_cvtps_ph(v.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((void *)(p + 8), _mm256_cvtps_ph(v.hi, _MM_FROUND_TO_NEAREST_INT));
}
#else
SIMD v16f v16_load_bf16(const uint16_t *p) {
  float t[16];
  for (int i = 0; i < 16; i++) t[i] = bf16_to_f32(p[i]);
  return v16_load(t);
}
SIMD void v16_store_bf16(uint16_t *p, v16f v) {
  float t[16];
  v16_store(t, v);
  for (int i = 0; i < 16; i++) p[i] = f32_to_bf16(t[i]);
}
SIMD v16f v16_load_f16(const uint16_t *p) {
  float t[16];
  for (int i = 0; i < 16; i++) t[i] = f16_to_f32(p[i]);
  return v16_load(t);
}
SIMD void v16_store_f16(uint16_t *p, v16f v) {
  float t[16];
  v16_store(t, v);
  for (int i = 0; i < 16; i++) p[i] = f32_to_f16(t[i]);
}
#endif
/* The first n (0..16) only, zeros after them. */
#if defined(__AVX512F__)
SIMD __m256i v16_halves_n(const uint16_t *p, int n) {
  return _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
}
SIMD void v16_store_halves_n(uint16_t *p, __m256i u, int n) {
  _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), u);
}
SIMD v16f v16_load_bf16_n(const uint16_t *p, int n) { return v16_widen_bf16(v16_halves_n(p, n)); }
SIMD void v16_store_bf16_n(uint16_t *p, v16f v, int n) {
  v16_store_halves_n(p, v16_narrow_bf16(v), n);
}
SIMD v16f v16_load_f16_n(const uint16_t *p, int n) { return _mm512_cvtph_ps(v16_halves_n(p, n)); }
SIMD void v16_store_f16_n(uint16_t *p, v16f v, int n) {
  v16_store_halves_n(p, v16_narrow_f16(v), n);
}
#else
SIMD v16f v16_load_bf16_n(const uint16_t *p, int n) {
  uint16_t t[16] = {0};
  memcpy(t, p, sizeof *p * (size_t)n);
  return v16_load_bf16(t);
}
SIMD void v16_store_bf16_n(uint16_t *p, v16f v, int n) {
  uint16_t t[16];
  v16_store_bf16(t, v);
  memcpy(p, t, sizeof *p * (size_t)n);
}
SIMD v16f v16_load_f16_n(const uint16_t *p, int n) {
  uint16_t t[16] = {0};
  memcpy(t, p, sizeof *p * (size_t)n);
  return v16_load_f16(t);
}
SIMD void v16_store_f16_n(uint16_t *p, v16f v, int n) {
  uint16_t t[16];
  v16_store_f16(t, v);
  memcpy(p, t, sizeof *p * (size_t)n);
}
#endif

/* The same for a tensor of any floating type, from element i. */
SIMD v16f v16_load_as(hp_dtype t, const void *x, int64_t i, int n) {
  if (t == HP_F32)
    return n == 16 ? v16_load((const float *)x + i) : v16_load_n((const float *)x + i, n);
  const uint16_t *p = (const uint16_t *)x + i;
  if (n == 16) return t == HP_BF16 ? v16_load_bf16(p) : v16_load_f16(p);
  return t == HP_BF16 ? v16_load_bf16_n(p, n) : v16_load_f16_n(p, n);
}
SIMD void v16_store_as(hp_dtype t, void *x, int64_t i, v16f v, int n) {
  if (t == HP_F32) {
    float *p = (float *)x + i;
    n == 16 ? v16_store(p, v) : v16_store_n(p, v, n);
    return;
  }
  uint16_t *p = (uint16_t *)x + i;
  if (n == 16) t == HP_BF16 ? v16_store_bf16(p, v) : v16_store_f16(p, v);
  else t == HP_BF16 ? v16_store_bf16_n(p, v, n) : v16_store_f16_n(p, v, n);
}
/* The same past the caches, for results that are not read soon, if the address is aligned to
 * full lines.  v16_streamed makes the stores visible to other threads. */
SIMD void v16_stream_as(hp_dtype t, void *x, int64_t i, v16f v, int n) {
#if defined(__AVX512F__)
  char *to = (char *)x + i * (t == HP_F32 ? 4 : 2);
  if (n == 16 && !((uintptr_t)to & (t == HP_F32 ? 63 : 31))) {
    if (t == HP_F32) _mm512_stream_ps((float *)(void *)to, v);
    else _mm256_stream_si256((void *)to, t == HP_BF16 ? v16_narrow_bf16(v) : v16_narrow_f16(v));
    return;
  }
#endif
  v16_store_as(t, x, i, v, n);
}
/* 64 bytes to an aligned line. */
SIMD void v16i_stream(void *p, v16i v) {
#if defined(__AVX512F__)
  _mm512_stream_si512(p, v);
#else
  v16i_store(p, v);
#endif
}
SIMD void v16_streamed(void) {
#if defined(__AVX512F__)
  _mm_sfence();
#endif
}
/* 32 bf16 as two vectors, those with even index and those with odd: a shift and a mask, while
 * keeping them in order would take shuffles. */
SIMD void v16_load_bf16_two(const uint16_t *p, v16f *v) {
  v16i u = v16i_load((const void *)p);
  v[0] = v16i_as_f(v16i_shl(u, 16));
  v[1] = v16i_as_f(v16i_and(u, v16i_set1((int32_t)0xffff0000)));
}

/* Two such vectors in memory order. */
SIMD void v16_zip_two(v16f v[2]) {
#if defined(__AVX512F__)
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  v16f even = v[0];
  v[0] = _mm512_permutex2var_ps(even, low, v[1]);
  v[1] = _mm512_permutex2var_ps(even, high, v[1]);
#else
  float in[2][16], out[32];
  for (int k = 0; k < 2; k++) v16_store(in[k], v[k]);
  for (int i = 0; i < 32; i++) out[i] = in[i % 2][i / 2];
  for (int k = 0; k < 2; k++) v[k] = v16_load(out + 16 * k);
#endif
}

/* The nearest bf16 of two such vectors, in memory order.  A NaN stays one if its lower half is
 * 0, as in all numbers that come from bf16. */
SIMD v16i v16_join_bf16_two(const v16f *v) {
  v16i r[2];
  for (int k = 0; k < 2; k++) {
    v16i u = v16_as_i(v[k]);
    r[k] = v16i_add(u, v16i_set1(0x7fff));
#if defined(__AVX512F__)
    v16m odd = _mm512_test_epi32_mask(u, v16i_set1(0x10000));
    r[k] = _mm512_mask_add_epi32(r[k], odd, r[k], v16i_set1(1));
#else
    r[k] = v16i_add(r[k], v16i_and(v16i_shr(u, 16), v16i_set1(1)));
#endif
  }
  return v16i_or(v16i_shr(r[0], 16), v16i_and(r[1], v16i_set1((int32_t)0xffff0000)));
}

/* The largest of bf16 numbers, 32 at a time; with AVX-512 as integers: the largest signed one if
 * any is positive, else the least unsigned.  A NaN is the result or is ignored. */
#if defined(__AVX512BW__)
typedef struct {
  __m512i most, least;
} v32_top;
SIMD v32_top v32_top_none(void) {
  return (v32_top){_mm512_set1_epi16(INT16_MIN), _mm512_set1_epi16((int16_t)0xff80)};
}
SIMD void v32_top_join(v32_top *t, const uint16_t *p) {
  __m512i u = _mm512_loadu_si512((const void *)p);
  t->most = _mm512_max_epi16(t->most, u);
  t->least = _mm512_min_epu16(t->least, u);
}
SIMD float v32_top_value(const v32_top *t) {
  int16_t most[32], high = INT16_MIN;
  uint16_t least[32], low = UINT16_MAX;
  memcpy(most, &t->most, sizeof most);
  memcpy(least, &t->least, sizeof least);
  for (int i = 0; i < 32; i++) high = most[i] > high ? most[i] : high;
  for (int i = 0; i < 32; i++) low = least[i] < low ? least[i] : low;
  return bf16_to_f32(high >= 0 ? (uint16_t)high : low);
}
#else
typedef struct {
  v16f top[2];
} v32_top;
SIMD v32_top v32_top_none(void) { return (v32_top){{v16_set1(-INFINITY), v16_set1(-INFINITY)}}; }
SIMD void v32_top_join(v32_top *t, const uint16_t *p) {
  v16f v[2];
  v16_load_bf16_two(p, v);
  for (int k = 0; k < 2; k++) t->top[k] = v16_max(v[k], t->top[k]);
}
SIMD float v32_top_value(const v32_top *t) { return v16_max_lane(v16_max(t->top[0], t->top[1])); }
#endif

/* Prefetches the line of element i of x, which may be past the end.  Once: for a single read,
 * without a copy in the farther caches. */
SIMD const void *v16_line(hp_dtype t, const void *x, int64_t i) {
  return (const void *)((uintptr_t)x + (uintptr_t)i * (t == HP_F32 ? 4 : 2));
}
SIMD void v16_fetch(hp_dtype t, const void *x, int64_t i) {
  __builtin_prefetch(v16_line(t, x, i), 0, 2);
}
SIMD void v16_fetch_once(hp_dtype t, const void *x, int64_t i) {
  __builtin_prefetch(v16_line(t, x, i), 0, 0);
}
/* Lanes that hold elements i.. of n. */
SIMD int v16_left(int64_t n, int64_t i) { return n - i < 16 ? (int)(n - i) : 16; }

#endif
