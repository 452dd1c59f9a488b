/* Before the first and after the last step of the chains: old C widened, finished sums scaled,
 * biased and stored in C's own type and strides. */
#include "backend/cpu/gemm/gemm_vec.h"
#include "backend/cpu/simd.h"

typedef struct {
  float alpha;
  float bias_m;        /* of the row */
  const float *bias_n; /* of its columns, or NULL */
} ending;

/* Rounded to bf16; after dot instructions by their like, which takes numbers under 2^-126 as 0 too.
 */
#if defined(__AVX512BF16__)
GEMM_INLINE void store_lanes_bf16(uint16_t *out, v16f x) {
  _mm256_storeu_si256((void *)out, (__m256i)_mm512_cvtneps_pbh(x));
}
GEMM_INLINE void store_bf16(uint16_t *out, float x) {
  __m128i half = (__m128i)_mm_cvtneps_pbh(_mm_set_ss(x));
  *out = (uint16_t)_mm_extract_epi16(half, 0);
}
#else
GEMM_INLINE void store_lanes_bf16(uint16_t *out, v16f x) { v16_store_bf16(out, x); }
GEMM_INLINE void store_bf16(uint16_t *out, float x) { *out = f32_to_bf16(x); }
#endif

GEMM_INLINE void store_lanes(void *out, hp_dtype type, int64_t i, v16f x) {
  if (type == HP_F32) v16_store((float *)out + i, x);
  else if (type == HP_BF16) store_lanes_bf16((uint16_t *)out + i, x);
  else v16_store_f16((uint16_t *)out + i, x);
}
GEMM_INLINE void store_element(void *out, hp_dtype type, int64_t i, float x) {
  if (type == HP_BF16) store_bf16((uint16_t *)out + i, x);
  else elem_store(out, type, i, x);
}

/* A row of neighbours in out, from element `at` on. */
GEMM_INLINE void finish_row(const float *s, int64_t cols, const ending *e, void *out, hp_dtype type,
                            int64_t at) {
  v16f alpha = v16_set1(e->alpha), bias_m = v16_set1(e->bias_m);
  int64_t j = 0;
  for (; j + 16 <= cols; j += 16) {
    v16f x = v16_add(v16_mul(v16_load(s + j), alpha), bias_m);
    if (e->bias_n) x = v16_add(x, v16_load(e->bias_n + j));
    store_lanes(out, type, at + j, x);
  }
  for (; j < cols; j++)
    store_element(out, type, at + j,
                  s[j] * e->alpha + e->bias_m + (e->bias_n ? e->bias_n[j] : -0.0f));
}

/* A factor of 1 and a bias of -0 change no bit. */
GEMM_INLINE void finish_sums(const float *s, int64_t lds, int64_t rows, int64_t cols, float alpha,
                             const float *bias_m, const float *bias_n, void *out, hp_dtype type,
                             int64_t o_m, int64_t o_n) {
  for (int64_t i = 0; i < rows; i++) {
    const ending e = {alpha, bias_m ? bias_m[i] : -0.0f, bias_n};
    if (o_n == 1) finish_row(s + i * lds, cols, &e, out, type, i * o_m);
    else
      for (int64_t j = 0; j < cols; j++)
        store_element(out, type, i * o_m + j * o_n,
                      s[i * lds + j] * alpha + e.bias_m + (bias_n ? bias_n[j] : -0.0f));
  }
}

void ISA_NAME(gemm_finish)(const float *s, int64_t lds, int64_t rows, int64_t cols, float alpha,
                           const float *bias_m, const float *bias_n, void *out, hp_dtype type,
                           int64_t o_m, int64_t o_n) {
  if (type == HP_F32) finish_sums(s, lds, rows, cols, alpha, bias_m, bias_n, out, HP_F32, o_m, o_n);
  else if (type == HP_BF16)
    finish_sums(s, lds, rows, cols, alpha, bias_m, bias_n, out, HP_BF16, o_m, o_n);
  else finish_sums(s, lds, rows, cols, alpha, bias_m, bias_n, out, HP_F16, o_m, o_n);
}

void ISA_NAME(gemm_start)(float *s, int64_t lds, int64_t rows, int64_t cols, const void *c,
                          hp_dtype type, int64_t c_m, int64_t c_n) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) s[i * lds + j] = elem_load(c, type, i * c_m + j * c_n);
}
