/* Matrix products on the CPU: C[m,n] = sum over k of A[m,k] B[k,n], batched, any strides.
 *
 * Guarantee of the packed engine: every element of C is ONE chain of fused multiply-adds over k in
 * order, s = fma(a[m,k], b[k,n], s), from 0 or from the old C.  16-bit operands are widened first,
 * which is exact.  So the bits depend on no tile, thread count, vector width or sharding of rows
 * and columns, and equal those of the scalar loop (except the payload of a NaN).
 *
 * Nothing is allocated while running: the caller provides the work memory. */
#ifndef GEMM_H
#define GEMM_H

#include "backend/cpu/cpu_features.h"
#include "base/str.h"
#include "base/thread.h"

enum { GEMM_BATCH_DIMS = 2 * HP_MAX_RANK, GEMM_ALIGN = 64, GEMM_PACK = 16, GEMM_TOGETHER = 3 };
/* Bytes of work memory rounded up to GEMM_ALIGN. */
static inline size_t gemm_align(size_t n) { return (n + GEMM_ALIGN - 1) / GEMM_ALIGN * GEMM_ALIGN; }

/* One batch dim: its size, and the elements from one item to the next in each operand. */
typedef struct {
  int64_t size, a, b, c;
} gemm_batch;

typedef struct {
  int64_t m, n, k;
  int64_t a_m, a_k, b_k, b_n, c_m, c_n; /* elements from one row, column, ... to the next */
  /* 0, or B is packed: elements from one pack of GEMM_PACK columns to the next.  Then b_n is 1 and
   * n a multiple of GEMM_PACK. */
  int64_t b_pack;
  hp_dtype a_type, b_type, c_type; /* f32, bf16 or f16 each */
  int n_batch;
  gemm_batch batch[GEMM_BATCH_DIMS]; /* first dim slowest */
  /* An f32 operand is rounded to bf16 as it is read, with dot instructions numbers below 2^-126
   * to 0; the other is bf16. */
  bool rounded;
  bool accumulate; /* the chains start from the old C */
  bool bias;       /* a row of n f32 is added at the end */
  float alpha;     /* factor of the finished sum, before the bias; 1: none */
} gemm_query;

typedef struct {
  const void *a, *b;
  void *c;
  const float *bias; /* [n], the same for every batch item; NULL unless query.bias */
} gemm_args;

/* Row-major C[m,n] = op(A) op(B), one item, alpha 1.  trans_a: A is stored [k,m]; trans_b: [n,k].
 */
gemm_query gemm_query_make(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, hp_dtype in,
                           hp_dtype out);
/* Checks sizes, types and combinations; HP_ERR_ARG or HP_ERR_SHAPE names the reason. */
hp_status gemm_check(const gemm_query *q);
/* Batch items: the product of the batch sizes. */
int64_t gemm_items(const gemm_query *q);
/* Elements from the start of A, B, C to batch item i. */
void gemm_item(const gemm_query *q, int64_t i, int64_t at[3]);

/* Elements from the start of an item's B to its element (k, n). */
static inline int64_t gemm_b_at(const gemm_query *q, int64_t k, int64_t n) {
  if (!q->b_pack) return k * q->b_k + n * q->b_n;
  return n / GEMM_PACK * q->b_pack + k * q->b_k + n % GEMM_PACK;
}

/* Products with few rows (or columns), which read B once, in place: those of decoding. */
bool gemm_reads_once(const gemm_query *q);

/* The packed engine.  q has passed gemm_check; isa is one that this CPU has; `work` is GEMM_ALIGN
 * aligned and has gemm_packed_workspace bytes for this query, isa and number of threads. */
size_t gemm_packed_workspace(cpu_isa isa, const gemm_query *q, int threads);
/* How this many threads share the product: "2 x 3 regions, 4 of 4 threads", for each batch item
 * the chunks of rows and of columns, and the threads that have work; "nothing to do" if C is
 * empty. */
void gemm_packed_print(cpu_isa isa, const gemm_query *q, int threads, str *out);
void gemm_packed_run(cpu_isa isa, const gemm_query *q, const gemm_args *args, pool *threads,
                     void *work);

/* At most GEMM_TOGETHER independent products: threads continue from one to the next.  `work` has
 * the bytes of the product that needs most. */
void gemm_packed_run_all(cpu_isa isa, const gemm_query *q, const gemm_args *args, int n,
                         pool *threads, void *work);

/* The same chains by a scalar loop, without work memory: the reference for every engine. */
void gemm_scalar_run(const gemm_query *q, const gemm_args *args, pool *threads);

#endif
