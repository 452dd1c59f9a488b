/* Sixteen counters of base/philox.h at a time, for kernels that are compiled once per instruction
 * set. */
#ifndef PHILOX_VEC_H
#define PHILOX_VEC_H

#include <stdint.h>

enum { PHILOX_LANES = 16 };

/* The rounds on counters u[0..3][lane], in place, with the key `seed`. */
static inline void philox_lanes(uint32_t u[4][PHILOX_LANES], uint64_t seed) {
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < 10; round++, key0 += 0x9e3779b9u, key1 += 0xbb67ae85u)
    for (int i = 0; i < PHILOX_LANES; i++) {
      uint64_t p = (uint64_t)0xd2511f53u * u[0][i], q = (uint64_t)0xcd9e8d57u * u[2][i];
      u[0][i] = (uint32_t)(q >> 32) ^ u[1][i] ^ key0;
      u[2][i] = (uint32_t)(p >> 32) ^ u[3][i] ^ key1;
      u[1][i] = (uint32_t)q, u[3][i] = (uint32_t)p;
    }
}

#endif
