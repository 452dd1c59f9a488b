/* The random numbers of NumPy that decide which samples are taken: the old global generator
 * (np.random, MT19937) and the new one (np.random.default_rng, PCG64). */
#ifndef DATASET_DATASET_RANDOM_H
#define DATASET_DATASET_RANDOM_H

#include "base/mt19937.h"

/* np.random.permutation(n) into order, and np.random.choice(n, k) into pick; n > 0. */
void random_legacy_permutation(mt19937 *m, int64_t n, int64_t *order);
void random_legacy_choice(mt19937 *m, int64_t n, int64_t k, int64_t *pick);

typedef struct {
  uint64_t state[2], inc[2]; /* 128-bit numbers, low half first */
  bool has_half;             /* of a 64-bit draw that gave 32 bits */
  uint32_t half;
} pcg64;

/* np.random.default_rng(seed) */
void pcg64_seed(pcg64 *p, uint64_t seed);
uint64_t pcg64_u64(pcg64 *p);
double pcg64_double(pcg64 *p); /* Generator.random() */
/* Generator.permutation(n) */
void pcg64_permutation(pcg64 *p, int64_t n, int64_t *order);

#endif
