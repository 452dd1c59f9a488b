/* Attention, forward, for the few query rows of decoding, on keys and values in pages.  A page has
 * the transposed keys of all heads, and as many rows of values in its own pool, so an item reads
 * memory in order: of each block of 64 keys first the keys, page by page, then the values.  The
 * processor sees that coming: it needs no prefetches, which would only take its time.  Bits are
 * those of rows. */
#include "backend/cpu/isa/attn_few.h"

/* Vectors of keys whose scores go side by side, so that chains hide the latency of an FMA; vectors
 * of columns whose sums do, with many rows. */
#if defined(__AVX512F__)
enum { PAGE_VECS = 2, MANY_VECS = 2 };
#else
enum { PAGE_VECS = 1, MANY_VECS = 1 };
#endif

/* Elements of a row in vecs vectors, `left` of the last: of bf16, two vectors are those with even
 * index and those with odd, which takes no shuffles. */
SIMD void load_vecs(const int vecs, const hp_dtype t, const void *row, int64_t at, int left,
                    v16f *x) {
  if (t == HP_BF16 && vecs % 2 == 0)
    for (int i = 0; i < vecs; i += 2) v16_load_bf16_two((const uint16_t *)row + at + 16 * i, x + i);
  else
    for (int i = 0; i < vecs; i++) x[i] = v16_load_as(t, row, at + 16 * i, left);
}
/* Such vectors in the order of memory. */
SIMD void order_vecs(const int vecs, const hp_dtype t, v16f *x) {
  if (t == HP_BF16 && vecs % 2 == 0)
    for (int i = 0; i < vecs; i += 2) v16_zip_two(x + i);
}

/* Scores of the 16 keys from `at` of the block, or of twice as many, for R rows of a head. */
SIMD void score_page(const int R, const int vecs, const hp_dtype t, const few_rows *f, int head,
                     int64_t kb, int at) {
  const attn_job *j = f->j;
  const int64_t D = j->s->D, size = t == HP_F32 ? 4 : 2;
  const few_head h = make_head(f, head);
  int64_t from = page_at(j, &j->k, f->b, kb + at) + (f->kv + head) * j->k.sh;
  const char *k = (const char *)j->k.at + (from + at % ATTN_PAGE) * size;
  v16f acc[ATTN_FEW][PAGE_VECS];
  for (int r = 0; r < R; r++)
    for (int i = 0; i < vecs; i++) acc[r][i] = v16_zero();
  for (int64_t d = 0; d < D; d++) {
    v16f x[PAGE_VECS];
    load_vecs(vecs, t, k, d * ATTN_PAGE, 16, x);
    for (int r = 0; r < R; r++) {
      v16f q = v16_set1(h.q[r * j->Dp + d]);
      for (int i = 0; i < vecs; i++) acc[r][i] = v16_fma(x[i], q, acc[r][i]);
    }
  }
  const v16f scale = v16_set1(j->s->scale * 0x1.715476p0f);
  for (int r = 0; r < R; r++) {
    order_vecs(vecs, t, acc[r]);
    for (int i = 0; i < vecs; i++)
      v16_store(h.p + r * ATTN_BLOCK + at + 16 * i, v16_mul(acc[r][i], scale));
  }
}

/* sum = sum * scale + p v over keys from .. to - 1 of the block, which are in one page, columns c
 * .. c + 16 vecs - 1. */
SIMD void sum_page(const int R, const int vecs, const hp_dtype t, const few_rows *f,
                   const few_head *h, const char *v, int64_t c, int left, int from, int to) {
  const int64_t Dvp = f->j->Dvp, step = f->j->v.st * (t == HP_F32 ? 4 : 2);
  v16f acc[ATTN_FEW][FEW_VECS];
  for (int r = 0; r < R; r++)
    for (int x = 0; x < vecs; x++)
      acc[r][x] = v16_mul(v16_load(h->sum + r * Dvp + c + 16 * x), v16_set1(h->scale[r]));
  for (int i = from; i < to; i++) {
    v16f b[FEW_VECS];
    load_vecs(vecs, t, v + (i % ATTN_PAGE) * step, c, left, b);
    for (int r = 0; r < R; r++) {
      v16f weight = v16_set1(h->p[r * ATTN_BLOCK + i]);
      for (int x = 0; x < vecs; x++) acc[r][x] = v16_fma(weight, b[x], acc[r][x]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int x = 0; x < vecs; x++) v16_store(h->sum + r * Dvp + c + 16 * x, acc[r][x]);
}

SIMD int sum_vecs(const int R) { return R <= 4 ? FEW_VECS : MANY_VECS; }

/* The same for all columns of all heads. */
SIMD void sum_page_of_heads(const int R, const hp_dtype t, const few_rows *f, int64_t kb, int from,
                            int to) {
  const int vecs = sum_vecs(R);
  const attn_job *j = f->j;
  const int64_t Dv = j->s->Dv, page = page_at(j, &j->v, f->b, kb + from);
  for (int head = 0; head < f->heads; head++) {
    const few_head h = make_head(f, head);
    const char *v =
        (const char *)j->v.at + (page + (f->kv + head) * j->v.sh) * (t == HP_F32 ? 4 : 2);
    int64_t c = 0;
    for (; c + 16 * vecs <= Dv; c += 16 * vecs) sum_page(R, vecs, t, f, &h, v, c, 16, from, to);
    for (; c < Dv; c += 16) sum_page(R, 1, t, f, &h, v, c, v16_left(Dv, c), from, to);
    for (int r = 0; r < R; r++) h.scale[r] = 1;
  }
}

SIMD void compute_block(const int R, const hp_dtype t, const few_rows *f, int64_t kb) {
  enum { KEYS = 16 * PAGE_VECS };
  int from = f->first > kb ? (int)(f->first - kb) : 0;
  int to = f->last < kb + ATTN_BLOCK - 1 ? (int)(f->last - kb + 1) : ATTN_BLOCK;
  for (int i = from & -KEYS; i < to; i += KEYS)
    for (int head = 0; head < f->heads; head++) score_page(R, PAGE_VECS, t, f, head, kb, i);
  for (int head = 0; head < f->heads; head++) {
    const few_head h = make_head(f, head);
    for (int r = 0; r < R; r++) update_softmax(f, &h, r, kb);
  }
  for (int i = from, end; i < to; i = end) {
    end = (i & -ATTN_PAGE) + ATTN_PAGE;
    if (end > to) end = to;
    sum_page_of_heads(R, t, f, kb, i, end);
  }
}

/* Sums in the order of columns. */
SIMD void order_sums(const int R, const few_rows *f) {
  const int vecs = sum_vecs(R);
  const int64_t Dvp = f->j->Dvp;
  v16f x[FEW_VECS];
  for (int head = 0; head < f->heads; head++)
    for (int r = 0; r < R; r++)
      for (int64_t c = 0; c + 16 * vecs <= f->j->s->Dv; c += 16 * vecs) {
        float *sum = make_head(f, head).sum + r * Dvp + c;
        for (int i = 0; i < vecs; i++) x[i] = v16_load(sum + 16 * i);
        order_vecs(vecs, HP_BF16, x);
        for (int i = 0; i < vecs; i++) v16_store(sum + 16 * i, x[i]);
      }
}

SIMD void attend(const int R, const few_rows *f) {
  const hp_dtype t = f->j->k.dtype;
  for (int64_t kb = f->first & -ATTN_BLOCK; kb <= f->last; kb += ATTN_BLOCK) {
    if (t == HP_F32) compute_block(R, HP_F32, f, kb);
    else if (t == HP_BF16) compute_block(R, HP_BF16, f, kb);
    else compute_block(R, t, f, kb);
  }
  if (t == HP_BF16) order_sums(R, f);
}

/* The sequence whose segment has this number. */
static int64_t find_sequence(const attn_job *j, int64_t number) {
  int64_t lo = j->first_b, hi = j->s->B; /* first_of[lo] <= number < first_of[hi] */
  while (hi - lo > 1) {
    int64_t mid = lo + (hi - lo) / 2;
    if (j->first_of[mid] <= number) lo = mid;
    else hi = mid;
  }
  return lo;
}

attn_claimed ISA_NAME(attn_page)(attn_job *j, attn_claimed claimed, float *work) {
  int64_t chunk = claimed.item % j->chunks, number = claimed.item / j->chunks;
  int64_t b = find_sequence(j, number), first = j->first_of[b], n = j->first_of[b + 1] - first;
  few_rows f = {.j = j, .b = b, .n = (int)j->rows, .state = work};
  f.kv = find_chunk_head(j, chunk);
  f.heads = (int)(find_chunk_head(j, chunk + 1) - f.kv);
  few_start(&f, j->segment0_of[b] + number - first);
  if (f.n == 1) attend(1, &f);
  else if (f.n <= 4) attend(4, &f);
  else attend(ATTN_FEW, &f);
  few_write(&f, first, n, number - first);
  for (int head = 0; n == 1 && head < f.heads; head++) /* there is nothing to wait for */
    join_segments(j, b, f.kv + head, first, 1);
  return attn_claim(j);
}

/* Item = (b from first_b on, kv head), where its segments are not joined yet. */
attn_claimed ISA_NAME(attn_page_join)(attn_job *j, attn_claimed claimed, float *work) {
  int64_t b = j->first_b + claimed.item / j->s->KV, first = j->first_of[b];
  int64_t n = j->first_of[b + 1] - first;
  (void)work;
  if (n > 1) join_segments(j, b, claimed.item % j->s->KV, first, n);
  return attn_claim(j);
}
