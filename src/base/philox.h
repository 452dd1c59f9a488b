/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011).  Number i of stream s under a seed is a pure function of the three, so a
 * tensor gets the same numbers under every sharding; use the element's index in the global tensor.
 *
 * A block of four numbers has counter (index / 4, stream) and key seed.  Uniform and normal use
 * only correctly rounded operations, so their bits are the same everywhere. */
#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H

#include "base/dtype.h"

#include <math.h>

typedef struct {
  uint32_t at[4];
} philox_block;

/* Ten rounds on a counter of 128 bits with a key of 64, low words first. */
static inline philox_block philox_rounds(philox_block c, uint32_t key0, uint32_t key1) {
  for (int i = 0; i < 10; i++) {
    uint64_t p = (uint64_t)0xd2511f53u * c.at[0], q = (uint64_t)0xcd9e8d57u * c.at[2];
    c = (philox_block){{(uint32_t)(q >> 32) ^ c.at[1] ^ key0, (uint32_t)q,
                        (uint32_t)(p >> 32) ^ c.at[3] ^ key1, (uint32_t)p}};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return c;
}

/* Numbers 4 * block ... 4 * block + 3 of a stream. */
static inline philox_block philox_get(uint64_t seed, uint64_t stream, uint64_t block) {
  philox_block c = {
      {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
  return philox_rounds(c, (uint32_t)seed, (uint32_t)(seed >> 32));
}

static inline uint32_t philox_u32(uint64_t seed, uint64_t stream, uint64_t index) {
  return philox_get(seed, stream, index >> 2).at[index & 3];
}

/* In [0, 1): the upper 24 bits. */
static inline float philox_unit(uint32_t u) { return (float)(u >> 8) * 0x1p-24f; }

static inline float philox_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return philox_unit(philox_u32(seed, stream, index));
}

/* ln x for normal x > 0, within 1 ulp.  The vector kernels do these same operations. */
static inline float philox_log(float x) {
  static const float c[] = {0x1.145750p-4f,  -0x1.de3c18p-4f, 0x1.e6f096p-4f,
                            -0x1.fc220ap-4f, 0x1.233766p-3f,  -0x1.555c4ep-3f,
                            0x1.99a4b6p-3f,  -0x1.000006p-2f, 0x1.555548p-2f};
  int32_t e = (int32_t)(f32_bits(x) - 0x3f3504f3u) >> 23;
  float f = f32_from_bits(f32_bits(x) - ((uint32_t)e << 23)) - 1.0f, f2 = f * f, p = c[0];
  for (int i = 1; i < 9; i++) p = fmaf(p, f, c[i]);
  p = p * f * f2;
  p = fmaf((float)e, 0x1.7f7d1cp-20f, p);
  p = fmaf(f2, -0.5f, p);
  return fmaf((float)e, 0x1.62e400p-1f, f + p);
}

/* Two independent normals from two numbers (Box-Muller): the radius from u, the angle from v. */
static inline void philox_normals(uint32_t u, uint32_t v, float out[2]) {
  float r = sqrtf(-2.0f * philox_log(((float)u + 1.0f) * 0x1p-32f));
  /* the angle is a quarter turn times q, plus x turns with |x| <= 1/8 */
  uint32_t q = (v + 0x20000000u) >> 30;
  float x = (float)(int32_t)(v - (q << 30)) * 0x1p-32f, x2 = x * x;
  float s = fmaf(x2, -0x1.2d9332p+6f, 0x1.465e94p+6f);
  s = fmaf(x2, fmaf(x2, s, -0x1.4abbbap+5f), 0x1.921fb6p+2f) * x;
  float c = fmaf(x2, 0x1.d9d57ep+5f, -0x1.55c5e0p+6f);
  c = fmaf(x2, fmaf(x2, fmaf(x2, c, 0x1.03c1dep+6f), -0x1.3bd3ccp+4f), 1.0f);
  uint32_t sign_c = (q + 1) << 30 & 0x80000000u, sign_s = q << 30 & 0x80000000u;
  out[0] = r * f32_from_bits(f32_bits(q & 1 ? s : c) ^ sign_c);
  out[1] = r * f32_from_bits(f32_bits(q & 1 ? c : s) ^ sign_s);
}

static inline float philox_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  philox_block b = philox_get(seed, stream, index >> 2);
  float n[2];
  philox_normals(b.at[index & 2], b.at[(index & 2) + 1], n);
  return n[index & 1];
}

#endif
