/* Reference of leaves and elementwise rows. */
#include "base/dtype.h"
#include "ops/ref.h"

#include <math.h>

/* --- leaves and effects ---------------------------------------------------------------------- */

static void not_here(ref_ctx *c) { err_bug(__FILE__, __LINE__, op_table[c->n->op].name); }
void ref_INPUT(ref_ctx *c) { not_here(c); } /* set by ref_set */
void ref_PARAM(ref_ctx *c) { not_here(c); }
void ref_OUTPUT(ref_ctx *c) { not_here(c); } /* has no results */
void ref_ASSIGN(ref_ctx *c) { not_here(c); }
void ref_FUSED(ref_ctx *c) { not_here(c); } /* made by the compiler, as are */
void ref_SEND(ref_ctx *c) { not_here(c); }
void ref_RECV(ref_ctx *c) { not_here(c); }

void ref_CONST(ref_ctx *c) {
  ref_tensor *y = c->out[0];
  double x = attr_float(c->g, c->n, "value");
  for (int64_t k = 0; k < y->n; k++)
    if (y->f) y->f[k] = x;
    else y->i[k] = (int64_t)x;
}

void ref_IOTA(ref_ctx *c) {
  ref_tensor *y = c->out[0];
  int axis = (int)attr_int(c->g, c->n, "axis");
  int64_t index[HP_MAX_RANK] = {0};
  for (int64_t k = 0; k < y->n; k++, ref_next(y, index))
    if (y->f) y->f[k] = (double)index[axis];
    else y->i[k] = index[axis];
}

/* --- one operand ------------------------------------------------------------------------------ */

typedef double (*fn1)(double x);

/* How far f may be off when x is off by e: looks at both ends.  Good for what is smooth there. */
static double spread(fn1 f, double x, double e) {
  if (e == 0) return 0;
  double y = f(x), a = fabs(f(x + e) - y), b = fabs(f(x - e) - y);
  if (isnan(a) || isnan(b)) return INFINITY;
  return 1.05 * (a > b ? a : b) + e * 1e-3;
}

/* y = f(x), right to `ulps` units of f32 (0: correctly rounded). */
static void map1(ref_ctx *c, fn1 f, double ulps) {
  const ref_tensor *x = c->in[0];
  ref_tensor *y = c->out[0];
  for (int64_t k = 0; k < y->n; k++) {
    y->f[k] = f(x->f[k]);
    y->e[k] = spread(f, x->f[k], x->e[k]);
    if (ulps > 0 && isfinite(y->f[k])) y->e[k] += ulps * ref_ulp(HP_F32, y->f[k]);
  }
}

typedef int64_t (*fn1i)(int64_t x);
static void map1i(ref_ctx *c, fn1i f) {
  const ref_tensor *x = c->in[0];
  ref_tensor *y = c->out[0];
  for (int64_t k = 0; k < y->n; k++) {
    y->i[k] = f(x->i[k]);
    y->e[k] = x->e[k];
  }
}

static double f_neg(double x) { return -x; }
static double f_sqrt(double x) { return sqrt(x); }
static double f_rsqrt(double x) { return 1 / (double)(float)sqrt(x); }
static double f_rsqrt_smooth(double x) { return 1 / sqrt(x); }
static double f_recip(double x) { return 1 / x; }
static double f_square(double x) { return x * x; }
static double f_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double f_silu(double x) { return x / (1 + exp(-x)); }
static double f_gelu(double x) { return x * 0.5 * erfc(-x * sqrt(0.5)); }
static double f_gelu_tanh(double x) {
  return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}
static double f_same(double x) { return x; }
static double f_relu(double x) { return isnan(x) ? x : x > 0 ? x : 0; }
static double f_softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }
static double f_sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
static int64_t i_sign(int64_t x) { return (x > 0) - (x < 0); }
static int64_t i_neg(int64_t x) { return (int64_t)(0 - (uint64_t)x); }
static int64_t i_abs(int64_t x) { return x < 0 ? i_neg(x) : x; }
static int64_t i_square(int64_t x) { return (int64_t)((uint64_t)x * (uint64_t)x); }
static int64_t i_relu(int64_t x) { return x > 0 ? x : 0; }

static void either(ref_ctx *c, fn1 f, fn1i i) {
  if (c->out[0]->f) map1(c, f, 0);
  else map1i(c, i);
}
void ref_NEG(ref_ctx *c) { either(c, f_neg, i_neg); }
void ref_ABS(ref_ctx *c) { either(c, fabs, i_abs); }
void ref_SQUARE(ref_ctx *c) { either(c, f_square, i_square); }
void ref_SIGN(ref_ctx *c) { either(c, f_sign, i_sign); }
void ref_STOP_GRADIENT(ref_ctx *c) { map1(c, f_same, 0); }
void ref_RELU(ref_ctx *c) { either(c, f_relu, i_relu); }
void ref_EXP(ref_ctx *c) { map1(c, exp, 3); }
void ref_EXP2(ref_ctx *c) { map1(c, exp2, 3); }
void ref_LOG(ref_ctx *c) { map1(c, log, 3); }
void ref_LOG1P(ref_ctx *c) { map1(c, log1p, 4); }
void ref_SOFTPLUS(ref_ctx *c) { map1(c, f_softplus, 6); }
void ref_SQRT(ref_ctx *c) { map1(c, f_sqrt, 0); }
void ref_RSQRT(ref_ctx *c) { map1(c, c->r->smooth ? f_rsqrt_smooth : f_rsqrt, 0); }
void ref_RECIP(ref_ctx *c) { map1(c, f_recip, 0); }
void ref_TANH(ref_ctx *c) { map1(c, tanh, 4); }
void ref_SIGMOID(ref_ctx *c) { map1(c, f_sigmoid, 5); }
void ref_SILU(ref_ctx *c) { map1(c, f_silu, 6); }
void ref_ERF(ref_ctx *c) { map1(c, erf, 4); }
void ref_FLOOR(ref_ctx *c) { map1(c, floor, 0); }

/* Both gelus lose digits where they go to zero: the bound is one of the operand too. */
static void gelu(ref_ctx *c, fn1 f) {
  map1(c, f, 8);
  for (int64_t k = 0; k < c->out[0]->n; k++)
    if (fabs(c->in[0]->f[k]) < INFINITY) c->out[0]->e[k] += ref_ulp(HP_F32, c->in[0]->f[k]);
}
void ref_GELU(ref_ctx *c) { gelu(c, f_gelu); }
void ref_GELU_TANH(ref_ctx *c) { gelu(c, f_gelu_tanh); }

/* Near their zeros sine and cosine are right to a unit of 1. */
static void wave(ref_ctx *c, fn1 f) {
  map1(c, f, 4);
  for (int64_t k = 0; k < c->out[0]->n; k++) {
    if (c->in[0]->e[k] > 0) c->out[0]->e[k] += c->in[0]->e[k];
    c->out[0]->e[k] += 0x1p-24;
  }
}
void ref_SIN(ref_ctx *c) { wave(c, sin); }
void ref_COS(ref_ctx *c) { wave(c, cos); }

void ref_NOT(ref_ctx *c) {
  for (int64_t k = 0; k < c->out[0]->n; k++) {
    c->out[0]->i[k] = !c->in[0]->i[k];
    c->out[0]->e[k] = c->in[0]->e[k];
  }
}

/* Toward zero, kept within the type; NaN is 0. */
static int64_t float_to_int(hp_dtype t, double x) {
  double low = t == HP_I64 ? -0x1p63 : t == HP_I32 ? -0x1p31 : 0;
  double high = t == HP_I64 ? 0x1p63 : t == HP_I32 ? 0x1p31 - 1 : 255;
  if (isnan(x)) return 0;
  if (x <= low) return t == HP_I64 ? INT64_MIN : (int64_t)low;
  if (x >= high) return t == HP_I64 ? INT64_MAX : (int64_t)high;
  return (int64_t)x;
}

static void cast_to_int(const ref_tensor *x, ref_tensor *y) {
  for (int64_t k = 0; k < y->n; k++) {
    y->e[k] = x->e[k];
    if (!x->f) {
      y->i[k] = x->i[k];
      continue;
    }
    double v = x->f[k], e = x->e[k];
    if (y->type == HP_BOOL) {
      y->i[k] = v != 0;
      y->e[k] = e > 0 && fabs(v) <= e ? INFINITY : 0;
      continue;
    }
    y->i[k] = float_to_int(y->type, v);
    bool sure = float_to_int(y->type, v - e) == float_to_int(y->type, v + e);
    y->e[k] = sure ? 0 : INFINITY;
  }
}

void ref_CAST(ref_ctx *c) {
  const ref_tensor *x = c->in[0];
  ref_tensor *y = c->out[0];
  if (y->i) {
    cast_to_int(x, y);
    return;
  }
  for (int64_t k = 0; k < y->n; k++) {
    y->f[k] = x->f ? x->f[k] : (double)(float)x->i[k];
    y->e[k] = x->e[k];
  }
}

/* --- two and three operands ------------------------------------------------------------------- */

typedef struct {
  double x, e;
} num;

static num at(const ref_tensor *t, const ref_walk *w) {
  return (num){t->f ? t->f[w->at] : (double)t->i[w->at], t->e[w->at]};
}
static int64_t int_at(const ref_tensor *t, const ref_walk *w, double *e) {
  if (t->e[w->at] > 0) *e = t->e[w->at];
  return t->i[w->at];
}

/* All operands side by side, each broadcast to the result. */
typedef struct {
  ref_walk in[3];
  int n;
} walks;
static walks begin_walks(const ref_ctx *c) {
  walks w = {.n = c->n->n_in};
  for (int i = 0; i < w.n; i++) w.in[i] = ref_broadcast_begin(c->in[i], c->out[0]);
  return w;
}
static void next(walks *w) {
  for (int i = 0; i < w->n; i++) ref_walk_next(&w->in[i]);
}

typedef num (*fn2)(num a, num b);
typedef int64_t (*fn2i)(int64_t a, int64_t b);
static void map2(ref_ctx *c, fn2 f, fn2i fi) {
  ref_tensor *y = c->out[0];
  walks w = begin_walks(c);
  for (int64_t k = 0; k < y->n; k++, next(&w)) {
    if (y->f) {
      num r = f(at(c->in[0], &w.in[0]), at(c->in[1], &w.in[1]));
      y->f[k] = r.x;
      y->e[k] = r.e;
    } else {
      int64_t a = int_at(c->in[0], &w.in[0], &y->e[k]);
      y->i[k] = fi(a, int_at(c->in[1], &w.in[1], &y->e[k]));
    }
  }
}

static num n_add(num a, num b) { return (num){a.x + b.x, a.e + b.e}; }
static num n_sub(num a, num b) { return (num){a.x - b.x, a.e + b.e}; }
static num n_mul(num a, num b) {
  double e = 0;
  if (a.e > 0 || b.e > 0) e = fabs(a.x) * b.e + fabs(b.x) * a.e + a.e * b.e;
  return (num){a.x * b.x, e};
}
static num n_div(num a, num b) {
  double y = a.x / b.x, e = 0;
  if (b.e > 0 && fabs(b.x) <= b.e) e = INFINITY;
  else if (a.e > 0 || b.e > 0) e = (a.e + fabs(y) * b.e) / (fabs(b.x) - b.e);
  return (num){y, e};
}
static double larger(double a, double b) { return a > b ? a : b; }
static num n_max(num a, num b) {
  double y = isnan(a.x) || isnan(b.x) ? NAN : larger(a.x, b.x);
  return (num){y, larger(a.e, b.e)};
}
static num n_min(num a, num b) {
  double y = isnan(a.x) || isnan(b.x) ? NAN : -larger(-a.x, -b.x);
  return (num){y, larger(a.e, b.e)};
}
static num n_pow(num a, num b) {
  double y = pow(a.x, b.x), e = 0;
  for (int s = 0; s < 4 && (a.e > 0 || b.e > 0); s++) {
    double d = fabs(pow(a.x + (s & 1 ? a.e : -a.e), b.x + (s & 2 ? b.e : -b.e)) - y);
    e = isnan(d) ? INFINITY : larger(e, d);
  }
  return (num){y, isfinite(y) ? e * 1.05 + 8 * ref_ulp(HP_F32, y) : e};
}
static int64_t i_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t i_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static int64_t i_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static int64_t i_div(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? i_neg(a) : a / b; }
static int64_t i_max(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t i_min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t i_and(int64_t a, int64_t b) { return a && b; }
static int64_t i_or(int64_t a, int64_t b) { return a || b; }

void ref_ADD(ref_ctx *c) { map2(c, n_add, i_add); }
void ref_SUB(ref_ctx *c) { map2(c, n_sub, i_sub); }
void ref_MUL(ref_ctx *c) { map2(c, n_mul, i_mul); }
void ref_DIV(ref_ctx *c) { map2(c, n_div, i_div); }
void ref_MAX(ref_ctx *c) { map2(c, n_max, i_max); }
void ref_MIN(ref_ctx *c) { map2(c, n_min, i_min); }
void ref_POW(ref_ctx *c) { map2(c, n_pow, NULL); }
void ref_AND(ref_ctx *c) { map2(c, NULL, i_and); }
void ref_OR(ref_ctx *c) { map2(c, NULL, i_or); }

/* sign: bits of the answers of a < b, a == b, a > b that make it true. */
static void compare(ref_ctx *c, int less, int equal, int greater) {
  ref_tensor *y = c->out[0];
  walks w = begin_walks(c);
  for (int64_t k = 0; k < y->n; k++, next(&w)) {
    if (c->in[0]->i) {
      double e = 0;
      int64_t a = int_at(c->in[0], &w.in[0], &e), b = int_at(c->in[1], &w.in[1], &e);
      y->i[k] = a < b ? less : a == b ? equal : greater;
      y->e[k] = e > 0 ? INFINITY : 0;
      continue;
    }
    num a = at(c->in[0], &w.in[0]), b = at(c->in[1], &w.in[1]);
    bool unordered = isnan(a.x) || isnan(b.x);
    /* of NaN only "not equal" is true */
    y->i[k] = unordered    ? !equal && less && greater
              : a.x < b.x  ? less
              : a.x == b.x ? equal
                           : greater;
    double e = a.e + b.e;
    y->e[k] = e > 0 && !(fabs(a.x - b.x) > e) && !unordered ? INFINITY : 0;
  }
}
void ref_EQ(ref_ctx *c) { compare(c, 0, 1, 0); }
void ref_NE(ref_ctx *c) { compare(c, 1, 0, 1); }
void ref_LT(ref_ctx *c) { compare(c, 1, 0, 0); }
void ref_LE(ref_ctx *c) { compare(c, 1, 1, 0); }
void ref_GT(ref_ctx *c) { compare(c, 0, 0, 1); }
void ref_GE(ref_ctx *c) { compare(c, 0, 1, 1); }

void ref_SELECT(ref_ctx *c) {
  ref_tensor *y = c->out[0];
  walks w = begin_walks(c);
  for (int64_t k = 0; k < y->n; k++, next(&w)) {
    double e = 0;
    int from = int_at(c->in[0], &w.in[0], &e) ? 1 : 2;
    ref_copy(y, k, c->in[from], w.in[from].at);
    if (e > 0) y->e[k] = INFINITY;
  }
}
