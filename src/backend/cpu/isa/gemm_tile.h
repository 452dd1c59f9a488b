/* The register tile of the packed GEMM: the loop over k.  The file that includes this first defines
 *
 *   vf tile_step(vf a, vf b, vf sum)                   a step of the chains: sum + a * b, by lanes
 *   vf load_tile_columns(const float *p, bool direct)  VL lanes of a k-step of a pack of B
 *   TILE_END(to, vecs, sum)                            stores the sums in a type other than f32
 *                                                      (optional): void (char *to, const int vecs,
 *                                                      const vf *sum)
 *
 * A tile has TILE_ROWS x TILE_COLS accumulators, which stay in registers for a block of k.  A
 * k-step loads the vectors of B, then broadcasts one element of A for each row and makes a
 * tile_step with each vector of B.  Registers with AVX-512: 14 x 2 accumulators + 2 B + 1 A = 31 of
 * 32, and one for the order of pairs; with AVX2: 6 x 2 + 2 + 1 = 15 of 16. */
#ifndef GEMM_TILE_H
#define GEMM_TILE_H

#include "backend/cpu/gemm/gemm_vec.h"

/* The arguments of `count` tiles, one below the other: packed rows a, columns b (gemm_columns), and
 * C.  next: the memory that is prefetched during the last tile. */
typedef struct {
  int64_t count, steps;
  const float *a, *b;
  int64_t pack;
  float *c;
  int64_t ldc;
  bool load;
  gemm_target next;
  gemm_ahead *ahead;
} tile_args;

GEMM_INLINE void prefetch_ahead(gemm_ahead *x) {
  for (int i = 0; i < x->burst && x->runs > 0; i++) {
    __builtin_prefetch(x->at + x->offset, 0, 2);
    x->offset += 64;
    if (x->offset < x->bytes) continue;
    x->offset = 0;
    x->at += x->stride;
    x->runs--;
  }
}

/* Continues the chains of a rows x (vecs * VL) tile of C.  Between the k-steps it prefetches the
 * rows of `to`: C of the next tile, or the memory to which this tile's sums will be stored. Without
 * that the loads at the start of a tile and the stores at its end would wait for memory.  It
 * prefetches one row at a time, since all at once would delay the loads of A and B. rows and vecs
 * are constants in each call, so that the arrays become registers. */
GEMM_INLINE void tile(const int rows, const int vecs, const bool direct, const tile_args *t,
                      const float *a, float *c, gemm_target to) {
  const float *b = t->b;
  const char *next = to.at;
  const int64_t ldc = t->ldc, pack = t->pack;
  int64_t k = t->steps;
  const bool load = t->load;
  vf acc[TILE_ROWS][TILE_VECS];
  GEMM_UNROLL for (int i = 0; i < rows; i++) {
    GEMM_UNROLL for (int v = 0; v < vecs; v++) acc[i][v] =
        load ? vf_load(c + i * ldc + v * VL) : vf_zero();
  }
  int64_t chunk = k / rows + 1;
  for (; k > 0; k -= chunk, next += to.stride) {
    __builtin_prefetch(next, 1);
    __builtin_prefetch(next + to.bytes - 1, 1);
    prefetch_ahead(t->ahead);
    for (int64_t s = k < chunk ? k : chunk; s > 0; s--, a++, b += GEMM_PACK) {
      vf bv[TILE_VECS];
      GEMM_UNROLL for (int v = 0; v < vecs; v++) bv[v] =
          load_tile_columns(b + v * VL / GEMM_PACK * pack + v * VL % GEMM_PACK, direct);
      GEMM_UNROLL for (int i = 0; i < rows; i++) {
        vf ai = vf_set1(a[i * GEMM_PITCH]);
        GEMM_UNROLL for (int v = 0; v < vecs; v++) acc[i][v] = tile_step(ai, bv[v], acc[i][v]);
      }
    }
  }
#if defined(TILE_END)
  if (to.ends) {
    char *end = (char *)(uintptr_t)to.at;
    GEMM_UNROLL for (int i = 0; i < rows; i++, end += to.stride) TILE_END(end, vecs, acc[i]);
    return;
  }
#endif
  GEMM_UNROLL for (int i = 0; i < rows; i++) {
    GEMM_UNROLL for (int v = 0; v < vecs; v++) vf_store(c + i * ldc + v * VL, acc[i][v]);
  }
}

/* Computes t->count tiles, one below the other. */
GEMM_INLINE void tiles(const int rows, const int vecs, const bool direct, const tile_args *t) {
  const float *a = t->a;
  float *c = t->c;
  for (int64_t i = t->count - 1; i > 0; i--, a += rows * GEMM_PITCH) {
    float *below = c + rows * t->ldc;
    const gemm_target next = {(const char *)below, t->ldc * (int64_t)sizeof *c,
                              vecs * VL * (int64_t)sizeof *c, false};
    tile(rows, vecs, direct, t, a, c, next);
    c = below;
  }
  tile(rows, vecs, direct, t, a, c, t->next);
}

typedef void tile_fn(const tile_args *t);

#define TILE(R)                                                                                    \
  static void tile_##R(const tile_args *t) { tiles(R, TILE_VECS, false, t); }                      \
  static void tile_##R##_half(const tile_args *t) { tiles(R, TILE_VECS / 2, false, t); }           \
  static void tile_##R##_direct(const tile_args *t) { tiles(R, TILE_VECS, true, t); }              \
  static void tile_##R##_half_direct(const tile_args *t) { tiles(R, TILE_VECS / 2, true, t); }
#define TILE_ROW(R)                                                                                \
  {                                                                                                \
    {tile_##R##_half, tile_##R}, { tile_##R##_half_direct, tile_##R##_direct }                     \
  }

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

static tile_fn *const tile_of[TILE_ROWS][2][2] = {
    TILE_ROW(1),  TILE_ROW(2),  TILE_ROW(3),  TILE_ROW(4),
#if defined(__AVX2__)
    TILE_ROW(5),  TILE_ROW(6),
#endif
#if defined(__AVX512F__)
    TILE_ROW(7),  TILE_ROW(8),  TILE_ROW(9),  TILE_ROW(10),
    TILE_ROW(11), TILE_ROW(12), TILE_ROW(13), TILE_ROW(14),
#endif
};

/* A tile whose columns are not a multiple of the vector length is computed in a full-width buffer.
 */
static void tile_partial(int64_t rows, int64_t cols, const tile_args *x) {
  float t[TILE_ROWS * TILE_COLS];
  if (x->load)
    for (int64_t i = 0; i < rows; i++) {
      for (int64_t j = 0; j < TILE_COLS; j++)
        t[i * TILE_COLS + j] = j < cols ? x->c[i * x->ldc + j] : 0;
    }
  tile_args whole = *x;
  whole.c = t, whole.ldc = TILE_COLS;
  tile_of[rows - 1][false][cols > TILE_COLS / 2](&whole);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) x->c[i * x->ldc + j] = t[i * TILE_COLS + j];
}

/* C of the tile after the h x w tile at (i, j). */
static gemm_target tile_after(int64_t i, int64_t h, int64_t rows, int64_t j, int64_t w,
                              int64_t cols, const float *c, int64_t ldc) {
  const float *at = i + h < rows ? c + (i + h) * ldc + j : c + (j + w < cols ? j + w : j);
  return (gemm_target){(const char *)at, ldc * (int64_t)sizeof *c, w * (int64_t)sizeof *c, false};
}

/* The memory in the target of a block that the tile at (i, j), w columns wide, stores to. */
static gemm_target tile_target(const gemm_target *all, int64_t i, int64_t j, int64_t w,
                               int64_t cols) {
  int64_t size = all->bytes / cols;
  return (gemm_target){all->at + i * all->stride + j * size, all->stride, w * size, all->ends};
}

static void block(int64_t rows, int64_t cols, int64_t steps, const float *a, const gemm_columns *b,
                  float *c, int64_t ldc, bool load, const gemm_target *target, gemm_ahead *ahead) {
  for (int64_t j = 0; j < cols; j += TILE_COLS) {
    int64_t w = cols - j < TILE_COLS ? cols - j : TILE_COLS, h;
    bool partial = w % (TILE_COLS / 2) != 0;
    for (int64_t i = 0; i < rows; i += h) {
      int64_t count = partial || target->at ? 1 : (rows - i) / TILE_ROWS;
      h = rows - i < TILE_ROWS ? rows - i : TILE_ROWS;
      tile_args t = {.count = count ? count : 1,
                     .steps = steps,
                     .a = a + i * GEMM_PITCH,
                     .b = b->at + j / GEMM_PACK * b->pack,
                     .pack = b->pack,
                     .c = target->ends && !load ? c : c + i * ldc + j,
                     .ldc = ldc,
                     .load = load,
                     .ahead = ahead};
      int64_t last = i + (t.count - 1) * h;
      t.next = target->at ? tile_target(target, i, j, w, cols)
                          : tile_after(last, h, rows, j, w, cols, c, ldc);
      if (partial) tile_partial(h, w, &t);
      else tile_of[h - 1][b->direct][w > TILE_COLS / 2](&t);
      h *= t.count;
    }
  }
}

#endif
