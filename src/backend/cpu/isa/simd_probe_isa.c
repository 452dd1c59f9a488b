#include "backend/cpu/simd.h"
#include "backend/cpu/simd_probe.h"

static v16f apply_op(probe_op op, v16f a, v16f b, v16f c) {
  switch (op) {
  case PROBE_EXP: return v16_exp(a);
  case PROBE_EXP2: v16_exp2s(&a, 1); return a;
  case PROBE_EXP2_HALF: v16_exp2s_half(&a, 1); return a;
  case PROBE_LOG: return v16_log(a);
  case PROBE_TANH: return v16_tanh(a);
  case PROBE_ERF: return v16_erf(a);
  case PROBE_SIGMOID: return v16_sigmoid(a);
  case PROBE_FMA: return v16_fma(a, b, c);
  case PROBE_FNMA: return v16_fnma(a, b, c);
  case PROBE_MAX: return v16_max(a, b);
  case PROBE_SUM: return v16_set1(v16_sum(a));
  }
  return a;
}

void ISA_NAME(probe_array)(probe_op op, const float *a, const float *b, const float *c, float *y,
                           int n) {
  for (int i = 0; i < n; i += 16)
    v16_store(y + i, apply_op(op, v16_load(a + i), v16_load(b ? b + i : a + i),
                              v16_load(c ? c + i : a + i)));
}

void ISA_NAME(probe_narrow)(hp_dtype t, const uint16_t *h, float *x, uint16_t *back, int n) {
  const v16f up = v16_set1(0x1.008p0f);
  for (int i = 0; i < n; i += 16) {
    v16f v = v16_load_as(t, h, i, v16_left(n, i));
    v16_store(x + i, v);
    v16_store_as(t, back, i, v16_mul(v, up), v16_left(n, i));
  }
}
