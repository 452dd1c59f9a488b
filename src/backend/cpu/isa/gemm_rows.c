/* Few rows of A times a B that is read once, where it lies: the products of decoding, bound by the
 * memory that holds B.  The chains are those of the packed kernel. */
#include "backend/cpu/gemm_vec.h"

/* B is [n, k] in memory: VL columns at a time, VL k-steps transposed in registers, then one FMA per
 * k-step and row.  `rows` is a constant at each call. */
GEMM_INLINE void along_k_group(const int rows, int64_t cols, int64_t k, const float *a, int64_t lda,
                               const void *b, hp_dtype type, int64_t b_n, float *c, int64_t ldc,
                               bool load) {
  vf acc[STREAM_ROWS];
  GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
      load ? vf_load_n(c + m * ldc, cols) : vf_zero();
  for (int64_t k0 = 0; k0 < k; k0 += VL) {
    int64_t steps = k - k0 < VL ? k - k0 : VL;
    vf t[VL];
    if (steps == VL && cols == VL) {
      GEMM_UNROLL for (int i = 0; i < VL; i++) t[i] =
          vf_load_as(elem_at(b, type, i * b_n + k0), type, VL);
    } else {
      for (int i = 0; i < VL; i++)
        t[i] = i < cols ? vf_load_as(elem_at(b, type, i * b_n + k0), type, steps) : vf_zero();
    }
    vf_transpose(t);
    if (steps == VL) {
      GEMM_UNROLL for (int j = 0; j < VL; j++) {
        GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
            vf_fma(vf_set1(a[m * lda + k0 + j]), t[j], acc[m]);
      }
    } else {
      for (int64_t j = 0; j < steps; j++) {
        GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
            vf_fma(vf_set1(a[m * lda + k0 + j]), t[j], acc[m]);
      }
    }
  }
  GEMM_UNROLL for (int m = 0; m < rows; m++) {
    float out[VL];
    vf_store(out, acc[m]);
    memcpy(c + m * ldc, out, sizeof *c * (size_t)cols);
  }
}

GEMM_INLINE void along_k(const int rows, int64_t cols, int64_t k, const float *a, int64_t lda,
                         const void *b, hp_dtype type, int64_t b_n, float *c, int64_t ldc,
                         bool load) {
  for (int64_t j = 0; j < cols; j += VL)
    along_k_group(rows, cols - j < VL ? cols - j : VL, k, a, lda, elem_at(b, type, j * b_n), type,
                  b_n, c + j, ldc, load);
}

/* B is [k, n] in memory: STEPS rows of it at a time, so that it is read in long runs; C, which the
 * caller keeps small, is read and written once per STEPS. */
enum { STEPS = 8 };

GEMM_INLINE void along_n_steps(const int rows, const int steps, int64_t cols, const float *a,
                               int64_t lda, const void *b, hp_dtype type, int64_t b_k, float *c,
                               int64_t ldc, bool load) {
  for (int64_t j = 0; j < cols; j += VL) {
    int64_t n = cols - j < VL ? cols - j : VL;
    vf acc[STREAM_ROWS];
    GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] = !load     ? vf_zero()
                                                        : n == VL ? vf_load(c + m * ldc + j)
                                                                  : vf_load_n(c + m * ldc + j, n);
    GEMM_UNROLL for (int s = 0; s < steps; s++) {
      vf bv = vf_load_as(elem_at(b, type, s * b_k + j), type, n);
      GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
          vf_fma(vf_set1(a[m * lda + s]), bv, acc[m]);
    }
    GEMM_UNROLL for (int m = 0; m < rows; m++) {
      float out[VL];
      vf_store(out, acc[m]);
      if (n == VL) vf_store(c + m * ldc + j, acc[m]);
      else memcpy(c + m * ldc + j, out, sizeof *c * (size_t)n);
    }
  }
}

GEMM_INLINE void along_n(const int rows, int64_t cols, int64_t k, const float *a, int64_t lda,
                         const void *b, hp_dtype type, int64_t b_k, float *c, int64_t ldc,
                         bool load) {
  int64_t k0 = 0;
  for (; k0 + STEPS <= k; k0 += STEPS, load = true)
    along_n_steps(rows, STEPS, cols, a + k0, lda, elem_at(b, type, k0 * b_k), type, b_k, c, ldc,
                  load);
  for (; k0 < k || !load; k0++, load = true)
    along_n_steps(rows, k0 < k, cols, a + k0, lda, k0 < k ? elem_at(b, type, k0 * b_k) : b, type,
                  b_k, c, ldc, load);
}

typedef struct {
  int64_t cols, k;
  const float *a;
  int64_t lda;
  const void *b;
  int64_t b_k, b_n;
  float *c;
  int64_t ldc;
  bool load;
} rows_args;

GEMM_INLINE void rows_typed(const int rows, hp_dtype type, const rows_args *r) {
  if (r->b_k == 1)
    along_k(rows, r->cols, r->k, r->a, r->lda, r->b, type, r->b_n, r->c, r->ldc, r->load);
  else along_n(rows, r->cols, r->k, r->a, r->lda, r->b, type, r->b_k, r->c, r->ldc, r->load);
}

typedef void rows_fn(const rows_args *r);
#define ROWS(R)                                                                                    \
  static void rows_##R##_f32(const rows_args *r) { rows_typed(R, HP_F32, r); }                     \
  static void rows_##R##_bf16(const rows_args *r) { rows_typed(R, HP_BF16, r); }                   \
  static void rows_##R##_f16(const rows_args *r) { rows_typed(R, HP_F16, r); }
#define ROWS_ROW(R)                                                                                \
  { [HP_F32] = rows_##R##_f32, [HP_BF16] = rows_##R##_bf16, [HP_F16] = rows_##R##_f16 }

ROWS(1)
ROWS(2)
ROWS(3)
ROWS(4)
#if defined(__AVX512F__)
ROWS(5)
ROWS(6)
ROWS(7)
ROWS(8)
#endif

static rows_fn *const rows_of[STREAM_ROWS][HP_F16 + 1] = {
    ROWS_ROW(1), ROWS_ROW(2), ROWS_ROW(3), ROWS_ROW(4),
#if defined(__AVX512F__)
    ROWS_ROW(5), ROWS_ROW(6), ROWS_ROW(7), ROWS_ROW(8),
#endif
};

void ISA_NAME(gemm_rows)(int64_t rows, int64_t cols, int64_t k, const float *a, int64_t lda,
                         const void *b, hp_dtype type, int64_t b_k, int64_t b_n, float *c,
                         int64_t ldc, bool load) {
  for (int64_t i = 0; i < rows; i += STREAM_ROWS) {
    int64_t h = rows - i < STREAM_ROWS ? rows - i : STREAM_ROWS;
    rows_args r = {cols, k, a + i * lda, lda, b, b_k, b_n, c + i * ldc, ldc, load};
    rows_of[h - 1][type](&r);
  }
}
