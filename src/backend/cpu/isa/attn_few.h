/* What the kernels of few query rows share, whether keys and values are rows or in pages: the state
 * of a head, the softmax of a block, sums over values, and the combination of segments.  The order
 * of an element's operations is that of the tiles, so the bits are theirs. */
#ifndef ATTN_FEW_H
#define ATTN_FEW_H

#include "backend/cpu/isa/attn_tile.h"

/* Heads whose scores go side by side, so that chains of one row hide the latency of an FMA; vectors
 * of columns whose sums do. */
#if defined(__AVX512F__)
enum { FEW_HEADS = 4, FEW_VECS = 4 };
#else
enum { FEW_HEADS = 2, FEW_VECS = 2 };
#endif
/* Keys that all heads of an item process before the next keys. */
enum { FEW_KEYS = 16 };

typedef struct {
  const attn_job *j;
  int64_t b, kv;                      /* first of its key heads */
  int heads, n;                       /* key heads; query rows of each */
  int32_t lo[ATTN_FEW], hi[ATTN_FEW]; /* keys of each row */
  int64_t first, last;                /* keys that some row sees */
  lines next;
  float *state; /* of each head, as few_head has it */
} few_rows;

/* Running maximum and sum of each row, and what its sums over values are multiplied by next; its
 * query, those sums, and its weights of a block: [FEW][1, 1, 1, Dp, Dvp, BLOCK]. */
typedef struct {
  float *m, *l, *scale, *q, *sum, *p;
} few_head;

SIMD few_head make_head(const few_rows *f, int i) {
  const int64_t Dp = f->j->Dp, Dvp = f->j->Dvp;
  float *at = f->state + i * ATTN_FEW * (3 + Dp + Dvp + ATTN_BLOCK), *q = at + 3 * ATTN_FEW;
  return (few_head){.m = at,
                    .l = at + ATTN_FEW,
                    .scale = at + 2 * ATTN_FEW,
                    .q = q,
                    .sum = q + ATTN_FEW * Dp,
                    .p = q + ATTN_FEW * (Dp + Dvp)};
}

/* The weights of one row in a block, and what its earlier sums are multiplied by. */
static void update_softmax(const few_rows *f, const few_head *h, int r, int64_t kb) {
  float *p = h->p + r * ATTN_BLOCK, *m_at = &h->m[r], *l_at = &h->l[r];
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
  v16_store_n(&h->scale[r], a, 1);
}

/* The state of a head that has seen no key, and its queries, rows past the last 0. */
static void head_start(const few_rows *f, int head) {
  const attn_job *j = f->j;
  const few_head h = make_head(f, head);
  memset(h.q, 0, sizeof(float) * (size_t)(ATTN_FEW * (j->Dp + j->Dvp + ATTN_BLOCK)));
  for (int r = 0; r < ATTN_FEW; r++) h.m[r] = ATTN_NO_MAX, h.l[r] = 0;
  for (int r = 0; r < f->n; r++) {
    float *q = h.q + r * j->Dp;
    int64_t at = (f->kv + head) * j->group + r / j->s->Tq;
    row_load(q, row_at(&j->q, f->b, r % j->s->Tq, at), j->q.dtype, j->s->D);
  }
}

static void few_start(few_rows *f, int64_t segment) {
  f->first = INT32_MAX, f->last = -1;
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

/* The state of a row of a head in a segment: m, l, and sums from 16 on.  Segments of a head stand
 * side by side, those of sequence b from number `first` on of n. */
SIMD float *few_partial(const attn_job *j, int64_t first, int64_t n, int64_t head,
                        int64_t segment) {
  return j->partial + (first * j->s->KV + head * n + segment) * j->rows * (16 + j->Dvp);
}

static void few_write(const few_rows *f, int64_t first, int64_t n, int64_t segment) {
  const attn_job *j = f->j;
  for (int head = 0; head < f->heads; head++)
    for (int r = 0; r < f->n; r++) {
      const few_head h = make_head(f, head);
      float *to = few_partial(j, first, n, f->kv + head, segment) + r * (16 + j->Dvp);
      to[0] = h.m[r], to[1] = h.l[r];
      memcpy(to + 16, h.sum + r * j->Dvp, sizeof(float) * (size_t)j->Dvp);
    }
}

/* Sums of a state from number x on; what fills it up after the last is not read. */
SIMD v16f old_sums(const attn_job *j, const float *state, int64_t x) {
  int64_t left = 16 + j->s->Dv - x;
  return left >= 16 ? v16_load(state + x) : v16_load_n(state + x, (int)left);
}

/* The n segments of one row, in order, into that of segment 0, after what the row has of earlier
 * parts; then its state, or o and lse. */
static void join_row(const attn_job *j, int64_t b, int64_t kv, int64_t n, int64_t row, float *all) {
  int64_t step = 16 + j->Dvp, h = kv * j->group + row / j->s->Tq, t = row % j->s->Tq;
  const float *old = j->before ? j->before + state_at(j, b, kv, row) : NULL;
  bool any = old && old[1] != 0;
  v16f m = v16_set1(any ? old[0] : ATTN_NO_MAX), l = v16_set1(any ? old[1] : 0), a, c;
  all += row * step;
  for (int64_t i = 0; i < n; i++) {
    const float *at = all + i * j->rows * step;
    softmax_join(&m, &l, v16_set1(at[0]), v16_set1(at[1]), &a, &c);
    for (int64_t x = 16; x < step; x += 16) {
      v16f earlier = i ? v16_load(all + x) : any ? old_sums(j, old, x) : v16_zero();
      v16_store(all + x, v16_fma(v16_load(at + x), c, v16_mul(earlier, a)));
    }
  }
  if (j->after) {
    float *to = j->after + state_at(j, b, kv, row);
    v16_store(to, v16_zero());
    v16_store_n(to, m, 1);
    v16_store_n(to + 1, l, 1);
    memcpy(to + 16, all + 16, sizeof(float) * (size_t)j->Dvp);
    return;
  }
  v16f s = softmax_scale(l);
  for (int64_t x = 16; x < step; x += 16) v16_store(all + x, v16_mul(v16_load(all + x), s));
  row_store(row_at(&j->o, b, t, h), j->o.dtype, all + 16, j->s->Dv, 1.0f);
  if (j->lse_out) v16_store_n(j->lse_out + (b * j->s->H + h) * j->s->Tq + t, softmax_lse(m, l), 1);
}

static void join_segments(const attn_job *j, int64_t b, int64_t kv, int64_t first, int64_t n) {
  float *all = few_partial(j, first, n, kv, 0);
  for (int64_t row = 0; row < j->rows; row++) join_row(j, b, kv, n, row, all);
}

/* The first head of a chunk. */
static int64_t find_chunk_head(const attn_job *j, int64_t chunk) {
  int64_t groups = div_up(j->s->KV, j->abreast), head = groups * chunk / j->chunks * j->abreast;
  return head < j->s->KV ? head : j->s->KV;
}

#endif
