/* Reference of reductions, rows that move elements, and contractions. */
#include "base/dtype.h"
#include "ir/einsum_eq.h"
#include "ops/ref.h"

#include <math.h>
#include <stdlib.h>

/* --- reductions ------------------------------------------------------------------------------- */

/* The result's flat index of every operand element. */
static int64_t *reduced_index(ref_ctx *c) {
  const ref_tensor *x = c->in[0];
  int64_t axes[ATTR_LIST_MAX], *to = calloc((size_t)x->n + 1, sizeof *to);
  int n = attr_list(c->g, c->n, "axes", axes);
  HP_ASSERT(to);
  ref_walk w = {.shape = x};
  int64_t step = 1;
  for (int d = x->rank - 1; d >= 0; d--) {
    bool cut = false;
    for (int a = 0; a < n; a++) cut |= axes[a] == d;
    if (cut) continue;
    w.step[d] = step;
    step *= x->dim[d];
  }
  for (int64_t k = 0; k < x->n; k++, ref_walk_next(&w)) to[k] = w.at;
  return to;
}

void ref_SUM(ref_ctx *c) {
  const ref_tensor *x = c->in[0];
  ref_tensor *y = c->out[0];
  int64_t *to = reduced_index(c);
  double *sum = calloc((size_t)y->n + 1, sizeof *sum), count = y->n ? (double)(x->n / y->n) : 0;
  HP_ASSERT(sum);
  for (int64_t k = 0; k < x->n; k++) {
    y->e[to[k]] += x->e[k];
    if (x->f) {
      y->f[to[k]] += x->f[k];
      sum[to[k]] += fabs(x->f[k]);
    } else {
      y->i[to[k]] = (int64_t)((uint64_t)y->i[to[k]] + (uint64_t)x->i[k]);
    }
  }
  double grain = x->f ? ref_grain(x) : 0;
  for (int64_t k = 0; y->f && k < y->n; k++)
    if (count > 1) y->e[k] += ref_sum_error(c, count, sum[k], grain);
  free(sum);
  free(to);
}

void ref_REDUCE_MAX(ref_ctx *c) {
  const ref_tensor *x = c->in[0];
  ref_tensor *y = c->out[0];
  int64_t *to = reduced_index(c);
  bool *seen = calloc((size_t)y->n + 1, 1);
  HP_ASSERT(seen);
  for (int64_t k = 0; k < y->n; k++)
    if (y->f) y->f[k] = -INFINITY;
    else y->i[k] = INT64_MIN;
  for (int64_t k = 0; k < x->n; k++) {
    int64_t t = to[k];
    if (x->e[k] > y->e[t]) y->e[t] = x->e[k];
    if (x->f && (!seen[t] || x->f[k] > y->f[t] || isnan(x->f[k]))) y->f[t] = x->f[k];
    if (x->i && (!seen[t] || x->i[k] > y->i[t])) y->i[t] = x->i[k];
    seen[t] = true;
  }
  free(seen);
  free(to);
}

void ref_ARGMAX(ref_ctx *c) {
  const ref_tensor *x = c->in[0];
  ref_tensor *y = c->out[0];
  int64_t width = x->dim[x->rank - 1];
  for (int64_t r = 0; r < y->n; r++) {
    const double *v = x->f + r * width, *e = x->e + r * width;
    int64_t best = 0;
    for (int64_t k = 1; k < width; k++)
      if (!isnan(v[best]) && (v[k] > v[best] || isnan(v[k]))) best = k;
    y->i[r] = best;
    for (int64_t k = 0; k < width; k++)
      if (k != best && e[k] + e[best] > 0 && v[k] + e[k] + e[best] >= v[best]) y->e[r] = INFINITY;
  }
}

void ref_SUM_SQ(ref_ctx *c) {
  const ref_tensor *x = c->in[0];
  double sum = 0, e = 0;
  for (int64_t k = 0; k < x->n; k++) {
    sum += x->f[k] * x->f[k];
    if (x->e[k] > 0) e += (2 * fabs(x->f[k]) + x->e[k]) * x->e[k];
  }
  c->out[0]->f[0] = sum;
  c->out[0]->e[0] = e + 1e-6 * sum;
}

/* --- moves ------------------------------------------------------------------------------------ */

static void copy_all(ref_ctx *c) {
  for (int64_t k = 0; k < c->out[0]->n; k++) ref_copy(c->out[0], k, c->in[0], k);
}
void ref_RESHAPE(ref_ctx *c) { copy_all(c); }
void ref_ANNOTATE(ref_ctx *c) { copy_all(c); }
void ref_COPY(ref_ctx *c) { copy_all(c); }
void ref_FETCH(ref_ctx *c) { copy_all(c); }
void ref_OFFLOAD(ref_ctx *c) { copy_all(c); }

/* Between devices, of which there is one here. */
void ref_LOCAL_SHARD(ref_ctx *c) { copy_all(c); }
void ref_ALL_GATHER(ref_ctx *c) { copy_all(c); }
void ref_REDUCE_SCATTER(ref_ctx *c) { copy_all(c); }
void ref_DISPATCH(ref_ctx *c) { copy_all(c); }
void ref_COMBINE(ref_ctx *c) { copy_all(c); }
void ref_ALL_REDUCE(ref_ctx *c) { copy_all(c); }
void ref_ALL_TO_ALL(ref_ctx *c) { copy_all(c); }
void ref_LOCATE(ref_ctx *c) { copy_all(c); }
void ref_PLACE(ref_ctx *c) { copy_all(c); }
void ref_PERMUTE(ref_ctx *c) { copy_all(c); }
void ref_ZIGZAG(ref_ctx *c) { copy_all(c); }
void ref_DROP(ref_ctx *c) { copy_all(c); }

void ref_TRANSPOSE(ref_ctx *c) {
  const ref_tensor *x = c->in[0];
  ref_walk w = {.shape = c->out[0]};
  int64_t perm[ATTR_LIST_MAX], step = 1;
  attr_list(c->g, c->n, "perm", perm);
  for (int d = x->rank - 1; d >= 0; d--) {
    for (int o = 0; o < x->rank; o++)
      if (perm[o] == d) w.step[o] = step;
    step *= x->dim[d];
  }
  for (int64_t k = 0; k < c->out[0]->n; k++, ref_walk_next(&w)) ref_copy(c->out[0], k, x, w.at);
}

void ref_BROADCAST(ref_ctx *c) {
  ref_walk w = ref_broadcast_begin(c->in[0], c->out[0]);
  for (int64_t k = 0; k < c->out[0]->n; k++, ref_walk_next(&w))
    ref_copy(c->out[0], k, c->in[0], w.at);
}

void ref_SLICE(ref_ctx *c) {
  int64_t start[ATTR_LIST_MAX], step[ATTR_LIST_MAX], index[HP_MAX_RANK] = {0}, from[HP_MAX_RANK];
  attr_list(c->g, c->n, "start", start);
  attr_list(c->g, c->n, "step", step);
  for (int64_t k = 0; k < c->out[0]->n; k++, ref_next(c->out[0], index)) {
    for (int d = 0; d < c->out[0]->rank; d++) from[d] = start[d] + index[d] * step[d];
    ref_copy(c->out[0], k, c->in[0], ref_flatten(c->in[0], from));
  }
}

void ref_PAD(ref_ctx *c) {
  const ref_tensor *x = c->in[0];
  ref_tensor *y = c->out[0];
  int64_t lo[ATTR_LIST_MAX], index[HP_MAX_RANK] = {0}, from[HP_MAX_RANK];
  double value = attr_float(c->g, c->n, "value");
  attr_list(c->g, c->n, "lo", lo);
  for (int64_t k = 0; k < y->n; k++, ref_next(y, index)) {
    bool inside = true;
    for (int d = 0; d < x->rank; d++) {
      from[d] = index[d] - lo[d];
      inside &= from[d] >= 0 && from[d] < x->dim[d];
    }
    if (inside) ref_copy(y, k, x, ref_flatten(x, from));
    else if (y->f) y->f[k] = value;
    else y->i[k] = (int64_t)value;
  }
}

void ref_CONCAT(ref_ctx *c) {
  int axis = (int)attr_int(c->g, c->n, "axis");
  int64_t index[HP_MAX_RANK] = {0}, from[HP_MAX_RANK];
  for (int64_t k = 0; k < c->out[0]->n; k++, ref_next(c->out[0], index)) {
    int part = 0;
    memcpy(from, index, sizeof from);
    while (from[axis] >= c->many[c->id[part]].dim[axis])
      from[axis] -= c->many[c->id[part++]].dim[axis];
    const ref_tensor *x = &c->many[c->id[part]];
    ref_copy(c->out[0], k, x, ref_flatten(x, from));
  }
}

void ref_UPDATE(ref_ctx *c) {
  const ref_tensor *y = c->in[1];
  int axis = (int)attr_int(c->g, c->n, "axis");
  int64_t index[HP_MAX_RANK] = {0}, to[HP_MAX_RANK];
  copy_all(c);
  for (int64_t k = 0; k < y->n; k++, ref_next(y, index)) {
    memcpy(to, index, sizeof to);
    to[axis] += c->in[2]->i[c->in[2]->n > 1 ? index[0] : 0];
    ref_copy(c->out[0], ref_flatten(c->out[0], to), y, k);
  }
}

/* --- contractions ----------------------------------------------------------------------------- */

/* Elements between neighbours along each letter of `all`; 0 along those that it has not. */
static void letter_steps(const ref_tensor *t, const char *letters, const char *all, int64_t *step) {
  int64_t own = 1;
  for (int d = 0; all[d]; d++) step[d] = 0;
  for (int d = t->rank - 1; d >= 0; d--) {
    step[strchr(all, letters[d]) - all] += own;
    own *= t->dim[d];
  }
}

/* An operand as its product takes it: f32 with bf16 is rounded to that. */
static ref_tensor ref_factor(const ref_ctx *c, const ref_tensor *t, const ref_tensor *other) {
  ref_tensor x = *t;
  x.f = calloc((size_t)t->n + 1, sizeof *x.f);
  x.e = calloc((size_t)t->n + 1, sizeof *x.e);
  HP_ASSERT(x.f && x.e);
  bool rounded = t->type == HP_F32 && other->type == HP_BF16 && !c->r->smooth;
  for (int64_t k = 0; k < t->n; k++) {
    x.f[k] = rounded ? ref_rounded(HP_BF16, t->f[k]) : t->f[k];
    x.e[k] = t->e[k];
    if (rounded && x.e[k] > 0) x.e[k] += ref_ulp(HP_BF16, fabs(x.f[k]) + x.e[k]);
  }
  return x;
}

/* y = a product of operand 0 with b, from 0 or from `start`. */
static void ref_product(ref_ctx *c, const ref_tensor *right, const ref_tensor *start,
                        ref_tensor *y) {
  ref_tensor left = ref_factor(c, c->in[0], right), other = ref_factor(c, right, c->in[0]);
  const ref_tensor *a = &left, *b = &other;
  einsum_eq eq;
  char all[2 * HP_MAX_RANK + 1] = "";
  enum { LETTERS = 2 * HP_MAX_RANK };
  int64_t size[LETTERS], index[LETTERS] = {0}, count = 1, step[3][LETTERS], i = 0, j = 0, t = 0;
  int n = 0;
  HP_ASSERT(!einsum_parse(attr_str(c->g, c->n, "eq"), &eq));
  for (int s = 0; s < 2; s++) {
    const char *l = s ? eq.b : eq.a;
    for (int d = 0; l[d]; d++) {
      if (strchr(all, l[d])) continue;
      size[n] = (s ? b : a)->dim[d];
      count *= size[n];
      all[n++] = l[d];
      all[n] = 0;
    }
  }
  double *sum = calloc((size_t)y->n + 1, sizeof *sum), grain = ref_grain(a) * ref_grain(b);
  HP_ASSERT(sum);
  letter_steps(a, eq.a, all, step[0]);
  letter_steps(b, eq.b, all, step[1]);
  letter_steps(y, eq.out, all, step[2]);
  for (int64_t k = 0; k < count; k++) {
    y->f[t] += a->f[i] * b->f[j];
    sum[t] += fabs(a->f[i] * b->f[j]);
    if (a->e[i] > 0 || b->e[j] > 0)
      y->e[t] += fabs(a->f[i]) * b->e[j] + fabs(b->f[j]) * a->e[i] + a->e[i] * b->e[j];
    for (int d = n - 1; d >= 0; d--) { /* the next of all tuples of letters */
      const int64_t back = ++index[d] == size[d] ? size[d] : 0;
      i += step[0][d] * (1 - back), j += step[1][d] * (1 - back), t += step[2][d] * (1 - back);
      if (!back) break;
      index[d] = 0;
    }
  }
  double depth = (y->n ? (double)(count / y->n) : 0) + (start != NULL);
  for (int64_t k = 0; start && k < y->n; k++) {
    y->f[k] += start->f[k];
    y->e[k] += start->e[k];
    sum[k] += fabs(start->f[k]);
  }
  if (start && (!grain || !ref_grain(start))) grain = 0;
  else if (start) grain = fmin(grain, ref_grain(start));
  for (int64_t k = 0; k < y->n; k++)
    if (depth > 1) y->e[k] += ref_sum_error(c, depth, sum[k], grain);
  free(sum);
  free(left.f), free(left.e);
  free(other.f), free(other.e);
}

void ref_EINSUM(ref_ctx *c) {
  ref_product(c, c->in[1], c->n->n_in == 3 ? c->in[2] : NULL, c->out[0]);
}
void ref_EINSUMS(ref_ctx *c) {
  for (int k = 0; k < c->n->n_out; k++) ref_product(c, c->in[1 + k], NULL, c->out[k]);
}
