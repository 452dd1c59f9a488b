#include "ops/ref.h"

#include "base/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*row_fn)(ref_ctx *c);
static const row_fn row_of[OP_COUNT] = {
#define OP(id, ...) [OP_##id] = ref_##id,
#include "ir/ops.def"
#undef OP
};

/* --- numbers ------------------------------------------------------------------------------- */

/* Round to nearest even at bit `bits` of the significand, with the smallest exponent `low`. */
static double round_at(double x, int bits, int low) {
  if (!isfinite(x) || x == 0) return x;
  int e;
  frexp(x, &e);
  if (e < low) e = low;
  double unit = ldexp(1, e - bits);
  return nearbyint(x / unit) * unit;
}

double ref_rounded(hp_dtype t, double x) {
  float f = (float)x;
  if (t == HP_F32) return f;
  if (t == HP_BF16) return (double)(float)round_at(f, 8, -125);
  double h = round_at(f, 11, -13);
  return fabs(h) > 65504 ? copysign(INFINITY, h) : h;
}

double ref_ulp(hp_dtype t, double x) {
  int e, bits = t == HP_F32 ? 24 : t == HP_BF16 ? 8 : 11, low = t == HP_F16 ? -13 : -125;
  if (!isfinite(x)) return 0;
  frexp(x, &e);
  return ldexp(1, (x == 0 || e < low ? low : e) - bits);
}

int64_t ref_wrap(hp_dtype t, int64_t x) {
  if (t == HP_I32) return (int32_t)(uint32_t)x;
  if (t == HP_U8) return x & 255;
  if (t == HP_BOOL) return x != 0;
  return x;
}

double ref_sum_error(const ref_ctx *c, double n, double sum, double grain) {
  if (!c->r->partial_sums && grain > 0 && sum <= grain * 0x1p24) return 0;
  return n * 2 * ref_eps * sum;
}

double ref_grain(const ref_tensor *x) {
  double least = INFINITY;
  for (int64_t k = 0; k < x->n; k++) {
    if (x->e[k] != 0 || !isfinite(x->f[k])) return 0;
    if (x->f[k] == 0) continue;
    int e;
    int64_t m = (int64_t)ldexp(frexp(x->f[k], &e), 53);
    double unit = ldexp((double)(m & -m), e - 53);
    if (unit < least) least = unit;
  }
  return least == INFINITY ? 1 : least;
}

/* --- indices ------------------------------------------------------------------------------- */

void ref_unflatten(const ref_tensor *t, int64_t at, int64_t index[HP_MAX_RANK]) {
  for (int d = t->rank - 1; d >= 0; d--) {
    index[d] = at % t->dim[d];
    at /= t->dim[d];
  }
}

void ref_next(const ref_tensor *t, int64_t index[HP_MAX_RANK]) {
  for (int d = t->rank - 1; d >= 0 && ++index[d] == t->dim[d]; d--) index[d] = 0;
}

int64_t ref_flatten(const ref_tensor *t, const int64_t index[HP_MAX_RANK]) {
  int64_t at = 0;
  for (int d = 0; d < t->rank; d++) at = at * t->dim[d] + index[d];
  return at;
}

ref_walk ref_broadcast_begin(const ref_tensor *of, const ref_tensor *shape) {
  ref_walk w = {.shape = shape};
  int64_t step = 1;
  for (int d = of->rank - 1; d >= 0; d--) {
    w.step[d + shape->rank - of->rank] = of->dim[d] == 1 ? 0 : step;
    step *= of->dim[d];
  }
  return w;
}

void ref_walk_next(ref_walk *w) {
  for (int d = w->shape->rank - 1; d >= 0; d--) {
    w->at += w->step[d];
    if (++w->index[d] < w->shape->dim[d]) return;
    w->at -= w->step[d] * w->shape->dim[d];
    w->index[d] = 0;
  }
}

void ref_copy(ref_tensor *y, int64_t i, const ref_tensor *x, int64_t j) {
  if (y->f) y->f[i] = x->f[j];
  else y->i[i] = x->i[j];
  y->e[i] = x->e[j];
}

/* --- runs ---------------------------------------------------------------------------------- */

void ref_begin(ref_run *r, const hp_graph *g, bool smooth) {
  *r = (ref_run){.g = g, .smooth = smooth};
}

static void forget(ref_tensor *t) {
  free(t->f);
  free(t->i);
  free(t->e);
  *t = (ref_tensor){0};
}

void ref_end(ref_run *r) {
  for (size_t v = 0; v < r->n_values; v++) forget(&r->value[v]);
  free(r->value);
  *r = (ref_run){0};
}

static bool is_given(const hp_graph *g, val v) {
  return graph_def(g, v)->op == OP_INPUT || graph_def(g, v)->op == OP_PARAM;
}

void ref_again(ref_run *r) {
  for (val v = 1; v < r->n_values; v++)
    if (!is_given(r->g, v)) forget(&r->value[v]);
}

/* Room for the values that the graph has by now. */
static void grow(ref_run *r) {
  size_t n = r->g->values.len;
  if (n <= r->n_values) return;
  r->value = realloc(r->value, n * sizeof *r->value);
  HP_ASSERT(r->value);
  memset(r->value + r->n_values, 0, (n - r->n_values) * sizeof *r->value);
  r->n_values = n;
}

static ref_tensor *make(ref_run *r, val v) {
  ref_tensor *t = &r->value[v];
  const ir_value *x = graph_value(r->g, v);
  forget(t);
  t->type = (hp_dtype)x->dtype;
  t->rank = x->rank;
  memcpy(t->dim, x->dim, sizeof t->dim);
  t->n = value_elements(x);
  size_t n = (size_t)t->n + 1;
  t->e = calloc(n, sizeof *t->e);
  if (dtype_is_float(t->type)) t->f = calloc(n, sizeof *t->f);
  else t->i = calloc(n, sizeof *t->i);
  HP_ASSERT(t->e && (t->f || t->i));
  return t;
}

static double load_float(hp_dtype t, const void *bytes, int64_t k) {
  uint16_t h;
  float f;
  if (t == HP_F32) {
    memcpy(&f, (const char *)bytes + 4 * k, 4);
    return f;
  }
  memcpy(&h, (const char *)bytes + 2 * k, 2);
  if (t == HP_BF16) {
    uint32_t u = (uint32_t)h << 16;
    memcpy(&f, &u, 4);
    return f;
  }
  int e = h >> 10 & 31, m = h & 1023;
  double x = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
  return h & 0x8000 ? -x : x;
}

static int64_t load_int(hp_dtype t, const void *bytes, int64_t k) {
  int32_t w;
  int64_t x;
  if (t == HP_I64) {
    memcpy(&x, (const char *)bytes + 8 * k, 8);
    return x;
  }
  if (t == HP_I32) {
    memcpy(&w, (const char *)bytes + 4 * k, 4);
    return w;
  }
  return ((const uint8_t *)bytes)[k];
}

void ref_set(ref_run *r, val v, const void *bytes) {
  grow(r);
  ref_tensor *t = make(r, v);
  for (int64_t k = 0; k < t->n; k++)
    if (t->f) t->f[k] = load_float(t->type, bytes, k);
    else t->i[k] = load_int(t->type, bytes, k);
}

void ref_store(const ref_run *r, val v, void *bytes) {
  const ref_tensor *t = &r->value[v];
  size_t size = dtype_size(t->type);
  for (int64_t k = 0; k < t->n; k++) {
    char *to = (char *)bytes + (size_t)k * size;
    if (t->f) {
      float f = (float)t->f[k];
      HP_ASSERT(!dtype_convert(t->type, to, HP_F32, &f, 1));
    } else {
      memcpy(to, &t->i[k], size); /* little endian */
    }
  }
}

/* Results to their dtype.  An element that is not exact may be rounded to the other neighbour. */
static void finish(const ref_run *r, ref_tensor *t) {
  for (int64_t k = 0; k < t->n; k++) {
    if (isnan(t->e[k])) t->e[k] = INFINITY;
    if (!t->f) {
      t->i[k] = ref_wrap(t->type, t->i[k]);
    } else if (!r->smooth) {
      t->f[k] = ref_rounded(t->type, t->f[k]);
      if (t->e[k] > 0) t->e[k] += ref_ulp(t->type, fabs(t->f[k]) + t->e[k]);
    }
  }
}

ref_tensor *ref_make(ref_run *r, val v) {
  grow(r);
  return make(r, v);
}

void ref_step(ref_run *r, uint32_t node) {
  const ir_node *n = graph_node(r->g, node);
  ref_ctx c = {.r = r, .g = r->g, .n = n, .id = graph_in(r->g, n)};
  grow(r);
  c.many = r->value;
  HP_ASSERT(n->n_out <= 3);
  for (int k = 0; k < n->n_in && k < 8; k++) c.in[k] = &r->value[c.id[k]];
  for (int k = 0; k < n->n_out; k++) c.out[k] = make(r, n->out0 + (val)k);
  row_of[n->op](&c);
  for (int k = 0; k < n->n_out; k++) finish(r, c.out[k]);
}

void ref_eval(ref_run *r) {
  grow(r);
  for (size_t i = 0; i < r->g->nodes.len; i++) {
    const ir_node *n = graph_node(r->g, (uint32_t)i);
    if (n->n_out && !r->value[n->out0].e) ref_step(r, (uint32_t)i);
  }
}

/* --- comparing ----------------------------------------------------------------------------- */

static bool agrees(const ref_tensor *t, int64_t k, const void *bytes, double *got) {
  if (!t->f) {
    int64_t x = load_int(t->type, bytes, k);
    *got = (double)x;
    return x == t->i[k];
  }
  double x = load_float(t->type, bytes, k), want = t->f[k];
  *got = x;
  if (isnan(want)) return isnan(x);
  if (x == want) return true;
  return fabs(x - want) <= t->e[k] + 1e-37;
}

int64_t ref_compare(const ref_run *r, val v, const void *bytes, int64_t *unknown, char *why) {
  const ref_tensor *t = &r->value[v];
  int64_t wrong = 0;
  for (int64_t k = 0; k < t->n; k++) {
    double got;
    if (t->e[k] == INFINITY) {
      ++*unknown;
      continue;
    }
    if (agrees(t, k, bytes, &got)) continue;
    if (!wrong++)
      snprintf(why, 200, "%%%u (%s): element %lld of %lld is %.9g, want %.9g within %.3g", v,
               op_table[graph_def(r->g, v)->op].name, (long long)k, (long long)t->n, got,
               t->f ? t->f[k] : (double)t->i[k], t->e[k]);
  }
  return wrong;
}
