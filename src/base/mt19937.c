#include "base/mt19937.h"

enum { N = 624, M = 397 };

void mt19937_seed(mt19937 *m, uint32_t seed) {
  m->state[0] = seed;
  for (uint32_t i = 1; i < N; i++) {
    uint32_t before = m->state[i - 1];
    m->state[i] = 1812433253u * (before ^ (before >> 30)) + i;
  }
  m->next = N;
}

static void refill(mt19937 *m) {
  for (int i = 0; i < N; i++) {
    uint32_t y = (m->state[i] & 0x80000000u) | (m->state[(i + 1) % N] & 0x7fffffffu);
    m->state[i] = m->state[(i + M) % N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
  }
  m->next = 0;
}

uint32_t mt19937_u32(mt19937 *m) {
  if (m->next == N) refill(m);
  uint32_t y = m->state[m->next++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}
