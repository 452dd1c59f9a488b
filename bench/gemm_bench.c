/* GEMM engines side by side on the shapes of models: forward (x W^T), dX (dy W), dW (dy^T x).
 *
 *   gcc -O2 -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -o build/gemm_bench bench/gemm_bench.c \
 *       build/libhyperparallel.a $(pkg-config --libs libxxhash) -ldl -lm -lpthread
 *   build/gemm_bench [--threads N] [--tokens T] [--type f32|bf16] [--rounds R] [--max SIZE]
 *
 * One JSON line per shape and pass: GF/s of each engine (median), the FMA peak measured between the
 * same repetitions, and the median of the ratios taken repetition by repetition, engines
 * alternating so that all of them see the same machine. */
#include "backend/cpu/engine_table.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ENGINES_MAX = 8, ROUNDS_MAX = 101 };

typedef struct {
  int threads, rounds;
  int64_t tokens, max;
  hp_dtype type;
  pool *pool;
} options;

/* ---- peak: independent FMA chains in registers, no memory -------------------------------------
 */

enum { STEPS = 20000, CHAINS_512 = 24, CHAINS_256 = 12 };

#define FMA_512(i)   "vfmadd231ps %%zmm31, %%zmm30, %%zmm" #i "\n\t"
#define FMA_256(i)   "vfmadd231ps %%ymm15, %%ymm14, %%ymm" #i "\n\t"
#define CLEAR_512(i) "vpxorq %%zmm" #i ", %%zmm" #i ", %%zmm" #i "\n\t"
#define CLEAR_256(i) "vxorps %%ymm" #i ", %%ymm" #i ", %%ymm" #i "\n\t"
#define TWELVE(X)    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define MORE(X)      X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#define TWELVE_LOST                                                                                \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11"

__attribute__((target("avx512f"))) static void fma_chains_512(void) {
  int n = STEPS;
  __asm__ volatile(TWELVE(CLEAR_512) MORE(CLEAR_512) CLEAR_512(30)
                       CLEAR_512(31) "1:\n\t" TWELVE(FMA_512) MORE(FMA_512) "sub $1, %0\n\tjnz 1b"
                   : "+r"(n)
                   :
                   : TWELVE_LOST, "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18",
                     "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm30", "xmm31", "cc");
}

__attribute__((target("avx2,fma"))) static void fma_chains_256(void) {
  int n = STEPS;
  __asm__ volatile(TWELVE(CLEAR_256) CLEAR_256(14)
                       CLEAR_256(15) "1:\n\t" TWELVE(FMA_256) "sub $1, %0\n\tjnz 1b"
                   : "+r"(n)
                   :
                   : TWELVE_LOST, "xmm14", "xmm15", "cc");
}

static void fma_part(void *ctx, int64_t part) {
  (void)ctx, (void)part;
  if (cpu_best_isa() == ISA_AVX512) fma_chains_512();
  else if (cpu_best_isa() == ISA_AVX2) fma_chains_256();
}

/* One thread is timed by its own clock, which stands still while the machine serves others. */
static double now_s(const options *o) {
  struct timespec t;
  if (o->threads > 1) return time_now_s();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double peak_gflops(const options *o) {
  double flops = cpu_best_isa() == ISA_AVX512 ? 2.0 * 16 * CHAINS_512 : 2.0 * 8 * CHAINS_256;
  double start = now_s(o);
  pool_run(o->pool, o->threads, fma_part, NULL);
  return flops * STEPS * o->threads / (now_s(o) - start) * 1e-9;
}

/* ---- engines -----------------------------------------------------------------------------------
 */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}
static double median(const double *x, int n) {
  double s[ROUNDS_MAX];
  memcpy(s, x, sizeof *s * (size_t)n);
  qsort(s, (size_t)n, sizeof *s, by_value);
  return s[n / 2];
}

typedef struct {
  const gemm_engine *engine;
  void *work;
  size_t work_size;
  double gflops[ROUNDS_MAX];
} entrant;

static void *filled(hp_dtype type, int64_t n) {
  size_t bytes = (size_t)n * dtype_size(type);
  char *p = mem_map(bytes);
  if (!p) exit(1);
  for (int64_t i = 0; i < n; i++) {
    float x = (float)(i * 2654435761u % 1000) * 1e-3f - 0.5f;
    if (type == HP_F32) ((float *)(void *)p)[i] = x;
    else ((uint16_t *)(void *)p)[i] = type == HP_BF16 ? f32_to_bf16(x) : f32_to_f16(x);
  }
  return p;
}

static double time_once(const entrant *e, const gemm_query *q, const gemm_args *args,
                        const options *o, int repeat) {
  double start = now_s(o);
  for (int i = 0; i < repeat; i++)
    if (e->engine->run(q, args, o->pool, e->work)) {
      fprintf(stderr, "%s\n", err_message());
      exit(1);
    }
  double flops = 2.0 * (double)q->m * (double)q->n * (double)q->k * repeat;
  return flops / (now_s(o) - start) * 1e-9;
}

static int enter_engines(const gemm_query *q, const options *o, entrant *e) {
  int rows, n = 0;
  const gemm_engine *const *row = engine_rows(&rows);
  for (int i = 0; i < rows; i++) {
    if (row[i] == &engine_scalar || !row[i]->available() || !row[i]->supports(q)) continue;
    e[n].engine = row[i];
    e[n].work_size = row[i]->workspace(q, o->threads);
    e[n].work = mem_map(e[n].work_size);
    if (!e[n++].work) exit(1);
  }
  return n;
}

static void bench_query(const char *pass, const gemm_query *q, const options *o) {
  static entrant e[ENGINES_MAX];
  double peak[ROUNDS_MAX], ratio[ROUNDS_MAX];
  int n = enter_engines(q, o, e);
  void *a = filled(q->a_type, q->m * q->k), *b = filled(q->b_type, q->k * q->n);
  void *c = filled(q->c_type, q->m * q->n);
  gemm_args args = {a, b, c, NULL};
  double flops = 2.0 * (double)q->m * (double)q->n * (double)q->k;
  int repeat = 1 + (int)(1e9 / flops);
  for (int i = 0; i < n; i++) time_once(&e[i], q, &args, o, 1);
  for (int r = 0; r < o->rounds; r++) {
    peak[r] = peak_gflops(o);
    for (int i = 0; i < n; i++) e[i].gflops[r] = time_once(&e[i], q, &args, o, repeat);
  }
  printf("{\"pass\": \"%s\", \"m\": %lld, \"n\": %lld, \"k\": %lld, \"type\": \"%s\", \"threads\": "
         "%d, "
         "\"peak_gflops\": %.1f",
         pass, (long long)q->m, (long long)q->n, (long long)q->k, dtype_name(q->a_type), o->threads,
         median(peak, o->rounds));
  for (int i = 0; i < n; i++)
    printf(", \"%s_gflops\": %.1f", e[i].engine->name, median(e[i].gflops, o->rounds));
  double worst = 1e9;
  for (int i = 1; i < n; i++) {
    for (int r = 0; r < o->rounds; r++) ratio[r] = e[0].gflops[r] / e[i].gflops[r];
    double m = median(ratio, o->rounds);
    printf(", \"over_%s\": %.3f", e[i].engine->name, m);
    if (m < worst) worst = m;
  }
  for (int r = 0; r < o->rounds; r++) ratio[r] = e[0].gflops[r] / peak[r];
  if (n > 1) printf(", \"over_best\": %.3f", worst);
  printf(", \"of_peak\": %.3f}\n", median(ratio, o->rounds));
  fflush(stdout);
  for (int i = 0; i < n; i++) mem_unmap(e[i].work, e[i].work_size);
  mem_unmap(a, (size_t)(q->m * q->k) * dtype_size(q->a_type));
  mem_unmap(b, (size_t)(q->k * q->n) * dtype_size(q->b_type));
  mem_unmap(c, (size_t)(q->m * q->n) * dtype_size(q->c_type));
}

static void bench_weight(int64_t out, int64_t in, const options *o) {
  int64_t t = o->tokens;
  if (out > o->max || in > o->max) return;
  gemm_query forward = gemm_query_make(t, out, in, false, true, o->type, o->type);
  gemm_query dx = gemm_query_make(t, in, out, false, false, o->type, o->type);
  gemm_query dw = gemm_query_make(out, in, t, true, false, o->type, HP_F32);
  bench_query("forward", &forward, o);
  bench_query("dx", &dx, o);
  bench_query("dw", &dw, o);
}

static const char *option(int argc, char **argv, const char *name, const char *otherwise) {
  for (int i = 1; i + 1 < argc; i++)
    if (!strcmp(argv[i], name)) return argv[i + 1];
  return otherwise;
}
static int64_t number(int argc, char **argv, const char *name, int64_t otherwise) {
  const char *text = option(argc, argv, name, NULL);
  int64_t n = otherwise;
  if (text && (!str_to_i64(text, &n) || n < 1)) {
    fprintf(stderr, "gemm_bench: %s is %s; expected a whole number above 0\n", name, text);
    exit(2);
  }
  return n;
}

int main(int argc, char **argv) {
  static const int64_t weight[][2] = {{288, 288},  {768, 288},  {768, 768},   {3072, 768},
                                      {768, 3072}, {2048, 768}, {2048, 2048}, {4096, 4096}};
  options o = {.threads = (int)number(argc, argv, "--threads", cpu_count()),
               .rounds = (int)number(argc, argv, "--rounds", 9),
               .tokens = number(argc, argv, "--tokens", 1024),
               .max = number(argc, argv, "--max", 4096)};
  if (o.threads > 64 || o.rounds > ROUNDS_MAX ||
      !dtype_parse(option(argc, argv, "--type", "f32"), &o.type)) {
    fprintf(stderr, "gemm_bench: at most 64 threads and %d rounds, type f32, bf16 or f16\n",
            ROUNDS_MAX);
    return 2;
  }
  if (pool_create(o.threads, true, &o.pool)) {
    fprintf(stderr, "%s\n", err_message());
    return 1;
  }
  for (size_t i = 0; i < sizeof weight / sizeof *weight; i++)
    bench_weight(weight[i][0], weight[i][1], &o);
  pool_free(o.pool);
  return 0;
}
