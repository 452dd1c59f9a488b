#include "backend/cpu/machine_limits.h"

#include "base/mem.h"

#include <sys/mman.h>
#include <unistd.h>

enum {
  FMA_RUNS = 40,
  FMA_STEADY = 5, /* so many runs that are no faster end the measurement */
  FMA_ROUNDS = 50000,
  READ_RUNS = 10,
  READ_STEADY = 3,
  READ_MOST = 256 << 20,
  READ_USUAL = 64 << 20,
  READ_FLUSHED = 32 << 20,
  READ_PART = 1 << 20, /* of a thread, at least: its time is to be long beside that of its start */
  READ_LEAST = 1 << 20,
  LINE = 64,
  CACHES = 3 /* times the largest cache: of what is read in turn next to nothing is still there */
};
static const double FASTER = 1.02;

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

static bool can_flush(void) {
  unsigned a, b = 0, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_CLFLUSHOPT);
}

/* Takes these bytes out of all caches. */
__attribute__((target("clflushopt"))) static void flush(const float *x, int64_t n) {
  for (int64_t k = 0; k < n; k += LINE / (int64_t)sizeof *x)
    _mm_clflushopt((void *)(uintptr_t)(x + k));
  _mm_mfence();
}

/* Dot products of pairs of bf16, as many chains as limits_fma_avx512 has. */

enum { DOT_CHAINS = 24 };

__attribute__((target("avx512f,avx512bf16"))) static float limits_dot(int64_t rounds,
                                                                      int64_t *flops) {
  __m512 s[DOT_CHAINS];
  __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = (__m512bh)_mm512_set1_epi16(0x3f7f);
  for (int i = 0; i < DOT_CHAINS; i++) s[i] = _mm512_set1_ps((float)i);
  for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 24
    for (int i = 0; i < DOT_CHAINS; i++) s[i] = _mm512_dpbf16_ps(s[i], a, b);
  for (int i = 1; i < DOT_CHAINS; i++) s[0] = _mm512_add_ps(s[0], s[i]);
  *flops = rounds * DOT_CHAINS * 32 * 2;
  return _mm512_reduce_add_ps(s[0]);
}
#else
static bool can_flush(void) { return false; }
static void flush(const float *x, int64_t n) { (void)x, (void)n; }
static float limits_dot(int64_t rounds, int64_t *flops) { return limits_fma_plain(rounds, flops); }
#endif

typedef struct {
  limits_fma_fn *fma;
  cpu_isa isa;
  int64_t flops;
  const float *x;
  int64_t per_part;
  volatile float sink[64];
} job;

static void run_fma_share(void *ctx, int64_t part) {
  job *j = ctx;
  int64_t flops;
  j->sink[part % 64] = j->fma(j->isa == ISA_PLAIN ? FMA_ROUNDS / 100 : FMA_ROUNDS, &flops);
  if (part == 0) j->flops = flops;
}

double limits_measure_flops(cpu_isa isa, pool *threads, hp_dtype type) {
  static limits_fma_fn *const fn[ISA_COUNT] = ISA_TABLE(limits_fma);
  job j = {.isa = isa, .fma = type == HP_BF16 && isa == ISA_AVX512_BF16 ? limits_dot : fn[isa]};
  double best = 0;
  for (int r = 0, steady = 0; r < FMA_RUNS && steady < FMA_STEADY; r++) {
    double start = time_now_s();
    pool_run(threads, pool_size(threads), run_fma_share, &j);
    double rate = (double)j.flops * pool_size(threads) / (time_now_s() - start);
    steady = rate > FASTER * best ? 0 : steady + 1;
    if (rate > best) best = rate;
  }
  return best;
}

static void read_part(void *ctx, int64_t part) {
  static limits_read_fn *const fn[ISA_COUNT] = ISA_TABLE(limits_read);
  job *j = ctx;
  j->sink[part % 64] = fn[j->isa](j->x + part * j->per_part, j->per_part);
}

static void flush_part(void *ctx, int64_t part) {
  job *j = ctx;
  flush(j->x + part * j->per_part, j->per_part);
}

/* The less, the shorter the measurement: enough for n threads, and where the caches cannot be
 * emptied, enough that they hold little of it. */
static size_t choose_bytes(uint64_t most, bool flushed, int n) {
  long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  size_t bytes = READ_MOST;
  if (flushed) bytes = (size_t)n * READ_PART;
  else if (cache > 0 && cache < READ_MOST / CACHES) bytes = (size_t)cache * CACHES;
  if (bytes < (flushed ? READ_FLUSHED : READ_USUAL)) bytes = flushed ? READ_FLUSHED : READ_USUAL;
  if (!most || most > bytes) return bytes;
  return most < READ_LEAST ? READ_LEAST : (size_t)most;
}

hp_status limits_measure_read(cpu_isa isa, pool *threads, uint64_t most, double *bytes_per_s) {
  const int n = pool_size(threads);
  const bool flushed = can_flush();
  const size_t bytes = choose_bytes(most, flushed, n);
  float *x = mem_map(bytes);
  HP_TRY_MEM(x);
  job j = {.isa = isa, .x = x};
  (void)!madvise(x, bytes, MADV_HUGEPAGE); /* else most of the time goes to page faults */
  for (size_t i = 0; i < bytes / sizeof *x; i += 1024) x[i] = 1;
  j.per_part = (int64_t)(bytes / sizeof *x) / n;
  *bytes_per_s = 0;
  for (int r = 0, steady = 0; r < READ_RUNS && steady < READ_STEADY; r++) {
    if (flushed) pool_run(threads, n, flush_part, &j);
    double start = time_now_s();
    pool_run(threads, n, read_part, &j);
    double rate = (double)(j.per_part * n) * (double)sizeof *x / (time_now_s() - start);
    steady = rate > FASTER * *bytes_per_s ? 0 : steady + 1;
    if (rate > *bytes_per_s) *bytes_per_s = rate;
  }
  mem_unmap(x, bytes);
  return HP_OK;
}
