/* Attention, forward, for the few query rows of decoding: keys and values are read once, in place.
 * Here 16 keys are the lanes of a score and 16 columns those of a sum, which changes nothing in the
 * order of any element's operations: the bits are those of the tiles. */
#include "backend/cpu/isa/attn_tile.h"

/* Rows of keys or values ahead of their use, in the order of their addresses: only whole rows, all
 * heads of an item side by side, read at the speed of memory. */
typedef struct {
  const char *row;
  int64_t step, width, col, rows; /* bytes; rows that are left */
} lines;

typedef struct {
  const attn_job *j;
  int64_t b, kv;                      /* first of its key heads */
  int heads, n;                       /* key heads; query rows of each */
  int32_t lo[ATTN_FEW], hi[ATTN_FEW]; /* keys of each row */
  int64_t first, last;                /* keys that some row sees */
  lines next_k, next_v;
  float *p;     /* [FEW][BLOCK] */
  float *state; /* of each head: m, l [FEW], q [FEW][Dp], sums [FEW][Dvp] */
} few_rows;

typedef struct {
  float *m, *l, *q, *sum;
} few_head;

SIMD few_head head_of(const few_rows *f, int i) {
  float *at = f->state + i * ATTN_FEW * (2 + f->j->Dp + f->j->Dvp);
  return (few_head){at, at + ATTN_FEW, at + 2 * ATTN_FEW, at + ATTN_FEW * (2 + f->j->Dp)};
}

static lines lines_of(const few_rows *f, const attn_view *x, int64_t n, int64_t from) {
  int64_t size = (int64_t)dtype_size(x->dtype), left = f->last + 1 - from;
  if (left > ATTN_BLOCK) left = ATTN_BLOCK;
  return (lines){row_at(x, f->b, from, f->kv), x->st * size, ((f->heads - 1) * x->sh + n) * size, 0,
                 left};
}
SIMD void ask_line(lines *a) {
  if (a->rows <= 0) return;
  __builtin_prefetch(a->row + a->col);
  a->col += 64;
  if (a->col >= a->width) a->col = 0, a->row += a->step, a->rows--;
}

/* acc += q k over the columns of x, those of 16 keys: 16 of them, or 32 of bf16, which are
 * transposed as pairs and taken apart afterwards. */
SIMD void scores_add(const int R, const bool pairs, v16f x[16], const float *q, int64_t Dp,
                     v16f acc[ATTN_FEW]) {
  transpose_16(x);
  for (int i = 0; i < 16; i++) {
    v16f first = pairs ? v16i_as_f(v16i_shl(v16_as_i(x[i]), 16)) : x[i];
    for (int r = 0; r < R; r++)
      acc[r] = v16_fma(first, v16_set1(q[r * Dp + (pairs ? 2 * i : i)]), acc[r]);
    if (!pairs) continue;
    v16f second = v16i_as_f(v16i_and(v16_as_i(x[i]), v16i_set1((int32_t)0xffff0000u)));
    for (int r = 0; r < R; r++) acc[r] = v16_fma(second, v16_set1(q[r * Dp + 2 * i + 1]), acc[r]);
  }
}

/* Scores of 16 keys from `key`, for R rows of head i. */
SIMD void scores_16(const int R, const hp_dtype t, few_rows *f, int head, int64_t key, int at) {
  const attn_job *j = f->j;
  const float *q = head_of(f, head).q;
  v16f acc[ATTN_FEW], x[16];
  for (int r = 0; r < R; r++) acc[r] = v16_zero();
  int keys = v16_left(j->s->Tk, key);
  const char *rows = row_at(&j->k, f->b, key, f->kv + head);
  int64_t step = j->k.st * (t == HP_F32 ? 4 : 2), d = 0;
  for (; t == HP_BF16 && d + 32 <= j->s->D; d += 32) {
    for (int i = 0; i < 16; i++) {
      ask_line(&f->next_k);
      x[i] =
          i < keys ? v16_load((const float *)(const void *)(rows + i * step + 2 * d)) : v16_zero();
    }
    scores_add(R, true, x, q + d, j->Dp, acc);
  }
  for (; d < j->s->D; d += 16) {
    int left = v16_left(j->s->D, d);
    for (int i = 0; i < 16; i++) {
      ask_line(&f->next_k);
      x[i] = i < keys ? v16_load_as(t, rows + i * step, d, left) : v16_zero();
    }
    scores_add(R, false, x, q + d, j->Dp, acc);
  }
  const v16f scale = v16_set1(j->s->scale * 0x1.715476p0f);
  for (int r = 0; r < R; r++) v16_store(f->p + r * ATTN_BLOCK + at, v16_mul(acc[r], scale));
}

/* p of one row in a block; returns what its earlier sums are multiplied by. */
static float few_softmax(few_rows *f, float *m_at, float *l_at, int r, int64_t kb) {
  float *p = f->p + r * ATTN_BLOCK;
  int32_t key[16];
  for (int i = 0; i < 16; i++) key[i] = (int32_t)kb + i;
  v16i k = v16i_load(key), lo = v16i_set1(f->lo[r]), hi = v16i_set1(f->hi[r]);
  v16f top = v16_set1(*m_at), x[ATTN_BLOCK / 16], sum = v16_zero();
  for (int i = 0; i < ATTN_BLOCK / 16; i++) {
    v16m hidden = v16m_or(v16i_lt(k, lo), v16i_lt(hi, k));
    x[i] = v16_select(hidden, v16_set1(-INFINITY), v16_load(p + 16 * i));
    top = v16_max(x[i], top);
    k = v16i_add(k, v16i_set1(16));
  }
  v16f m = v16_set1(v16_max_lane(top)), a = tile_exp2(v16_sub(v16_set1(*m_at), m));
  for (int i = 0; i < ATTN_BLOCK / 16; i++) {
    x[i] = tile_exp2(v16_sub(x[i], m));
    v16_store(p + 16 * i, f->j->half ? round_bf16(x[i]) : x[i]);
    sum = i ? v16_add(sum, x[i]) : x[i];
  }
  v16_store_n(l_at, v16_fma(v16_set1(*l_at), a, v16_set1(v16_sum(sum))), 1);
  v16_store_n(m_at, m, 1);
  float scale[16];
  v16_store(scale, a);
  return scale[0];
}

/* sum = sum * scale + p v over keys from .. to - 1 of the block */
SIMD void few_values(const int R, const hp_dtype t, few_rows *f, int head, int64_t kb, int from,
                     int to, const float *scale) {
  const attn_job *j = f->j;
  float *sum = head_of(f, head).sum;
  const char *rows = row_at(&j->v, f->b, kb, f->kv + head);
  int64_t step = j->v.st * (t == HP_F32 ? 4 : 2);
  for (int64_t c = 0; c < j->s->Dv; c += 16) {
    v16f acc[ATTN_FEW];
    int left = v16_left(j->s->Dv, c);
    for (int r = 0; r < R; r++)
      acc[r] = v16_mul(v16_load(sum + r * j->Dvp + c), v16_set1(scale[r]));
    for (int i = from; i < to; i++) {
      ask_line(&f->next_v);
      v16f x = v16_load_as(t, rows + i * step, c, left);
      for (int r = 0; r < R; r++) acc[r] = v16_fma(v16_set1(f->p[r * ATTN_BLOCK + i]), x, acc[r]);
    }
    for (int r = 0; r < R; r++) v16_store(sum + r * j->Dvp + c, acc[r]);
  }
}

SIMD void few_block(const int R, const hp_dtype kt, const hp_dtype vt, few_rows *f, int64_t kb) {
  int from = f->first > kb ? (int)(f->first - kb) : 0;
  int to = f->last < kb + ATTN_BLOCK - 1 ? (int)(f->last - kb + 1) : ATTN_BLOCK;
  f->next_k = lines_of(f, &f->j->k, f->j->s->D, kb + ATTN_BLOCK);
  f->next_v = lines_of(f, &f->j->v, f->j->s->Dv, kb + ATTN_BLOCK);
  for (int head = 0; head < f->heads; head++) {
    few_head h = head_of(f, head);
    float scale[ATTN_FEW];
    for (int i = 0; i < ATTN_BLOCK; i += 16)
      if (i + 16 > from && i < to) scores_16(R, kt, f, head, kb + i, i);
    for (int r = 0; r < R; r++) scale[r] = few_softmax(f, &h.m[r], &h.l[r], r, kb);
    few_values(R, vt, f, head, kb, from, to, scale);
  }
}

/* The state of a head that has seen no key, and its queries, rows past the last 0. */
static void head_start(const few_rows *f, int head) {
  const attn_job *j = f->j;
  few_head h = head_of(f, head);
  memset(h.q, 0, sizeof(float) * (size_t)(ATTN_FEW * (j->Dp + j->Dvp)));
  for (int r = 0; r < ATTN_FEW; r++) h.m[r] = ATTN_NO_MAX, h.l[r] = 0;
  for (int r = 0; r < f->n; r++) {
    float *q = h.q + r * j->Dp;
    int64_t at = (f->kv + head) * j->group + r / j->s->Tq;
    row_load(q, row_at(&j->q, f->b, r % j->s->Tq, at), j->q.dtype, j->s->D);
  }
}

static void few_start(few_rows *f, int64_t segment) {
  f->first = INT32_MAX, f->last = -1;
  memset(f->p, 0, sizeof(float) * ATTN_FEW * ATTN_BLOCK);
  for (int head = 0; head < f->heads; head++) head_start(f, head);
  for (int r = 0; r < ATTN_FEW; r++) {
    f->lo[r] = INT32_MAX, f->hi[r] = -1;
    if (r >= f->n) continue;
    keys_of_row(f->j->s, f->b, r % f->j->s->Tq, &f->lo[r], &f->hi[r]);
    if (f->lo[r] > f->hi[r]) continue;
    if (f->lo[r] < f->first) f->first = f->lo[r];
    if (f->hi[r] > f->last) f->last = f->hi[r];
  }
  if (f->first < segment * ATTN_SEGMENT) f->first = segment * ATTN_SEGMENT;
  if (f->last >= (segment + 1) * ATTN_SEGMENT) f->last = (segment + 1) * ATTN_SEGMENT - 1;
}

static void few_write(const few_rows *f, int64_t segment) {
  const attn_job *j = f->j;
  for (int head = 0; head < f->heads; head++)
    for (int r = 0; r < f->n; r++) {
      few_head h = head_of(f, head);
      int64_t at = (f->b * j->s->KV + f->kv + head) * j->segments + segment;
      float *to = j->partial + (at * j->rows + r) * (16 + j->Dvp);
      to[0] = h.m[r], to[1] = h.l[r];
      memcpy(to + 16, h.sum + r * j->Dvp, sizeof(float) * (size_t)j->Dvp);
    }
}

SIMD void few_keys(const int R, few_rows *f) {
  hp_dtype k = f->j->k.dtype, v = f->j->v.dtype;
  for (int64_t kb = f->first - f->first % ATTN_BLOCK; kb <= f->last; kb += ATTN_BLOCK) {
    if (k == HP_F32 && v == HP_F32) few_block(R, HP_F32, HP_F32, f, kb);
    else if (k == HP_BF16 && v == HP_BF16) few_block(R, HP_BF16, HP_BF16, f, kb);
    else few_block(R, k, v, f, kb);
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

void ISA_NAME(attn_few)(const attn_job *j, int64_t item, float *work) {
  int64_t segment = item % j->segments, part = item / j->segments % j->chunks;
  few_rows f = {.j = j, .n = (int)j->rows, .p = work, .state = work + ATTN_FEW * ATTN_BLOCK};
  f.b = item / j->segments / j->chunks;
  f.kv = j->s->KV * part / j->chunks;
  f.heads = (int)(j->s->KV * (part + 1) / j->chunks - f.kv);
  few_start(&f, j->segment0 + segment);
  if (f.n == 1) few_keys(1, &f);
  else if (f.n <= 4) few_keys(4, &f);
  else few_keys(ATTN_FEW, &f);
  few_write(&f, segment);
  if (j->segments > 1) return;
  for (int head = 0; head < f.heads; head++) /* there is nothing to wait for */
    ISA_NAME(attn_join)(j, f.b * j->s->KV + f.kv + head, work);
}
