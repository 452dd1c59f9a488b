/* Mersenne Twister MT19937 (Matsumoto, Nishimura 1998), seeded with init_genrand: the generator
 * of torch.manual_seed on CPU and of numpy.random.seed.  Used to reproduce their order. */
#ifndef BASE_MT19937_H
#define BASE_MT19937_H

#include "base/status.h"

typedef struct {
  uint32_t state[624];
  int next; /* of state, 624 = refill */
} mt19937;

void mt19937_seed(mt19937 *m, uint32_t seed);
uint32_t mt19937_u32(mt19937 *m);
void mt19937_skip(mt19937 *m, int64_t n);
/* x[0..n): torch.randn(n), for n of 16 or more; x has room for n + MT19937_NORMALS. */
enum { MT19937_NORMALS = 16 };
void mt19937_normal(mt19937 *m, int64_t n, float *x);

#endif
