/* Attention, forward, for the few query rows of decoding: keys and values are read once, in place.
 * Here 16 keys are the lanes of a score and 16 columns those of a sum, which changes nothing in the
 * order of any element's operations: the bits are those of the tiles. */
#include "backend/cpu/isa/attn_few.h"

/* The rows that some query sees of FEW_KEYS from `from` on. */
static lines find_visible_lines(const few_rows *f, const attn_view *x, int64_t n, int64_t from) {
  int64_t size = (int64_t)dtype_size(x->dtype), left = f->last + 1 - from;
  if (left > FEW_KEYS) left = FEW_KEYS;
  return (lines){row_at(x, f->b, from, f->kv), x->st * size, ((f->heads - 1) * x->sh + n) * size, 0,
                 left};
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

/* x = columns d .. d + left - 1 of 16 rows, as pairs where these are of bf16. */
SIMD void keys_load(const hp_dtype t, const bool pairs, const char *at, const int64_t row[16],
                    int64_t d, int left, v16f x[16]) {
  for (int i = 0; i < 16; i++)
    x[i] = pairs ? v16_load((const float *)(const void *)(at + row[i] + 2 * d))
                 : v16_load_as(t, at + row[i], d, left);
}

/* Scores of the FEW_KEYS from `key` on, at `at` of the block, for R rows of `heads` heads. */
SIMD void compute_scores(const int R, const int heads, const hp_dtype t, few_rows *f, int head,
                         const int64_t row[16], int at) {
  const attn_job *j = f->j;
  const int64_t D = j->s->D, size = t == HP_F32 ? 4 : 2;
  const char *from[FEW_HEADS];
  few_head h[FEW_HEADS];
  v16f acc[FEW_HEADS][ATTN_FEW], x[16];
  for (int i = 0; i < heads; i++) {
    h[i] = make_head(f, head + i);
    from[i] = (const char *)j->k.at + (head + i) * j->k.sh * size;
    for (int r = 0; r < R; r++) acc[i][r] = v16_zero();
  }
  int64_t d = 0;
  for (; t == HP_BF16 && d + 32 <= D; d += 32)
    for (int i = 0; i < heads; i++) {
      prefetch_lines(&f->next, 16);
      keys_load(t, true, from[i], row, d, 16, x);
      scores_add(R, true, x, h[i].q + d, j->Dp, acc[i]);
    }
  for (; d < D; d += 16)
    for (int i = 0; i < heads; i++) {
      prefetch_lines(&f->next, 16);
      if (d + 16 <= D) keys_load(t, false, from[i], row, d, 16, x);
      else keys_load(t, false, from[i], row, d, v16_left(D, d), x);
      scores_add(R, false, x, h[i].q + d, j->Dp, acc[i]);
    }
  const v16f scale = v16_set1(j->s->scale * 0x1.715476p0f);
  for (int i = 0; i < heads; i++)
    for (int r = 0; r < R; r++) v16_store(h[i].p + r * ATTN_BLOCK + at, v16_mul(acc[i][r], scale));
}

/* The same for all heads.  Keys past the last are scored as the last, and hidden later. */
SIMD void score_all_heads(const int R, const hp_dtype t, few_rows *f, int64_t key, int at) {
  const int side = R == 1 ? FEW_HEADS : 1;
  const attn_view *k = &f->j->k;
  int64_t row[16];
  for (int64_t i = 0; i < 16; i++) {
    int64_t t_k = key + i < f->j->s->Tk ? key + i : f->j->s->Tk - 1;
    row[i] = (t == HP_F32 ? 4 : 2) * (f->b * k->sb + t_k * k->st + f->kv * k->sh);
  }
  int head = 0;
  for (; head + side <= f->heads; head += side) compute_scores(R, side, t, f, head, row, at);
  for (; head < f->heads; head++) compute_scores(R, 1, t, f, head, row, at);
}

/* sum = sum * scale + p v over keys from .. to - 1 of the block, columns c .. c + 16 vecs - 1. */
SIMD void sum_values(const int R, const int vecs, const hp_dtype t, few_rows *f, const few_head *h,
                     const char *v, int64_t c, int left, int from, int to) {
  const int64_t Dvp = f->j->Dvp, step = f->j->v.st * (t == HP_F32 ? 4 : 2);
  v16f acc[ATTN_FEW][FEW_VECS];
  for (int r = 0; r < R; r++)
    for (int x = 0; x < vecs; x++)
      acc[r][x] = v16_mul(v16_load(h->sum + r * Dvp + c + 16 * x), v16_set1(h->scale[r]));
  for (int i = from; i < to; i++) {
    prefetch_lines(&f->next, t == HP_F32 ? vecs : (vecs + 1) / 2);
    for (int x = 0; x < vecs; x++) {
      v16f b = v16_load_as(t, v + i * step, c + 16 * x, left);
      for (int r = 0; r < R; r++)
        acc[r][x] = v16_fma(v16_set1(h->p[r * ATTN_BLOCK + i]), b, acc[r][x]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int x = 0; x < vecs; x++) v16_store(h->sum + r * Dvp + c + 16 * x, acc[r][x]);
}

/* The same for all columns of all heads. */
SIMD void sum_all_values(const int R, const hp_dtype t, few_rows *f, int64_t kb, int from, int to) {
  const int vecs = R <= 4 ? FEW_VECS : 1;
  const int64_t Dv = f->j->s->Dv;
  for (int head = 0; head < f->heads; head++) {
    const few_head h = make_head(f, head);
    const char *v = row_at(&f->j->v, f->b, kb, f->kv + head);
    int64_t c = 0;
    for (; c + 16 * vecs <= Dv; c += 16 * vecs) sum_values(R, vecs, t, f, &h, v, c, 16, from, to);
    for (; c < Dv; c += 16) sum_values(R, 1, t, f, &h, v, c, v16_left(Dv, c), from, to);
    for (int r = 0; r < R; r++) h.scale[r] = 1;
  }
}

/* Scores of keys from .. to - 1 of the block.  While FEW_KEYS are worked on, those are prefetched
 * that come next: all keys of the block, all its values, then the keys of the next block. */
SIMD void score_block(const int R, const hp_dtype t, few_rows *f, int64_t kb, int from, int to) {
  const attn_job *j = f->j;
  for (int i = from & -FEW_KEYS; i < to; i += FEW_KEYS) {
    bool more = i + FEW_KEYS < to;
    f->next = more ? find_visible_lines(f, &j->k, j->s->D, kb + i + FEW_KEYS)
                   : find_visible_lines(f, &j->v, j->s->Dv, kb + (from & -FEW_KEYS));
    score_all_heads(R, t, f, kb + i, i);
  }
}
SIMD void sum_block(const int R, const hp_dtype t, few_rows *f, int64_t kb, int from, int to) {
  const attn_job *j = f->j;
  for (int i = from, end; i < to; i = end) {
    end = (i & -FEW_KEYS) + FEW_KEYS;
    if (end > to) end = to;
    f->next = end < to ? find_visible_lines(f, &j->v, j->s->Dv, kb + end)
                       : find_visible_lines(f, &j->k, j->s->D, kb + ATTN_BLOCK);
    sum_all_values(R, t, f, kb, i, end);
  }
}

/* Functions of their own: inlined into one, they take three times as long to compile.  Each works
 * on a copy of its own, which no store can change as far as a compiler knows. */
typedef void block_fn(const few_rows *f, int64_t kb, int from, int to);
#define FEW_BLOCK(name, R, type)                                                                   \
  __attribute__((noinline)) static void name##_##R##_##type(const few_rows *f, int64_t kb,         \
                                                            int from, int to) {                    \
    few_rows own = *f;                                                                             \
    name(R, type, &own, kb, from, to);                                                             \
  }
#define FEW_TYPES(name, R)                                                                         \
  FEW_BLOCK(name, R, HP_F32) FEW_BLOCK(name, R, HP_BF16) FEW_BLOCK(name, R, HP_F16)
FEW_TYPES(score_block, 1)
FEW_TYPES(score_block, 4)
FEW_TYPES(score_block, 8)
FEW_TYPES(sum_block, 1)
FEW_TYPES(sum_block, 4)
FEW_TYPES(sum_block, 8)
_Static_assert(ATTN_FEW == 8, "for more rows there is no kernel");

/* The kernels of a number of rows, by type. */
typedef struct {
  int rows;
  block_fn *score[HP_F16 + 1], *sum[HP_F16 + 1];
} few_kernels;
#define FEW_OF_TYPES(name, R)                                                                      \
  {                                                                                                \
    [HP_F32] = name##_##R##_HP_F32, [HP_BF16] = name##_##R##_HP_BF16,                              \
    [HP_F16] = name##_##R##_HP_F16                                                                 \
  }
#define FEW_KERNELS(R)                                                                             \
  { R, FEW_OF_TYPES(score_block, R), FEW_OF_TYPES(sum_block, R) }
static const few_kernels few_kernels_of[] = {FEW_KERNELS(1), FEW_KERNELS(4), FEW_KERNELS(8)};

static void attend(const few_rows *f) {
  const few_kernels *n = few_kernels_of;
  while (n->rows < f->n) n++;
  for (int64_t kb = f->first - f->first % ATTN_BLOCK; kb <= f->last; kb += ATTN_BLOCK) {
    int from = f->first > kb ? (int)(f->first - kb) : 0;
    int to = f->last < kb + ATTN_BLOCK - 1 ? (int)(f->last - kb + 1) : ATTN_BLOCK;
    n->score[f->j->k.dtype](f, kb, from, to);
    for (int head = 0; head < f->heads; head++) {
      const few_head h = make_head(f, head);
      for (int r = 0; r < n->rows; r++) update_softmax(f, &h, r, kb);
    }
    n->sum[f->j->v.dtype](f, kb, from, to);
  }
}

attn_claimed ISA_NAME(attn_join)(attn_job *j, attn_claimed claimed, float *work) {
  int64_t b = claimed.item / j->s->KV;
  (void)work;
  join_segments(j, b, claimed.item % j->s->KV, b * j->segments, j->segments);
  return attn_claim(j);
}

/* Threads take the chunks of a segment at the same time: rows of memory are read as a whole. */
attn_claimed ISA_NAME(attn_few)(attn_job *j, attn_claimed claimed, float *work) {
  int64_t item = claimed.item, chunk = item % j->chunks, segment = item / j->chunks % j->segments;
  few_rows f = {.j = j, .n = (int)j->rows, .state = work};
  f.b = item / j->segments / j->chunks;
  f.kv = find_chunk_head(j, chunk);
  f.heads = (int)(find_chunk_head(j, chunk + 1) - f.kv);
  few_start(&f, j->segment0 + segment);
  f.next = find_visible_lines(&f, &j->k, j->s->D, f.first);
  prefetch_lines(&f.next, INT64_MAX);
  attend(&f);
  int64_t first = f.b * j->segments;
  few_write(&f, first, j->segments, segment);
  for (int head = 0; j->segments == 1 && head < f.heads; head++) /* there is nothing to wait for */
    join_segments(j, f.b, f.kv + head, first, 1);
  return attn_claim(j);
}
