#include "base/mt19937.h"

#include <math.h>

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

void mt19937_skip(mt19937 *m, int64_t n) {
  for (int64_t i = 0; i < n; i++) mt19937_u32(m);
}

/* Box and Muller: 8 pairs of uniform numbers of 24 bits, which lie 8 apart. */
static void make_normal(float *x) {
  for (int i = 0; i < MT19937_NORMALS / 2; i++) {
    float radius = sqrtf(-2 * logf(1 - x[i])), angle = 6.28318530717958647692f * x[i + 8];
    x[i] = radius * cosf(angle);
    x[i + 8] = radius * sinf(angle);
  }
}

static void draw_uniform(mt19937 *m, int64_t n, float *x) {
  for (int64_t i = 0; i < n; i++) x[i] = (float)(mt19937_u32(m) & 0xffffff) * 0x1p-24f;
}

/* Whole groups of 16; if some are left over, the last 16 are drawn again. */
void mt19937_normal(mt19937 *m, int64_t n, float *x) {
  enum { GROUP = MT19937_NORMALS };
  draw_uniform(m, n, x);
  for (int64_t i = 0; i + GROUP <= n; i += GROUP) make_normal(x + i);
  if (n % GROUP == 0) return;
  float *last = n > GROUP ? x + n - GROUP : x;
  draw_uniform(m, GROUP, last);
  make_normal(last);
}
