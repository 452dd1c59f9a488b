/* Reference of choosing, indexing and linear layers by row. */
#include "ops/ref.h"

#include <math.h>
#include <stdlib.h>

/* --- choosing --------------------------------------------------------------------------------- */

static bool is_better(const double *v, int64_t a, int64_t b) {
  if (isnan(v[a]) != isnan(v[b])) return isnan(v[a]);
  return v[a] > v[b] || ((v[a] == v[b] || isnan(v[a])) && a < b);
}

/* Could rounding have exchanged element i with another? */
static bool is_close(const double *v, const double *e, int64_t width, int64_t i) {
  for (int64_t k = 0; k < width; k++)
    if (k != i && e[k] + e[i] > 0 && fabs(v[k] - v[i]) <= e[k] + e[i]) return true;
  return false;
}

void ref_TOPK(ref_ctx *c) {
  const ref_tensor *x = c->in[0];
  int64_t width = x->dim[x->rank - 1], k = attr_int(c->g, c->n, "k");
  for (int64_t row = 0; row < x->n / (width ? width : 1); row++) {
    const double *v = x->f + row * width, *e = x->e + row * width;
    double off = 0;
    for (int64_t i = 0; i < width; i++) off = e[i] > off ? e[i] : off;
    for (int64_t i = 0; i < width; i++) {
      int64_t place = 0; /* how many are better */
      for (int64_t m = 0; m < width; m++) place += m != i && is_better(v, m, i);
      if (place >= k) continue;
      c->out[0]->f[row * k + place] = v[i];
      c->out[0]->e[row * k + place] = off;
      c->out[1]->i[row * k + place] = i;
      if (is_close(v, e, width, i)) c->out[1]->e[row * k + place] = INFINITY;
    }
  }
}

/* Calls for each index: its flat place, and the flat place in [..., width] that it names, or -1. */
static int64_t named(const ref_tensor *index, int64_t at, int64_t width) {
  int64_t k = index->dim[index->rank - 1], i = index->i[at];
  return i < 0 || i >= width ? -1 : at / k * width + i;
}

void ref_GATHER(ref_ctx *c) {
  const ref_tensor *x = c->in[0], *index = c->in[1];
  for (int64_t k = 0; k < index->n; k++) {
    int64_t from = named(index, k, x->dim[x->rank - 1]);
    if (from >= 0) ref_copy(c->out[0], k, x, from);
    if (index->e[k] > 0) c->out[0]->e[k] = INFINITY;
  }
}

void ref_SCATTER_ADD(ref_ctx *c) {
  const ref_tensor *v = c->in[0], *index = c->in[1];
  ref_tensor *y = c->out[0];
  int64_t width = y->dim[y->rank - 1];
  double *sum = calloc((size_t)y->n + 1, sizeof *sum),
         *count = calloc((size_t)y->n + 1, sizeof *count);
  HP_ASSERT(sum && count);
  for (int64_t k = 0; k < v->n; k++) {
    int64_t to = named(index, k, width);
    if (index->e[k] > 0) /* it could be anywhere in the row */
      for (int64_t i = 0; i < width; i++)
        y->e[k / index->dim[index->rank - 1] * width + i] = INFINITY;
    if (to < 0) continue;
    y->f[to] += v->f[k];
    y->e[to] += v->e[k];
    sum[to] += fabs(v->f[k]);
    count[to]++;
  }
  for (int64_t k = 0; k < y->n; k++)
    if (count[k] > 1) y->e[k] += ref_sum_error(c, count[k], sum[k], ref_grain(v));
  free(sum);
  free(count);
}

/* --- linear layers by row --------------------------------------------------------------------- */

/* One product of a sum: to y[to], with its absolute value to sum[to]. */
static void add(ref_tensor *y, double *sum, int64_t to, const ref_tensor *a, int64_t i,
                const ref_tensor *b, int64_t j) {
  y->f[to] += a->f[i] * b->f[j];
  sum[to] += fabs(a->f[i] * b->f[j]);
  if (a->e[i] > 0 || b->e[j] > 0)
    y->e[to] += fabs(a->f[i]) * b->e[j] + fabs(b->f[j]) * a->e[i] + a->e[i] * b->e[j];
}

void ref_GROUPED_MATMUL(ref_ctx *c) {
  const ref_tensor *x = c->in[0], *w = c->in[1], *e = c->in[2];
  ref_tensor *y = c->out[0];
  bool transposed = attr_int(c->g, c->n, "transposed") != 0;
  int64_t slots = e->dim[e->rank - 1], k = x->dim[x->rank - 1], n = y->dim[y->rank - 1];
  double *sum = calloc((size_t)y->n + 1, sizeof *sum), grain = ref_grain(x) * ref_grain(w);
  HP_ASSERT(sum);
  for (int64_t s = 0; s < e->n; s++) {
    int64_t row = x->rank > e->rank ? s : s / slots, expert = e->i[s];
    for (int64_t f = 0; f < n; f++) {
      for (int64_t i = 0; i < k && expert >= 0 && expert < w->dim[0]; i++)
        add(y, sum, s * n + f, x, row * k + i, w,
            expert * n * k + (transposed ? i * n + f : f * k + i));
      if (k > 1) y->e[s * n + f] += ref_sum_error(c, (double)k, sum[s * n + f], grain);
      if (e->e[s] > 0) y->e[s * n + f] = INFINITY;
    }
  }
  free(sum);
}

void ref_GROUPED_MATMUL_GRAD(ref_ctx *c) {
  const ref_tensor *dy = c->in[0], *x = c->in[1], *e = c->in[2];
  ref_tensor *dw = c->out[0];
  int64_t slots = e->dim[e->rank - 1], n = dw->dim[1], k = dw->dim[2];
  double *sum = calloc((size_t)dw->n + 1, sizeof *sum), grain = ref_grain(dy) * ref_grain(x);
  int64_t *count = calloc((size_t)dw->dim[0] + 1, sizeof *count);
  HP_ASSERT(sum && count);
  for (int64_t s = 0; s < e->n; s++) {
    int64_t row = x->rank > e->rank ? s : s / slots, expert = e->i[s];
    if (expert < 0 || expert >= dw->dim[0]) continue;
    count[expert]++;
    for (int64_t f = 0; f < n; f++)
      for (int64_t i = 0; i < k; i++)
        add(dw, sum, (expert * n + f) * k + i, dy, s * n + f, x, row * k + i);
  }
  for (int64_t i = 0; i < dw->n; i++)
    if (count[i / (n * k)] > 1)
      dw->e[i] += ref_sum_error(c, (double)count[i / (n * k)], sum[i], grain);
  free(sum);
  free(count);
}
