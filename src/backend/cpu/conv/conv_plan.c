#include "backend/cpu/conv/conv_plan.h"

#include "base/dtype.h"

#include <string.h>

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }
static int64_t find_gcd(int64_t a, int64_t b) { return b ? find_gcd(b, a % b) : a; }

/* --- correlations ----------------------------------------------------------------------------- */

static int64_t tap_reads(const conv_axis *a, int64_t u) { return a->offset + u * a->offset_step; }
static int64_t tap_place(const conv_axis *a, int64_t u) {
  return a->apart ? 0 : floor_div(tap_reads(a, u), a->step);
}

static void find_phases(conv_axis *a) {
  int64_t period =
      a->step / find_gcd(a->step, a->offset_step < 0 ? -a->offset_step : a->offset_step);
  int64_t first = tap_place(a, 0), last = tap_place(a, a->taps - 1);
  a->phases = conv_least(period, a->taps);
  a->low = conv_least(first, last);
  a->reach = conv_most(first, last) - a->low;
}

/* The correlation of the forward. */
static conv_axis forward_axis(const conv_spec *s, int d) {
  conv_axis a = {.size = s->size[d],
                 .grid = s->result[d],
                 .step = s->stride[d],
                 .taps = s->kernel[d],
                 .offset = -s->pad[d],
                 .offset_step = s->dilation[d],
                 .weight_step = 1,
                 .stride = 1,
                 .members = 1};
  find_phases(&a);
  return a;
}

/* Element e of x, e + pad = i * stride + r, is multiplied with y at i + (r - k * dilation) / stride
 * for the k where that is whole: every weight_step-th from `first` on, whose r is first * dilation
 * mod stride. */
static conv_axis make_dx_axis(const conv_spec *s, int d, int64_t first) {
  int64_t stride = s->stride[d], dilation = s->dilation[d], pad = s->pad[d];
  int64_t r = first * dilation % stride, every = stride / find_gcd(stride, dilation);
  int64_t begin = ceil_div(pad - r, stride), end = ceil_div(s->size[d] + pad - r, stride);
  conv_axis a = {.size = s->result[d],
                 .grid = end - begin,
                 .step = 1,
                 .taps = (s->kernel[d] - 1 - first) / every + 1,
                 .offset = begin + floor_div(r - first * dilation, stride),
                 .offset_step = -(every * dilation / stride),
                 .weight = first,
                 .weight_step = every,
                 .first = begin * stride + r - pad,
                 .stride = stride,
                 .members = 1,
                 .member_step = dilation};
  find_phases(&a);
  return a;
}

/* The elements that taps read, their number and where positions begin and end seldom change from
 * one first tap to the next: where first * dilation reaches a multiple of the stride, where the
 * padding ends in a stride, or the image, and where a tap ends the kernel. */
conv_axis conv_axis_dx(const conv_spec *s, int d, int64_t first) {
  conv_axis a = make_dx_axis(s, d, first);
  int64_t count = conv_axis_dx_count(s, d);
  while (first + a.members < count) {
    conv_axis b = make_dx_axis(s, d, first + a.members);
    if (b.grid != a.grid || b.taps != a.taps || b.offset != a.offset ||
        b.first != a.first + a.members * a.member_step)
      break;
    a.members++;
  }
  return a;
}
int64_t conv_axis_dx_count(const conv_spec *s, int d) {
  return conv_least(s->stride[d] / find_gcd(s->stride[d], s->dilation[d]), s->kernel[d]);
}

static const gemm_kernels *conv_gemm(cpu_isa isa) {
  static const gemm_kernels *const table[ISA_COUNT] = {[ISA_PLAIN] = &gemm_kernels_plain,
                                                       [ISA_AVX2] = &gemm_kernels_avx2,
                                                       [ISA_AVX512] = &gemm_kernels_avx512,
                                                       [ISA_AVX512_BF16] = &gemm_kernels_avx512};
  return table[isa];
}

void conv_kernels_of(cpu_isa isa, conv_shape *s) {
  static const conv_kernels *const own[ISA_COUNT] = {[ISA_PLAIN] = &conv_kernels_plain,
                                                     [ISA_AVX2] = &conv_kernels_avx2,
                                                     [ISA_AVX512] = &conv_kernels_avx512,
                                                     [ISA_AVX512_BF16] = &conv_kernels_avx512};
  s->own = own[isa];
  s->gemm = conv_gemm(isa);
}

conv_shape conv_shape_make(cpu_isa isa, const conv_spec *s) {
  conv_shape shape = {.ax = {forward_axis(s, 0), forward_axis(s, 1)},
                      .batch = s->batch,
                      .groups = s->groups,
                      .in = s->in / s->groups,
                      .out = s->out / s->groups,
                      .taps = s->kernel[0] * s->kernel[1],
                      .type = s->type};
  conv_kernels_of(isa, &shape);
  return shape;
}

/* --- boxes ------------------------------------------------------------------------------------ */

conv_cut conv_cut_make(const conv_shape *s, int64_t positions) {
  int64_t h = s->ax[0].grid, w = s->ax[1].grid;
  conv_cut c = {.batch = s->batch, .images = 1, .rows = 1, .cols = conv_even(w, positions, 1)};
  if (c.cols == w && w) c.rows = conv_even(h, conv_most(positions / w, 1), 1);
  if (c.cols == w && c.rows == h && w && h)
    c.images = conv_even(s->batch, conv_most(positions / (w * h), 1), 1);
  c.n = div_up(s->batch, c.images);
  c.i = div_up(h, c.rows);
  c.j = div_up(w, c.cols);
  return c;
}

/* Numbers that a row of a box takes: apart where that is less than half. */
static void choose_copy(conv_axis *a, int64_t width) {
  if (!a->apart && a->phases * (width + a->reach) <= 2 * a->taps * width) return;
  a->apart = true;
  a->phases = a->taps;
  a->low = a->reach = 0;
}
void conv_choose_copies(conv_shape *s, const conv_cut *c) {
  choose_copy(&s->ax[0], c->rows);
  choose_copy(&s->ax[1], c->cols);
}

/* --- parts of chains -------------------------------------------------------------------------- */

/* The taps u0 .. u1 - 1 alone. */
static void narrow_axis(conv_axis *a, int64_t u0, int64_t u1) {
  a->offset += u0 * a->offset_step;
  a->weight += u0 * a->weight_step;
  a->taps = u1 - u0;
  find_phases(a);
}

conv_part conv_part_get(const conv_shape *s, const conv_cut *c, int64_t k0, int64_t k1) {
  conv_part p = {*s, k0 / s->taps, div_up(k1, s->taps), k0, k1};
  if (p.c1 - p.c0 != 1 || k1 - k0 == s->taps) return p;
  int64_t cols = s->ax[1].taps, from = k0 % s->taps, to = from + k1 - k0;
  int64_t u0 = from / cols, u1 = div_up(to, cols);
  narrow_axis(&p.s.ax[0], u0, u1);
  from -= u0 * cols;
  if (u1 - u0 == 1) {
    narrow_axis(&p.s.ax[1], from, from + k1 - k0);
    from = 0;
  }
  p.s.taps = p.s.ax[0].taps * p.s.ax[1].taps;
  conv_choose_copies(&p.s, c);
  p.k0 = p.c0 * p.s.taps + from;
  p.k1 = p.k0 + k1 - k0;
  return p;
}

int64_t conv_part_end(const conv_shape *s, int64_t limit, int64_t k0, int64_t k1) {
  int64_t cols = s->ax[1].taps, channel = (k0 / s->taps + 1) * s->taps;
  if (s->taps <= limit) return k1;
  if (cols <= limit) return conv_least(conv_least(k1, channel), (k0 / cols + limit / cols) * cols);
  return conv_least(conv_least(k1, (k0 / cols + 1) * cols), k0 + limit);
}

/* Numbers that a row of any copy of so many taps takes: where they begin within a step makes a
 * difference of one, and may that of being apart or not. */
static int64_t bound_row(const conv_axis *a, int64_t width) {
  if (a->apart) return a->taps * width;
  return conv_least(a->phases * (width + a->reach + 1), 2 * a->taps * width);
}

int64_t conv_part_most(const conv_shape *s, const conv_cut *c, int64_t limit) {
  conv_axis h = s->ax[0], w = s->ax[1];
  if (s->taps <= limit)
    return conv_least(s->in, limit / s->taps + 2) * conv_copy_most(s, c).channel;
  narrow_axis(&h, 0, w.taps <= limit ? conv_least(h.taps, limit / w.taps) : 1);
  if (w.taps > limit) narrow_axis(&w, 0, limit);
  return c->images * bound_row(&h, c->rows) * bound_row(&w, c->cols);
}

conv_box conv_box_get(const conv_shape *s, const conv_cut *c, int64_t i) {
  int64_t n = i / (c->i * c->j) * c->images, row = i / c->j % c->i * c->rows;
  int64_t col = i % c->j * c->cols;
  return (conv_box){n,   conv_least(n + c->images, c->batch),
                    row, conv_least(row + c->rows, s->ax[0].grid),
                    col, conv_least(col + c->cols, s->ax[1].grid)};
}

static conv_copy copy_of(const conv_shape *s, int64_t images, int64_t rows, int64_t cols) {
  conv_copy c = {.rows = rows + s->ax[0].reach, .width = cols + s->ax[1].reach};
  c.plane = images * c.rows * c.width;
  c.channel = c.plane * s->ax[0].phases * s->ax[1].phases;
  return c;
}
conv_copy conv_copy_of(const conv_shape *s, const conv_box *b) {
  return copy_of(s, b->n1 - b->n0, b->i1 - b->i0, b->j1 - b->j0);
}
conv_copy conv_copy_most(const conv_shape *s, const conv_cut *c) {
  return copy_of(s, c->images, c->rows, c->cols);
}

/* --- copies ----------------------------------------------------------------------------------- */

/* A row of the copy: elements (base + b) * step of the source's row, zeros outside of it. */
static void fill_row(const conv_shape *s, const char *row, int64_t base, int64_t width, float *to) {
  const conv_axis *a = &s->ax[1];
  int64_t begin = conv_least(conv_most(ceil_div(-base, a->step), 0), width);
  int64_t end = conv_least(conv_most(ceil_div(a->size - base, a->step), begin), width);
  int64_t size = (int64_t)dtype_size(s->type);
  memset(to, 0, (size_t)begin * sizeof *to);
  if (end > begin)
    s->own->widen(to + begin, row + (base + begin * a->step) * size, s->type, end - begin, a->step);
  memset(to + end, 0, (size_t)(width - end) * sizeof *to);
}

static int64_t find_phase(const conv_axis *a, int64_t f) {
  return tap_reads(a, f) - tap_place(a, f) * a->step;
}

/* One channel of one phase. */
static void fill_phase(const conv_shape *s, const conv_box *b, const conv_copy *copy,
                       int64_t row_phase, int64_t col_phase, const char *image, int64_t next_image,
                       float *to) {
  const conv_axis *h = &s->ax[0], *w = &s->ax[1];
  int64_t size = (int64_t)dtype_size(s->type), base = (b->j0 + w->low) * w->step + col_phase;
  for (int64_t n = b->n0; n < b->n1; n++)
    for (int64_t r = 0; r < copy->rows; r++, to += copy->width) {
      int64_t at = (b->i0 + r + h->low) * h->step + row_phase;
      if (at < 0 || at >= h->size) memset(to, 0, (size_t)copy->width * sizeof *to);
      else fill_row(s, image + (n * next_image + at * w->size) * size, base, copy->width, to);
    }
}

void conv_copy_fill(const conv_shape *s, const conv_box *b, int64_t g, int64_t c0, int64_t c1,
                    const void *source, float *to) {
  const conv_axis *h = &s->ax[0], *w = &s->ax[1];
  conv_copy copy = conv_copy_of(s, b);
  int64_t pixels = h->size * w->size, next_image = s->groups * s->in * pixels;
  for (int64_t c = c0; c < c1; c++)
    for (int64_t fh = 0; fh < h->phases; fh++)
      for (int64_t fw = 0; fw < w->phases; fw++, to += copy.plane)
        fill_phase(s, b, &copy, find_phase(h, fh), find_phase(w, fw),
                   (const char *)source + (g * s->in + c) * pixels * (int64_t)dtype_size(s->type),
                   next_image, to);
}

void conv_offsets(const conv_shape *s, const conv_copy *copy, int64_t c0, int64_t k0, int64_t k1,
                  int64_t *offset) {
  const conv_axis *h = &s->ax[0], *w = &s->ax[1];
  for (int64_t k = k0; k < k1; k++) {
    int64_t c = k / s->taps - c0, u = k % s->taps / w->taps, v = k % w->taps;
    int64_t phase = u % h->phases * w->phases + v % w->phases;
    offset[k - k0] = c * copy->channel + phase * copy->plane +
                     (tap_place(h, u) - h->low) * copy->width + tap_place(w, v) - w->low;
  }
}

conv_run_of conv_run_at(const conv_box *b, const conv_copy *copy, int64_t p, int64_t end) {
  int64_t cols = b->j1 - b->j0, rows = b->i1 - b->i0, row = p / cols;
  int64_t at = (row / rows * copy->rows + row % rows) * copy->width + p % cols;
  int64_t n = cols - p % cols;
  if (copy->width == cols) n = copy->rows == rows ? end - p : rows * cols - p % (rows * cols);
  return (conv_run_of){p, at, conv_least(n, end - p)};
}
