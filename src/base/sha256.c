#include "base/sha256.h"

#include <string.h>

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const uint32_t rounds[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b,
                                    0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
                                    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7,
                                    0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
                                    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152,
                                    0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
                                    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
                                    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
                                    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
                                    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
                                    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
                                    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
                                    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void take_block(sha256 *s, const unsigned char *at) {
  uint32_t w[64], v[8];
  for (int i = 0; i < 16; i++, at += 4)
    w[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
           (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
  }
  memcpy(v, s->h, sizeof v);
  for (int i = 0; i < 64; i++) {
    uint32_t a = v[0], e = v[4];
    uint32_t x = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                 ((e & v[5]) ^ (~e & v[6])) + rounds[i] + w[i];
    uint32_t y =
        (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += x;
    v[0] = x + y;
  }
  for (int i = 0; i < 8; i++) s->h[i] += v[i];
}

void sha256_begin(sha256 *s) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(s->h, first, sizeof first);
  s->bytes = 0;
}

void sha256_add(sha256 *s, const void *data, size_t n) {
  const unsigned char *at = data;
  while (n) {
    size_t have = s->bytes % SHA256_BLOCK, room = SHA256_BLOCK - have, k = n < room ? n : room;
    memcpy(s->block + have, at, k);
    s->bytes += k;
    at += k;
    n -= k;
    if (k == room) take_block(s, s->block);
  }
}

void sha256_end(sha256 *s, unsigned char out[SHA256_BYTES]) {
  static const unsigned char end[SHA256_BLOCK] = {0x80};
  unsigned char bits[8];
  uint64_t n = s->bytes * 8;
  for (int i = 0; i < 8; i++) bits[i] = (unsigned char)(n >> (56 - 8 * i));
  /* one bit, zeros up to 8 bytes before the end of a block, the length */
  sha256_add(s, end, 1 + (SHA256_BLOCK + 55 - s->bytes % SHA256_BLOCK) % SHA256_BLOCK);
  sha256_add(s, bits, sizeof bits);
  for (int i = 0; i < SHA256_BYTES; i++)
    out[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void hmac_begin(hmac *m, const void *key, size_t n) {
  unsigned char padded[SHA256_BLOCK] = {0};
  if (n > SHA256_BLOCK) {
    sha256 s;
    sha256_begin(&s);
    sha256_add(&s, key, n);
    sha256_end(&s, padded);
  } else if (n) memcpy(padded, key, n);
  for (int i = 0; i < SHA256_BLOCK; i++) {
    m->outer[i] = padded[i] ^ 0x5c;
    padded[i] ^= 0x36;
  }
  sha256_begin(&m->inner);
  sha256_add(&m->inner, padded, sizeof padded);
}

void hmac_add(hmac *m, const void *data, size_t n) { sha256_add(&m->inner, data, n); }

void hmac_end(hmac *m, unsigned char out[SHA256_BYTES]) {
  sha256 s;
  sha256_end(&m->inner, out);
  sha256_begin(&s);
  sha256_add(&s, m->outer, sizeof m->outer);
  sha256_add(&s, out, SHA256_BYTES);
  sha256_end(&s, out);
}

bool mac_is_equal(const unsigned char a[SHA256_BYTES], const unsigned char b[SHA256_BYTES]) {
  unsigned char differ = 0;
  for (int i = 0; i < SHA256_BYTES; i++) differ |= a[i] ^ b[i];
  return !differ;
}
