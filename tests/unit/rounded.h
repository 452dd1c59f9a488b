/* Operands of kernels under test: numbers by chance in any floating dtype. */
#ifndef ROUNDED_H
#define ROUNDED_H

#include "base/status.h"

/* Zeros, n of them and one more; ended by mem_free. */
void *room_for(int64_t n, size_t size);
/* At least n normal numbers of a stream, which later calls share: to draw them takes longer than
 * most kernels do. */
const float *shared_normals(uint64_t seed, uint64_t stream, int64_t n);
/* n normal numbers of that deviation as dtype; what they are when rounded in *exact. */
void *rounded_normals(int64_t n, hp_dtype t, float deviation, uint64_t stream, float **exact);

#endif
