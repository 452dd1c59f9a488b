/* Pooling of one plane.  Plain loops, which the compiler makes vector code of. */
#include "backend/cpu/conv/pool2d.h"

#include <math.h>
#include <string.h>

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

/* The part of a window that is in the image. */
typedef struct {
  int64_t from, to;
} range;
static inline range find_window(const pool_spec *s, int d, int64_t i) {
  int64_t at = i * s->stride[d] - s->pad[d], end = min_i64(at + s->kernel[d], s->size[d]);
  return (range){at < 0 ? 0 : at, end};
}

/* The larger; NaN if one is.  Of equals the first, a. */
static inline float max_or_nan(float a, float b) { return ((b > a) | (b != b)) ? b : a; }

/* --- forward ---------------------------------------------------------------------------------- */

/* Positions j of a line whose windows are all in the row. */
static range find_inner_range(const pool_spec *s) {
  int64_t from = (s->pad[1] + s->stride[1] - 1) / s->stride[1];
  int64_t room = s->size[1] - s->kernel[1] + s->pad[1];
  int64_t to = room < 0 ? 0 : min_i64(room / s->stride[1] + 1, s->result[1]);
  return (range){min_i64(from, s->result[1]), to < from ? min_i64(from, s->result[1]) : to};
}

static inline __attribute__((always_inline)) void
max_inner(const float *row, float *y, range in, int64_t kernel, int64_t stride, int64_t pad) {
  for (int64_t j = in.from; j < in.to; j++) {
    const float *x = row + j * stride - pad;
    float m = x[0];
    for (int64_t k = 1; k < kernel; k++) m = max_or_nan(m, x[k]);
    y[j] = m;
  }
}

static void max_line(const pool_spec *s, const float *row, float *y) {
  range in = find_inner_range(s);
  for (int64_t j = 0; j < s->result[1]; j++) {
    if (j == in.from && in.to > in.from) j = in.to;
    if (j >= s->result[1]) break;
    range w = find_window(s, 1, j);
    y[j] = -INFINITY;
    for (int64_t k = w.from; k < w.to; k++) y[j] = max_or_nan(y[j], row[k]);
  }
  if (s->kernel[1] == 2 && s->stride[1] == 2) max_inner(row, y, in, 2, 2, s->pad[1]);
  else if (s->kernel[1] == 3 && s->stride[1] == 2) max_inner(row, y, in, 3, 2, s->pad[1]);
  else max_inner(row, y, in, s->kernel[1], s->stride[1], s->pad[1]);
}

static void max_plane(const pool_spec *s, const float *x, float *y, float *row) {
  int64_t width = s->size[1];
  for (int64_t i = 0; i < s->result[0]; i++, y += s->result[1]) {
    range w = find_window(s, 0, i);
    for (int64_t j = 0; j < width; j++) row[j] = -INFINITY;
    for (int64_t k = w.from; k < w.to; k++)
      for (int64_t j = 0; j < width; j++) row[j] = max_or_nan(row[j], x[k * width + j]);
    max_line(s, row, y);
  }
}

/* What a sum over a window is divided by. */
static inline float count_of(const pool_spec *s, range h, range w) {
  if (s->include_pad) return (float)(s->kernel[0] * s->kernel[1]);
  return (float)((h.to - h.from) * (w.to - w.from));
}

static void compute_avg_plane(const pool_spec *s, const float *x, float *y, float *row) {
  int64_t width = s->size[1];
  for (int64_t i = 0; i < s->result[0]; i++, y += s->result[1]) {
    range h = find_window(s, 0, i);
    memset(row, 0, (size_t)width * sizeof *row);
    for (int64_t k = h.from; k < h.to; k++)
      for (int64_t j = 0; j < width; j++) row[j] += x[k * width + j];
    for (int64_t j = 0; j < s->result[1]; j++) {
      range w = find_window(s, 1, j);
      float sum = 0;
      for (int64_t k = w.from; k < w.to; k++) sum += row[k];
      y[j] = sum / count_of(s, h, w);
    }
  }
}

/* --- gradients -------------------------------------------------------------------------------- */

/* Whether x is larger than `most`, the largest so far.  NaN is larger than all, also than another
 * NaN, as in PyTorch. */
static inline bool is_new_max(float x, float most) { return (x > most) | (x != x); }

/* The first of the largest elements of a window, or its last NaN. */
static inline int64_t find_largest(const float *x, int64_t width, range h, range w) {
  int64_t best = h.from * width + w.from;
  float most = x[best];
  for (int64_t i = h.from; i < h.to; i++)
    for (int64_t j = w.from; j < w.to; j++) {
      int64_t at = i * width + j;
      bool is = is_new_max(x[at], most);
      best = is ? at : best;
      most = is ? x[at] : most;
    }
  return best;
}

/* Windows of 2 x 2 that share nothing: every element is written once, without branches. */
static void max_dx_squares(const pool_spec *s, const float *dy, const float *x, float *dx) {
  for (int64_t i = 0; i < s->result[0]; i++, dy += s->result[1]) {
    const float *top = x + 2 * i * s->size[1], *low = top + s->size[1];
    float *to = dx + 2 * i * s->size[1], *under = to + s->size[1];
    for (int64_t j = 0; j < s->result[1]; j++) {
      float most = top[2 * j];
      int best = 0;
      best = is_new_max(top[2 * j + 1], most) ? 1 : best;
      most = best == 1 ? top[2 * j + 1] : most;
      best = is_new_max(low[2 * j], most) ? 2 : best;
      most = best == 2 ? low[2 * j] : most;
      best = is_new_max(low[2 * j + 1], most) ? 3 : best;
      to[2 * j] = best == 0 ? dy[j] : 0;
      to[2 * j + 1] = best == 1 ? dy[j] : 0;
      under[2 * j] = best == 2 ? dy[j] : 0;
      under[2 * j + 1] = best == 3 ? dy[j] : 0;
    }
  }
}

static bool is_squares(const pool_spec *s) {
  for (int d = 0; d < 2; d++)
    if (s->kernel[d] != 2 || s->stride[d] != 2 || s->pad[d] != 0) return false;
  return true;
}

static void max_dx_plane(const pool_spec *s, const float *dy, const float *x, float *dx) {
  memset(dx, 0, (size_t)(s->size[0] * s->size[1]) * sizeof *dx);
  if (is_squares(s)) {
    max_dx_squares(s, dy, x, dx);
    return;
  }
  for (int64_t i = 0; i < s->result[0]; i++)
    for (int64_t j = 0; j < s->result[1]; j++) {
      range h = find_window(s, 0, i), w = find_window(s, 1, j);
      if (h.to > h.from && w.to > w.from)
        dx[find_largest(x, s->size[1], h, w)] += dy[i * s->result[1] + j];
    }
}

static void compute_avg_dx_plane(const pool_spec *s, const float *dy, float *dx) {
  memset(dx, 0, (size_t)(s->size[0] * s->size[1]) * sizeof *dx);
  for (int64_t i = 0; i < s->result[0]; i++)
    for (int64_t j = 0; j < s->result[1]; j++) {
      range h = find_window(s, 0, i), w = find_window(s, 1, j);
      float part = dy[i * s->result[1] + j] / count_of(s, h, w);
      for (int64_t k = h.from; k < h.to; k++)
        for (int64_t l = w.from; l < w.to; l++) dx[k * s->size[1] + l] += part;
    }
}

void ISA_NAME(pool_plane)(const pool_spec *s, const float *a, const float *b, float *out,
                          float *row) {
  if (s->kind == POOL_MAX) max_plane(s, a, out, row);
  else if (s->kind == POOL_AVG) compute_avg_plane(s, a, out, row);
  else if (s->kind == POOL_MAX_DX) max_dx_plane(s, a, b, out);
  else compute_avg_dx_plane(s, a, out);
}
