/* The kernels of the packed GEMM, compiled once per instruction set (backend/cpu/isa/gemm_*.c).
 *
 * A panel holds `width` rows of A or columns of B (the lanes), k by k: panel[k][width].  A's panels
 * are `mr` wide, B's `nr`.  Lanes past the last are zero.  A panel may be followed by up to
 * GEMM_PANEL_PAD floats of junk, so the last one needs that much room after it. */
#ifndef GEMM_ISA_H
#define GEMM_ISA_H

#include "backend/cpu/cpu_features.h"

enum { GEMM_PANEL_PAD = 16, GEMM_ROWS_MAX = 16 };

typedef struct {
  int mr, nr;
  /* Copies `lanes` x `k` elements of a type, widened to f32, into panels.  Strides in elements. */
  void (*pack)(float *to, const void *from, hp_dtype type, int width, int64_t lanes, int64_t k,
               int64_t lane_stride, int64_t k_stride);
  /* c[rows, cols] (f32, row stride ldc) continues its chains over k, or starts them from 0 where
   * load is false.  a: panels of mr; b: panels of nr. */
  void (*block)(int64_t rows, int64_t cols, int64_t k, const float *a, const float *b, float *c,
                int64_t ldc, bool load);
  /* The same for at most GEMM_ROWS_MAX rows, reading B where it lies: a f32 [rows, k] with row
   * stride lda; b[k, n] with one of b_k, b_n equal to 1. */
  void (*rows)(int64_t rows, int64_t cols, int64_t k, const float *a, int64_t lda, const void *b,
               hp_dtype type, int64_t b_k, int64_t b_n, float *c, int64_t ldc, bool load);
  /* out = s * alpha + bias_m[row] + bias_n[col], stored as `type`; biases may be NULL; out may be
   * s. */
  void (*finish)(const float *s, int64_t lds, int64_t rows, int64_t cols, float alpha,
                 const float *bias_m, const float *bias_n, void *out, hp_dtype type, int64_t o_m,
                 int64_t o_n);
  /* s = old C, widened: what an accumulating product starts from. */
  void (*start)(float *s, int64_t lds, int64_t rows, int64_t cols, const void *c, hp_dtype type,
                int64_t c_m, int64_t c_n);
} gemm_kernels;

extern const gemm_kernels gemm_kernels_plain, gemm_kernels_avx2, gemm_kernels_avx512;

#endif
