/* The packed GEMM: which chunks, in which order, by which thread.
 *
 * C is divided into regions, each with the full k; threads take regions from a counter.  A region
 * is computed in blocks of NC columns, KC steps and MC rows.  A chunk of B is packed once for all
 * rows, a chunk of A for one block of C.  When one block has all rows, each panel of B
 * overwrites the one before it, in L2; packed weights of the kernels' own type are read in place.
 * Chains continue through C from one k block to the next (or through f32 scratch, when C is not f32
 * with unit column stride), so the blocks do not change any bit.  Finished sums are scaled, biased
 * and stored tile by tile while they are in L1, or in registers when they are only rounded. */
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/gemm_isa.h"
#include "base/dtype.h"
#include "base/round.h"

#include <stdatomic.h>

enum {
  B_LANES =
      512 * 1024,   /* of B's block: 2 MiB, in L3; a panel of it serves all of A's block from L2 */
  CARRY_ROWS = 512, /* of a block of C whose chains are carried in scratch */
  CARRY_COLS = 512,
  ROWS_COLS = 512, /* columns at a time when few rows are multiplied by a B that is not packed */
  REGIONS_PER_THREAD = 4
};

/* The plan of a query: whether it is transposed (so that C gets unit column stride), how it runs,
 * block sizes, regions and work memory.  It depends on query, instruction set and thread count. */
typedef struct {
  gemm_query q;
  const gemm_kernels *kernels;
  bool swapped; /* C^T = B^T A^T is computed; the bias is one of rows */
  bool stream;  /* few rows: B is read in place */
  bool copy_a;  /* stream: A must be widened or gathered first */
  bool scratch; /* the kernels cannot write C directly */
  bool carry;   /* scratch carries chains from one k block to the next, else it holds one tile */
  bool finish;  /* sums are scaled, biased or stored elsewhere at the end */
  bool direct;  /* packed weights are read in place */
  bool once;    /* A's block has all rows of a region: a panel of B has one use */
  int64_t kc, mc, nc, mb;
  int64_t tiles_m, tiles_n;    /* C in units that regions are cut into */
  int64_t unit_m, unit_n;      /* rows and columns of such a unit */
  int64_t cut_m, cut_n, items; /* regions of one item; batch items */
  size_t a_at, b_at, c_at,
      per_thread; /* bytes: the parts of a thread's work memory, and all of it */
} plan;

/* The f32 kernels, or, for two operands of bf16 (or rounded to it), the CPU's dot instructions.
 * Few rows times a B that is not packed are computed in f32. */
static const gemm_kernels *choose_kernels(cpu_isa isa, const gemm_query *q, bool stream) {
  bool halves = q->rounded || (q->a_type == HP_BF16 && q->b_type == HP_BF16);
  if (halves && (!stream || q->b_pack) && isa == ISA_AVX512_BF16) return &gemm_kernels_dot;
  static const gemm_kernels *const table[ISA_COUNT] = {[ISA_PLAIN] = &gemm_kernels_plain,
                                                       [ISA_AVX2] = &gemm_kernels_avx2,
                                                       [ISA_AVX512] = &gemm_kernels_avx512,
                                                       [ISA_AVX512_BF16] = &gemm_kernels_avx512};
  return table[isa];
}

static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
/* A block of about `most`, in multiples of unit, such that all blocks of n are nearly alike. */
static int64_t choose_even_block(int64_t n, int64_t most, int64_t unit) {
  if (n <= most) return round_up(n > 0 ? n : 1, unit);
  return round_up(div_up(n, div_up(n, most)), unit);
}

static void swap_i64(int64_t *a, int64_t *b) {
  int64_t t = *a;
  *a = *b;
  *b = t;
}

/* C^T = B^T A^T: the same products, so the same bits. */
static void transpose_product(gemm_query *q) {
  swap_i64(&q->m, &q->n);
  swap_i64(&q->a_m, &q->b_n);
  swap_i64(&q->a_k, &q->b_k);
  swap_i64(&q->c_m, &q->c_n);
  hp_dtype t = q->a_type;
  q->a_type = q->b_type;
  q->b_type = t;
  for (int i = 0; i < q->n_batch; i++) swap_i64(&q->batch[i].a, &q->batch[i].b);
}

/* True when there are few rows and B has unit stride along k or n: packing B would cost more than
 * it gains.  An operand that is to be rounded is packed. */
static bool streams_b(const gemm_query *q) {
  return q->m <= GEMM_ROWS_MAX && q->n > q->m && (q->b_k == 1 || q->b_n == 1) && !q->rounded;
}

/* Strides along dims of one element have no effect: sets them to values that allow fast kernels. */
static void normalize_strides(plan *p) {
  gemm_query *q = &p->q;
  if (q->n == 1) q->c_n = q->b_n = 1;
  if (q->m == 1) q->c_m = q->a_m = 1;
  if (q->k == 1) {
    if (q->b_n != 1) q->b_k = 1;
    if (q->a_m != 1) q->a_k = 1;
  }
  gemm_query other = *q;
  transpose_product(&other);
  if (q->b_pack) { /* packs are B's */
    p->stream = q->m <= GEMM_ROWS_MAX && !q->rounded;
    return;
  }
  if ((streams_b(&other) && !streams_b(q)) || (q->c_n != 1 && q->c_m == 1 && !streams_b(q))) {
    *q = other;
    p->swapped = true;
  }
  p->stream = streams_b(q);
}

bool gemm_reads_once(const gemm_query *q) {
  plan p = {.q = *q};
  normalize_strides(&p);
  return p.stream;
}

/* How many chunks to cut m and n into: the cut with the shortest time of the busiest thread, where
 * a region costs its products and, for each, the packing of its rows and columns. */
static void choose_regions(plan *p, int threads) {
  int64_t most = (int64_t)threads * REGIONS_PER_THREAD;
  double best = 0;
  p->cut_m = p->cut_n = 1;
  for (int64_t cm = 1; cm <= min_i64(p->tiles_m, p->stream ? 1 : most); cm++)
    for (int64_t cn = 1; cn <= min_i64(p->tiles_n, most / cm); cn++) {
      double rows = (double)min_i64(p->q.m, div_up(p->tiles_m, cm) * p->unit_m);
      double cols = (double)min_i64(p->q.n, div_up(p->tiles_n, cn) * p->unit_n);
      double cost = rows * cols + 8 * (rows + cols);
      cost *= (double)div_up(p->items * cm * cn, threads);
      if (best > 0 && cost >= best) continue;
      best = cost;
      p->cut_m = cm;
      p->cut_n = cn;
    }
}

/* Work memory of a thread: A, B, C parts in floats. */
static void lay_out(plan *p, int64_t a, int64_t b, int64_t c) {
  p->a_at = 0;
  p->b_at = p->a_at + gemm_align((size_t)a * sizeof(float));
  p->c_at = p->b_at + gemm_align((size_t)b * sizeof(float));
  p->per_thread = p->c_at + gemm_align((size_t)c * sizeof(float));
}

static void plan_stream(plan *p) {
  const gemm_query *q = &p->q;
  p->copy_a = q->a_type != HP_F32 || q->a_k != 1;
  p->nc = ROWS_COLS;
  p->scratch = true;
  lay_out(p, p->copy_a ? q->m * q->k : 0, 0, q->m * p->nc);
}

static void plan_blocks(plan *p) {
  const gemm_query *q = &p->q;
  int64_t mr = p->kernels->mr, nr = p->kernels->nr, per_lane = p->kernels->per_lane;
  int64_t rows = div_up(p->tiles_m, p->cut_m) * mr, cols = div_up(p->tiles_n, p->cut_n) * nr;
  p->scratch = q->c_type != HP_F32 || q->c_n != 1;
  p->direct = q->b_pack && q->b_type == p->kernels->own && q->b_k == GEMM_PACK &&
              q->k % per_lane == 0 && !q->rounded;
  p->kc = choose_even_block(q->k, (int64_t)p->kernels->steps * per_lane, per_lane);
  int64_t steps = p->kc / per_lane;
  p->carry = p->scratch && p->kc < q->k;
  p->finish = p->scratch || q->alpha != 1 || q->bias;
  int64_t most = p->kernels->a_lanes / steps;
  p->mc = choose_even_block(rows, rows <= most ? rows : p->kernels->mc, mr);
  p->mb = p->carry ? round_up(CARRY_ROWS, p->mc) : INT64_MAX;
  p->once = min_i64(p->mb, rows) <= p->mc;
  int64_t wide = p->direct || p->once ? cols : B_LANES / round_up(steps, 512);
  p->nc = choose_even_block(cols, p->carry ? CARRY_COLS : wide, nr);
  int64_t packed = p->direct ? 0 : p->once ? nr : p->nc;
  int64_t scratch = p->carry ? min_i64(p->mb, rows) * p->nc : mr * nr;
  lay_out(p, p->mc * GEMM_PITCH, steps * packed, p->scratch ? scratch : 0);
}

static void plan_make(cpu_isa isa, const gemm_query *q, int threads, plan *p) {
  *p = (plan){.q = *q, .items = gemm_items(q)};
  normalize_strides(p);
  p->kernels = choose_kernels(isa, q, p->stream);
  p->unit_m = p->stream ? p->q.m : p->kernels->mr;
  p->unit_n = p->stream ? 4 * p->kernels->nr : p->kernels->nr; /* stream: whole packs */
  p->tiles_m = div_up(p->q.m, p->unit_m);
  p->tiles_n = div_up(p->q.n, p->unit_n);
  choose_regions(p, threads);
  if (p->stream) plan_stream(p);
  else plan_blocks(p);
}

static bool is_empty(const gemm_query *q) { return q->m == 0 || q->n == 0 || gemm_items(q) == 0; }

static int64_t count_regions(const plan *p) { return p->items * p->cut_m * p->cut_n; }

size_t gemm_packed_workspace(cpu_isa isa, const gemm_query *q, int threads) {
  if (is_empty(q)) return 0;
  plan p;
  plan_make(isa, q, threads, &p);
  return p.per_thread * (size_t)threads;
}

void gemm_packed_print(cpu_isa isa, const gemm_query *q, int threads, str *out) {
  plan p;
  if (is_empty(q)) {
    str_add(out, "nothing to do");
    return;
  }
  plan_make(isa, q, threads, &p);
  str_printf(out, "%lld x %lld regions, %lld of %d threads",
             (long long)(p.swapped ? p.cut_n : p.cut_m), (long long)(p.swapped ? p.cut_m : p.cut_n),
             (long long)min_i64(threads, count_regions(&p)), threads);
}

/* --- running ---------------------------------------------------------------------------------- */

typedef struct {
  plan made;
  const plan *p;
  gemm_args args; /* exchanged as the plan is */
} run;

/* Products at once. */
typedef struct {
  int n;
  run at[GEMM_TOGETHER];
  int64_t regions[GEMM_TOGETHER];
  char *work;
  size_t per_thread;
  atomic_llong next; /* region to take: those of the first, then those of the next */
} job;

/* A region's operands, moved to its batch item. */
typedef struct {
  const char *a, *b;
  char *c;
  int64_t m0, m1, n0, n1;
} region;

static char *get_element(const void *p, hp_dtype type, int64_t i) {
  return (char *)(uintptr_t)p + i * (int64_t)dtype_size(type);
}

static region region_get(const run *r, int64_t i) {
  const plan *p = r->p;
  const gemm_query *q = &p->q;
  int64_t cuts = p->cut_m * p->cut_n, im = i % cuts / p->cut_n, in = i % p->cut_n, item[3];
  gemm_item(q, i / cuts, item);
  return (region){.a = get_element(r->args.a, q->a_type, item[0]),
                  .b = get_element(r->args.b, q->b_type, item[1]),
                  .c = get_element(r->args.c, q->c_type, item[2]),
                  .m0 = p->tiles_m * im / p->cut_m * p->unit_m,
                  .m1 = min_i64(q->m, p->tiles_m * (im + 1) / p->cut_m * p->unit_m),
                  .n0 = p->tiles_n * in / p->cut_n * p->unit_n,
                  .n1 = min_i64(q->n, p->tiles_n * (in + 1) / p->cut_n * p->unit_n)};
}

/* Stores finished sums s as rows from m0, columns from n0 of the region's C. */
static void finish_block(const run *r, const region *g, const float *s, int64_t lds, int64_t m0,
                         int64_t n0, int64_t rows, int64_t cols) {
  const plan *p = r->p;
  const gemm_query *q = &p->q;
  const float *bias = r->args.bias;
  p->kernels->finish(s, lds, rows, cols, q->alpha, bias && p->swapped ? bias + m0 : NULL,
                     bias && !p->swapped ? bias + n0 : NULL,
                     get_element(g->c, q->c_type, m0 * q->c_m + n0 * q->c_n), q->c_type, q->c_m,
                     q->c_n);
}

/* A block of C: rows m0.., columns n0.., its sums over the steps from k0 on, and where they grow.
 */
typedef struct {
  int64_t m0, rows, n0, cols, k0, k;
  float *c;
  int64_t ldc;
} block;

static gemm_source make_source_a(const run *r, const region *g, const block *x) {
  const gemm_query *q = &r->p->q;
  return (gemm_source){get_element(g->a, q->a_type, x->m0 * q->a_m + x->k0 * q->a_k),
                       q->a_type,
                       x->rows,
                       x->k,
                       q->a_m,
                       q->a_k,
                       0,
                       q->rounded};
}
static gemm_source make_source_b(const run *r, const region *g, const block *x) {
  const gemm_query *q = &r->p->q;
  return (gemm_source){get_element(g->b, q->b_type, gemm_b_at(q, x->k0, x->n0)),
                       q->b_type,
                       x->cols,
                       x->k,
                       q->b_n,
                       q->b_k,
                       q->b_pack,
                       q->rounded};
}

/* The lines of x to prefetch while `tiles` tiles are computed. */
static gemm_ahead plan_prefetch(const run *r, const gemm_source *x, int64_t tiles) {
  int64_t size = (int64_t)dtype_size(x->type), chunks = tiles * r->p->kernels->mr;
  gemm_ahead a = {.at = x->at,
                  .bytes = x->lanes * size,
                  .stride = x->k_stride * size,
                  .runs = x->k};
  if (x->k_stride == 1)
    a = (gemm_ahead){.at = x->at,
                     .bytes = x->k * size,
                     .stride = x->lane_stride * size,
                     .runs = x->lanes};
  if (x->pack)
    a = (gemm_ahead){.at = x->at,
                     .bytes = x->k * x->k_stride * size,
                     .stride = x->pack * size,
                     .runs = div_up(x->lanes, GEMM_PACK)};
  a.burst = (int)div_up(a.runs * div_up(a.bytes, 64), chunks > 0 ? chunks : 1);
  return a;
}

/* The target of the sums of a block, if its rows are contiguous there. */
static gemm_target make_target(const run *r, const region *g, const block *x) {
  const gemm_query *q = &r->p->q;
  int64_t size = (int64_t)dtype_size(q->c_type);
  if (q->c_n != 1) return (gemm_target){0};
  return (gemm_target){get_element(g->c, q->c_type, x->m0 * q->c_m + x->n0), q->c_m * size,
                       x->cols * size, false};
}

/* Packed rows times packed columns over one k block, at whose end sums are finished. */
static void run_tile(const run *r, const region *g, const float *pa, const gemm_columns *b,
                     const block *x, gemm_ahead *ahead) {
  const plan *p = r->p;
  const gemm_query *q = &p->q;
  bool first = p->scratch && !p->carry && q->accumulate;
  gemm_target target = make_target(r, g, x);
  if (first)
    p->kernels->start(x->c, x->ldc, x->rows, x->cols,
                      get_element(g->c, q->c_type, x->m0 * q->c_m + x->n0 * q->c_n), q->c_type,
                      q->c_m, q->c_n);
  p->kernels->block(x->rows, x->cols, div_up(x->k, p->kernels->per_lane), pa, b, x->c, x->ldc,
                    x->k0 > 0 || q->accumulate, &target, ahead);
  finish_block(r, g, x->c, x->ldc, x->m0, x->n0, x->rows, x->cols);
}

/* Sums that are only rounded leave the registers of a tile as what they become. */
static bool ends_in_tiles(const plan *p, const block *x) {
  const gemm_query *q = &p->q;
  return q->c_type != HP_F32 && q->c_type == p->kernels->ends && q->c_n == 1 && q->alpha == 1 &&
         !q->bias && (p->carry || !q->accumulate) && x->cols % GEMM_PACK == 0;
}

/* Packed rows times packed columns over one k block: where it ends the chains tile by tile, each
 * finished while it is in the nearest cache. */
static void run_block(const run *r, const region *g, const float *pa, const gemm_columns *b,
                      const block *x, gemm_ahead *ahead) {
  const plan *p = r->p;
  const gemm_query *q = &p->q;
  bool last = x->k0 + x->k >= q->k, ends = last && ends_in_tiles(p, x);
  if (!p->finish || !last || ends) {
    gemm_target target = ends ? make_target(r, g, x) : (gemm_target){0};
    target.ends = ends;
    p->kernels->block(x->rows, x->cols, div_up(x->k, p->kernels->per_lane), pa, b, x->c, x->ldc,
                      x->k0 > 0 || q->accumulate, &target, ahead);
    return;
  }
  for (int64_t i = 0; i < x->rows; i += p->kernels->mr) {
    block t = *x;
    t.m0 += i;
    t.rows = min_i64(p->kernels->mr, x->rows - i);
    if (!p->scratch || p->carry) t.c += i * x->ldc;
    run_tile(r, g, pa + i * GEMM_PITCH, b, &t, ahead);
  }
}

/* Packed rows times columns panel by panel.  A panel is packed before its first use, or read where
 * it lies; while it is computed the source of the next is prefetched. */
static void run_panels(const run *r, const region *g, const float *pa, float *pb, const block *all,
                       bool packs_b, gemm_ahead *ahead) {
  const plan *p = r->p;
  int64_t per_lane = p->kernels->per_lane, steps = div_up(all->k, per_lane), nr = p->kernels->nr;
  for (int64_t j = 0; j < all->cols; j += nr) {
    block x = *all, next = *all;
    x.n0 += j;
    x.cols = min_i64(nr, all->cols - j);
    next.n0 += j + nr;
    next.cols = min_i64(nr, all->cols - j - nr);
    if (!p->scratch || p->carry) x.c += j;
    gemm_source b = make_source_b(r, g, &x), nb = make_source_b(r, g, &next);
    float *packed = p->once ? pb : pb + j * steps;
    gemm_columns columns = {packed, GEMM_PACK * steps, false};
    if (p->direct) columns = (gemm_columns){b.at, p->q.b_pack / per_lane, true};
    else if (packs_b) p->kernels->pack_panels(packed, &b);
    if ((packs_b || p->direct) && next.cols > 0)
      *ahead = plan_prefetch(r, &nb, div_up(x.rows, p->kernels->mr));
    run_block(r, g, pa, &columns, &x, ahead);
  }
}

/* Rows m0..m1, columns n0..n0+cols of C, over all k. */
static void run_columns(const run *r, const region *g, char *work, int64_t m0, int64_t m1,
                        int64_t n0, int64_t cols) {
  const plan *p = r->p;
  const gemm_query *q = &p->q;
  float *pa = (float *)(void *)(work + p->a_at), *pb = (float *)(void *)(work + p->b_at);
  float *c =
      (float *)(void *)(p->scratch ? work + p->c_at : get_element(g->c, HP_F32, m0 * q->c_m + n0));
  int64_t ldc = p->carry ? p->nc : p->scratch ? p->kernels->nr : q->c_m;
  if (p->carry && q->accumulate)
    p->kernels->start(c, ldc, m1 - m0, cols,
                      get_element(g->c, q->c_type, m0 * q->c_m + n0 * q->c_n), q->c_type, q->c_m,
                      q->c_n);
  for (int64_t k0 = 0; k0 < q->k || k0 == 0; k0 += p->kc)
    for (int64_t m = m0; m < m1; m += p->mc) {
      block x = {m, min_i64(p->mc, m1 - m), n0, cols, k0, min_i64(p->kc, q->k - k0), c, ldc};
      if (!p->scratch || p->carry) x.c += (m - m0) * ldc;
      gemm_source a = make_source_a(r, g, &x);
      p->kernels->pack_rows(pa, GEMM_PITCH, &a);
      block next = x;
      next.m0 += p->mc;
      next.rows = min_i64(p->mc, m1 - next.m0);
      gemm_source na = make_source_a(r, g, &next);
      gemm_ahead ahead = {0};
      if (next.rows > 0)
        ahead =
            plan_prefetch(r, &na, div_up(x.rows, p->kernels->mr) * div_up(cols, p->kernels->nr));
      run_panels(r, g, pa, pb, &x, m == m0, &ahead);
    }
}

static void run_blocks(const run *r, const region *g, char *work) {
  const plan *p = r->p;
  for (int64_t m0 = g->m0; m0 < g->m1; m0 += min_i64(p->mb, g->m1 - m0))
    for (int64_t n0 = g->n0; n0 < g->n1; n0 += p->nc)
      run_columns(r, g, work, m0, m0 + min_i64(p->mb, g->m1 - m0), n0, min_i64(p->nc, g->n1 - n0));
}

/* All rows of A (few), columns n0..n1 of a B that is not packed. */
static void run_stream(const run *r, const region *g, char *work) {
  const plan *p = r->p;
  const gemm_query *q = &p->q;
  float *c = (float *)(void *)(work + p->c_at);
  const float *a = (const float *)(const void *)g->a;
  int64_t lda = q->a_m;
  if (p->copy_a) {
    float *copy = (float *)(void *)(work + p->a_at);
    p->kernels->pack_rows(copy, q->k,
                          &(gemm_source){g->a, q->a_type, q->m, q->k, q->a_m, q->a_k, 0, false});
    a = copy;
    lda = q->k;
  }
  for (int64_t n0 = g->n0; n0 < g->n1; n0 += p->nc) {
    int64_t cols = min_i64(p->nc, g->n1 - n0);
    if (q->accumulate)
      p->kernels->start(c, p->nc, q->m, cols, get_element(g->c, q->c_type, n0 * q->c_n), q->c_type,
                        q->c_m, q->c_n);
    const char *b = get_element(g->b, q->b_type, gemm_b_at(q, 0, n0));
    if (q->b_pack)
      p->kernels->rows_packed(q->m, cols, q->k, a, lda, b, q->b_type, q->b_pack, q->b_k, c, p->nc,
                              q->accumulate);
    else
      p->kernels->rows(q->m, cols, q->k, a, lda, b, q->b_type, q->b_k, q->b_n, c, p->nc,
                       q->accumulate);
    finish_block(r, g, c, p->nc, 0, n0, q->m, cols);
  }
}

/* One thread: regions until there are no more. */
static void run_thread(void *ctx, int64_t thread) {
  job *j = ctx;
  char *work = j->work + (size_t)thread * j->per_thread;
  for (;;) {
    int64_t i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
    int k = 0;
    for (; k < j->n && i >= j->regions[k]; k++) i -= j->regions[k];
    if (k == j->n) return;
    const run *r = &j->at[k];
    region g = region_get(r, i);
    if (r->p->stream) run_stream(r, &g, work);
    else run_blocks(r, &g, work);
  }
}

static run run_make(cpu_isa isa, const gemm_query *q, const gemm_args *args, int threads) {
  run r = {.args = *args};
  plan_make(isa, q, threads, &r.made);
  if (r.made.swapped) {
    r.args.a = args->b;
    r.args.b = args->a;
  }
  if (!q->bias) r.args.bias = NULL;
  return r;
}

void gemm_packed_run_all(cpu_isa isa, const gemm_query *q, const gemm_args *args, int n,
                         pool *threads, void *work) {
  job j = {.work = work};
  int64_t regions = 0;
  for (int i = 0; i < n; i++) {
    if (is_empty(&q[i])) continue;
    run *r = &j.at[j.n];
    *r = run_make(isa, &q[i], &args[i], pool_size(threads));
    const plan *p = r->p = &r->made;
    if (p->per_thread > j.per_thread) j.per_thread = p->per_thread;
    regions += j.regions[j.n++] = count_regions(p);
  }
  if (regions) pool_run(threads, min_i64(pool_size(threads), regions), run_thread, &j);
}

void gemm_packed_run(cpu_isa isa, const gemm_query *q, const gemm_args *args, pool *threads,
                     void *work) {
  gemm_packed_run_all(isa, q, args, 1, threads, work);
}
