/* The kernels of the packed GEMM, compiled once per instruction set (backend/cpu/isa/gemm_*.c).
 *
 * A lane is 32 bits of a step of k: one f32, or two bf16 values.  Of the two, the one of the
 * smaller k is the upper half; when k is odd, the last lower half is 0.  A is packed by rows,
 * rows[m][step], with GEMM_PITCH lanes from one row to the next.  B is packed by columns: a pack is
 * [step][GEMM_PACK], a panel has `nr` columns.  Columns past the last are zero. */
#ifndef GEMM_ISA_H
#define GEMM_ISA_H

#include "backend/cpu/cpu_features.h"

enum {
  GEMM_STEPS_MAX = 1024, /* steps of a block of k */
  GEMM_PITCH =
      GEMM_STEPS_MAX + 16, /* a line more than a page: rows of a tile are in different cache sets */
  GEMM_ROWS_MAX = 16
};

/* A chunk of a matrix, lanes x k elements; strides in elements.  pack: gemm_query.b_pack for a
 * packed B, else 0.  rounded: f32 elements are rounded to bf16 first. */
typedef struct {
  const void *at;
  hp_dtype type;
  int64_t lanes, k, lane_stride, k_stride, pack;
  bool rounded;
} gemm_source;

/* The chunk that is packed next; kernels prefetch it while they compute: `runs` of `bytes`,
 * `stride` bytes from one to the next, `burst` lines at a time. */
typedef struct {
  const char *at;
  int64_t bytes, stride, runs, offset;
  int burst;
} gemm_ahead;

/* Where finished sums will be stored: rows of `bytes`, `stride` bytes from one to the next, that a
 * tile prefetches while it is computed.  None: at is NULL.  ends: the tile itself stores them
 * there, as the type that its kernels end in. */
typedef struct {
  const char *at;
  int64_t stride, bytes;
  bool ends;
} gemm_target;

/* Columns as `block` reads them: packs of GEMM_PACK columns, `pack` lanes from one to the next.
 * direct: they are read from a packed B of the kernels' own type, in place. */
typedef struct {
  const float *at;
  int64_t pack;
  bool direct;
} gemm_columns;

typedef struct {
  int mr, nr;   /* rows and columns of a register tile */
  int per_lane; /* k's of a step: 1, or 2 of bf16 operands */
  /* Blocks for this tile: steps of k (at most GEMM_STEPS_MAX); rows of A, all where they are no
   * more than a_lanes, else mc. */
  int64_t steps, a_lanes, mc;
  /* to[lane * pitch + step]: lanes as rows, widened to f32, or bf16 in pairs. */
  void (*pack_rows)(float *to, int64_t pitch, const gemm_source *x);
  void (*pack_panels)(float *to, const gemm_source *x);
  hp_dtype own;  /* of a packed B that `block` reads in place */
  hp_dtype ends; /* the type, besides f32, that `block` can store finished sums as; f32: none */
  /* c[rows, cols] (f32, row stride ldc) continues its chains over the steps, or starts them from 0
   * where load is false.  a: packed rows; b: packs.  *ahead moves on.
   * target: of a block of one tile, or where finished sums are stored (then cols is a multiple of
   * GEMM_PACK, and c stays as it is); without one each tile prefetches the c of the next. */
  void (*block)(int64_t rows, int64_t cols, int64_t steps, const float *a, const gemm_columns *b,
                float *c, int64_t ldc, bool load, const gemm_target *target, gemm_ahead *ahead);
  /* The same for at most GEMM_ROWS_MAX rows, reading B where it lies: a f32 [rows, k] with row
   * stride lda; b[k, n] with one of b_k, b_n equal to 1. */
  void (*rows)(int64_t rows, int64_t cols, int64_t k, const float *a, int64_t lda, const void *b,
               hp_dtype type, int64_t b_k, int64_t b_n, float *c, int64_t ldc, bool load);
  /* The same for a packed B: `pack` elements from one pack to the next, b_k from one k to the next;
   * a in lanes, as pack_rows writes them. */
  void (*rows_packed)(int64_t rows, int64_t cols, int64_t k, const float *a, int64_t lda,
                      const void *b, hp_dtype type, int64_t pack, int64_t b_k, float *c,
                      int64_t ldc, bool load);
  /* out = s * alpha + bias_m[row] + bias_n[col], stored as `type`; biases may be NULL; out may be
   * s. */
  void (*finish)(const float *s, int64_t lds, int64_t rows, int64_t cols, float alpha,
                 const float *bias_m, const float *bias_n, void *out, hp_dtype type, int64_t o_m,
                 int64_t o_n);
  /* s = old C, widened: what an accumulating product starts from. */
  void (*start)(float *s, int64_t lds, int64_t rows, int64_t cols, const void *c, hp_dtype type,
                int64_t c_m, int64_t c_n);
} gemm_kernels;

extern const gemm_kernels gemm_kernels_plain, gemm_kernels_avx2, gemm_kernels_avx512;
/* For operands of bf16, or of f32 that is rounded to it, on ISA_AVX512_BF16: the bits of the others
 * but for numbers under 2^-126, which are 0. */
extern const gemm_kernels gemm_kernels_dot;

#endif
