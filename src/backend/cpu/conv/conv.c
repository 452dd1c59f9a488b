/* The forward of a convolution and the gradient of x: chains over channels and taps. */
#include "backend/cpu/conv/conv.h"

#include "backend/cpu/conv/conv_plan.h"
#include "base/dtype.h"
#include "base/mem.h"

#include <stdatomic.h>
#include <string.h>

enum {
  POSITIONS = 512,      /* of a box, if there are boxes enough for all threads */
  POSITIONS_LEAST = 64, /* else fewer */
  BOXES_PER_THREAD = 4,
  COPY_LANES = 96 * 1024, /* of a box's copy: 384 KiB of L2 */
  DEPTH_LEAST = 256,      /* steps between two loads of C, though the copy is larger then */
  ROWS = 128              /* of the packed weights */
};

/* One correlation: weights, source and result of all groups, and how it is cut. */
typedef struct {
  conv_shape s;
  int64_t w_group, w_row, w_channel, w_line; /* weights from one to the next, in elements */
  int64_t channels;                          /* of the result's groups; a row has one's member */
  int64_t result_h, result_w;
  const char *weights, *source;
  char *result;
  conv_cut cut;
  int64_t depth, kc, mc, blocks, ldc; /* factors of a chain, in a block; rows; row blocks */
  bool few;
  size_t offset_at, copy_at, a_at, b_at, c_at, per_thread;
  char *work;
  atomic_llong next;
} pass;

/* What a thread has packed, and where it is. */
typedef struct {
  pass *p;
  int64_t packed; /* row block of a group whose weights lie there, -1: none */
  int64_t *offset;
  float *copy, *a, *b, *c;
} place;

/* --- plan ------------------------------------------------------------------------------------- */

static size_t reserve_floats(pass *p, int64_t n, size_t size) {
  size_t at = p->per_thread;
  p->per_thread += gemm_align((size_t)n * size);
  return at;
}

static void choose_boxes(pass *p, int threads) {
  int64_t items = p->s.groups * p->blocks, wanted = (int64_t)BOXES_PER_THREAD * threads;
  for (int64_t n = POSITIONS;; n /= 2) {
    p->cut = conv_cut_make(&p->s, n);
    if (threads == 1 || n <= POSITIONS_LEAST || items * conv_cut_boxes(&p->cut) >= wanted) return;
  }
}

/* Whole channels, unless one alone has more taps than a block can have steps: see block_end. */
static int64_t choose_depth(const pass *p) {
  const conv_shape *s = &p->s;
  if (s->taps > GEMM_STEPS_MAX) return GEMM_STEPS_MAX;
  int64_t copied = conv_copy_most(s, &p->cut).channel;
  int64_t channels = conv_most(COPY_LANES / conv_most(copied, 1), DEPTH_LEAST / s->taps);
  channels = conv_least(conv_most(channels, 1), GEMM_STEPS_MAX / s->taps);
  return conv_even(s->in, channels, 1) * s->taps;
}

/* Where the block of factors that begins with k0 ends. */
static int64_t block_end(const pass *p, int64_t k0) {
  int64_t k1 = conv_least(k0 + p->kc, p->depth);
  return conv_part_end(&p->s, GEMM_STEPS_MAX, k0, k1);
}

static void plan_pass(pass *p, int threads) {
  conv_shape *s = &p->s;
  int64_t nr = s->gemm->nr;
  p->channels = s->out;
  s->out *= s->ax[0].members * s->ax[1].members;
  p->depth = s->in * s->taps;
  p->few = s->out <= CONV_FEW && (s->ax[1].grid >= 12 || s->out <= 2);
  p->mc = p->few ? s->out : conv_even(s->out, ROWS, s->gemm->mr);
  p->blocks = div_up(s->out, p->mc);
  choose_boxes(p, threads);
  conv_choose_copies(s, &p->cut);
  p->kc = choose_depth(p);
  bool carry = p->kc < p->depth;
  int64_t lines = p->cut.images * p->cut.rows, cols = conv_cut_positions(&p->cut);
  p->ldc = p->few ? lines * round_up(p->cut.cols, 16) : carry ? round_up(cols, nr) : nr;
  p->per_thread = 0;
  p->offset_at = reserve_floats(p, p->kc, sizeof(int64_t));
  int64_t copied = s->taps > GEMM_STEPS_MAX ? conv_part_most(s, &p->cut, GEMM_STEPS_MAX)
                                            : p->kc / s->taps * conv_copy_most(s, &p->cut).channel;
  p->copy_at = reserve_floats(p, copied + 4 * CONV_SLACK, sizeof(float));
  p->a_at = reserve_floats(p, p->mc * GEMM_PITCH, sizeof(float));
  p->b_at = reserve_floats(p, p->few ? 0 : nr * p->kc + CONV_SLACK, sizeof(float));
  p->c_at = reserve_floats(p, p->mc * p->ldc, sizeof(float));
}

/* --- weights ---------------------------------------------------------------------------------- */

/* Where row m of the result begins: a channel, of that a member of the rows, of the columns. */
typedef struct {
  int64_t channel, h, w;
} row_of;
static row_of row_get(const pass *p, int64_t m) {
  int64_t hs = p->s.ax[0].members, ws = p->s.ax[1].members;
  return (row_of){m / (hs * ws), m / ws % hs, m % ws};
}

/* Factors k0 .. k1 - 1 of a row: the taps of a line of the kernel are copied together. */
static void pack_row(const pass *p, const char *w, int64_t k0, int64_t k1, float *to) {
  const conv_axis *h = &p->s.ax[0], *v = &p->s.ax[1];
  int64_t size = (int64_t)dtype_size(p->s.type);
  if (p->s.taps == 1) {
    int64_t at = k0 * p->w_channel + h->weight * p->w_line + v->weight;
    p->s.own->widen(to, w + at * size, p->s.type, k1 - k0, p->w_channel);
    return;
  }
  for (int64_t k = k0, n; k < k1; k += n) {
    int64_t c = k / p->s.taps, line = k % p->s.taps / v->taps, tap = k % v->taps;
    int64_t at = c * p->w_channel + (h->weight + line * h->weight_step) * p->w_line + v->weight +
                 tap * v->weight_step;
    n = conv_least(v->taps - tap, k1 - k);
    p->s.own->widen(to + k - k0, w + at * size, p->s.type, n, v->weight_step);
  }
}

static void pack_weights(const pass *p, int64_t g, int64_t m0, int64_t rows, int64_t k0, int64_t k1,
                         float *to) {
  const conv_axis *h = &p->s.ax[0], *v = &p->s.ax[1];
  int64_t size = (int64_t)dtype_size(p->s.type);
  /* all taps in order: channels are neighbours, or at least their kernels are runs */
  bool runs = h->weight_step == 1 && v->weight_step == 1 && v->taps == p->w_line;
  for (int64_t m = 0; m < rows; m++, to += GEMM_PITCH) {
    row_of row = row_get(p, m0 + m);
    int64_t at = g * p->w_group + row.channel * p->w_row + row.h * p->w_line + row.w;
    const char *w = p->weights + at * size;
    if (runs && p->w_channel == p->s.taps) {
      p->s.own->widen(to, w + k0 * size, p->s.type, k1 - k0, 1);
    } else if (runs && k0 % p->s.taps == 0 && k1 % p->s.taps == 0 && p->s.type == HP_F32) {
      int64_t taps = p->s.taps;
      for (int64_t k = k0; k < k1; k += taps)
        memcpy(to + k - k0, w + k / taps * p->w_channel * size, (size_t)taps * sizeof *to);
    } else {
      pack_row(p, w, k0, k1, to);
    }
  }
}

/* --- a box ------------------------------------------------------------------------------------ */

typedef struct {
  conv_box box;
  conv_copy copy;
  int64_t g, m0, rows, cols;
} item;

/* Rows from m on that are evenly apart in the result, and how far. */
static int64_t count_equal_rows(const pass *p, int64_t m, int64_t *apart) {
  const conv_axis *h = &p->s.ax[0], *w = &p->s.ax[1];
  row_of row = row_get(p, m);
  if (w->members > 1) {
    *apart = w->member_step;
    return w->members - row.w;
  }
  *apart = h->members > 1 ? h->member_step * p->result_w : p->result_h * p->result_w;
  return h->members > 1 ? h->members - row.h : p->s.out - m;
}

/* Sums of rows m0.. of n positions from p on, `s` apart by ldc, go to the result. */
static void store_run(const pass *p, const item *x, const float *s, int64_t ldc, int64_t position,
                      int64_t n) {
  const conv_axis *h = &p->s.ax[0], *w = &p->s.ax[1];
  int64_t cols = x->box.j1 - x->box.j0, rows = x->box.i1 - x->box.i0;
  int64_t image = x->box.n0 + position / cols / rows, i = x->box.i0 + position / cols % rows;
  int64_t j = x->box.j0 + position % cols, pixels = p->result_h * p->result_w;
  int64_t channel = (image * p->s.groups + x->g) * p->channels;
  int64_t top = h->first + i * h->stride, left = w->first + j * w->stride, apart;
  for (int64_t m = 0, some; m < x->rows; m += some) {
    row_of row = row_get(p, x->m0 + m);
    int64_t at = (channel + row.channel) * pixels + (top + row.h * h->member_step) * p->result_w +
                 left + row.w * w->member_step;
    some = conv_least(count_equal_rows(p, x->m0 + m, &apart), x->rows - m);
    p->s.gemm->finish(s + m * ldc, ldc, some, n, 1, NULL, NULL,
                      p->result + at * (int64_t)dtype_size(p->s.type), p->s.type, apart, w->stride);
  }
}

/* Positions from .. from + n, column by column of c; whole images' lines are one run. */
static void store_sums(const pass *p, const item *x, const float *c, int64_t from, int64_t n) {
  const conv_axis *h = &p->s.ax[0], *w = &p->s.ax[1];
  int64_t cols = x->box.j1 - x->box.j0, image = cols * (x->box.i1 - x->box.i0);
  bool joined = cols == p->result_w && h->stride == 1 && w->stride == 1;
  for (int64_t at = from, some; at < from + n; at += some) {
    int64_t run = joined ? image - at % image : cols - at % cols;
    some = conv_least(run, from + n - at);
    store_run(p, x, c + at - from, p->ldc, at, some);
  }
}

/* Columns p .. p + n of a panel, packed 16 columns at a time. */
static void pack_panel(const place *t, const item *x, int64_t p, int64_t n, int64_t steps) {
  for (int64_t lane = 0; lane < n; lane += GEMM_PACK) {
    conv_span span[GEMM_PACK];
    int spans = 0;
    int64_t end = p + conv_least(n, lane + GEMM_PACK);
    for (int64_t at = p + lane; at < end;) {
      conv_run_of r = conv_run_at(&x->box, &x->copy, at, end);
      span[spans++] = (conv_span){at - p - lane, r.at};
      at += r.n;
    }
    t->p->s.own->gather(t->b + lane * steps, steps, t->copy, t->offset, span, spans);
  }
}

static void run_panels(const place *t, const item *x, int64_t k0, int64_t k1) {
  const pass *p = t->p;
  int64_t nr = p->s.gemm->nr, steps = k1 - k0;
  bool carry = p->kc < p->depth;
  gemm_columns b = {t->b, GEMM_PACK * steps, false};
  for (int64_t at = 0; at < x->cols; at += nr) {
    int64_t n = conv_least(nr, x->cols - at);
    float *c = carry ? t->c + at : t->c;
    pack_panel(t, x, at, n, steps);
    p->s.gemm->block(x->rows, round_up(n, GEMM_PACK), steps, t->a, &b, c, p->ldc, k0 > 0,
                     &(gemm_target){0}, &(gemm_ahead){0});
    if (k1 == p->depth) store_sums(p, x, c, at, n);
  }
}

/* Few rows: each line of positions by itself, from where it lies in the copy. */
static void run_few(const place *t, const item *x, int64_t k0, int64_t k1) {
  const pass *p = t->p;
  int64_t cols = x->box.j1 - x->box.j0, rows = x->box.i1 - x->box.i0;
  for (int64_t line = 0; line < x->cols / cols; line++) {
    float *c = t->c + line * round_up(cols, 16);
    int64_t at = (line / rows * x->copy.rows + line % rows) * x->copy.width;
    p->s.own->few((int)x->rows, cols, k1 - k0, t->a, t->copy + at, t->offset, c, p->ldc, k0 > 0);
    if (k1 == p->depth) store_run(p, x, c, p->ldc, line * cols, cols);
  }
}

static void run_item(place *t, int64_t i) {
  pass *p = t->p;
  int64_t boxes = conv_cut_boxes(&p->cut), block = i / boxes;
  item x = {.box = conv_box_get(&p->s, &p->cut, i % boxes), .g = block / p->blocks};
  x.m0 = block % p->blocks * p->mc;
  x.rows = conv_least(p->mc, p->s.out - x.m0);
  x.cols = conv_box_positions(&x.box);
  for (int64_t k0 = 0, k1; k0 < p->depth; k0 = k1) {
    k1 = block_end(p, k0);
    conv_part part = conv_part_get(&p->s, &p->cut, k0, k1);
    x.copy = conv_copy_of(&part.s, &x.box);
    conv_copy_fill(&part.s, &x.box, x.g, part.c0, part.c1, p->source, t->copy);
    memset(t->copy + (part.c1 - part.c0) * x.copy.channel, 0, 4 * CONV_SLACK * sizeof *t->copy);
    conv_offsets(&part.s, &x.copy, part.c0, part.k0, part.k1, t->offset);
    if (t->packed != block || p->kc < p->depth) pack_weights(p, x.g, x.m0, x.rows, k0, k1, t->a);
    t->packed = block;
    if (p->few) run_few(t, &x, k0, k1);
    else run_panels(t, &x, k0, k1);
  }
}

static void run_thread(void *ctx, int64_t thread) {
  pass *p = ctx;
  char *work = p->work + (size_t)thread * p->per_thread;
  place t = {.p = p,
             .packed = -1,
             .offset = (int64_t *)(void *)(work + p->offset_at),
             .copy = (float *)(void *)(work + p->copy_at),
             .a = (float *)(void *)(work + p->a_at),
             .b = (float *)(void *)(work + p->b_at),
             .c = (float *)(void *)(work + p->c_at)};
  int64_t items = p->s.groups * p->blocks * conv_cut_boxes(&p->cut);
  for (int64_t i; (i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < items;)
    run_item(&t, i);
}

static void pass_run(pass *p, pool *threads, void *work) {
  int64_t items = p->s.groups * p->blocks * conv_cut_boxes(&p->cut);
  p->work = work;
  atomic_store(&p->next, 0);
  if (items) pool_run(threads, conv_least(pool_size(threads), items), run_thread, p);
}

/* --- the passes ------------------------------------------------------------------------------- */

static pass forward_pass(cpu_isa isa, const conv_spec *s, int threads) {
  pass p = {.s = conv_shape_make(isa, s), .result_h = s->result[0], .result_w = s->result[1]};
  p.w_line = s->kernel[1];
  p.w_channel = p.s.taps;
  p.w_row = p.s.in * p.s.taps;
  p.w_group = p.s.out * p.w_row;
  plan_pass(&p, threads);
  return p;
}

/* The first taps of what follows a pass of the gradient of x: of `vs` that a line has. */
static void next_pass(const pass *p, int64_t vs, int64_t *u, int64_t *v) {
  *v += p->s.ax[1].members;
  if (*v < vs) return;
  *v = 0;
  *u += p->s.ax[0].members;
}

/* Channels of y are the source's, of x the result's; taps u, v and what follows them. */
static pass dx_pass(cpu_isa isa, const conv_spec *s, int64_t u, int64_t v, int threads) {
  pass p = {.s = conv_shape_make(isa, s), .result_h = s->size[0], .result_w = s->size[1]};
  int64_t in = p.s.in;
  p.w_line = s->kernel[1];
  p.w_row = s->kernel[0] * s->kernel[1];
  p.w_channel = in * p.w_row;
  p.w_group = p.s.out * p.w_channel;
  p.s.in = p.s.out;
  p.s.out = in;
  p.s.ax[0] = conv_axis_dx(s, 0, u);
  p.s.ax[1] = conv_axis_dx(s, 1, v);
  p.s.taps = p.s.ax[0].taps * p.s.ax[1].taps;
  plan_pass(&p, threads);
  return p;
}

typedef struct {
  char *at;
  int64_t bytes;
} zeros;

enum { ZEROS = 1 << 20 };
static void run_zeros(void *ctx, int64_t part) {
  const zeros *z = ctx;
  memset(z->at + part * ZEROS, 0, (size_t)conv_least(ZEROS, z->bytes - part * ZEROS));
}

static void dx_run(cpu_isa isa, pool *threads, const conv_spec *s, const void *dy, const void *w,
                   void *dx, void *work) {
  int64_t us = conv_axis_dx_count(s, 0), vs = conv_axis_dx_count(s, 1);
  if (us < s->stride[0] || vs < s->stride[1]) { /* places that no tap reads */
    zeros z = {dx, s->batch * s->in * s->size[0] * s->size[1] * (int64_t)dtype_size(s->type)};
    if (z.bytes) pool_run(threads, div_up(z.bytes, ZEROS), run_zeros, &z);
  }
  for (int64_t u = 0, v = 0; u < us;) {
    pass p = dx_pass(isa, s, u, v, pool_size(threads));
    p.source = dy;
    p.weights = w;
    p.result = dx;
    pass_run(&p, threads, work);
    next_pass(&p, vs, &u, &v);
  }
}

hp_status conv_work(cpu_isa isa, const conv_spec *s, conv_way way, int threads, size_t *bytes) {
  size_t most = 0;
  if (way == CONV_DW) {
    conv_shape shape = conv_shape_make(isa, s);
    return conv_dw_work(&shape, threads, bytes);
  }
  int64_t us = way == CONV_DX ? conv_axis_dx_count(s, 0) : 1;
  int64_t vs = way == CONV_DX ? conv_axis_dx_count(s, 1) : 1;
  for (int64_t u = 0, v = 0; u < us;) {
    pass p = way == CONV_DX ? dx_pass(isa, s, u, v, threads) : forward_pass(isa, s, threads);
    if (p.per_thread > most) most = p.per_thread;
    next_pass(&p, vs, &u, &v);
  }
  if (!size_mul(most, (size_t)threads, bytes))
    HP_FAIL(HP_ERR_OOM, "the convolution needs more work memory than can be addressed");
  return HP_OK;
}

void conv_run(cpu_isa isa, pool *threads, const conv_spec *s, conv_way way, const void *a,
              const void *b, void *out, void *work) {
  if (way == CONV_DX) {
    dx_run(isa, threads, s, a, b, out, work);
  } else if (way == CONV_DW) {
    conv_shape shape = conv_shape_make(isa, s);
    conv_dw_run(&shape, threads, a, b, out, work);
  } else {
    pass p = forward_pass(isa, s, pool_size(threads));
    p.source = a;
    p.weights = b;
    p.result = out;
    pass_run(&p, threads, work);
  }
}
