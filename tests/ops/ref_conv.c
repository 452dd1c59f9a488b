/* Reference of convolution and pooling: loops over every product, with one or two spatial dims. */
#include "ops/ref.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
  int64_t n, c, o, groups, x[2], y[2], kernel[2], stride[2], pad[2], dilation[2];
} sizes;

/* The numbers of an attribute as those of a height and a width. */
static void numbers(const ref_ctx *c, const char *key, int64_t none, int64_t to[2]) {
  int64_t list[ATTR_LIST_MAX];
  int n = attr_list(c->g, c->n, key, list);
  to[0] = n == 2 ? list[0] : none;
  to[1] = list[n - 1];
}
static void spatial(const ref_tensor *t, int64_t to[2]) {
  to[0] = t->rank == 4 ? t->dim[2] : 1;
  to[1] = t->dim[t->rank - 1];
}

static sizes sizes_of(const ref_ctx *c, const ref_tensor *x, const ref_tensor *w,
                      const ref_tensor *y) {
  sizes s = {.n = x->dim[0], .c = x->dim[1], .o = y->dim[1], .groups = 1, .dilation = {1, 1}};
  spatial(x, s.x);
  spatial(y, s.y);
  numbers(c, "stride", 1, s.stride);
  numbers(c, "pad", 0, s.pad);
  if (!w) {
    numbers(c, "kernel", 1, s.kernel);
    return s;
  }
  spatial(w, s.kernel);
  numbers(c, "dilation", 1, s.dilation);
  s.groups = attr_int(c->g, c->n, "groups");
  return s;
}

/* y[to] += a[i] b[j]. */
static void add_product(ref_tensor *y, int64_t to, const ref_tensor *a, int64_t i,
                        const ref_tensor *b, int64_t j, double *sum, double *count) {
  y->f[to] += a->f[i] * b->f[j];
  sum[to] += fabs(a->f[i] * b->f[j]);
  count[to]++;
  if (a->e[i] > 0 || b->e[j] > 0)
    y->e[to] += fabs(a->f[i]) * b->e[j] + fabs(b->f[j]) * a->e[i] + a->e[i] * b->e[j];
}

/* Each product of an element of x, of w and of y, two of which are operands, to the third. */
static void products(ref_ctx *c, const ref_tensor *x, const ref_tensor *w, const ref_tensor *y) {
  sizes s = sizes_of(c, x, w, y);
  ref_tensor *out = c->out[0];
  const ref_tensor *a = c->in[0], *b = c->in[1];
  double *sum = calloc((size_t)out->n + 1, sizeof *sum), *count = calloc((size_t)out->n + 1, 8);
  int64_t per = s.c / s.groups, taps = s.kernel[0] * s.kernel[1];
  int64_t of_group = s.o / s.groups;
  HP_ASSERT(sum && count);
  ref_tensor each = {.rank = 6, .dim = {s.n * s.o, s.y[0], s.y[1], per, s.kernel[0], s.kernel[1]}};
  int64_t index[HP_MAX_RANK] = {0};
  for (int64_t k = 0; k < s.n * s.o * s.y[0] * s.y[1] * per * taps; k++, ref_next(&each, index)) {
    int64_t no = index[0], n = no / s.o, o = no - n * s.o, i = index[1], j = index[2];
    int64_t ic = index[3], u = index[4], v = index[5];
    int64_t h = i * s.stride[0] + u * s.dilation[0] - s.pad[0];
    int64_t l = j * s.stride[1] + v * s.dilation[1] - s.pad[1];
    if (h < 0 || h >= s.x[0] || l < 0 || l >= s.x[1]) continue;
    int64_t at = (no * s.y[0] + i) * s.y[1] + j, in = o / of_group * per + ic;
    int64_t xi = ((n * s.c + in) * s.x[0] + h) * s.x[1] + l;
    int64_t wi = ((o * per + ic) * s.kernel[0] + u) * s.kernel[1] + v;
    int64_t place[3] = {xi, wi, at};
    const ref_tensor *part[3] = {x, w, y};
    int64_t to = 0, from[2] = {0};
    for (int p = 0; p < 3; p++)
      if (part[p] == a) from[0] = place[p];
      else if (part[p] == b) from[1] = place[p];
      else to = place[p];
    add_product(out, to, a, from[0], b, from[1], sum, count);
  }
  double grain = ref_grain(a) * ref_grain(b);
  for (int64_t k = 0; k < out->n; k++)
    if (count[k] > 1) out->e[k] += ref_sum_error(c, count[k], sum[k], grain);
  free(sum);
  free(count);
}

void ref_CONV(ref_ctx *c) { products(c, c->in[0], c->in[1], c->out[0]); }
void ref_CONV_DX(ref_ctx *c) { products(c, c->out[0], c->in[1], c->in[0]); }
void ref_CONV_DW(ref_ctx *c) { products(c, c->in[0], c->out[0], c->in[1]); }

/* --- pooling ---------------------------------------------------------------------------------- */

typedef struct {
  int64_t from[2], to[2]; /* the part of a window that is in the image */
  double count;           /* what an average is divided by */
} window;

static window window_of(const ref_ctx *c, const sizes *s, int64_t i, int64_t j, bool average) {
  window w = {.count = 1};
  for (int d = 0; d < 2; d++) {
    int64_t at = (d ? j : i) * s->stride[d] - s->pad[d];
    w.from[d] = at < 0 ? 0 : at;
    w.to[d] = at + s->kernel[d] < s->x[d] ? at + s->kernel[d] : s->x[d];
    bool pads = average && attr_int(c->g, c->n, "include_pad");
    w.count *= (double)(pads ? s->kernel[d] : w.to[d] - w.from[d]);
  }
  return w;
}

/* Calls for every element of every window: `at` in x, `of` in y. */
static void each(ref_ctx *c, const ref_tensor *x, const ref_tensor *y, bool average,
                 void (*visit)(ref_ctx *c, int64_t at, int64_t of, const window *w, bool first)) {
  sizes s = sizes_of(c, x, NULL, y);
  for (int64_t k = 0; k < y->n; k++) {
    int64_t j = k % s.y[1], i = k / s.y[1] % s.y[0], plane = k / s.y[1] / s.y[0];
    window w = window_of(c, &s, i, j, average);
    for (int64_t h = w.from[0]; h < w.to[0]; h++)
      for (int64_t l = w.from[1]; l < w.to[1]; l++)
        visit(c, (plane * s.x[0] + h) * s.x[1] + l, k, &w, h == w.from[0] && l == w.from[1]);
  }
}

static void take_larger(ref_ctx *c, int64_t at, int64_t of, const window *w, bool first) {
  const ref_tensor *x = c->in[0];
  ref_tensor *y = c->out[0];
  (void)w;
  if (first || x->f[at] > y->f[of] || isnan(x->f[at])) y->f[of] = x->f[at];
  if (x->e[at] > y->e[of]) y->e[of] = x->e[at];
}
void ref_MAX_POOL(ref_ctx *c) { each(c, c->in[0], c->out[0], false, take_larger); }

static void take_share(ref_ctx *c, int64_t at, int64_t of, const window *w, bool first) {
  (void)first;
  c->out[0]->f[of] += c->in[0]->f[at] / w->count;
  c->out[0]->e[of] += c->in[0]->e[at] / w->count + 4 * ref_ulp(HP_F32, c->in[0]->f[at]);
}
void ref_AVG_POOL(ref_ctx *c) { each(c, c->in[0], c->out[0], true, take_share); }

static void give_share(ref_ctx *c, int64_t at, int64_t of, const window *w, bool first) {
  (void)first;
  c->out[0]->f[at] += c->in[0]->f[of] / w->count;
  c->out[0]->e[at] += c->in[0]->e[of] / w->count + 4 * ref_ulp(HP_F32, c->in[0]->f[of]);
}
void ref_AVG_POOL_DX(ref_ctx *c) { each(c, c->out[0], c->in[0], true, give_share); }

/* To the first of the largest, or the last NaN; where bounds leave open which that is, nobody
 * knows. */
void ref_MAX_POOL_DX(ref_ctx *c) {
  const ref_tensor *dy = c->in[0], *x = c->in[1];
  ref_tensor *dx = c->out[0];
  sizes s = sizes_of(c, x, NULL, dy);
  for (int64_t k = 0; k < dy->n; k++) {
    int64_t j = k % s.y[1], i = k / s.y[1] % s.y[0], plane = k / s.y[1] / s.y[0] * s.x[0] * s.x[1];
    window w = window_of(c, &s, i, j, false);
    int64_t best = -1;
    for (int64_t h = w.from[0]; h < w.to[0]; h++)
      for (int64_t l = w.from[1]; l < w.to[1]; l++) {
        int64_t at = plane + h * s.x[1] + l;
        if (best < 0 || x->f[at] > x->f[best] || isnan(x->f[at])) best = at;
      }
    dx->f[best] += dy->f[k];
    dx->e[best] += dy->e[k] + 4 * ref_ulp(HP_F32, dy->f[k]);
    for (int64_t h = w.from[0]; h < w.to[0]; h++)
      for (int64_t l = w.from[1]; l < w.to[1]; l++) {
        int64_t at = plane + h * s.x[1] + l;
        double unsure = x->e[at] + x->e[best];
        if (at != best && unsure > 0 && x->f[at] + unsure >= x->f[best])
          dx->e[at] = dx->e[best] = INFINITY;
      }
  }
}
