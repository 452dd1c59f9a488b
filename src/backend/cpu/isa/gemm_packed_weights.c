/* Few rows of A times packed weights: B is stored in packs of GEMM_PACK columns, k after k, and
 * only inference reads such weights.  They are read at memory bandwidth, in long runs, and nothing
 * is transposed.  The chains are those of the packed kernel.  With dot instructions two k's of bf16
 * are one step (docs/adr/0008). */
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/gemm_vec.h"

enum { VECS = GEMM_PACK / VL }; /* of a k-step of a pack */

/* Packs that are computed together: enough chains to hide the latency of an FMA, and no more sums
 * than there are registers. */
#if defined(__AVX512F__)
#define PACKS(rows) ((rows) <= 4 ? 4 : 2)
#elif defined(__AVX2__)
#define PACKS(rows) ((rows) <= 2 ? 2 : 1)
#else
#define PACKS(rows) 1
#endif

/* A task of a product: few rows of A times PACKS(rows) packs, or one pack. */
typedef struct {
  int64_t k;
  const float *a;
  int64_t lda;
  const void *b;
  int64_t pack, b_k;
  float *c;
  int64_t ldc;
  bool load;
} row_task;

/* The columns at element i of B as lanes of a step, and the step; `both`: the second k exists. */
#if defined(__AVX512BF16__)
enum { PER_LANE = 2 };
GEMM_INLINE vf load_lanes(const row_task *p, hp_dtype type, int64_t i, bool both) {
  const uint16_t *at = elem_at(p->b, type, i);
  return vf_join_pairs(at, both ? at + p->b_k : NULL, VL);
}
GEMM_INLINE vf add_step(vf a, vf b, vf sum) { return vf_dot(a, b, sum); }
#else
enum { PER_LANE = 1 };
GEMM_INLINE vf load_lanes(const row_task *p, hp_dtype type, int64_t i, bool both) {
  (void)both;
  return vf_load_as(elem_at(p->b, type, i), type, VL);
}
GEMM_INLINE vf add_step(vf a, vf b, vf sum) { return vf_fma(a, b, sum); }
#endif

/* The element to prefetch at step k of a pack, counted from the start of the pack.  Near the end of
 * a pack it is in the pack that is computed next, `packs` further, maybe past the end of B.  The
 * hardware prefetcher is too late with many rows a pack, and at the end of a pack.  More than about
 * 7 KiB prefetched at a time, all packs together, is slower again. */
GEMM_INLINE int64_t find_prefetch(const row_task *p, const int packs, hp_dtype type, int64_t k) {
  enum { BYTES_AHEAD = 7168 };
  int64_t at = k * p->b_k + BYTES_AHEAD / packs / (type == HP_F32 ? 4 : 2), end = p->k * p->b_k;
  return at < end ? at : at - end + packs * p->pack;
}

GEMM_INLINE void prefetch(const row_task *p, hp_dtype type, int64_t i) {
  __builtin_prefetch((const void *)((uintptr_t)p->b + (uintptr_t)i * (type == HP_F32 ? 4 : 2)));
}

/* rows, packs and type are constants at each call, so that the sums become registers. */
GEMM_INLINE void rows_packed(const int rows, const int packs, const hp_dtype type,
                             const row_task *p) {
  enum { MOST = VECS * PACKS(1) };
  const int vecs = VECS * packs;
  vf acc[STREAM_ROWS][MOST], x[MOST];
  GEMM_UNROLL for (int m = 0; m < rows; m++) {
    GEMM_UNROLL for (int v = 0; v < vecs; v++) acc[m][v] =
        p->load ? vf_load(p->c + m * p->ldc + v * VL) : vf_zero();
  }
  for (int64_t k = 0; k < p->k; k += PER_LANE) {
    const int64_t ahead = find_prefetch(p, packs, type, k);
    GEMM_UNROLL for (int n = 0; n < packs; n++) prefetch(p, type, n * p->pack + ahead);
    GEMM_UNROLL for (int v = 0; v < vecs; v++) x[v] =
        load_lanes(p, type, v / VECS * p->pack + k * p->b_k + v % VECS * VL, k + 1 < p->k);
    GEMM_UNROLL for (int m = 0; m < rows; m++) {
      vf a = vf_set1(p->a[m * p->lda + k / PER_LANE]);
      GEMM_UNROLL for (int v = 0; v < vecs; v++) acc[m][v] = add_step(a, x[v], acc[m][v]);
    }
  }
  GEMM_UNROLL for (int m = 0; m < rows; m++) {
    GEMM_UNROLL for (int v = 0; v < vecs; v++) vf_store(p->c + m * p->ldc + v * VL, acc[m][v]);
  }
}

typedef void row_kernel(const row_task *p);
#define ROW_KERNEL(R, type, TYPE)                                                                  \
  static void rows_##R##_##type(const row_task *p) { rows_packed(R, PACKS(R), TYPE, p); }          \
  static void rows_##R##_##type##_one(const row_task *p) { rows_packed(R, 1, TYPE, p); }
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

/* Multiplies p's rows by `packs` packs, PACKS(rows) at a time. */
static void run_rows(row_task p, int64_t rows, hp_dtype type, int64_t packs) {
  for (int64_t step; packs > 0; packs -= step) {
    step = packs >= PACKS(rows) ? PACKS(rows) : 1;
    row_kernels[rows - 1][type][step > 1](&p);
    p.b = elem_at(p.b, type, step * p.pack);
    p.c += step * GEMM_PACK;
  }
}

/* All rows are multiplied by a few packs while these are in cache. */
void ISA_NAME(gemm_rows_packed)(int64_t rows, int64_t cols, int64_t k, const float *a, int64_t lda,
                                const void *b, hp_dtype type, int64_t pack, int64_t b_k, float *c,
                                int64_t ldc, bool load) {
  int64_t packs = cols / GEMM_PACK;
  for (int64_t n = 0; n < packs; n += PACKS(1))
    for (int64_t m = 0; m < rows; m += STREAM_ROWS) {
      row_task p = {.k = k,
                    .a = a + m * lda,
                    .lda = lda,
                    .b = elem_at(b, type, n * pack),
                    .pack = pack,
                    .b_k = b_k,
                    .c = c + m * ldc + n * GEMM_PACK,
                    .ldc = ldc,
                    .load = load};
      run_rows(p, rows - m < STREAM_ROWS ? rows - m : STREAM_ROWS, type,
               packs - n < PACKS(1) ? packs - n : PACKS(1));
    }
}
