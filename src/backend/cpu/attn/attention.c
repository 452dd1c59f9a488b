#include "backend/cpu/attn/attention.h"

#include "backend/cpu/attn/attn_job.h"
#include "base/dtype.h"
#include "base/mem.h"

static attn_item_fn *const tiles_of[ISA_COUNT] = ISA_TABLE(attn_tiles);
static attn_item_fn *const few_of[ISA_COUNT] = ISA_TABLE(attn_few);
static attn_item_fn *const join_of[ISA_COUNT] = ISA_TABLE(attn_join);
static attn_item_fn *const grads_of[ISA_COUNT] = ISA_TABLE(attn_grads);

enum { LENGTH_MAX = 1 << 30, COUNT_MAX = 1 << 24, FEW_ITEMS = 4 /* a thread */ };

hp_status attn_check(const attn_spec *s) {
  if (s->B < 0 || s->B > COUNT_MAX || s->Tq < 0 || s->Tq > LENGTH_MAX || s->Tk < 0 ||
      s->Tk > LENGTH_MAX)
    HP_FAIL(HP_ERR_SHAPE,
            "attention of %lld sequences, %lld queries on %lld keys: expected 0..%d sequences and "
            "lengths 0..%d",
            (long long)s->B, (long long)s->Tq, (long long)s->Tk, COUNT_MAX, LENGTH_MAX);
  if (s->KV < 1 || s->H < 1 || s->H > COUNT_MAX || s->H % s->KV)
    HP_FAIL(HP_ERR_SHAPE,
            "attention with %lld query heads on %lld key heads: expected at least one of each and "
            "a whole number of query heads per key head",
            (long long)s->H, (long long)s->KV);
  if (s->D < 1 || s->D > ATTN_MAX_DIM || s->Dv < 1 || s->Dv > ATTN_MAX_DIM)
    HP_FAIL(HP_ERR_SHAPE, "attention heads of %lld and %lld values: expected 1..%d",
            (long long)s->D, (long long)s->Dv, ATTN_MAX_DIM);
  double larger = (double)s->B * (double)s->H * (double)(s->Tq > s->Tk ? s->Tq : s->Tk);
  if (larger * ATTN_MAX_DIM > 0x1p60)
    HP_FAIL(HP_ERR_SHAPE,
            "attention of %lld sequences of %lld heads is larger than can be addressed: split the "
            "batch",
            (long long)s->B, (long long)s->H);
  if (s->dropout.p > 0 && (double)s->B * (double)s->H * (double)s->Tq > UINT32_MAX)
    HP_FAIL(HP_ERR_SHAPE,
            "attention of %lld sequences, %lld heads, %lld queries has more rows than dropout can "
            "count: split the batch",
            (long long)s->B, (long long)s->H, (long long)s->Tq);
  if (s->window < 0)
    HP_FAIL(HP_ERR_ARG, "attention window of %lld keys: expected 1 or more, or 0 for none",
            (long long)s->window);
  return HP_OK;
}

/* Everything that follows from the shapes. */
void attn_plan_shapes(const attn_spec *s, attn_job *j) {
  j->s = s;
  j->group = s->H / s->KV;
  j->rows = j->group * s->Tq;
  j->Dp = round_up(s->D, 16);
  j->Dvp = round_up(s->Dv, 16);
  /* short queries share tiles with the other heads of the group */
  j->per_head = s->Tq >= ATTN_LANES ? div_up(s->Tq, ATTN_LANES) : 0;
  j->tiles = j->per_head ? j->per_head * j->group : div_up(j->rows, ATTN_LANES);
  j->segments = max_i64(div_up(s->Tk, ATTN_SEGMENT), 1);
}

/* The kernel of few rows is for decoding, which drops nothing. */
bool attn_is_few(const attn_job *j) { return j->rows <= ATTN_FEW && j->s->dropout.p == 0; }

/* How tiles are distributed over threads.  It does not change any bit of the result. */
void attn_plan_forward(attn_job *j, int threads) {
  int64_t heads = j->s->B * j->s->KV;
  j->chunks = div_up(j->tiles, ATTN_FWD_TILES);
  j->chunks = max_i64(j->chunks, div_up(4 * threads, max_i64(heads, 1)));
  j->chunks = min_i64(j->chunks, j->tiles);
  j->split = !attn_is_few(j) && heads * j->chunks < threads && j->segments > 1;
  j->items = heads * j->chunks * (j->split ? j->segments : 1);
}

/* Drops the segments of keys that no row attends to: a cache has more room than keys. */
static void find_live_segments(attn_job *j) {
  int32_t first = INT32_MAX, last = -1, lo, hi;
  for (int64_t i = 0; i < j->s->B * j->s->Tq; i++) {
    keys_of_row(j->s, i / j->s->Tq, i % j->s->Tq, &lo, &hi);
    if (lo < first) first = lo;
    if (hi > last) last = hi;
  }
  j->segment0 = last < 0 ? 0 : first / ATTN_SEGMENT;
  j->segments = last < 0 ? 1 : last / ATTN_SEGMENT - j->segment0 + 1;
}

/* With few rows, an item takes heads that lie side by side in memory, the more the better if
 * threads have enough to do. */
static void plan_few(attn_job *j, int threads) {
  find_live_segments(j);
  int64_t items = max_i64(j->s->B * j->segments, 1);
  bool apart = j->k.sh >= j->k.st || j->v.sh >= j->v.st;
  j->abreast = apart ? 1 : ATTN_ABREAST;
  while (j->abreast > 1 && items * div_up(j->s->KV, j->abreast) < threads) j->abreast /= 2;
  j->chunks = div_up(j->s->KV, j->abreast);
  if (!apart) j->chunks = min_i64(div_up(FEW_ITEMS * threads, items), j->chunks);
  j->items = j->s->B * j->chunks * j->segments;
}

/* One item a key head, or items for its keys and others for its tiles: 5 products against 7. */
static void plan_backward(attn_job *j, int threads) {
  int64_t heads = j->s->B * j->s->KV, turns = div_up(heads, threads);
  j->kv_items = 1, j->q_items = 0;
  if (5 * turns * threads > 7 * heads) {
    int64_t each = div_up(3 * threads, max_i64(heads, 1));
    j->kv_items = max_i64(min_i64(each, div_up(j->s->Tk, ATTN_BLOCK)), 1);
    j->q_items = max_i64(min_i64(each, div_up(j->tiles, ATTN_BWD_TILES)), 1);
  }
  j->items = heads * (j->kv_items + j->q_items);
}

/* total += n * each * floats, in bytes */
hp_status attn_add_bytes(size_t *total, int64_t n, int64_t each, int64_t floats) {
  size_t bytes;
  if (!size_mul((size_t)n, (size_t)each, &bytes) ||
      !size_mul(bytes, (size_t)floats * sizeof(float), &bytes) || !size_add(bytes, *total, total))
    HP_FAIL(HP_ERR_OOM, "attention needs more work memory than can be addressed: split the batch");
  return HP_OK;
}

static bool uses_partial(const attn_job *j) { return attn_is_few(j) || j->split; }

/* Bytes of work for each thread, and of the segments' states after those. */
static hp_status forward_bytes(attn_job *j, int threads, size_t *total) {
  int64_t each =
      attn_is_few(j) ? attn_few_floats(j->s->KV, j->Dp, j->Dvp) : attn_tiles_floats(j->Dp, j->Dvp);
  j->work_each = (size_t)each * sizeof(float);
  *total = 0;
  HP_TRY(attn_add_bytes(total, threads, 1, each));
  if (uses_partial(j))
    HP_TRY(attn_add_bytes(total, j->s->B * j->s->KV, j->segments, j->rows * (16 + j->Dvp)));
  return HP_OK;
}

hp_status attn_forward_work(const attn_spec *s, int threads, size_t *bytes) {
  attn_job j = {0};
  HP_TRY(attn_check(s));
  attn_plan_shapes(s, &j);
  attn_plan_forward(&j, threads);
  return forward_bytes(&j, threads, bytes);
}

hp_status attn_backward_work(const attn_spec *s, int threads, size_t *bytes) {
  attn_job j = {0};
  HP_TRY(attn_check(s));
  attn_plan_shapes(s, &j);
  *bytes = 0;
  return attn_add_bytes(bytes, threads, 1, attn_grads_floats(s->Tk, j.Dp, j.Dvp));
}

static void run_items(void *ctx, int64_t thread) {
  attn_job *j = ctx;
  float *work = (float *)(void *)(j->work + (size_t)thread * j->work_each);
  for (attn_claimed t = attn_claim(j); t.item < j->items;) t = j->run(j, t, work);
}

void attn_run(pool *p, attn_job *j, attn_item_fn *run, int64_t items) {
  j->run = run;
  j->items = items;
  j->threads = min_i64(pool_size(p), items);
  atomic_store(&j->next, 0);
  if (items) pool_run(p, j->threads, run_items, j);
}

bool attn_is_half(const attn_job *j) {
  return j->q.dtype == HP_BF16 && j->k.dtype == HP_BF16 && j->v.dtype == HP_BF16;
}
/* True if attention runs on pairs of bf16 by dot instructions.  A gradient of o that is not bf16 is
 * not rounded: then the f32 kernels run. */
static bool uses_pairs(const attn_job *j, cpu_isa isa) {
  bool d_o = !j->d_o.at || j->d_o.dtype == HP_BF16;
  return j->half && d_o && isa == ISA_AVX512_BF16;
}

attn_item_fn *attn_tiles_for(const attn_job *j, cpu_isa isa) {
  return uses_pairs(j, isa) ? attn_tiles_dot : tiles_of[isa];
}

hp_status attn_forward(cpu_isa isa, pool *p, const attn_spec *s, const attn_view *q,
                       const attn_view *k, const attn_view *v, const attn_view *o, float *lse,
                       void *work) {
  attn_job j = {.q = *q, .k = *k, .v = *v, .o = *o, .lse_out = lse, .work = work};
  size_t bytes;
  HP_TRY(attn_check(s));
  attn_plan_shapes(s, &j);
  attn_plan_forward(&j, pool_size(p));
  HP_TRY(forward_bytes(&j, pool_size(p), &bytes));
  j.partial = (float *)(void *)(j.work + (size_t)pool_size(p) * j.work_each);
  if (!j.rows) return HP_OK;
  if (attn_is_few(&j)) plan_few(&j, pool_size(p));
  j.half = attn_is_half(&j);
  attn_run(p, &j, attn_is_few(&j) ? few_of[isa] : attn_tiles_for(&j, isa), j.items);
  if (uses_partial(&j) && !(attn_is_few(&j) && j.segments == 1))
    attn_run(p, &j, join_of[isa], s->B * s->KV);
  return HP_OK;
}

hp_status attn_backward(cpu_isa isa, pool *p, const attn_spec *s, const attn_grad *g, void *work) {
  attn_job j = {.q = g->q,
                .k = g->k,
                .v = g->v,
                .o = g->o,
                .d_o = g->d_o,
                .dq = g->dq,
                .dk = g->dk,
                .dv = g->dv,
                .lse_in = g->lse,
                .work = work};
  HP_TRY(attn_check(s));
  attn_plan_shapes(s, &j);
  plan_backward(&j, pool_size(p));
  j.work_each = sizeof(float) * (size_t)attn_grads_floats(s->Tk, j.Dp, j.Dvp);
  j.half = attn_is_half(&j);
  attn_run(p, &j, uses_pairs(&j, isa) ? attn_grads_dot : grads_of[isa], j.items);
  return HP_OK;
}
