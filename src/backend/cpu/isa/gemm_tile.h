/* The register tile of the packed GEMM, for whatever a step of a chain is: the file that includes
 * this has defined `vf tile_step(vf a, vf b, vf sum)` on lanes of 32 bits.
 *
 * A tile is TILE_ROWS x TILE_COLS accumulators that stay in registers over the whole k block; each
 * step loads one row of B's panel, broadcasts one lane of A per tile row and makes two steps with
 * it.  AVX-512: 14 x 2 accumulators + 2 B + 1 A = 31 of 32 registers; AVX2: 6 x 2 + 2 + 1 = 15
 * of 16. */
#ifndef GEMM_TILE_H
#define GEMM_TILE_H

#include "backend/cpu/gemm_vec.h"

GEMM_INLINE void ask_ahead(gemm_ahead *x) {
  for (int i = 0; i < x->burst && x->runs > 0; i++) {
    __builtin_prefetch(x->at + x->offset, 0, 2);
    x->offset += 64;
    if (x->offset < x->bytes) continue;
    x->offset = 0;
    x->at += x->stride;
    x->runs--;
  }
}

/* Continues the chains of a rows x (vecs * VL) tile of C.  Between the k-steps it asks for the rows
 * of `next`, the C of the tile that follows, a row at a time: loads of C at the head of a tile have
 * nothing to hide behind, and all requests at once would hold up those for A and B.
 * rows and vecs are constants at each call, so that the arrays become registers. */
GEMM_INLINE void tile(const int rows, const int vecs, int64_t k, const float *a, const float *b,
                      float *c, int64_t ldc, bool load, const float *next, gemm_ahead *ahead) {
  vf acc[TILE_ROWS][2];
  GEMM_UNROLL for (int i = 0; i < rows; i++) {
    GEMM_UNROLL for (int v = 0; v < vecs; v++) acc[i][v] =
        load ? vf_load(c + i * ldc + v * VL) : vf_zero();
  }
  int64_t piece = k / rows + 1;
  for (; k > 0; k -= piece, next += ldc) {
    __builtin_prefetch(next, 1);
    __builtin_prefetch(next + vecs * VL - 1, 1);
    ask_ahead(ahead);
    for (int64_t s = k < piece ? k : piece; s > 0; s--, a++, b += TILE_COLS) {
      vf bv[2];
      GEMM_UNROLL for (int v = 0; v < vecs; v++) bv[v] = vf_load(b + v * VL);
      GEMM_UNROLL for (int i = 0; i < rows; i++) {
        vf ai = vf_set1(a[i * GEMM_PITCH]);
        GEMM_UNROLL for (int v = 0; v < vecs; v++) acc[i][v] = tile_step(ai, bv[v], acc[i][v]);
      }
    }
  }
  GEMM_UNROLL for (int i = 0; i < rows; i++) {
    GEMM_UNROLL for (int v = 0; v < vecs; v++) vf_store(c + i * ldc + v * VL, acc[i][v]);
  }
}

typedef void tile_fn(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool load,
                     const float *next, gemm_ahead *ahead);

#define TILE(R)                                                                                    \
  static void tile_##R##x1(int64_t k, const float *a, const float *b, float *c, int64_t ldc,       \
                           bool load, const float *next, gemm_ahead *ahead) {                      \
    tile(R, 1, k, a, b, c, ldc, load, next, ahead);                                                \
  }                                                                                                \
  static void tile_##R##x2(int64_t k, const float *a, const float *b, float *c, int64_t ldc,       \
                           bool load, const float *next, gemm_ahead *ahead) {                      \
    tile(R, 2, k, a, b, c, ldc, load, next, ahead);                                                \
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
                         float *c, int64_t ldc, bool load, gemm_ahead *ahead) {
  float t[TILE_ROWS * TILE_COLS];
  if (load)
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t j = 0; j < TILE_COLS; j++) t[i * TILE_COLS + j] = j < cols ? c[i * ldc + j] : 0;
    }
  tile_of[rows - 1][cols > VL](k, a, b, t, TILE_COLS, load, t, ahead);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) c[i * ldc + j] = t[i * TILE_COLS + j];
}

static void block(int64_t rows, int64_t cols, int64_t k, const float *a, const float *b, float *c,
                  int64_t ldc, bool load, gemm_ahead *ahead) {
  for (int64_t j = 0; j < cols; j += TILE_COLS) {
    int64_t w = cols - j < TILE_COLS ? cols - j : TILE_COLS;
    for (int64_t i = 0; i < rows; i += TILE_ROWS) {
      int64_t h = rows - i < TILE_ROWS ? rows - i : TILE_ROWS;
      const float *next = i + h < rows ? c + (i + h) * ldc + j : c + (j + w < cols ? j + w : j);
      if (w % VL)
        tile_partial(h, w, k, a + i * GEMM_PITCH, b + j * k, c + i * ldc + j, ldc, load, ahead);
      else
        tile_of[h - 1][w > VL](k, a + i * GEMM_PITCH, b + j * k, c + i * ldc + j, ldc, load, next,
                               ahead);
    }
  }
}

#endif
