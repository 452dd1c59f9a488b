/* Few rows of A times a B in strips of GEMM_STRIP columns, k after k: how weights lie that only
 * inference reads.  They are read at the speed of memory, in long runs, and nothing is transposed.
 * The chains are those of the packed kernel.  Compiled for dot instructions, two k of bf16 are one
 * step (docs/adr/0008). */
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/gemm_vec.h"

enum { VECS = GEMM_STRIP / VL }; /* of a k-step of a strip */

/* Strips that few rows meet at a time: chains enough to hide the latency of an FMA, and no more
 * sums than there are registers. */
#if defined(__AVX512F__)
#define STRIPS(rows) ((rows) <= 4 ? 4 : 2)
#elif defined(__AVX2__)
#define STRIPS(rows) ((rows) <= 2 ? 2 : 1)
#else
#define STRIPS(rows) 1
#endif

/* A row_task of a product: few rows of A times that many strips, or one. */
typedef struct {
  int64_t k;
  const float *a;
  int64_t lda;
  const void *b;
  int64_t strip, b_k;
  float *c;
  int64_t ldc;
  bool load;
} row_task;

/* Columns at element i of B as lanes of a step, and the step; `both`: its second k is there. */
#if defined(__AVX512BF16__)
enum { PER_LANE = 2 };
GEMM_INLINE vf lanes_at(const row_task *p, hp_dtype type, int64_t i, bool both) {
  const uint16_t *at = elem_at(p->b, type, i);
  return vf_join_pairs(at, both ? at + p->b_k : NULL, VL);
}
GEMM_INLINE vf step_of(vf a, vf b, vf sum) { return vf_dot(a, b, sum); }
#else
enum { PER_LANE = 1 };
GEMM_INLINE vf lanes_at(const row_task *p, hp_dtype type, int64_t i, bool both) {
  (void)both;
  return vf_load_as(elem_at(p->b, type, i), type, VL);
}
GEMM_INLINE vf step_of(vf a, vf b, vf sum) { return vf_fma(a, b, sum); }
#endif

/* What is asked for at step k of a strip, in elements from its start: some of its own lines, and
 * near its end those of the strip that takes its turn, `strips` further, maybe past the end of B.
 * What the processor fetches by itself falls behind where many rows meet a strip, and at its end.
 * Much more than 7 KiB on the way, all strips together, is read more slowly again. */
GEMM_INLINE int64_t ahead_of(const row_task *p, const int strips, hp_dtype type, int64_t k) {
  enum { BYTES_AHEAD = 7168 };
  int64_t at = k * p->b_k + BYTES_AHEAD / strips / (type == HP_F32 ? 4 : 2), end = p->k * p->b_k;
  return at < end ? at : at - end + strips * p->strip;
}

GEMM_INLINE void ask(const row_task *p, hp_dtype type, int64_t i) {
  __builtin_prefetch((const void *)((uintptr_t)p->b + (uintptr_t)i * (type == HP_F32 ? 4 : 2)));
}

/* rows, strips and type are constants at each call, so that the sums become registers. */
GEMM_INLINE void rows_strips(const int rows, const int strips, const hp_dtype type,
                             const row_task *p) {
  enum { MOST = VECS * STRIPS(1) };
  const int vecs = VECS * strips;
  vf acc[STREAM_ROWS][MOST], x[MOST];
  GEMM_UNROLL for (int m = 0; m < rows; m++) {
    GEMM_UNROLL for (int v = 0; v < vecs; v++) acc[m][v] =
        p->load ? vf_load(p->c + m * p->ldc + v * VL) : vf_zero();
  }
  for (int64_t k = 0; k < p->k; k += PER_LANE) {
    const int64_t ahead = ahead_of(p, strips, type, k);
    GEMM_UNROLL for (int n = 0; n < strips; n++) ask(p, type, n * p->strip + ahead);
    GEMM_UNROLL for (int v = 0; v < vecs; v++) x[v] =
        lanes_at(p, type, v / VECS * p->strip + k * p->b_k + v % VECS * VL, k + 1 < p->k);
    GEMM_UNROLL for (int m = 0; m < rows; m++) {
      vf a = vf_set1(p->a[m * p->lda + k / PER_LANE]);
      GEMM_UNROLL for (int v = 0; v < vecs; v++) acc[m][v] = step_of(a, x[v], acc[m][v]);
    }
  }
  GEMM_UNROLL for (int m = 0; m < rows; m++) {
    GEMM_UNROLL for (int v = 0; v < vecs; v++) vf_store(p->c + m * p->ldc + v * VL, acc[m][v]);
  }
}

typedef void row_kernel(const row_task *p);
#define ROW_KERNEL(R, type, TYPE)                                                                  \
  static void rows_##R##_##type(const row_task *p) { rows_strips(R, STRIPS(R), TYPE, p); }         \
  static void rows_##R##_##type##_one(const row_task *p) { rows_strips(R, 1, TYPE, p); }
#define ROW_KERNELS(R, type)                                                                       \
  { rows_##R##_##type##_one, rows_##R##_##type }
#if defined(__AVX512BF16__)
#define ROWS(R)     ROW_KERNEL(R, bf16, HP_BF16)
#define ROWS_ROW(R) [R - 1] = {[HP_BF16] = ROW_KERNELS(R, bf16)},
#else
#define ROWS(R)                                                                                    \
  ROW_KERNEL(R, f32, HP_F32)                                                                       \
  ROW_KERNEL(R, bf16, HP_BF16)                                                                     \
  ROW_KERNEL(R, f16, HP_F16)
#define ROWS_ROW(R)                                                                                \
  [R - 1] = {[HP_F32] = ROW_KERNELS(R, f32),                                                       \
             [HP_BF16] = ROW_KERNELS(R, bf16),                                                     \
             [HP_F16] = ROW_KERNELS(R, f16)},
#endif

EACH_STREAM_ROWS(ROWS)

static row_kernel *const row_kernels[STREAM_ROWS][HP_F16 + 1][2] = {EACH_STREAM_ROWS(ROWS_ROW)};

/* p's rows times strips side by side, as many at a time as suit them. */
static void run_rows(row_task p, int64_t rows, hp_dtype type, int64_t strips) {
  for (int64_t step; strips > 0; strips -= step) {
    step = strips >= STRIPS(rows) ? STRIPS(rows) : 1;
    row_kernels[rows - 1][type][step > 1](&p);
    p.b = elem_at(p.b, type, step * p.strip);
    p.c += step * GEMM_STRIP;
  }
}

/* All rows meet some strips while these are in cache. */
void ISA_NAME(gemm_rows_strips)(int64_t rows, int64_t cols, int64_t k, const float *a, int64_t lda,
                                const void *b, hp_dtype type, int64_t strip, int64_t b_k, float *c,
                                int64_t ldc, bool load) {
  int64_t strips = cols / GEMM_STRIP;
  for (int64_t n = 0; n < strips; n += STRIPS(1))
    for (int64_t m = 0; m < rows; m += STREAM_ROWS) {
      row_task p = {.k = k,
                    .a = a + m * lda,
                    .lda = lda,
                    .b = elem_at(b, type, n * strip),
                    .strip = strip,
                    .b_k = b_k,
                    .c = c + m * ldc + n * GEMM_STRIP,
                    .ldc = ldc,
                    .load = load};
      run_rows(p, rows - m < STREAM_ROWS ? rows - m : STREAM_ROWS, type,
               strips - n < STRIPS(1) ? strips - n : STRIPS(1));
    }
}
