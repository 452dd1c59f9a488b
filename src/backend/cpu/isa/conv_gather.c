/* Convolution: operands of products from images, and products of a few rows. */
#include "backend/cpu/conv/conv_isa.h"
#include "backend/cpu/gemm/gemm_isa.h"
#include "backend/cpu/simd.h"
#include "base/dtype.h"

/* Every span is copied as a full vector; the next span, or the next step, then overwrites the
 * lanes that were copied in excess. */
SIMD void copy_spans(float *to, int64_t steps, const float *image, const int64_t *offset,
                     const conv_span *span, const int n) {
  for (int64_t k = 0; k < steps; k++, to += 16) {
    const float *from = image + offset[k];
    for (int i = 0; i < n; i++) v16_store(to + span[i].lane, v16_load(from + span[i].at));
  }
}

static void gather(float *to, int64_t steps, const float *image, const int64_t *offset,
                   const conv_span *span, int n) {
  if (n == 1) copy_spans(to, steps, image, offset, span, 1);
  else if (n == 2) copy_spans(to, steps, image, offset, span, 2);
  else if (n == 3) copy_spans(to, steps, image, offset, span, 3);
  else copy_spans(to, steps, image, offset, span, n);
}

SIMD v16f load_lanes(const hp_dtype type, const void *p, int64_t i) {
  if (type == HP_F32) return v16_load((const float *)p + i);
  return type == HP_BF16 ? v16_load_bf16((const uint16_t *)p + i)
                         : v16_load_f16((const uint16_t *)p + i);
}
SIMD float load_element(const hp_dtype type, const void *p, int64_t i) {
  if (type == HP_F32) return ((const float *)p)[i];
  uint16_t h = ((const uint16_t *)p)[i];
  return type == HP_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

SIMD void widen_as(const hp_dtype type, float *to, const void *from, int64_t n, int64_t stride) {
  int64_t i = 0;
  for (; stride == 1 && i + 16 <= n; i += 16) v16_store(to + i, load_lanes(type, from, i));
  for (; i < n; i++) to[i] = load_element(type, from, i * stride);
}

static void widen_elements(float *to, const void *from, hp_dtype type, int64_t n, int64_t stride) {
  if (type == HP_F32) widen_as(HP_F32, to, from, n, stride);
  else if (type == HP_BF16) widen_as(HP_BF16, to, from, n, stride);
  else widen_as(HP_F16, to, from, n, stride);
}

/* `vecs` vectors of columns for all rows; both are constants at each call. */
SIMD void multiply_columns(const int rows, const int vecs, int64_t steps, const float *w,
                           const float *image, const int64_t *offset, float *c, int64_t ldc,
                           bool load) {
  v16f sum[CONV_FEW * 2];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vecs; v++)
      sum[r * vecs + v] = load ? v16_load(c + r * ldc + 16 * v) : v16_zero();
  for (int64_t k = 0; k < steps; k++) {
    const float *x = image + offset[k];
    for (int v = 0; v < vecs; v++) {
      v16f b = v16_load(x + 16 * v);
      for (int r = 0; r < rows; r++)
        sum[r * vecs + v] = v16_fma(v16_set1(w[r * GEMM_PITCH + k]), b, sum[r * vecs + v]);
    }
  }
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vecs; v++) v16_store(c + r * ldc + 16 * v, sum[r * vecs + v]);
}

/* More vectors at once where the chains of one would wait for one another. */
SIMD void multiply_rows(const int rows, const int vecs, int64_t cols, int64_t steps, const float *w,
                        const float *image, const int64_t *offset, float *c, int64_t ldc,
                        bool load) {
  int64_t j = 0;
  for (; j + 16 * (vecs - 1) < cols; j += 16 * vecs)
    multiply_columns(rows, vecs, steps, w, image + j, offset, c + j, ldc, load);
  for (; j < cols; j += 16)
    multiply_columns(rows, 1, steps, w, image + j, offset, c + j, ldc, load);
}

static void multiply_few_rows(int rows, int64_t cols, int64_t steps, const float *w,
                              const float *image, const int64_t *offset, float *c, int64_t ldc,
                              bool load) {
#define ROWS(R, V)                                                                                 \
  case R: multiply_rows(R, V, cols, steps, w, image, offset, c, ldc, load); break;
  switch (rows) {
    ROWS(1, 4)
    ROWS(2, 4)
    ROWS(3, 2)
    ROWS(4, 2)
    ROWS(5, 2)
    ROWS(6, 2)
    ROWS(7, 2)
    ROWS(8, 2)
  }
#undef ROWS
}

const conv_kernels ISA_NAME(conv_kernels) = {gather, widen_elements, multiply_few_rows};
