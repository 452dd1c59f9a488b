/* The register tile of the packed GEMM, and the table of this instruction set's kernels.
 *
 * A tile is TILE_ROWS x TILE_COLS accumulators that stay in registers over the whole k block; each
 * step loads one row of B's panel, broadcasts one element of A per tile row and makes two FMAs with
 * it.  AVX-512: 14 x 2 accumulators + 2 B + 1 A = 31 of 32 registers; AVX2: 6 x 2 + 2 + 1 = 15
 * of 16. */
#include "backend/cpu/gemm_vec.h"

/* Continues the chains of a rows x (vecs * VL) tile of C.  Between the k-steps it asks for the rows
 * of `next`, the C of the tile that follows, a row at a time: loads of C at the head of a tile have
 * nothing to hide behind, and all requests at once would hold up those for A and B.
 * rows and vecs are constants at each call, so that the arrays become registers. */
GEMM_INLINE void tile(const int rows, const int vecs, int64_t k, const float *a, const float *b,
                      float *c, int64_t ldc, bool load, const float *next) {
  vf acc[TILE_ROWS][2];
  GEMM_UNROLL for (int i = 0; i < rows; i++) {
    GEMM_UNROLL for (int v = 0; v < vecs; v++) acc[i][v] =
        load ? vf_load(c + i * ldc + v * VL) : vf_zero();
  }
  int64_t piece = k / rows + 1;
  for (; k > 0; k -= piece, next += ldc) {
    __builtin_prefetch(next, 1);
    __builtin_prefetch(next + vecs * VL - 1, 1);
    for (int64_t s = k < piece ? k : piece; s > 0; s--, a += TILE_ROWS, b += TILE_COLS) {
      vf bv[2];
      GEMM_UNROLL for (int v = 0; v < vecs; v++) bv[v] = vf_load(b + v * VL);
      GEMM_UNROLL for (int i = 0; i < rows; i++) {
        vf ai = vf_set1(a[i]);
        GEMM_UNROLL for (int v = 0; v < vecs; v++) acc[i][v] = vf_fma(ai, bv[v], acc[i][v]);
      }
    }
  }
  GEMM_UNROLL for (int i = 0; i < rows; i++) {
    GEMM_UNROLL for (int v = 0; v < vecs; v++) vf_store(c + i * ldc + v * VL, acc[i][v]);
  }
}

typedef void tile_fn(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool load,
                     const float *next);

#define TILE(R)                                                                                    \
  static void tile_##R##x1(int64_t k, const float *a, const float *b, float *c, int64_t ldc,       \
                           bool load, const float *next) {                                         \
    tile(R, 1, k, a, b, c, ldc, load, next);                                                       \
  }                                                                                                \
  static void tile_##R##x2(int64_t k, const float *a, const float *b, float *c, int64_t ldc,       \
                           bool load, const float *next) {                                         \
    tile(R, 2, k, a, b, c, ldc, load, next);                                                       \
  }
#define TILE_ROW(R)                                                                                \
  { tile_##R##x1, tile_##R##x2 }

TILE(1)
TILE(2)
TILE(3)
TILE(4)
#if defined(__AVX2__)
TILE(5)
TILE(6)
#endif
#if defined(__AVX512F__)
TILE(7)
TILE(8)
TILE(9)
TILE(10)
TILE(11)
TILE(12)
TILE(13)
TILE(14)
#endif

static tile_fn *const tile_of[TILE_ROWS][2] = {
    TILE_ROW(1),  TILE_ROW(2),  TILE_ROW(3),  TILE_ROW(4),
#if defined(__AVX2__)
    TILE_ROW(5),  TILE_ROW(6),
#endif
#if defined(__AVX512F__)
    TILE_ROW(7),  TILE_ROW(8),  TILE_ROW(9),  TILE_ROW(10),
    TILE_ROW(11), TILE_ROW(12), TILE_ROW(13), TILE_ROW(14),
#endif
};

/* A tile whose columns are no whole number of vectors goes through a buffer with room for all. */
static void tile_partial(int64_t rows, int64_t cols, int64_t k, const float *a, const float *b,
                         float *c, int64_t ldc, bool load) {
  float t[TILE_ROWS * TILE_COLS];
  if (load)
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t j = 0; j < TILE_COLS; j++) t[i * TILE_COLS + j] = j < cols ? c[i * ldc + j] : 0;
    }
  tile_of[rows - 1][cols > VL](k, a, b, t, TILE_COLS, load, t);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) c[i * ldc + j] = t[i * TILE_COLS + j];
}

static void block(int64_t rows, int64_t cols, int64_t k, const float *a, const float *b, float *c,
                  int64_t ldc, bool load) {
  for (int64_t j = 0; j < cols; j += TILE_COLS) {
    int64_t w = cols - j < TILE_COLS ? cols - j : TILE_COLS;
    for (int64_t i = 0; i < rows; i += TILE_ROWS) {
      int64_t h = rows - i < TILE_ROWS ? rows - i : TILE_ROWS;
      const float *next = i + h < rows ? c + (i + h) * ldc + j : c + (j + w < cols ? j + w : j);
      if (w % VL) tile_partial(h, w, k, a + i * k, b + j * k, c + i * ldc + j, ldc, load);
      else tile_of[h - 1][w > VL](k, a + i * k, b + j * k, c + i * ldc + j, ldc, load, next);
    }
  }
}

const gemm_kernels ISA_NAME(gemm_kernels) = {
    .mr = TILE_ROWS,
    .nr = TILE_COLS,
    .pack = ISA_NAME(gemm_pack),
    .block = block,
    .rows = ISA_NAME(gemm_rows),
    .finish = ISA_NAME(gemm_finish),
    .start = ISA_NAME(gemm_start),
};
