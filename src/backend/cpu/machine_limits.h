/* The limits of this machine that figures are held against, measured when asked for. */
#ifndef MACHINE_LIMITS_H
#define MACHINE_LIMITS_H

#include "backend/cpu/cpu_features.h"
#include "base/thread.h"

typedef float limits_fma_fn(int64_t rounds, int64_t *flops);
typedef float limits_read_fn(const float *x, int64_t n);
limits_fma_fn limits_fma_plain, limits_fma_avx2, limits_fma_avx512;
limits_read_fn limits_read_plain, limits_read_avx2, limits_read_avx512;

/* Multiply-adds per second of all threads (two operations each), best of a few short runs; of bf16
 * with its dot products, where the CPU has them. */
double limits_measure_flops(cpu_isa isa, pool *threads, hp_dtype type);
/* Bytes read per second from memory by all threads, out of all caches. */
hp_status limits_measure_read(cpu_isa isa, pool *threads, double *bytes_per_s);

#endif
