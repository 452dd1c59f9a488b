/* What one core can do: chains of multiply-adds without memory, and a sum over memory. */
#include "backend/cpu/machine_limits.h"
#include "backend/cpu/simd.h"

/* Chains enough to hide the latency, few enough for the registers (16 lanes are two of AVX2). */
#if defined(__AVX512F__)
enum { CHAINS = 24 };
#else
enum { CHAINS = 5 };
#endif

/* Of all lanes: the compiler would leave out the half of AVX2's pairs that nobody asks for. */
static float sum_lanes(v16f v) {
  float lanes[16], sum = 0;
  v16_store(lanes, v);
  for (int i = 0; i < 16; i++) sum += lanes[i];
  return sum;
}

float ISA_NAME(limits_fma)(int64_t rounds, int64_t *flops) {
  v16f s[CHAINS], a = v16_set1(1.0000001f), b = v16_set1(0.9999999f);
  for (int i = 0; i < CHAINS; i++) {
    float start[16]; /* unlike lanes: of two halves that are alike the compiler computes one */
    for (int lane = 0; lane < 16; lane++) start[lane] = (float)(16 * i + lane);
    s[i] = v16_load(start);
  }
  for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 24
    for (int i = 0; i < CHAINS; i++) s[i] = v16_fma(s[i], a, b);
  for (int i = 1; i < CHAINS; i++) s[0] = v16_add(s[0], s[i]);
  *flops = rounds * CHAINS * 16 * 2;
  return sum_lanes(s[0]);
}

float ISA_NAME(limits_read)(const float *x, int64_t n) {
  v16f s[4];
  for (int i = 0; i < 4; i++) s[i] = v16_zero();
  for (int64_t k = 0; k + 64 <= n; k += 64)
    for (int i = 0; i < 4; i++) s[i] = v16_add(s[i], v16_load(x + k + 16 * i));
  return sum_lanes(v16_add(v16_add(s[0], s[1]), v16_add(s[2], s[3])));
}
