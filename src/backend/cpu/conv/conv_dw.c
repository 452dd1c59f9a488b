/* The gradient of a convolution's weights: chains over images and positions.
 *
 * dw is the product of two: rows are channels of x with their taps, gathered from the copy of a
 * box, columns are channels of dy; what is summed over are the positions of one box after the
 * other.  The images are in up to PARTS parts, by their number and size alone, whose sums are added
 * in order.  Where the weights are too small to keep all threads busy the parts are items of their
 * own, with room for the sums of each; else an item goes through them one by one. */
#include "backend/cpu/conv/conv_plan.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <stdatomic.h>
#include <string.h>

enum {
  TILE = 32, /* rows and columns of dw that are work for a thread */
  TILES_PER_THREAD = 8,
  PARTS = 16,
  PART_POSITIONS = 2048,    /* of a part, or more */
  SPREAD_WEIGHTS = 1 << 22, /* sums of all parts that have room of their own, at most */
  A_ROWS = 112,             /* rows that are packed at a time */
  ITEM_ROWS = 576,
  ITEM_COLS = 128,
  ITEMS_PER_THREAD = 2,
  CHUNK = 4096 /* elements of parts that are added at a time */
};

typedef struct {
  conv_shape shape;
  const conv_shape *s;                              /* the same */
  conv_cut cut;                                     /* of the images of a part */
  int64_t rows;                                     /* channels of x with their taps */
  int64_t parts, part_images;                       /* images of a part */
  bool spread;                                      /* parts are items */
  int64_t mc, rows_of, cols_of, blocks_m, blocks_n; /* of an item; items of a group and part */
  int64_t dy_pixels;
  size_t offset_at, copy_at, dy_at, a_at, b_at, c_at, sum_at, per_thread, parts_at;
  const char *x, *dy;
  char *dw, *work;
  atomic_llong next;
} job;

static size_t reserve_floats(job *j, int64_t n, size_t size) {
  size_t at = j->per_thread;
  j->per_thread += gemm_align((size_t)n * size);
  return at;
}
static int64_t count_weights(const job *j) { return j->s->groups * j->s->out * j->rows; }

/* By what no layout cuts where sums are to be whole: not by channels. */
static void choose_parts(job *j) {
  const conv_shape *s = j->s;
  int64_t pixels = conv_most(s->ax[0].grid * s->ax[1].grid, 1);
  j->part_images = conv_most(div_up(s->batch, PARTS), div_up(PART_POSITIONS, pixels));
  j->part_images = conv_most(conv_least(j->part_images, s->batch), 1);
  j->parts = conv_most(div_up(s->batch, j->part_images), 1);
}

static bool choose_spread(const job *j, int threads) {
  const conv_shape *s = j->s;
  int64_t tiles = s->groups * div_up(j->rows, TILE) * div_up(s->out, TILE);
  return j->parts > 1 && threads > 1 && tiles < (int64_t)TILES_PER_THREAD * threads &&
         count_weights(j) * j->parts <= SPREAD_WEIGHTS;
}

static void plan_job(job *j, const conv_shape *of, int threads) {
  *j = (job){.shape = *of, .rows = of->in * of->taps};
  const conv_shape *s = j->s = &j->shape;
  choose_parts(j);
  j->spread = choose_spread(j, threads);
  conv_shape part = *s;
  part.batch = j->part_images;
  j->cut = conv_cut_make(&part, GEMM_STEPS_MAX);
  conv_choose_copies(&j->shape, &j->cut);
  j->dy_pixels = s->ax[0].grid * s->ax[1].grid;
  j->cols_of = conv_even(s->out, ITEM_COLS, s->gemm->nr);
  j->blocks_n = div_up(s->out, j->cols_of);
  int64_t items = s->groups * (j->spread ? j->parts : 1) * j->blocks_n;
  int64_t cuts = threads > 1 ? div_up((int64_t)ITEMS_PER_THREAD * threads, items) : 1;
  j->rows_of = conv_even(j->rows, conv_least(div_up(j->rows, cuts), ITEM_ROWS), s->gemm->mr);
  j->blocks_m = div_up(j->rows, j->rows_of);
  j->mc = conv_even(j->rows_of, A_ROWS, s->gemm->mr);
  int64_t steps = conv_cut_positions(&j->cut);
  j->offset_at = reserve_floats(j, j->mc, sizeof(int64_t));
  j->copy_at = reserve_floats(j, conv_part_most(s, &j->cut, j->mc), sizeof(float));
  j->dy_at = reserve_floats(j, j->cols_of * steps, sizeof(float));
  j->a_at = reserve_floats(j, j->mc * GEMM_PITCH, sizeof(float));
  j->b_at = reserve_floats(j, round_up(j->cols_of, s->gemm->nr) * steps, sizeof(float));
  int64_t c = round_up(j->rows_of, s->gemm->mr) * round_up(j->cols_of, s->gemm->nr);
  j->c_at = reserve_floats(j, c, sizeof(float));
  j->sum_at = reserve_floats(j, j->parts > 1 && !j->spread ? c : 0, sizeof(float));
}

hp_status conv_dw_work(const conv_shape *s, int threads, size_t *bytes) {
  job j;
  size_t all, parts = 0;
  plan_job(&j, s, threads);
  if (!size_mul(j.per_thread, (size_t)threads, &all) ||
      (j.spread && !size_mul((size_t)count_weights(&j), (size_t)j.parts * sizeof(float), &parts)) ||
      !size_add(all, parts, bytes))
    HP_FAIL(HP_ERR_OOM, "the gradient of the weights needs more work memory than can be addressed");
  return HP_OK;
}

/* --- operands --------------------------------------------------------------------------------- */

typedef struct {
  int64_t g, m0, rows, n0, cols;
  float *copy, *dy, *a, *b, *c;
  int64_t *offset;
  int64_t ldc;
} item;

/* Rows m .. m1 - 1 of a box, a part of the chains: each tap of a channel, position by position. */
static void pack_part(const job *j, const item *x, const conv_box *box, int64_t m, int64_t m1,
                      float *to) {
  conv_part part = conv_part_get(j->s, &j->cut, m, m1);
  conv_copy copy = conv_copy_of(&part.s, box);
  int64_t steps = conv_box_positions(box);
  conv_copy_fill(&part.s, box, x->g, part.c0, part.c1, j->x, x->copy);
  conv_offsets(&part.s, &copy, part.c0, part.k0, part.k1, x->offset);
  for (int64_t p = 0; p < steps;) {
    conv_run_of run = conv_run_at(box, &copy, p, steps);
    for (int64_t r = 0; r < m1 - m; r++)
      memcpy(to + r * GEMM_PITCH + p, x->copy + x->offset[r] + run.at, (size_t)run.n * sizeof *to);
    p += run.n;
  }
}

static void pack_rows(const job *j, const item *x, const conv_box *box, int64_t m, int64_t rows) {
  for (int64_t at = m, end; at < m + rows; at = end) {
    end = conv_part_end(j->s, j->mc, at, m + rows);
    pack_part(j, x, box, at, end, x->a + (at - m) * GEMM_PITCH);
  }
}

/* Channels n0 .. n0 + cols of dy under a box, from where they lie if that is one run. */
static void pack_columns(const job *j, const item *x, const conv_box *box) {
  const conv_shape *s = j->s;
  int64_t rows = box->i1 - box->i0, cols = box->j1 - box->j0, w = s->ax[1].grid;
  int64_t size = (int64_t)dtype_size(s->type), steps = conv_box_positions(box);
  int64_t run = cols == w ? rows * cols : cols, channels = s->groups * s->out;
  if (run == steps) {
    int64_t at =
        (box->n0 * channels + x->g * s->out + x->n0) * j->dy_pixels + box->i0 * w + box->j0;
    s->gemm->pack_panels(x->b, &(gemm_source){j->dy + at * size, s->type, x->cols, steps,
                                              j->dy_pixels, 1, 0, false});
    return;
  }
  for (int64_t o = 0; o < x->cols; o++)
    for (int64_t p = 0; p < steps; p += run) {
      int64_t n = box->n0 + p / (rows * cols), i = box->i0 + p / cols % rows;
      int64_t at = (n * channels + x->g * s->out + x->n0 + o) * j->dy_pixels + i * w + box->j0;
      s->own->widen(x->dy + o * steps + p, j->dy + at * size, s->type, run, 1);
    }
  s->gemm->pack_panels(x->b, &(gemm_source){x->dy, HP_F32, x->cols, steps, steps, 1, 0, false});
}

/* --- items ------------------------------------------------------------------------------------ */

static void add_box(const job *j, const item *x, const conv_box *box, bool load) {
  int64_t steps = conv_box_positions(box);
  gemm_columns b = {x->b, GEMM_PACK * steps, false};
  pack_columns(j, x, box);
  for (int64_t m = 0; m < x->rows; m += j->mc) {
    int64_t rows = conv_least(j->mc, x->rows - m);
    pack_rows(j, x, box, x->m0 + m, rows);
    j->s->gemm->block(rows, round_up(x->cols, GEMM_PACK), steps, x->a, &b, x->c + m * x->ldc,
                      x->ldc, load, &(gemm_target){0}, &(gemm_ahead){0});
  }
}

/* The sums of an item, transposed, go to dw or to the part's own. */
static void store_sums(const job *j, const item *x, const float *c, int64_t part) {
  int64_t to = (x->g * j->s->out + x->n0) * j->rows + x->m0;
  hp_dtype type = j->spread ? HP_F32 : j->s->type;
  char *at =
      j->spread ? j->work + j->parts_at + part * count_weights(j) * (int64_t)sizeof(float) : j->dw;
  j->s->gemm->finish(c, x->ldc, x->rows, x->cols, 1, NULL, NULL,
                     at + to * (int64_t)dtype_size(type), type, 1, j->rows);
}

/* The sums over the images of a part, to x->c. */
static void add_part(const job *j, const item *x, int64_t part) {
  int64_t n0 = part * j->part_images, n1 = conv_least(n0 + j->part_images, j->s->batch);
  bool load = false;
  for (int64_t b = 0; b < conv_cut_boxes(&j->cut) && n1 > n0; b++) {
    conv_box box = conv_box_get(j->s, &j->cut, b);
    box.n0 += n0;
    box.n1 = conv_least(box.n1 + n0, n1);
    if (box.n0 >= n1 || conv_box_positions(&box) == 0) continue;
    add_box(j, x, &box, load);
    load = true;
  }
  if (!load) memset(x->c, 0, (size_t)(x->rows * x->ldc) * sizeof *x->c);
}

/* All parts, one added to the other. */
static void add_all(const job *j, item x, float *sum) {
  float *c = x.c;
  for (int64_t part = 0; part < j->parts; part++) {
    x.c = part ? c : sum;
    add_part(j, &x, part);
    for (int64_t i = 0; part && i < x.rows * x.ldc; i++) sum[i] += c[i];
  }
}

static void run_item(const job *j, int64_t i, char *work) {
  int64_t m = i % j->blocks_m, n = i / j->blocks_m % j->blocks_n;
  int64_t parts = j->spread ? j->parts : 1, part = i / j->blocks_m / j->blocks_n % parts;
  item x = {.g = i / j->blocks_m / j->blocks_n / parts,
            .m0 = m * j->rows_of,
            .n0 = n * j->cols_of,
            .copy = (float *)(void *)(work + j->copy_at),
            .dy = (float *)(void *)(work + j->dy_at),
            .a = (float *)(void *)(work + j->a_at),
            .b = (float *)(void *)(work + j->b_at),
            .c = (float *)(void *)(work + j->c_at),
            .offset = (int64_t *)(void *)(work + j->offset_at),
            .ldc = round_up(j->cols_of, j->s->gemm->nr)};
  float *sum = (float *)(void *)(work + j->sum_at);
  x.rows = conv_least(j->rows_of, j->rows - x.m0);
  x.cols = conv_least(j->cols_of, j->s->out - x.n0);
  bool all = j->parts > 1 && !j->spread;
  if (all) add_all(j, x, sum);
  else add_part(j, &x, part);
  store_sums(j, &x, all ? sum : x.c, part);
}

static int64_t count_items(const job *j) {
  return j->s->groups * (j->spread ? j->parts : 1) * j->blocks_n * j->blocks_m;
}

static void run_thread(void *ctx, int64_t thread) {
  job *j = ctx;
  int64_t items = count_items(j);
  char *work = j->work + (size_t)thread * j->per_thread;
  for (int64_t i; (i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < items;)
    run_item(j, i, work);
}

/* Elements of a chunk, part by part. */
static void add_parts(void *ctx, int64_t chunk) {
  const job *j = ctx;
  int64_t from = chunk * CHUNK, n = conv_least(CHUNK, count_weights(j) - from);
  float *sum = (float *)(void *)(j->work + j->parts_at) + from;
  for (int64_t p = 1; p < j->parts; p++) {
    const float *more = sum + p * count_weights(j);
    for (int64_t i = 0; i < n; i++) sum[i] += more[i];
  }
  j->s->gemm->finish(sum, n, 1, n, 1, NULL, NULL, j->dw + from * (int64_t)dtype_size(j->s->type),
                     j->s->type, n, 1);
}

void conv_dw_run(const conv_shape *s, pool *threads, const void *x, const void *dy, void *dw,
                 void *work) {
  job j;
  plan_job(&j, s, pool_size(threads));
  j.x = x;
  j.dy = dy;
  j.dw = dw;
  j.work = work;
  j.parts_at = j.per_thread * (size_t)pool_size(threads);
  pool_run(threads, conv_least(pool_size(threads), count_items(&j)), run_thread, &j);
  if (j.spread) pool_run(threads, div_up(count_weights(&j), CHUNK), add_parts, &j);
}
