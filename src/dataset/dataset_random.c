#include "dataset/dataset_random.h"

/* A number in 0..most: bits of the smallest mask that covers it, drawn again while too large. */
static uint64_t make_mask(uint64_t most) {
  uint64_t m = most;
  for (int s = 1; s < 64; s *= 2) m |= m >> s;
  return m;
}

static uint64_t draw_legacy_interval(mt19937 *m, uint64_t most) {
  uint64_t mask = make_mask(most), x;
  if (!most) return 0;
  do {
    x = mt19937_u32(m);
    if (most > UINT32_MAX) x = x << 32 | mt19937_u32(m);
    x &= mask;
  } while (x > most);
  return x;
}

static void swap_values(int64_t *a, int64_t *b) {
  int64_t t = *a;
  *a = *b;
  *b = t;
}

void random_legacy_permutation(mt19937 *m, int64_t n, int64_t *order) {
  for (int64_t i = 0; i < n; i++) order[i] = i;
  for (int64_t i = n - 1; i > 0; i--)
    swap_values(&order[i], &order[draw_legacy_interval(m, (uint64_t)i)]);
}

void random_legacy_choice(mt19937 *m, int64_t n, int64_t k, int64_t *pick) {
  for (int64_t i = 0; i < k; i++) pick[i] = (int64_t)draw_legacy_interval(m, (uint64_t)n - 1);
}

/* --- PCG64 (O'Neill 2014, XSL-RR 128/64), seeded through NumPy's SeedSequence ----------------- */

static uint64_t mul_high(uint64_t a, uint64_t b) {
  uint64_t a0 = a & 0xffffffff, a1 = a >> 32, b0 = b & 0xffffffff, b1 = b >> 32;
  uint64_t mid = a1 * b0 + (a0 * b0 >> 32);
  uint64_t low = a0 * b1 + (mid & 0xffffffff);
  return a1 * b1 + (mid >> 32) + (low >> 32);
}

static void add_u128(uint64_t a[2], const uint64_t b[2]) {
  uint64_t low = a[0] + b[0];
  a[1] += b[1] + (low < a[0]);
  a[0] = low;
}

static void step_state(pcg64 *p) {
  const uint64_t low = 0x4385df649fccf645u, high = 0x2360ed051fc65da4u;
  uint64_t x[2] = {p->state[0] * low,
                   mul_high(p->state[0], low) + p->state[0] * high + p->state[1] * low};
  add_u128(x, p->inc);
  p->state[0] = x[0];
  p->state[1] = x[1];
}

static uint32_t hash_mix(uint32_t x, uint32_t *h) {
  x ^= *h;
  *h *= 0x931e8875u;
  x *= *h;
  return x ^ (x >> 16);
}

static uint32_t mix_words(uint32_t x, uint32_t y) {
  uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;
  return r ^ (r >> 16);
}

/* SeedSequence(seed).generate_state(8 words of 32 bits) */
static void spread_seed(uint64_t seed, uint32_t out[8]) {
  uint32_t pool[4] = {(uint32_t)seed, (uint32_t)(seed >> 32), 0, 0}, h = 0x43b0d7e5u;
  for (int i = 0; i < 4; i++) pool[i] = hash_mix(pool[i], &h);
  for (int from = 0; from < 4; from++)
    for (int to = 0; to < 4; to++)
      if (from != to) pool[to] = mix_words(pool[to], hash_mix(pool[from], &h));
  h = 0x8b51f9ddu;
  for (int i = 0; i < 8; i++) {
    uint32_t x = pool[i % 4] ^ h;
    h *= 0x58f38dedu;
    x *= h;
    out[i] = x ^ (x >> 16);
  }
}

void pcg64_seed(pcg64 *p, uint64_t seed) {
  uint32_t w[8];
  spread_seed(seed, w);
  uint64_t word[4];
  for (int i = 0; i < 4; i++) word[i] = w[2 * i] | (uint64_t)w[2 * i + 1] << 32;
  *p = (pcg64){.inc = {word[3] << 1 | 1, word[2] << 1 | word[3] >> 63}};
  step_state(p);
  add_u128(p->state, (const uint64_t[]){word[1], word[0]});
  step_state(p);
}

uint64_t pcg64_u64(pcg64 *p) {
  step_state(p);
  uint64_t x = p->state[0] ^ p->state[1];
  unsigned turn = (unsigned)(p->state[1] >> 58);
  return x >> turn | x << ((64 - turn) & 63);
}

double pcg64_double(pcg64 *p) { return (double)(pcg64_u64(p) >> 11) * (1.0 / 9007199254740992.0); }

static uint32_t pcg64_u32(pcg64 *p) {
  if (p->has_half) {
    p->has_half = false;
    return p->half;
  }
  uint64_t x = pcg64_u64(p);
  p->has_half = true;
  p->half = (uint32_t)(x >> 32);
  return (uint32_t)x;
}

static uint64_t draw_interval(pcg64 *p, uint64_t most) {
  uint64_t mask = make_mask(most), x;
  do x = (most > UINT32_MAX ? pcg64_u64(p) : pcg64_u32(p)) & mask;
  while (x > most);
  return x;
}

void pcg64_permutation(pcg64 *p, int64_t n, int64_t *order) {
  for (int64_t i = 0; i < n; i++) order[i] = i;
  for (int64_t i = n - 1; i > 0; i--) swap_values(&order[i], &order[draw_interval(p, (uint64_t)i)]);
}
