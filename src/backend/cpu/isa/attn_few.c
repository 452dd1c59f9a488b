/* Attention, forward, for the few query rows of decoding: keys and values are read once, in place.
 * Here 16 keys are the lanes of a score and 16 columns those of a sum, which changes nothing in the
 * order of any element's operations: the bits are those of the tiles. */
#include "backend/cpu/isa/attn_tile.h"

typedef struct {
  const attn_job *j;
  int64_t b, kv;
  int n; /* rows */
  int32_t lo[ATTN_FEW], hi[ATTN_FEW];
  int64_t first, last;
  float m[ATTN_FEW], l[ATTN_FEW];
  float *q, *sum, *p; /* [FEW][Dp], [FEW][Dvp], [FEW][BLOCK] */
} few_rows;

/* Asks for a row ahead of its use: rows are strided, out of the hardware's sight. */
SIMD void row_prefetch(const void *row, hp_dtype t, int64_t n) {
  for (int64_t i = 0; i < n * (int64_t)dtype_size(t); i += 64)
    __builtin_prefetch((const char *)row + i);
}

/* Scores of 16 keys from `key`, for R rows. */
SIMD void scores_16(const int R, few_rows *f, int64_t key, int at) {
  const attn_job *j = f->j;
  v16f acc[ATTN_FEW];
  for (int r = 0; r < R; r++) acc[r] = v16_zero();
  int keys = v16_left(j->s->Tk, key);
  for (int64_t d = 0; d < j->s->D; d += 16) {
    v16f x[16];
    int left = v16_left(j->s->D, d);
    for (int i = 0; i < 16; i++)
      x[i] = i < keys ? v16_load_as(j->k.dtype, row_at(&j->k, f->b, key + i, f->kv), d, left)
                      : v16_zero();
    transpose_16(x);
    for (int r = 0; r < R; r++)
      for (int i = 0; i < 16; i++)
        acc[r] = v16_fma(x[i], v16_set1(f->q[r * j->Dp + d + i]), acc[r]);
  }
  for (int r = 0; r < R; r++) v16_store(f->p + r * ATTN_BLOCK + at, acc[r]);
}

/* p of one row in a block, and what its earlier sums are multiplied by. */
static float few_softmax(few_rows *f, int r, int64_t kb) {
  float *p = f->p + r * ATTN_BLOCK;
  int32_t key[16];
  for (int i = 0; i < 16; i++) key[i] = (int32_t)kb + i;
  v16i k = v16i_load(key), lo = v16i_set1(f->lo[r]), hi = v16i_set1(f->hi[r]);
  v16f top = v16_set1(f->m[r]), x[ATTN_BLOCK / 16], sum = v16_zero();
  for (int i = 0; i < ATTN_BLOCK / 16; i++) {
    v16m hidden = v16m_or(v16i_lt(k, lo), v16i_lt(hi, k));
    x[i] = v16_select(hidden, v16_set1(-INFINITY), v16_load(p + 16 * i));
    top = v16_max(x[i], top);
    k = v16i_add(k, v16i_set1(16));
  }
  v16f m = v16_set1(v16_max_lane(top)), a = tile_exp2(v16_sub(v16_set1(f->m[r]), m));
  for (int i = 0; i < ATTN_BLOCK / 16; i++) {
    x[i] = tile_exp2(v16_sub(x[i], m));
    v16_store(p + 16 * i, x[i]);
    sum = i ? v16_add(sum, x[i]) : x[i];
  }
  v16f l = v16_fma(v16_set1(f->l[r]), a, v16_set1(v16_sum(sum)));
  v16_store_n(&f->l[r], l, 1);
  v16_store_n(&f->m[r], m, 1);
  float scale[16];
  v16_store(scale, a);
  return scale[0];
}

/* sum = sum * scale + p v over keys from .. to - 1 of the block */
SIMD void few_values(const int R, few_rows *f, int64_t kb, int from, int to, const float *scale) {
  const attn_job *j = f->j;
  for (int64_t c = 0; c < j->s->Dv; c += 16) {
    v16f acc[ATTN_FEW];
    int left = v16_left(j->s->Dv, c);
    for (int r = 0; r < R; r++)
      acc[r] = v16_mul(v16_load(f->sum + r * j->Dvp + c), v16_set1(scale[r]));
    for (int i = from; i < to; i++) {
      v16f x = v16_load_as(j->v.dtype, row_at(&j->v, f->b, kb + i, f->kv), c, left);
      for (int r = 0; r < R; r++) acc[r] = v16_fma(v16_set1(f->p[r * ATTN_BLOCK + i]), x, acc[r]);
    }
    for (int r = 0; r < R; r++) v16_store(f->sum + r * j->Dvp + c, acc[r]);
  }
}

SIMD void few_block(const int R, few_rows *f, int64_t kb) {
  const attn_job *j = f->j;
  int from = f->first > kb ? (int)(f->first - kb) : 0;
  int to = f->last < kb + ATTN_BLOCK - 1 ? (int)(f->last - kb + 1) : ATTN_BLOCK;
  float scale[ATTN_FEW];
  for (int i = from; i < to; i++)
    row_prefetch(row_at(&j->v, f->b, kb + i, f->kv), j->v.dtype, j->s->Dv);
  for (int i = 0; i < ATTN_BLOCK; i += 16) {
    if (i + 16 > from && i < to) scores_16(R, f, kb + i, i);
  }
  for (int i = to; i < to + ATTN_BLOCK && kb + i <= f->last; i++)
    row_prefetch(row_at(&j->k, f->b, kb + i, f->kv), j->k.dtype, j->s->D);
  for (int r = 0; r < R; r++) scale[r] = few_softmax(f, r, kb);
  few_values(R, f, kb, from, to, scale);
}

static void few_setup(few_rows *f, int64_t segment) {
  const attn_job *j = f->j;
  f->n = (int)j->rows;
  f->first = INT32_MAX, f->last = -1;
  memset(f->p, 0, sizeof(float) * ATTN_FEW * ATTN_BLOCK);
  memset(f->sum, 0, sizeof(float) * (size_t)(ATTN_FEW * j->Dvp));
  memset(f->q, 0, sizeof(float) * (size_t)(ATTN_FEW * j->Dp));
  const v16f scale = v16_set1(j->s->scale * 0x1.715476p0f);
  for (int r = 0; r < ATTN_FEW; r++) {
    f->m[r] = ATTN_NO_MAX, f->l[r] = 0, f->lo[r] = INT32_MAX, f->hi[r] = -1;
    if (r >= f->n) continue;
    int64_t h = f->kv * j->group + r / j->s->Tq, t = r % j->s->Tq;
    float *q = f->q + r * j->Dp;
    row_load(q, row_at(&j->q, f->b, t, h), j->q.dtype, j->s->D);
    for (int64_t d = 0; d < j->Dp; d += 16) v16_store(q + d, v16_mul(v16_load(q + d), scale));
    keys_of_row(j->s, f->b, t, &f->lo[r], &f->hi[r]);
    if (f->lo[r] > f->hi[r]) continue;
    if (f->lo[r] < f->first) f->first = f->lo[r];
    if (f->hi[r] > f->last) f->last = f->hi[r];
  }
  if (f->first < segment * ATTN_SEGMENT) f->first = segment * ATTN_SEGMENT;
  if (f->last >= (segment + 1) * ATTN_SEGMENT) f->last = (segment + 1) * ATTN_SEGMENT - 1;
}

void ISA_NAME(attn_few)(const attn_job *j, int64_t item, float *work) {
  int64_t segment = item % j->segments, head = item / j->segments;
  few_rows f = {.j = j, .b = head / j->s->KV, .kv = head % j->s->KV, .q = work};
  f.sum = f.q + ATTN_FEW * j->Dp, f.p = f.sum + ATTN_FEW * j->Dvp;
  few_setup(&f, segment);
  for (int64_t kb = f.first - f.first % ATTN_BLOCK; kb <= f.last; kb += ATTN_BLOCK) {
    if (f.n == 1) few_block(1, &f, kb);
    else if (f.n == 2) few_block(2, &f, kb);
    else if (f.n <= 4) few_block(4, &f, kb);
    else few_block(ATTN_FEW, &f, kb);
  }
  for (int r = 0; r < f.n; r++) {
    float *to = j->partial + ((head * j->segments + segment) * j->rows + r) * (16 + j->Dvp);
    to[0] = f.m[r], to[1] = f.l[r];
    memcpy(to + 16, f.sum + r * j->Dvp, sizeof(float) * (size_t)j->Dvp);
  }
}

/* The segments of one row, in order, into that of segment 0; then o and lse. */
static void join_row(const attn_job *j, int64_t head, int64_t row) {
  int64_t step = 16 + j->Dvp, h = head % j->s->KV * j->group + row / j->s->Tq, t = row % j->s->Tq,
          b = head / j->s->KV;
  float *all = j->partial + (head * j->segments * j->rows + row) * step;
  v16f m = v16_set1(ATTN_NO_MAX), l = v16_zero(), a, c;
  for (int64_t i = 0; i < j->segments; i++) {
    const float *at = all + i * j->rows * step;
    softmax_join(&m, &l, v16_set1(at[0]), v16_set1(at[1]), &a, &c);
    for (int64_t x = 16; x < step; x += 16) {
      v16f old = i ? v16_mul(v16_load(all + x), a) : v16_zero();
      v16_store(all + x, v16_fma(v16_load(at + x), c, old));
    }
  }
  v16f s = softmax_scale(l);
  for (int64_t x = 16; x < step; x += 16) v16_store(all + x, v16_mul(v16_load(all + x), s));
  row_store(row_at(&j->o, b, t, h), j->o.dtype, all + 16, j->s->Dv, 1.0f);
  if (j->lse_out) v16_store_n(j->lse_out + (b * j->s->H + h) * j->s->Tq + t, softmax_lse(m, l), 1);
}

void ISA_NAME(attn_join)(const attn_job *j, int64_t item, float *work) {
  (void)work;
  for (int64_t row = 0; row < j->rows; row++) join_row(j, item, row);
}
