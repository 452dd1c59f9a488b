/* Before the first and after the last step of the chains: old C widened, finished sums scaled,
 * biased and stored in C's own type and strides. */
#include "backend/cpu/gemm_vec.h"

GEMM_INLINE void finish(const float *s, int64_t lds, int64_t rows, int64_t cols, float alpha,
                        const float *bias_m, const float *bias_n, void *out, hp_dtype type,
                        int64_t o_m, int64_t o_n) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      float x = s[i * lds + j] * alpha; /* times 1 changes no bit */
      if (bias_m) x += bias_m[i];
      if (bias_n) x += bias_n[j];
      elem_store(out, type, i * o_m + j * o_n, x);
    }
}

void ISA_NAME(gemm_finish)(const float *s, int64_t lds, int64_t rows, int64_t cols, float alpha,
                           const float *bias_m, const float *bias_n, void *out, hp_dtype type,
                           int64_t o_m, int64_t o_n) {
  if (type == HP_F32) finish(s, lds, rows, cols, alpha, bias_m, bias_n, out, HP_F32, o_m, o_n);
  else if (type == HP_BF16 && o_n == 1)
    finish(s, lds, rows, cols, alpha, bias_m, bias_n, out, HP_BF16, o_m, 1);
  else if (type == HP_BF16)
    finish(s, lds, rows, cols, alpha, bias_m, bias_n, out, HP_BF16, o_m, o_n);
  else finish(s, lds, rows, cols, alpha, bias_m, bias_n, out, HP_F16, o_m, o_n);
}

void ISA_NAME(gemm_start)(float *s, int64_t lds, int64_t rows, int64_t cols, const void *c,
                          hp_dtype type, int64_t c_m, int64_t c_n) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) s[i * lds + j] = elem_load(c, type, i * c_m + j * c_n);
}
