/* Attention on a cache in pages: checks, and the division of its work.  Sequences have any length,
 * so with few rows the items are the segments that each of them has.  Their states fill work memory
 * of a fixed size: if shared pages make more segments than that, some sequences go first.  A part
 * of the keys is attention under spans that are limited to it. */
#include "backend/cpu/attn/attn_job.h"
#include "base/mem.h"

static attn_item_fn *const page_of[ISA_COUNT] = ISA_TABLE(attn_page);
static attn_item_fn *const page_join_of[ISA_COUNT] = ISA_TABLE(attn_page_join);
static attn_item_fn *const join_of[ISA_COUNT] = ISA_TABLE(attn_join);

enum { ITEMS_A_THREAD = 4 };

static hp_status check_pages(const attn_spec *s, const attn_pages *g) {
  HP_TRY(attn_check(s));
  bool fits = g->groups > 0 && s->B % g->groups == 0 && g->blocks >= 0 && g->width >= 0 &&
              g->width <= INT32_MAX / ATTN_PAGE && s->Tk == g->width * ATTN_PAGE;
  if (!fits || s->dropout.p > 0)
    HP_FAIL(HP_ERR_SHAPE,
            "attention of %lld sequences in %lld groups to %lld pages of %d keys: expected a whole "
            "number of sequences a group, and no dropout",
            (long long)s->B, (long long)g->groups, (long long)g->width, ATTN_PAGE);
  return HP_OK;
}

/* Segments that work memory has room for: those of full pools, and of the longest sequence, which
 * in a part has no more blocks than a pool. */
static int64_t count_states(const attn_spec *s, const attn_pages *g) {
  int64_t all = div_up(g->groups * g->blocks * ATTN_PAGE, ATTN_SEGMENT);
  int64_t longest = g->part ? g->blocks * ATTN_PAGE : s->Tk;
  return max_i64(all, div_up(longest, ATTN_SEGMENT) + 1) + s->B;
}

/* Bytes of work for each thread; of the states of segments; of the segments' numbers. */
static hp_status plan_bytes(const attn_pages *g, attn_job *j, size_t *states, size_t *numbers) {
  const attn_spec *s = j->s;
  int64_t each =
      attn_is_few(j) ? attn_few_floats(s->KV, j->Dp, j->Dvp) : attn_tiles_floats(j->Dp, j->Dvp);
  j->work_each = (size_t)each * sizeof(float);
  *states = 0;
  j->split = j->split && !g->part;
  if (attn_is_few(j) || j->split)
    HP_TRY(attn_add_bytes(states, count_states(s, g), s->KV, j->rows * (16 + j->Dvp)));
  *numbers = (size_t)(s->B + 1) * (sizeof *j->first_of + sizeof *j->segment0_of);
  return HP_OK;
}

hp_status attn_paged_work(const attn_spec *s, const attn_pages *g, int threads, size_t *bytes) {
  attn_job j = {0};
  size_t states, numbers, all = 0;
  HP_TRY(check_pages(s, g));
  attn_plan_shapes(s, &j);
  attn_plan_forward(&j, threads);
  HP_TRY(plan_bytes(g, &j, &states, &numbers));
  HP_TRY(attn_add_bytes(&all, threads, 1, (int64_t)(j.work_each / sizeof(float))));
  if (g->part) HP_TRY(attn_add_bytes(&all, round_up(s->B * s->Tq * 2, 16), 1, 1)); /* spans */
  if (!size_add(all, states, &all) || !size_add(all, numbers + 64, bytes))
    HP_FAIL(HP_ERR_OOM, "attention needs more work memory than can be addressed: split the batch");
  return HP_OK;
}

/* First and last key that a query of sequence b sees; last < first: none. */
static void find_range(const attn_spec *s, int64_t b, int64_t *first, int64_t *last) {
  int32_t lo, hi;
  *first = INT32_MAX, *last = -1;
  for (int64_t t = 0; t < s->Tq; t++) {
    keys_of_row(s, b, t, &lo, &hi);
    *first = min_i64(*first, lo);
    *last = max_i64(*last, hi);
  }
}

static hp_status check_table(const attn_spec *s, const attn_pages *g) {
  int64_t from = g->part ? g->part->first : 0;
  for (int64_t b = 0, first, last; b < s->B; b++) {
    find_range(s, b, &first, &last);
    const int32_t *row = g->table + b * g->width;
    for (int64_t i = first / ATTN_PAGE; i <= last / ATTN_PAGE && first <= last; i++)
      if (row[i] < from || row[i] - from >= g->blocks)
        HP_FAIL(HP_ERR_ARG,
                "sequence %lld sees key %lld, which is in block %d; the pool has blocks %lld..%lld",
                (long long)b, (long long)(i * ATTN_PAGE), row[i], (long long)from,
                (long long)(from + g->blocks - 1));
  }
  return HP_OK;
}

/* Entries first..last - 1 of a sequence's row of the table are in the part. */
static void find_part(const attn_pages *g, int64_t b, int64_t *first, int64_t *last) {
  const int32_t *row = g->table + b * g->width;
  int64_t from = g->part->first, to = from + g->blocks;
  *first = 0, *last = g->width;
  while (*first < g->width && (row[*first] < from || row[*first] >= to)) ++*first;
  while (*last > *first && (row[*last - 1] < from || row[*last - 1] >= to)) --*last;
}

/* The keys of the part that each query sees, as a span without a window. */
static void limit_spans(const attn_spec *s, const attn_pages *g, int32_t *out) {
  for (int64_t b = 0, first, last; b < s->B; b++) {
    find_part(g, b, &first, &last);
    for (int64_t t = 0; t < s->Tq; t++, out += 2) {
      int32_t lo, hi;
      keys_of_row(s, b, t, &lo, &hi);
      out[0] = (int32_t)max_i64(lo, first * ATTN_PAGE);
      out[1] = (int32_t)min_i64(hi, last * ATTN_PAGE - 1);
    }
  }
}

/* Numbers the segments of sequences from first_b on, as many as there is room for; returns the
 * first sequence that is left. */
static int64_t number_segments(attn_job *j, int64_t room) {
  int64_t b = j->first_b, all = 0, first, last;
  for (; b < j->s->B; b++) {
    find_range(j->s, b, &first, &last);
    int64_t n = last < first ? 1 : last / ATTN_SEGMENT - first / ATTN_SEGMENT + 1;
    if (b > j->first_b && all + n > room) break;
    j->segment0_of[b] = last < first ? 0 : (int32_t)(first / ATTN_SEGMENT);
    j->first_of[b] = all;
    all += n;
  }
  for (int64_t i = b; i <= j->s->B; i++) j->first_of[i] = all;
  return b;
}

/* With few rows an item takes heads side by side, the more the better if threads have enough to
 * do. */
static void run_few(cpu_isa isa, pool *p, attn_job *j) {
  const attn_spec *s = j->s;
  int threads = pool_size(p);
  for (int64_t next; j->first_b < s->B; j->first_b = next) {
    next = number_segments(j, count_states(s, j->pages));
    int64_t segments = j->first_of[next], some = next - j->first_b;
    j->abreast = ATTN_ABREAST;
    while (j->abreast > 1 && segments * div_up(s->KV, j->abreast) < threads) j->abreast /= 2;
    j->chunks = min_i64(div_up(ITEMS_A_THREAD * threads, segments), div_up(s->KV, j->abreast));
    attn_run(p, j, page_of[isa], segments * j->chunks);
    if (segments > some) attn_run(p, j, page_join_of[isa], some * s->KV);
  }
}

/* Tiles are split by segments only if there is room for the states of the longest sequence, times
 * the number of sequences. */
static void run_tiles(cpu_isa isa, pool *p, attn_job *j) {
  const attn_spec *s = j->s;
  int64_t last_key = 0, first, last;
  for (int64_t b = 0; b < s->B; b++) {
    find_range(s, b, &first, &last);
    last_key = max_i64(last_key, last);
  }
  j->segments = last_key / ATTN_SEGMENT + 1;
  j->split = j->split && j->segments > 1 && s->B * j->segments <= count_states(s, j->pages);
  j->items = s->B * s->KV * j->chunks * (j->split ? j->segments : 1);
  attn_run(p, j, attn_tiles_for(j, isa), j->items);
  if (j->split) attn_run(p, j, join_of[isa], s->B * s->KV);
}

hp_status attn_paged(cpu_isa isa, pool *p, const attn_spec *s, const attn_pages *g,
                     const attn_view *q, const attn_view *k, const attn_view *v, const attn_view *o,
                     void *work) {
  attn_job j = {.q = *q, .k = *k, .v = *v, .o = *o, .pages = g, .work = work};
  size_t states, numbers;
  attn_spec part = *s;
  HP_TRY(check_pages(s, g));
  if (g->part) {
    j.before = g->part->before;
    j.after = g->part->after;
    part.span = work;
    part.window = 0;
    limit_spans(s, g, work);
    j.work += round_up(s->B * s->Tq * 2 * (int64_t)sizeof *part.span, 64);
    s = &part;
  }
  HP_TRY(check_table(s, g));
  attn_plan_shapes(s, &j);
  attn_plan_forward(&j, pool_size(p));
  HP_TRY(plan_bytes(g, &j, &states, &numbers));
  if (!j.rows || !s->B) return HP_OK;
  j.partial = (float *)(void *)(j.work + (size_t)pool_size(p) * j.work_each);
  j.first_of = (int64_t *)(void *)((char *)j.partial + states);
  j.segment0_of = (int32_t *)(void *)(j.first_of + s->B + 1);
  j.half = attn_is_half(&j);
  if (attn_is_few(&j)) run_few(isa, p, &j);
  else run_tiles(isa, p, &j);
  return HP_OK;
}
