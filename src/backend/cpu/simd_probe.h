/* The functions of simd.h over arrays, one build per instruction set: for tests, and for
 * `doctor` to verify that all sets of a CPU compute the same bits. */
#ifndef SIMD_PROBE_H
#define SIMD_PROBE_H

#include "backend/cpu/cpu_features.h"

typedef enum {
  PROBE_EXP,
  PROBE_EXP2,
  PROBE_EXP2_HALF,
  PROBE_LOG,
  PROBE_TANH,
  PROBE_ERF,
  PROBE_SIGMOID,
  PROBE_FMA,
  PROBE_FNMA,
  PROBE_MAX,
  PROBE_SUM /* y[i] of each 16 = sum of a[16 i ..] over the fixed tree */
} probe_op;

/* y[i] = op(a[i], b[i], c[i]), n a multiple of 16; operands that op does not have may be NULL. */
typedef void simd_probe_fn(probe_op op, const float *a, const float *b, const float *c, float *y,
                           int n);
extern simd_probe_fn *const simd_probe[ISA_COUNT];

/* Widens h (bf16 or f16) to x, with zeros up to a multiple of 16, then narrows x * (1 + 2^-9) to
 * back. */
typedef void simd_probe_narrow_fn(hp_dtype t, const uint16_t *h, float *x, uint16_t *back, int n);
extern simd_probe_narrow_fn *const simd_probe_narrow[ISA_COUNT];

simd_probe_fn probe_array_plain, probe_array_avx2, probe_array_avx512;
simd_probe_narrow_fn probe_narrow_plain, probe_narrow_avx2, probe_narrow_avx512;

#endif
