#include "backend/cpu/machine_limits.h"

#include "base/mem.h"

enum { FMA_RUNS = 40, READ_RUNS = 5, FMA_ROUNDS = 50000, READ_BYTES = 256 << 20 };

typedef struct {
  cpu_isa isa;
  int64_t flops;
  const float *x;
  int64_t per_part;
  volatile float sink[64];
} job;

static void fma_part(void *ctx, int64_t part) {
  static limits_fma_fn *const fn[ISA_COUNT] = {limits_fma_plain, limits_fma_avx2,
                                               limits_fma_avx512};
  job *j = ctx;
  int64_t flops;
  j->sink[part % 64] = fn[j->isa](j->isa == ISA_PLAIN ? FMA_ROUNDS / 100 : FMA_ROUNDS, &flops);
  if (part == 0) j->flops = flops;
}

double limits_measure_flops(cpu_isa isa, pool *threads) {
  job j = {.isa = isa};
  double best = 0;
  for (int r = 0; r < FMA_RUNS; r++) {
    double start = time_now_s();
    pool_run(threads, pool_size(threads), fma_part, &j);
    double rate = (double)j.flops * pool_size(threads) / (time_now_s() - start);
    if (rate > best) best = rate;
  }
  return best;
}

static void read_part(void *ctx, int64_t part) {
  static limits_read_fn *const fn[ISA_COUNT] = {limits_read_plain, limits_read_avx2,
                                                limits_read_avx512};
  job *j = ctx;
  j->sink[part % 64] = fn[j->isa](j->x + part * j->per_part, j->per_part);
}

hp_status limits_measure_read(cpu_isa isa, pool *threads, double *bytes_per_s) {
  float *x = mem_map(READ_BYTES);
  HP_TRY_MEM(x);
  job j = {.isa = isa, .x = x};
  int n = pool_size(threads);
  for (size_t i = 0; i < READ_BYTES / sizeof *x; i += 1024) x[i] = 1;
  j.per_part = (int64_t)(READ_BYTES / sizeof *x) / n;
  *bytes_per_s = 0;
  for (int r = 0; r < READ_RUNS; r++) {
    double start = time_now_s();
    pool_run(threads, n, read_part, &j);
    double rate = (double)(j.per_part * n) * (double)sizeof *x / (time_now_s() - start);
    if (rate > *bytes_per_s) *bytes_per_s = rate;
  }
  mem_unmap(x, READ_BYTES);
  return HP_OK;
}
