/* Few rows of A times a B that is read once, where it lies: the products of decoding, bound by the
 * memory that holds B.  The chains are those of the packed kernel. */
#include "backend/cpu/gemm/gemm_vec.h"

/* A chunk of a product: few rows of A times columns of B, in chains that may go on from C. */
typedef struct {
  int64_t cols, k;
  const float *a;
  int64_t lda;
  const void *b;
  int64_t b_k, b_n;
  float *c;
  int64_t ldc;
  bool load, prefetch; /* prefetch: the columns that lie behind these come next */
} rows_args;

/* --- B is [n, k] in memory: VL columns at a time, transposed in registers --------------------- */

/* Four bytes of a row of B: an f32 number of one k-step, or the bf16 numbers of two. */
typedef uint32_t vu __attribute__((vector_size(sizeof(vf))));
GEMM_INLINE vf widen_first(vf pair) { return (vf)((vu)pair << 16); }
GEMM_INLINE vf widen_second(vf pair) { return (vf)((vu)pair & 0xffff0000u); }

/* VL units of k-steps of a row, of which `steps` are there, zeros after them; f16 is widened. */
GEMM_INLINE vf load_units(const void *p, hp_dtype type, int64_t steps) {
  if (type != HP_BF16) return vf_load_as(p, type, steps < VL ? steps : VL);
  uint16_t t[2 * VL] = {0};
  if (steps < 2 * VL) p = memcpy(t, p, (size_t)steps * sizeof *t);
  return vf_load(p);
}

GEMM_INLINE int get_steps_per_unit(hp_dtype type) { return type == HP_BF16 ? 2 : 1; }

/* acc += all steps of VL units from k-step k0 on, of VL columns.  What lies behind these is
 * prefetched meanwhile, in the order of its addresses: many short runs at once come slower than
 * one. `rows` is a constant at each call. */
GEMM_INLINE void multiply_along_k_units(const int rows, const hp_dtype type, const rows_args *r,
                                        int64_t k0, vf acc[STREAM_ROWS]) {
  enum { LINE = 64 };
  const int per = get_steps_per_unit(type);
  const int loads = LINE / VL / (type == HP_F16 ? 2 : 4); /* that read a line */
  const char *next = elem_at(r->b, type, VL * (r->b_n + k0));
  const float *a = r->a + k0;
  vf t[VL];
  GEMM_UNROLL for (int i = 0; i < VL; i++) {
    t[i] = load_units(elem_at(r->b, type, i * r->b_n + k0), type, per * VL);
    if (r->prefetch && i % loads == 0) __builtin_prefetch(next + i / loads * LINE);
  }
  vf_transpose(t);
  GEMM_UNROLL for (int i = 0; i < VL; i++) {
    vf x = per == 2 ? widen_first(t[i]) : t[i];
    GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
        vf_fma(vf_set1(a[m * r->lda + i * per]), x, acc[m]);
    if (per == 1) continue;
    x = widen_second(t[i]);
    GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
        vf_fma(vf_set1(a[m * r->lda + i * per + 1]), x, acc[m]);
  }
}

/* The units of at most VL units of steps from k0 on: to[unit][VL]. */
GEMM_INLINE void transpose_units(float *to, hp_dtype type, const void *const b[VL], int64_t k0,
                                 int64_t steps) {
  vf t[VL];
  GEMM_UNROLL for (int i = 0; i < VL; i++) t[i] = load_units(elem_at(b[i], type, k0), type, steps);
  vf_transpose(t);
  GEMM_UNROLL for (int i = 0; i < VL; i++) vf_store(to + i * VL, t[i]);
}
/* Common to all numbers of rows: in each of their functions this would be most of the code. */
#define TRANSPOSE(T, type)                                                                         \
  __attribute__((noinline)) static void transpose_##T(float *to, const void *const b[VL],          \
                                                      int64_t k0, int64_t steps) {                 \
    const int64_t all = VL * get_steps_per_unit(type);                                             \
    if (steps == all) transpose_units(to, type, b, k0, all);                                       \
    else transpose_units(to, type, b, k0, steps);                                                  \
  }
TRANSPOSE(f32, HP_F32)
TRANSPOSE(bf16, HP_BF16)
TRANSPOSE(f16, HP_F16)

/* The same for fewer steps, or fewer columns. */
GEMM_INLINE void multiply_along_k_rest(const int rows, const hp_dtype type, const rows_args *r,
                                       const void *const b[VL], int64_t k0, int64_t steps,
                                       vf acc[STREAM_ROWS]) {
  const int per = get_steps_per_unit(type);
  const float *a = r->a + k0;
  float t[VL * VL];
  if (type == HP_F32) transpose_f32(t, b, k0, steps);
  else if (type == HP_BF16) transpose_bf16(t, b, k0, steps);
  else transpose_f16(t, b, k0, steps);
  for (int64_t i = 0; i < steps; i += per) {
    vf unit = vf_load(t + i / per * VL), x = per == 2 ? widen_first(unit) : unit;
    GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
        vf_fma(vf_set1(a[m * r->lda + i]), x, acc[m]);
    if (per == 1 || i + 1 == steps) continue;
    x = widen_second(unit);
    GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
        vf_fma(vf_set1(a[m * r->lda + i + 1]), x, acc[m]);
  }
}

/* At most VL columns, all k.  Where there are fewer, the last stands for those past it. */
GEMM_INLINE void multiply_along_k(const int rows, const hp_dtype type, const rows_args *r) {
  const int64_t step = VL * get_steps_per_unit(type);
  int64_t k0 = 0;
  const void *b[VL];
  vf acc[STREAM_ROWS];
  GEMM_UNROLL for (int i = 0; i < VL; i++) b[i] =
      elem_at(r->b, type, (i < r->cols ? i : r->cols - 1) * r->b_n);
  GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
      r->load ? vf_load_n(r->c + m * r->ldc, r->cols) : vf_zero();
  if (r->cols == VL)
    for (; k0 + step <= r->k; k0 += step) multiply_along_k_units(rows, type, r, k0, acc);
  for (; k0 < r->k; k0 += step)
    multiply_along_k_rest(rows, type, r, b, k0, r->k - k0 < step ? r->k - k0 : step, acc);
  GEMM_UNROLL for (int m = 0; m < rows; m++) vf_store_n(r->c + m * r->ldc, acc[m], r->cols);
}

/* --- B is [k, n] in memory -------------------------------------------------------------------- */

/* STEPS rows of B at a time, so that it is read in long runs; C, which the
 * caller keeps small, is read and written once per STEPS. */
enum { STEPS = 8 };

/* acc += k-steps k0 .. k0 + STEPS - 1 of columns j .. j + VL - 1. */
GEMM_INLINE void multiply_along_n_steps(const int rows, const hp_dtype type, const rows_args *r,
                                        int64_t k0, int64_t j, vf acc[STREAM_ROWS]) {
  const float *a = r->a + k0;
  const void *b = elem_at(r->b, type, k0 * r->b_k + j);
  GEMM_UNROLL for (int s = 0; s < STEPS; s++, b = elem_at(b, type, r->b_k)) {
    vf x = vf_load_as(b, type, VL);
    GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
        vf_fma(vf_set1(a[m * r->lda + s]), x, acc[m]);
  }
}

/* The same for fewer steps, or n columns. */
GEMM_INLINE void multiply_along_n_rest(const int rows, const hp_dtype type, const rows_args *r,
                                       int64_t k0, int64_t steps, int64_t j, int64_t n,
                                       vf acc[STREAM_ROWS]) {
  const float *a = r->a + k0;
  const void *b = elem_at(r->b, type, k0 * r->b_k + j);
  for (int64_t s = 0; s < steps; s++, b = elem_at(b, type, r->b_k)) {
    vf x = vf_load_as(b, type, n);
    GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
        vf_fma(vf_set1(a[m * r->lda + s]), x, acc[m]);
  }
}

GEMM_INLINE void multiply_along_n(const int rows, const hp_dtype type, const rows_args *r) {
  bool load = r->load;
  int64_t k0 = 0;
  do {
    int64_t steps = r->k - k0 < STEPS ? r->k - k0 : STEPS, j = 0;
    vf acc[STREAM_ROWS];
    for (; j + VL <= r->cols; j += VL) {
      GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
          load ? vf_load(r->c + m * r->ldc + j) : vf_zero();
      if (steps == STEPS) multiply_along_n_steps(rows, type, r, k0, j, acc);
      else multiply_along_n_rest(rows, type, r, k0, steps, j, VL, acc);
      GEMM_UNROLL for (int m = 0; m < rows; m++) vf_store(r->c + m * r->ldc + j, acc[m]);
    }
    if (j < r->cols) {
      int64_t n = r->cols - j;
      GEMM_UNROLL for (int m = 0; m < rows; m++) acc[m] =
          load ? vf_load_n(r->c + m * r->ldc + j, n) : vf_zero();
      multiply_along_n_rest(rows, type, r, k0, steps, j, n, acc);
      GEMM_UNROLL for (int m = 0; m < rows; m++) vf_store_n(r->c + m * r->ldc + j, acc[m], n);
    }
    k0 += STEPS, load = true;
  } while (k0 < r->k);
}

GEMM_INLINE void multiply_typed_rows(const int rows, const hp_dtype type, const rows_args *r) {
  if (r->b_k == 1) multiply_along_k(rows, type, r);
  else multiply_along_n(rows, type, r);
}

typedef void rows_fn(const rows_args *r);
#define ROWS(R)                                                                                    \
  static void rows_##R##_f32(const rows_args *r) { multiply_typed_rows(R, HP_F32, r); }            \
  static void rows_##R##_bf16(const rows_args *r) { multiply_typed_rows(R, HP_BF16, r); }          \
  static void rows_##R##_f16(const rows_args *r) { multiply_typed_rows(R, HP_F16, r); }
#define ROWS_ROW(R)                                                                                \
  [R - 1] = {[HP_F32] = rows_##R##_f32, [HP_BF16] = rows_##R##_bf16, [HP_F16] = rows_##R##_f16},

EACH_STREAM_ROWS(ROWS)

static rows_fn *const rows_of[STREAM_ROWS][HP_F16 + 1] = {EACH_STREAM_ROWS(ROWS_ROW)};

/* A chunk of B is read from memory once: all rows use it while it is in cache. */
void ISA_NAME(gemm_rows)(int64_t rows, int64_t cols, int64_t k, const float *a, int64_t lda,
                         const void *b, hp_dtype type, int64_t b_k, int64_t b_n, float *c,
                         int64_t ldc, bool load) {
  enum { DEPTH = 64 };
  const int64_t width = b_k == 1 ? VL : cols, depth = b_k == 1 ? k : DEPTH;
  for (int64_t j = 0; j < cols; j += width)
    for (int64_t k0 = 0; k0 < k || k0 == 0; k0 += depth) {
      int64_t n = cols - j < width ? cols - j : width, kk = k - k0 < depth ? k - k0 : depth;
      for (int64_t i = 0; i < rows; i += STREAM_ROWS) {
        int64_t h = rows - i < STREAM_ROWS ? rows - i : STREAM_ROWS;
        rows_args r = {.cols = n,
                       .k = kk,
                       .a = a + i * lda + k0,
                       .lda = lda,
                       .b = elem_at(b, type, j * b_n + k0 * b_k),
                       .b_k = b_k,
                       .b_n = b_n,
                       .c = c + i * ldc + j,
                       .ldc = ldc,
                       .load = load || k0 > 0,
                       .prefetch = i == 0 && j + 2 * width <= cols};
        rows_of[h - 1][type](&r);
      }
      if (k == 0) break;
    }
}
