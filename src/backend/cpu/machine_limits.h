/* The limits of this machine, measured on request, to compare figures with. */
#ifndef MACHINE_LIMITS_H
#define MACHINE_LIMITS_H

#include "backend/cpu/cpu_features.h"
#include "base/thread.h"

typedef float limits_fma_fn(int64_t rounds, int64_t *flops);
typedef float limits_read_fn(const float *x, int64_t n);
limits_fma_fn limits_fma_plain, limits_fma_avx2, limits_fma_avx512;
limits_read_fn limits_read_plain, limits_read_avx2, limits_read_avx512;

/* Multiply-adds per second of all threads (two operations each), best of a few short runs; in
 * bf16 with dot products, if the CPU has them. */
double limits_measure_flops(cpu_isa isa, pool *threads, hp_dtype type);
/* Bytes read per second from memory by all threads.  most: bytes that it may take, 0: as it likes.
 * The caches are emptied before, where the CPU has an instruction for it; elsewhere the data are
 * larger than the caches, if they may be. */
hp_status limits_measure_read(cpu_isa isa, pool *threads, uint64_t most, double *bytes_per_s);

#endif
