/* Building blocks of the attention kernels: products of tiles, transposes, loads and stores of
 * rows. Included only by isa/attn_*.c, once per instruction set and once for bf16 dot instructions.
 * There a step of a product takes two consecutive k, a pair of bf16 in 32 bits with the first in
 * the upper half; the sums are the same as in f32 with widened operands (docs/adr/0008). */
#ifndef ATTN_TILE_H
#define ATTN_TILE_H

#include "backend/cpu/attn/attn_job.h"
#include "backend/cpu/isa/philox_vec.h"
#include "backend/cpu/simd.h"

#define ATTN_NO_MAX (-3.402823466e38f) /* running maximum of a row before its first visible key */

/* ---- products ----------------------------------------------------------------------------------
 * c[r][x] = start + sum over k, in order, of a[k * ka + r * ra] * b[k * ldb + x]: one FMA chain per
 * element, so the bits do not depend on how rows and lanes are divided into tiles. */
#if defined(__AVX512F__)
enum { TILE_ROWS = 8, TILE_VECS = 2 };
#elif defined(__AVX2__) && defined(__FMA__)
enum { TILE_ROWS = 6, TILE_VECS = 1 };
#else
enum { TILE_ROWS = 4, TILE_VECS = 1 };
#endif

typedef enum { FROM_ZERO, FROM_C, FROM_SCALED } tile_start; /* 0, c, c * scale[x] */

#if defined(__AVX512BF16__)
enum { TILE_PAIRS = 1 };
SIMD v16f tile_step(v16f a, v16f b, v16f c) {
  return _mm512_dpbf16_ps(c, (__m512bh)v16_as_i(a), (__m512bh)v16_as_i(b));
}
#else
enum { TILE_PAIRS = 0 };
SIMD v16f tile_step(v16f a, v16f b, v16f c) { return v16_fma(a, b, c); }
#endif
/* Steps of a product over n values of k. */
SIMD int64_t tile_steps(int64_t n) { return TILE_PAIRS ? (n + 1) / 2 : n; }

SIMD void tile_micro(const int rows, const int vecs, const tile_start from, const int64_t ra,
                     int64_t n, const float *a, int64_t ka, const float *b, int64_t ldb, float *c,
                     int64_t ldc, const float *scale, float times) {
  v16f acc[TILE_ROWS][TILE_VECS];
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vecs; v++) {
      acc[r][v] = from == FROM_ZERO ? v16_zero() : v16_load(c + r * ldc + 16 * v);
      if (from == FROM_SCALED) acc[r][v] = v16_mul(acc[r][v], v16_load(scale + 16 * v));
    }
  for (int64_t k = 0; k < n; k++, a += ka, b += ldb) {
    v16f bv[TILE_VECS];
    for (int v = 0; v < vecs; v++) bv[v] = v16_load(b + 16 * v);
    for (int r = 0; r < rows; r++) {
      v16f av = v16_set1(a[r * ra]);
      for (int v = 0; v < vecs; v++) acc[r][v] = tile_step(av, bv[v], acc[r][v]);
    }
  }
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < vecs; v++) {
      if (from == FROM_ZERO) acc[r][v] = v16_mul(acc[r][v], v16_set1(times));
      v16_store(c + r * ldc + 16 * v, acc[r][v]);
    }
}

/* A product of n steps.  rows is a multiple of 4, lanes of 16; ra and `from` are constants.  With
 * FROM_ZERO the result is multiplied by `times`.  Rows are divided evenly into tiles, since a tile
 * of few rows has too few chains to fill the pipeline. */
SIMD void tile_product(int64_t rows, int64_t lanes, const tile_start from, const int64_t ra,
                       int64_t n, const float *a, int64_t ka, const float *b, int64_t ldb, float *c,
                       int64_t ldc, const float *scale, float times) {
#define TILE_CALL(r_, v_)                                                                          \
  tile_micro(r_, v_, from, ra, n, a + r * ra, ka, b + x, ldb, c + r * ldc + x, ldc, scale + x,     \
             times)
#define TILE_CASE(r_)                                                                              \
  case r_:                                                                                         \
    if (r_ > TILE_ROWS) break;                                                                     \
    if (wide) TILE_CALL(r_, TILE_VECS);                                                            \
    else TILE_CALL(r_, 1);                                                                         \
    break
  for (int64_t x = 0; x < lanes;) {
    bool wide = lanes - x >= 16 * TILE_VECS;
    for (int64_t r = 0, tiles = div_up(rows, TILE_ROWS); tiles; tiles--) {
      int64_t height = round_up(div_up(rows - r, tiles), 2);
      switch (height) {
        TILE_CASE(4);
        TILE_CASE(6);
        TILE_CASE(8);
      }
      r += height;
    }
    x += wide ? 16 * TILE_VECS : 16;
  }
#undef TILE_CASE
#undef TILE_CALL
}

/* --- softmax ---------------------------------------------------------------------------------- */

/* 2^x for x <= 1, within 2 ulp; 0 below -126.5, 1 for 0, NaN for NaN.  Undefined for x > 1. */
SIMD v16f tile_exp2(v16f x) {
  const v16f magic = v16_set1(0x1.8p23f + 127); /* leaves n + 127 in the low bits */
  x = v16_max(v16_set1(-127.0f), x);
  v16f t = v16_add(x, magic), r = v16_sub(x, v16_sub(t, magic)), p;
  SIMD_POLY(p, r, 0x1.5bba0ep-10f, 0x1.3cea88p-7f, 0x1.c6b752p-5f, 0x1.ebf9bcp-3f, 0x1.62e42ap-1f,
            1.0f);
  return v16_mul(p, v16i_as_f(v16i_shl(v16_as_i(t), 23)));
}

/* Merges the running maximum and sum (mi, li) of some keys into (m, l).  *a and *b: the factors for
 * the sums over the old and the new keys. */
SIMD void softmax_join(v16f *m, v16f *l, v16f mi, v16f li, v16f *a, v16f *b) {
  v16f top = v16_max(mi, *m);
  *a = tile_exp2(v16_sub(*m, top));
  *b = tile_exp2(v16_sub(mi, top));
  *l = v16_fma(li, *b, v16_mul(*l, *a));
  *m = top;
}
/* The factor that normalises a row (0 if it has no visible key), and its log-sum-exp (then -inf).
 */
SIMD v16f softmax_scale(v16f l) {
  return v16_select(v16_eq(l, v16_zero()), v16_zero(), v16_div(v16_set1(1.0f), l));
}
SIMD v16f softmax_lse(v16f m, v16f l) {
  return v16_fma(m, v16_set1(0x1.62e430p-1f), v16_log(l)); /* m is a base-2 score */
}

/* --- rows ------------------------------------------------------------------------------------- */

SIMD void *row_at(const attn_view *v, int64_t b, int64_t t, int64_t h) {
  return (char *)v->at + (int64_t)dtype_size(v->dtype) * (b * v->sb + t * v->st + h * v->sh);
}

/* The next rows of a tensor to prefetch.  The rows of a head are short and far apart, so the
 * hardware does not prefetch them; software does, long before their use, in the order of their
 * addresses. */
typedef struct {
  const char *row;
  int64_t step, width, col; /* bytes: between rows, of a row, of it prefetched so far */
  int64_t rows;             /* still to do */
} lines;

/* Prefetches n cache lines; returns how many fewer were left. */
SIMD int64_t prefetch_lines(lines *a, int64_t n) {
  lines x = *a;
  for (; n > 0 && x.rows > 0; n--) {
    __builtin_prefetch(x.row + x.col);
    x.col += 64;
    if (x.col >= x.width) x.col = 0, x.row += x.step, x.rows--;
  }
  *a = x;
  return n;
}
/* Prefetches a row. */
SIMD void prefetch_row(const char *row, int64_t bytes) {
  prefetch_lines(&(lines){row, 0, bytes, 0, 1}, INT64_MAX);
}

/* A prefetch list: the rows that are read after the current products.  They are prefetched between
 * these products, a few cache lines at a time, so that memory is busy during computation and its
 * queue of requests is never full. */
enum { ASK_RUNS = 32 };
typedef struct {
  lines run[ASK_RUNS];
  int runs, now;
  int64_t each; /* lines per prefetch_some */
} prefetch_list;

/* Adds n elements of each of the rows from (b, t, h) on; does nothing if the list is full. */
static inline void prefetch_add(prefetch_list *a, const attn_view *x, int64_t b, int64_t t,
                                int64_t h, int64_t rows, int64_t n) {
  const int64_t size = (int64_t)dtype_size(x->dtype);
  if (a->runs < ASK_RUNS && rows > 0)
    a->run[a->runs++] = (lines){row_at(x, b, t, h), x->st * size, n * size, 0, rows};
}
/* Prefetches the next `each` lines. */
static inline void prefetch_some(prefetch_list *a) {
  for (int64_t n = a->each; n > 0 && a->now < a->runs; a->now += !a->run[a->now].rows)
    n = prefetch_lines(&a->run[a->now], n);
}
/* Sets `each` so that `times` calls of prefetch_some prefetch the whole list. */
static inline void prefetch_pace(prefetch_list *a, int64_t times) {
  int64_t all = 0;
  for (int i = a->now; i < a->runs; i++) all += a->run[i].rows * div_up(a->run[i].width, 64);
  a->each = times > 0 ? div_up(all, times) : all;
}
/* Prefetches the rest. */
static inline void prefetch_all(prefetch_list *a) {
  prefetch_pace(a, 1);
  prefetch_some(a);
}

/* Loads n elements as f32, padded with zeros to a multiple of 16. */
static inline void row_load(float *to, const void *row, hp_dtype t, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) v16_store(to + i, v16_load_as(t, row, i, v16_left(n, i)));
}
/* Stores n elements times scale, plus 0, so that -0 becomes 0. */
static inline void row_store(void *row, hp_dtype t, const float *from, int64_t n, float scale) {
  for (int64_t i = 0; i < n; i += 16) {
    int left = v16_left(n, i);
    v16f x = v16_fma(v16_load(from + i), v16_set1(scale), v16_zero());
    v16_store_as(t, row, i, x, left);
  }
}

/* --- transposes ------------------------------------------------------------------------------- */

#if defined(__AVX512F__)
/* x[i] lane j <-> x[j] lane i */
SIMD void transpose_16(v16f x[16]) {
  __m512 y[16];
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int k = 0; k < 2; k++) {
      __m512d a = _mm512_castps_pd(y[i + k]), b = _mm512_castps_pd(y[i + k + 2]);
      x[i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      x[i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  for (int i = 0; i < 4; i++) {
    y[i] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88);
    y[i + 4] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
    y[i + 8] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88);
    y[i + 12] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; i++) {
    x[i] = _mm512_shuffle_f32x4(y[i], y[i + 8], 0x88);
    x[i + 8] = _mm512_shuffle_f32x4(y[i], y[i + 8], 0xdd);
  }
}
#elif defined(__AVX2__) && defined(__FMA__)
/* x[i] lane j <-> x[j] lane i */
SIMD void transpose_8(v8f x[8]) {
  v8f y[8];
  for (int i = 0; i < 8; i += 2) {
    y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int k = 0; k < 2; k++) {
      x[i + 2 * k] = _mm256_shuffle_ps(y[i + k], y[i + k + 2], 0x44);
      x[i + 2 * k + 1] = _mm256_shuffle_ps(y[i + k], y[i + k + 2], 0xee);
    }
  for (int i = 0; i < 4; i++) {
    y[i] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x20);
    y[i + 4] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x31);
  }
  for (int i = 0; i < 8; i++) x[i] = y[i];
}
SIMD void transpose_16(v16f x[16]) {
  v8f part[4][8];
  for (int i = 0; i < 8; i++) {
    part[0][i] = x[i].lo, part[1][i] = x[i + 8].lo;
    part[2][i] = x[i].hi, part[3][i] = x[i + 8].hi;
  }
  for (int p = 0; p < 4; p++) transpose_8(part[p]);
  for (int i = 0; i < 8; i++) {
    x[i] = (v16f){part[0][i], part[1][i]};
    x[i + 8] = (v16f){part[2][i], part[3][i]};
  }
}
#else
/* Through memory, which takes no registers: inlined, its 256 moves would only be code to compile.
 */
__attribute__((noinline, unused)) static void transpose_16(v16f x[16]) {
  float in[16][16], out[16][16];
  for (int i = 0; i < 16; i++) v16_store(in[i], x[i]);
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) out[j][i] = in[i][j];
  for (int i = 0; i < 16; i++) x[i] = v16_load(out[i]);
}
#endif

/* --- operands of products --------------------------------------------------------------------- */

/* x rounded to the nearest bf16, ties to even. */
SIMD v16f round_bf16(v16f x) {
  v16i u = v16_as_i(x), odd = v16i_and(v16i_shr(u, 16), v16i_set1(1));
  v16i r = v16i_add(u, v16i_add(odd, v16i_set1(0x7fff)));
  r = v16i_and(r, v16i_set1((int32_t)0xffff0000u));
  return v16_select(v16_eq(x, x), v16i_as_f(r), v16_set1(NAN));
}

#if defined(__AVX512BF16__)
/* Elements 2i and 2i + 1 of a, then of b, as pairs. */
SIMD v16f pairs_along(v16f a, v16f b) {
  return v16i_as_f(_mm512_rol_epi32((__m512i)_mm512_cvtne2ps_pbh(b, a), 16));
}
/* Elements i of a and of b as pairs. */
SIMD v16f pairs_across(v16f a, v16f b) {
  static const uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(a, b);
  return v16i_as_f(_mm512_permutexvar_epi16(_mm512_loadu_si512(order), halves));
}
#endif

/* Weights of keys k and k + 1, the same lanes of [key][LANES], as steps of a sum over keys: rounded
 * where they meet values of bf16, and in pairs at row k / 2. */
SIMD void steps_across(float *x, int64_t k, v16f a, v16f b, bool round) {
#if defined(__AVX512BF16__)
  (void)round;
  v16_store(x + k / 2 * ATTN_LANES, pairs_across(a, b));
#else
  v16_store(x + k * ATTN_LANES, round ? round_bf16(a) : a);
  v16_store(x + (k + 1) * ATTN_LANES, round ? round_bf16(b) : b);
#endif
}
/* Both vectors of key k of [key][LANES] as steps of a sum over lanes. */
SIMD void steps_along(float *x, int64_t k, v16f a, v16f b, bool round) {
#if defined(__AVX512BF16__)
  (void)round;
  v16_store(x + k * ATTN_LANES, pairs_along(a, b));
#else
  v16_store(x + k * ATTN_LANES, round ? round_bf16(a) : a);
  v16_store(x + k * ATTN_LANES + 16, round ? round_bf16(b) : b);
#endif
}

/* Where a row is that there is none of. */
static const float no_row[ATTN_MAX_DIM];

/* Steps i.. of a sum over the n elements of a row, 16 of them, zeros after the last. */
SIMD v16f row_steps(const void *row, hp_dtype t, int64_t i, int64_t n) {
#if defined(__AVX512BF16__)
  (void)t; /* bf16 */
  const uint16_t *at = (const uint16_t *)row + 2 * i;
  int64_t left = n - 2 * i;
  __m512i x = left >= 32 ? _mm512_loadu_si512(at)
                         : _mm512_maskz_loadu_epi16((__mmask32)((1ull << left) - 1), at);
  return v16i_as_f(_mm512_rol_epi32(x, 16));
#else
  return v16_load_as(t, row, i, v16_left(n, i));
#endif
}
/* Rows of n elements, a multiple of 16 of them, become columns: [steps of n][ldt]. */
SIMD void transpose_as(float *to, int64_t ldt, const void *const *row, int rows, const hp_dtype t,
                       int64_t n) {
  for (int r = 0; r < rows; r += 16)
    for (int64_t i = 0; i < tile_steps(n); i += 16) {
      v16f x[16];
      for (int k = 0; k < 16; k++) x[k] = row_steps(row[r + k], t, i, n);
      transpose_16(x);
      for (int k = 0; k < 16; k++) v16_store(to + (i + k) * ldt + r, x[k]);
    }
}
/* Rows, an even number, as operands of sums over them: [steps of rows][np]. */
SIMD void join_as(float *to, const void *const *row, int rows, const hp_dtype t, int64_t n,
                  int64_t np) {
  for (int r = 0; r < rows; r += 2, to += (TILE_PAIRS ? 1 : 2) * np)
    for (int64_t i = 0; i < n; i += 16) {
      v16f a = v16_load_as(t, row[r], i, v16_left(n, i));
      v16f b = v16_load_as(t, row[r + 1], i, v16_left(n, i));
#if defined(__AVX512BF16__)
      v16_store(to + i, v16i_as_f(v16i_or(v16_as_i(a), v16i_shr(v16_as_i(b), 16))));
#else
      v16_store(to + i, a);
      v16_store(to + np + i, b);
#endif
    }
}
static inline void rows_transpose(float *to, int64_t ldt, const void *const *row, int rows,
                                  hp_dtype t, int64_t n) {
  if (TILE_PAIRS || t == HP_BF16) transpose_as(to, ldt, row, rows, HP_BF16, n);
  else if (t == HP_F32) transpose_as(to, ldt, row, rows, HP_F32, n);
  else transpose_as(to, ldt, row, rows, t, n);
}
static inline void rows_join(float *to, const void *const *row, int rows, hp_dtype t, int64_t n,
                             int64_t np) {
  if (TILE_PAIRS || t == HP_BF16) join_as(to, row, rows, HP_BF16, n, np);
  else if (t == HP_F32) join_as(to, row, rows, HP_F32, n, np);
  else join_as(to, row, rows, t, n, np);
}

/* Where the rows of a block of keys are.  Those of the next are prefetched. */
static inline void block_rows(const attn_view *x, int64_t b, int64_t kb, int64_t Tk, int64_t h,
                              int64_t n, const void *row[ATTN_BLOCK]) {
  const char *at = row_at(x, b, kb, h);
  const int64_t size = (int64_t)dtype_size(x->dtype), step = x->st * size;
  for (int64_t i = 0; i < ATTN_BLOCK; i++, at += step) {
    row[i] = kb + i < Tk ? at : (const void *)no_row;
    if (kb + ATTN_BLOCK + i < Tk) prefetch_row(at + ATTN_BLOCK * step, n * size);
  }
}
static inline void prefetch_block(const attn_view *x, int64_t b, int64_t kb, int64_t Tk, int64_t h,
                                  int64_t n) {
  for (int64_t i = kb; i < kb + ATTN_BLOCK && i < Tk; i++)
    prefetch_row(row_at(x, b, i, h), n * (int64_t)dtype_size(x->dtype));
}

/* --- which keys a row sees -------------------------------------------------------------------- */

typedef struct {
  int32_t lo[ATTN_LANES], hi[ATTN_LANES];  /* keys of each lane; lo > hi: none */
  int64_t first, last;                     /* keys that some lane sees; first > last: none */
  int64_t lo_max, hi_min;                  /* keys that every lane sees */
  int vecs;                                /* 1 or 2 vectors hold its rows */
  int n;                                   /* rows */
  int64_t head[ATTN_LANES], t[ATTN_LANES]; /* query head in the group, and query, of each lane */
  int64_t row[ATTN_LANES];                 /* (b * H + h) * Tq + t of each lane */
  uint32_t drawn[ATTN_LANES];              /* the row that dropout draws for each lane */
} tile_rows;

/* Rows of tile i of a key head; lanes past the last row repeat it. */
static inline void tile_setup(const attn_job *j, int64_t b, int64_t kv, int64_t i, tile_rows *t) {
  int64_t from = j->per_head ? i % j->per_head * ATTN_LANES : i * ATTN_LANES;
  int64_t end = j->per_head ? j->s->Tq : j->rows;
  int64_t head = j->per_head ? i / j->per_head : from / j->s->Tq;
  int64_t query = j->per_head ? from : from % j->s->Tq;
  t->n = (int)(end - from < ATTN_LANES ? end - from : ATTN_LANES);
  t->vecs = t->n > 16 ? 2 : 1;
  const attn_dropout *d = &j->s->dropout;
  uint64_t sequence = d->sequence ? d->sequence : (uint64_t)(j->s->H * j->s->Tq);
  t->first = INT32_MAX, t->last = -1, t->lo_max = -1, t->hi_min = INT32_MAX;
  for (int x = 0; x < ATTN_LANES; x++) {
    if (x && x < t->n && ++query == j->s->Tq) query = 0, head++;
    t->head[x] = head, t->t[x] = query;
    t->row[x] = (b * j->s->H + kv * j->group + head) * j->s->Tq + query;
    t->drawn[x] = (uint32_t)(d->first + (uint64_t)b * sequence +
                             (uint64_t)((kv * j->group + head) * j->s->Tq + query));
    keys_of_row(j->s, b, query, &t->lo[x], &t->hi[x]);
    if (t->lo[x] > t->lo_max) t->lo_max = t->lo[x];
    if (t->hi[x] < t->hi_min) t->hi_min = t->hi[x];
    if (t->hi[x] < t->lo[x]) continue;
    if (t->lo[x] < t->first) t->first = t->lo[x];
    if (t->hi[x] > t->last) t->last = t->hi[x];
  }
}

/* Rows of block kb, in fours, that hold the keys of the tile: false when there are none. */
SIMD bool tile_keys(const tile_rows *t, int64_t kb, int *from, int *to) {
  if (t->first > t->last || t->first >= kb + ATTN_BLOCK || t->last < kb) return false;
  *from = t->first > kb ? (int)(t->first - kb) & ~3 : 0;
  *to = t->last < kb + ATTN_BLOCK - 1 ? (int)(t->last - kb + 4) & ~3 : ATTN_BLOCK;
  return true;
}
/* True when every lane sees keys kb + from .. kb + to - 1. */
SIMD bool tile_sees_all(const tile_rows *t, int64_t kb, int from, int to) {
  return t->lo_max <= kb + from && t->hi_min >= kb + to - 1;
}
/* Lanes of vector v that do not see a key. */
SIMD v16m tile_hidden(const tile_rows *t, int v, int64_t key) {
  v16i k = v16i_set1((int32_t)key);
  return v16m_or(v16i_lt(k, v16i_load(t->lo + 16 * v)), v16i_lt(v16i_load(t->hi + 16 * v), k));
}

/* What dropout multiplies the weights of keys kb + from .. kb + to - 1 with, as [key][lane].  A
 * counter gives four keys of a row. */
static inline void tile_mask(const attn_dropout *d, const tile_rows *t, int64_t kb, int from,
                             int to, float *mask) {
  const v16i least = v16i_set1((int32_t)ceil((double)(float)d->p * 0x1p24));
  const v16f kept = v16_set1((float)(1 / (1 - d->p)));
  for (int v = 0; v < t->vecs; v++) {
    int32_t row[16];
    for (int x = 0; x < 16; x++) row[x] = (int32_t)t->drawn[16 * v + x];
    for (int i = from; i < to; i += 4) {
      v16i u[4] = {v16i_set1((int32_t)((kb + i) >> 2)), v16i_load(row),
                   v16i_set1((int32_t)d->stream), v16i_set1((int32_t)(d->stream >> 32))};
      philox_16(u, d->seed);
      for (int k = 0; k < 4; k++) {
        v16m dropped = v16i_lt(v16i_shr(u[k], 8), least);
        v16_store(mask + (i + k) * ATTN_LANES + 16 * v, v16_select(dropped, v16_zero(), kept));
      }
    }
  }
}
/* Adds the rows of a tensor that tile i of a key head has. */
static inline void prefetch_add_tile(prefetch_list *a, const attn_job *j, const attn_view *x,
                                     int64_t b, int64_t kv, int64_t i, int64_t n) {
  const int64_t Tq = j->s->Tq;
  int64_t row = j->per_head ? i / j->per_head * Tq + i % j->per_head * ATTN_LANES : i * ATTN_LANES;
  int64_t end = j->per_head ? (i / j->per_head + 1) * Tq : j->rows, rows;
  if (end > row + ATTN_LANES) end = row + ATTN_LANES;
  for (; row < end; row += rows) {
    rows = Tq - row % Tq < end - row ? Tq - row % Tq : end - row;
    prefetch_add(a, x, b, row % Tq, kv * j->group + row / Tq, rows, n);
  }
}
/* The tile's rows of a tensor: where one is, where all are that are written, or read, with zeros
 * for those past n; and they are prefetched. */
SIMD void *tile_row(const attn_job *j, const attn_view *x, const tile_rows *t, int64_t b,
                    int64_t kv, int i) {
  return row_at(x, b, t->t[i], kv * j->group + t->head[i]);
}
static inline void tile_out(const attn_job *j, const attn_view *x, const tile_rows *t, int64_t b,
                            int64_t kv, void *row[ATTN_LANES]) {
  for (int i = 0; i < t->n; i++) row[i] = tile_row(j, x, t, b, kv, i);
}
static inline void tile_in(const attn_job *j, const attn_view *x, const tile_rows *t, int64_t b,
                           int64_t kv, const void *row[ATTN_LANES]) {
  for (int i = 0; i < ATTN_LANES; i++) row[i] = i < t->n ? tile_row(j, x, t, b, kv, i) : no_row;
}
static inline void prefetch_tile(const attn_job *j, const attn_view *x, const tile_rows *t,
                                 int64_t b, int64_t kv, int64_t n) {
  for (int i = 0; i < t->n; i++)
    prefetch_row(tile_row(j, x, t, b, kv, i), n * (int64_t)dtype_size(x->dtype));
}
/* Columns [np][LANES], each lane times its scale, become rows of n elements; plus 0, so that no -0
 * is written. */
static inline void tile_store(const tile_rows *t, void *const *row, hp_dtype type, int64_t n,
                              const float *transposed, const float *scale) {
  for (int v = 0; v < t->vecs; v++)
    for (int64_t c = 0; c < n; c += 16) {
      v16f x[16], by = v16_load(scale + 16 * v);
      for (int i = 0; i < 16; i++)
        x[i] = v16_fma(v16_load(transposed + (c + i) * ATTN_LANES + 16 * v), by, v16_zero());
      transpose_16(x);
      for (int i = 0; i < 16 && 16 * v + i < t->n; i++)
        v16_store_as(type, row[16 * v + i], c, x[i], v16_left(n, c));
    }
}

#endif
