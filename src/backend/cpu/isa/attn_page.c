/* Attention, forward, for the few query rows of decoding, on keys and values in pages.  A page has
 * the transposed keys of all heads, then as many rows of values in its own pool, so an item reads
 * memory in order, page by page: 16 keys of each head, for each block of 64 keys first the keys,
 * then the values.  Bits are those of rows. */
#include "backend/cpu/isa/attn_few.h"

enum { PAGE_LEAD = 128 }; /* lines that are asked for before they are read */

/* What is read, in order: runs of a page's keys, or values, of all heads of the item. */
typedef struct {
  few_rows f;
  const char *at; /* the next line to ask for */
  int64_t lines;  /* of the run, from there on; 0: everything is asked for */
  int64_t key;    /* first of the run's page */
  bool values;
} page_rows;

static inline void run_open(page_rows *p) {
  const attn_job *j = p->f.j;
  const attn_view *x = p->values ? &j->v : &j->k;
  int64_t size = (int64_t)dtype_size(x->dtype), width = p->values ? j->s->Dv : j->s->D;
  p->at = (char *)x->at + (page_at(j, x, p->f.b, p->key) + p->f.kv * x->sh) * size;
  p->lines = div_up(p->f.heads * width * ATTN_PAGE * size, 64);
}

/* The run after this one. */
static void run_next(page_rows *p) {
  int64_t block = p->key & -ATTN_BLOCK, first = p->f.first & -ATTN_PAGE;
  p->key += ATTN_PAGE;
  if (p->key >= block + ATTN_BLOCK || p->key > p->f.last) {
    if (!p->values) p->key = first > block ? first : block;
    else p->key = block + ATTN_BLOCK;
    p->values = !p->values;
  }
  if (p->key <= p->f.last) run_open(p);
}

SIMD void ask(page_rows *p, int64_t n) {
  while (n > 0 && p->lines > 0) {
    int64_t some = n < p->lines ? n : p->lines;
    for (int64_t i = 0; i < some; i++) __builtin_prefetch(p->at + 64 * i);
    p->at += 64 * some;
    p->lines -= some;
    n -= some;
    if (!p->lines) run_next(p);
  }
}

/* Scores of the page at `key`, at `at` of the block, for R rows of `heads` heads. */
SIMD void score_page(const int R, const int heads, const hp_dtype t, page_rows *p, int head,
                     int64_t key, int at) {
  enum { STEPS = 8 };
  const attn_job *j = p->f.j;
  const int64_t D = j->s->D, size = t == HP_F32 ? 4 : 2;
  const char *k[FEW_HEADS];
  few_head h[FEW_HEADS];
  v16f acc[FEW_HEADS][ATTN_FEW];
  for (int i = 0; i < heads; i++) {
    int64_t from = page_at(j, &j->k, p->f.b, key) + (p->f.kv + head + i) * j->k.sh;
    k[i] = (const char *)j->k.at + from * size;
    h[i] = make_head(&p->f, head + i);
    for (int r = 0; r < R; r++) acc[i][r] = v16_zero();
  }
  for (int64_t d0 = 0; d0 < D; d0 += STEPS) {
    int64_t end = d0 + STEPS < D ? d0 + STEPS : D;
    ask(p, heads * STEPS * ATTN_PAGE * size / 64);
    for (int64_t d = d0; d < end; d++)
      for (int i = 0; i < heads; i++) {
        v16f x = v16_load_as(t, k[i], d * ATTN_PAGE, 16);
        for (int r = 0; r < R; r++)
          acc[i][r] = v16_fma(x, v16_set1(h[i].q[r * j->Dp + d]), acc[i][r]);
      }
  }
  const v16f scale = v16_set1(j->s->scale * 0x1.715476p0f);
  for (int i = 0; i < heads; i++)
    for (int r = 0; r < R; r++) v16_store(h[i].p + r * ATTN_BLOCK + at, v16_mul(acc[i][r], scale));
}

/* sum = sum * scale + p v over keys from .. to - 1 of the block, which are in one page, columns c
 * .. c + 16 vecs - 1. */
SIMD void sum_page(const int R, const int vecs, const hp_dtype t, page_rows *p, const few_head *h,
                   const char *v, int64_t c, int left, int from, int to) {
  const int64_t Dvp = p->f.j->Dvp, step = p->f.j->v.st * (t == HP_F32 ? 4 : 2);
  v16f acc[ATTN_FEW][FEW_VECS];
  ask(p, (to - from) * (t == HP_F32 ? vecs : (vecs + 1) / 2));
  for (int r = 0; r < R; r++)
    for (int x = 0; x < vecs; x++)
      acc[r][x] = v16_mul(v16_load(h->sum + r * Dvp + c + 16 * x), v16_set1(h->scale[r]));
  for (int i = from; i < to; i++)
    for (int x = 0; x < vecs; x++) {
      v16f b = v16_load_as(t, v + (i % ATTN_PAGE) * step, c + 16 * x, left);
      for (int r = 0; r < R; r++)
        acc[r][x] = v16_fma(v16_set1(h->p[r * ATTN_BLOCK + i]), b, acc[r][x]);
    }
  for (int r = 0; r < R; r++)
    for (int x = 0; x < vecs; x++) v16_store(h->sum + r * Dvp + c + 16 * x, acc[r][x]);
}

/* The same for all columns of all heads. */
SIMD void sum_page_of_heads(const int R, const hp_dtype t, page_rows *p, int64_t kb, int from,
                            int to) {
  const int vecs = R <= 4 ? FEW_VECS : 1;
  const attn_job *j = p->f.j;
  const int64_t Dv = j->s->Dv;
  int64_t page = page_at(j, &j->v, p->f.b, kb + from);
  for (int head = 0; head < p->f.heads; head++) {
    const few_head h = make_head(&p->f, head);
    const char *v =
        (const char *)j->v.at + (page + (p->f.kv + head) * j->v.sh) * (t == HP_F32 ? 4 : 2);
    int64_t c = 0;
    for (; c + 16 * vecs <= Dv; c += 16 * vecs) sum_page(R, vecs, t, p, &h, v, c, 16, from, to);
    for (; c < Dv; c += 16) sum_page(R, 1, t, p, &h, v, c, v16_left(Dv, c), from, to);
    for (int r = 0; r < R; r++) h.scale[r] = 1;
  }
}

SIMD void compute_block(const int R, const hp_dtype t, page_rows *p, int64_t kb) {
  few_rows *f = &p->f;
  const int side = R == 1 ? FEW_HEADS : 1;
  int from = f->first > kb ? (int)(f->first - kb) : 0;
  int to = f->last < kb + ATTN_BLOCK - 1 ? (int)(f->last - kb + 1) : ATTN_BLOCK;
  for (int i = from & -ATTN_PAGE; i < to; i += ATTN_PAGE) {
    int head = 0;
    for (; head + side <= f->heads; head += side) score_page(R, side, t, p, head, kb + i, i);
    for (; head < f->heads; head++) score_page(R, 1, t, p, head, kb + i, i);
  }
  for (int head = 0; head < f->heads; head++) {
    const few_head h = make_head(f, head);
    for (int r = 0; r < R; r++) update_softmax(f, &h, r, kb);
  }
  for (int i = from, end; i < to; i = end) {
    end = (i & -ATTN_PAGE) + ATTN_PAGE;
    if (end > to) end = to;
    sum_page_of_heads(R, t, p, kb, i, end);
  }
}

SIMD void attend(const int R, page_rows *p) {
  const hp_dtype t = p->f.j->k.dtype;
  for (int64_t kb = p->f.first & -ATTN_BLOCK; kb <= p->f.last; kb += ATTN_BLOCK) {
    if (t == HP_F32) compute_block(R, HP_F32, p, kb);
    else if (t == HP_BF16) compute_block(R, HP_BF16, p, kb);
    else compute_block(R, t, p, kb);
  }
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

attn_turn ISA_NAME(attn_page)(attn_job *j, attn_turn turn, float *work) {
  int64_t chunk = turn.item % j->chunks, number = turn.item / j->chunks;
  int64_t b = find_sequence(j, number), first = j->first_of[b], n = j->first_of[b + 1] - first;
  page_rows p = {.f = {.j = j, .b = b, .n = (int)j->rows, .state = work}};
  few_rows *f = &p.f;
  f->kv = find_chunk_head(j, chunk);
  f->heads = (int)(find_chunk_head(j, chunk + 1) - f->kv);
  few_start(f, j->segment0_of[b] + number - first);
  if (f->first <= f->last) {
    p.key = f->first & -ATTN_PAGE;
    run_open(&p);
    ask(&p, PAGE_LEAD);
  }
  if (f->n == 1) attend(1, &p);
  else if (f->n <= 4) attend(4, &p);
  else attend(ATTN_FEW, &p);
  few_write(f, first, n, number - first);
  for (int head = 0; n == 1 && head < f->heads; head++) /* there is nothing to wait for */
    join_segments(j, b, f->kv + head, first, 1);
  return attn_claim(j);
}

/* Item = (b from first_b on, kv head), where its segments are not joined yet. */
attn_turn ISA_NAME(attn_page_join)(attn_job *j, attn_turn turn, float *work) {
  int64_t b = j->first_b + turn.item / j->s->KV, first = j->first_of[b];
  int64_t n = j->first_of[b + 1] - first;
  (void)work;
  if (n > 1) join_segments(j, b, turn.item % j->s->KV, first, n);
  return attn_claim(j);
}
