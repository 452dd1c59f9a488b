/* The kernels of convolution besides those of the packed GEMM, compiled once per instruction set
 * (backend/cpu/isa/conv_gather.c). */
#ifndef CONV_ISA_H
#define CONV_ISA_H

#include "backend/cpu/cpu_features.h"

enum { CONV_SLACK = 16, CONV_FEW = 8 };

/* Lanes of a pack that are adjacent in the image: from `lane` on, the first at element `at`. */
typedef struct {
  int64_t lane, at;
} conv_span;

typedef struct {
  /* Gathers 16 columns: to[step][lane] = image[offset[step] + place of the lane], for n spans,
   * the first at lane 0.  May write CONV_SLACK floats past the end of `to` and read as many past
   * the image. */
  void (*gather)(float *to, int64_t steps, const float *image, const int64_t *offset,
                 const conv_span *span, int n);
  /* n elements, `stride` apart, as floats side by side. */
  void (*widen)(float *to, const void *from, hp_dtype type, int64_t n, int64_t stride);
  /* c[rows, cols] continues its chains over the steps, or starts them from 0 where load is false:
   * w[row * GEMM_PITCH + step] image[offset[step] + col].  rows: at most CONV_FEW; up to 15 columns
   * more than cols are written. */
  void (*few)(int rows, int64_t cols, int64_t steps, const float *w, const float *image,
              const int64_t *offset, float *c, int64_t ldc, bool load);
} conv_kernels;

extern const conv_kernels conv_kernels_plain, conv_kernels_avx2, conv_kernels_avx512;

#endif
