/* Attention to some blocks of a cache: bounds of their keys, and the choice of blocks. */
#include "backend/cpu/attn/attn_select.h"
#include "backend/cpu/cpu_kernel.h"
#include "base/mem.h"
#include "ops/paged.h"

#include <math.h>
#include <string.h>

/* --- bounds ----------------------------------------------------------------------------------- */

typedef struct {
  const int32_t *table, *at, *copy, *span;
  int64_t B, T, KV, D, N, M, each; /* each: sequences of a group */
  hp_dtype dtype;
  const char *x;
  char *bounds;
} bound_write;

static float element(hp_dtype t, const void *at, int64_t i) {
  if (t == HP_F32) return ((const float *)at)[i];
  uint16_t half = ((const uint16_t *)at)[i];
  return t == HP_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

/* The bounds [KV,2,D] of a block; NULL: there is none. */
static char *find_bounds(const bound_write *w, int64_t b, int64_t block) {
  if (block < 0 || block >= w->N) return NULL;
  return w->bounds +
         (size_t)((b / w->each * w->N + block) * w->KV * 2 * w->D) * dtype_size(w->dtype);
}
static char *find_token(const bound_write *w, int64_t b, int64_t token) {
  bool there = token >= 0 && token / PAGE_TOKENS < w->M;
  return there ? find_bounds(w, b, w->table[b * w->M + token / PAGE_TOKENS]) : NULL;
}

/* Widens the bounds of all heads by a row, or begins with it. */
static void add_row(const bound_write *w, char *to, const char *row, bool first) {
  size_t size = dtype_size(w->dtype);
  for (int64_t i = 0; i < w->KV * w->D; i++) {
    char *lo = to + (size_t)(i / w->D * 2 * w->D + i % w->D) * size, *hi = lo + (size_t)w->D * size;
    const char *x = row + (size_t)i * size;
    if (first || element(w->dtype, x, 0) < element(w->dtype, lo, 0)) memcpy(lo, x, size);
    if (first || element(w->dtype, x, 0) > element(w->dtype, hi, 0)) memcpy(hi, x, size);
  }
}

hp_status run_paged_bounds(const cpu_call *c) {
  const ir_value *bounds = call_type(c, 0), *x = call_type(c, 1);
  bound_write w = {.table = c->at[2],
                   .at = c->at[3],
                   .copy = c->at[4],
                   .span = c->at[5],
                   .B = x->dim[0],
                   .T = x->dim[1],
                   .KV = x->dim[2],
                   .D = x->dim[3],
                   .N = bounds->dim[1],
                   .M = call_type(c, 2)->dim[1],
                   .each = x->dim[0] / bounds->dim[0],
                   .dtype = (hp_dtype)x->dtype,
                   .x = c->at[1],
                   .bounds = c->at[6]};
  size_t row = (size_t)(w.KV * w.D) * dtype_size(w.dtype);
  cpu_move(c, c->at[6], c->at[0], value_bytes(bounds));
  for (int64_t b = 0; b < w.B; b++) { /* copies first: rows may overwrite their sources */
    const char *from = find_bounds(&w, b, w.copy[b]);
    char *to = find_token(&w, b, w.at[b]);
    if (from && to && from != to) memcpy(to, from, 2 * row);
  }
  for (int64_t b = 0; b < w.B; b++)
    for (int64_t t = 0; t < w.T; t++) {
      int64_t token = w.at[b] + t;
      char *to = find_token(&w, b, token);
      bool padding = w.span[2 * (b * w.T + t) + 1] < w.span[2 * (b * w.T + t)];
      if (to && !padding)
        add_row(&w, to, w.x + (size_t)(b * w.T + t) * row, token % PAGE_TOKENS == 0);
    }
  return HP_OK;
}

/* --- choice ----------------------------------------------------------------------------------- */

static void (*const score_of[ISA_COUNT])(const attn_scores *) = ISA_TABLE(attn_score_blocks);

typedef struct {
  const cpu_call *c;
  const int32_t *table, *at, *copy;
  int64_t H, KV, D, N, M, each, n;
  bool slots;
  float *score;  /* [B KV,M] */
  int32_t *heap; /* [B KV,n] */
} selection;

/* Is block a chosen before block b? */
static bool is_before(const float *score, int32_t a, int32_t b) {
  return score[a] > score[b] || (score[a] == score[b] && a < b);
}

/* The last of the chosen is on top. */
static void sift(const float *score, int32_t *heap, int64_t n, int64_t i) {
  for (int64_t child = 2 * i + 1; child < n; i = child, child = 2 * i + 1) {
    if (child + 1 < n && is_before(score, heap[child], heap[child + 1])) child++;
    if (!is_before(score, heap[i], heap[child])) return;
    int32_t x = heap[i];
    heap[i] = heap[child];
    heap[child] = x;
  }
}

/* The k best blocks of 1 .. last - 1, marked by a score of +inf. */
static void mark_best(float *score, int32_t *heap, int64_t k, int64_t last) {
  for (int64_t i = 0; i < k; i++) heap[i] = (int32_t)i + 1;
  for (int64_t i = k / 2; i-- > 0;) sift(score, heap, k, i);
  for (int64_t i = k + 1; i < last && k; i++) {
    if (!is_before(score, (int32_t)i, heap[0])) continue;
    heap[0] = (int32_t)i;
    sift(score, heap, k, 0);
  }
  for (int64_t i = 0; i < k; i++) score[heap[i]] = INFINITY;
}

static void score(const selection *s, int64_t b, int64_t kv, int64_t blocks, float *to) {
  const ir_value *q = call_type(s->c, 0);
  hp_dtype t = (hp_dtype)q->dtype;
  int64_t group = s->H / s->KV, step = s->KV * 2 * s->D;
  int64_t first = b / s->each * s->N * step + kv * 2 * s->D;
  attn_scores x = {.dtype = t,
                   .q = (const char *)s->c->at[0] +
                        (size_t)((b * s->H + kv * group) * s->D) * dtype_size(t),
                   .bounds = (const char *)s->c->at[1] + (size_t)first * dtype_size(t),
                   .block = s->table + b * s->M,
                   .heads = group,
                   .D = s->D,
                   .step = step,
                   .n = blocks,
                   .score = to};
  score_of[s->c->dev->isa](&x);
}

/* One head of keys of a sequence. */
static void select_blocks(void *ctx, int64_t item) {
  const selection *s = ctx;
  int64_t b = item / s->KV, kv = item % s->KV, blocks = s->at[b] / PAGE_TOKENS + 1, used = 0;
  int32_t *list = (int32_t *)s->c->at[5] + item * s->n,
          *store = (int32_t *)s->c->at[6] + item * s->n;
  const int32_t *row = s->table + b * s->M;
  for (int64_t i = 0; i < s->n; i++) list[i] = store[i] = -1;
  ((int32_t *)s->c->at[7])[item] = -1;
  if (s->at[b] < 0 || blocks > s->M || row[blocks - 1] < 0) return; /* padding */
  float *scores = s->score + item * s->M;
  bool all = blocks <= s->n;
  if (!all) {
    score(s, b, kv, blocks, scores);
    mark_best(scores, s->heap + item * s->n, s->n - 2, blocks - 1);
  }
  for (int64_t i = 0; i < blocks; i++) {
    if (!all && i && i < blocks - 1 && scores[i] != INFINITY) continue;
    list[used++] = (int32_t)(row[i] * s->KV + kv);
  }
  store[used - 1] = list[used - 1];
  if (s->slots && s->copy[b] >= 0) list[used - 1] = (int32_t)(s->copy[b] * s->KV + kv);
  ((int32_t *)s->c->at[7])[item] = (int32_t)((used - 1) * PAGE_TOKENS + s->at[b] % PAGE_TOKENS);
}

hp_status plan_paged_select(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  const ir_value *list = &program_arg(l->p, n, 5)->type, *table = &program_arg(l->p, n, 2)->type;
  size_t all;
  (void)plan;
  if (!size_mul((size_t)list->dim[0], (size_t)(list->dim[1] + table->dim[1]), &all) ||
      !size_mul(all, sizeof(float), &all))
    HP_FAIL(HP_ERR_OOM, "the choice of blocks needs more work memory than can be addressed");
  *work = all;
  return HP_OK;
}

hp_status run_paged_select(const cpu_call *c) {
  const ir_value *q = call_type(c, 0), *bounds = call_type(c, 1);
  selection s = {.c = c,
                 .table = c->at[2],
                 .at = c->at[3],
                 .copy = c->at[4],
                 .H = q->dim[2],
                 .KV = bounds->dim[2],
                 .D = q->dim[3],
                 .N = bounds->dim[1],
                 .M = call_type(c, 2)->dim[1],
                 .each = q->dim[0] / bounds->dim[0],
                 .n = inst_int(c->p, c->n, "n"),
                 .slots = inst_int(c->p, c->n, "slots") != 0,
                 .score = c->work};
  int64_t items = q->dim[0] * s.KV;
  s.heap = (int32_t *)(void *)(s.score + items * s.M);
  pool_run(c->dev->threads, items, select_blocks, &s);
  return HP_OK;
}
