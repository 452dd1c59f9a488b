/* Sixteen counters of base/philox.h at a time, for kernels that are compiled once per instruction
 * set. */
#ifndef PHILOX_VEC_H
#define PHILOX_VEC_H

#include "backend/cpu/simd.h"

/* The rounds on counters of words u[0..3], in place, with the key `seed`. */
SIMD void philox_16(v16i u[4], uint64_t seed) {
  const v16i m0 = v16i_set1((int32_t)0xd2511f53u), m1 = v16i_set1((int32_t)0xcd9e8d57u);
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++, key0 += 0x9e3779b9u, key1 += 0xbb67ae85u) {
    v16i p = v16i_mulhi(u[0], m0), q = v16i_mulhi(u[2], m1);
    v16i p_low = v16i_mullo(u[0], m0), q_low = v16i_mullo(u[2], m1);
    u[0] = v16i_xor(v16i_xor(q, u[1]), v16i_set1((int32_t)key0));
    u[2] = v16i_xor(v16i_xor(p, u[3]), v16i_set1((int32_t)key1));
    u[1] = q_low, u[3] = p_low;
  }
}

#endif
