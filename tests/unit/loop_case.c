#include "loop_case.h"

#include "base/dtype.h"
#include "base/philox.h"
#include "codegen/jit_cc.h"
#include "codegen/loop_expr.h"
#include "codegen/loop_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- data ----------------------------------------------------------------------------------- */

uint32_t loop_case_random(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

/* Multiples of 1/64 within +-4; with `wild`, also what floats have at their ends. */
static double random_number(uint32_t *seed, bool wild) {
  static const double ends[] = {0.0,   -0.0,   INFINITY, -INFINITY, NAN,
                                1e-40, -1e-40, 3e38,     -3e38,     1e9};
  uint32_t r = loop_case_random(seed);
  if (wild && r % 16 == 0) return ends[r / 16 % (sizeof ends / sizeof *ends)];
  return (double)(int32_t)(r % 513) / 64.0 - 4.0;
}

static void put(hp_dtype t, void *at, size_t i, double x) {
  switch (t) {
  case HP_F32: ((float *)at)[i] = (float)x; break;
  case HP_BF16: ((uint16_t *)at)[i] = f32_to_bf16((float)x); break;
  case HP_F16: ((uint16_t *)at)[i] = f32_to_f16((float)x); break;
  case HP_I32:
    ((int32_t *)at)[i] = isfinite(x) && fabs(x) < 1e9 ? (int32_t)(x * 16) : INT32_MIN;
    break;
  case HP_I64:
    ((int64_t *)at)[i] = isfinite(x) && fabs(x) < 1e9 ? (int64_t)(x * 16) : INT64_MIN;
    break;
  case HP_U8:
    ((uint8_t *)at)[i] = isfinite(x) ? (uint8_t)(int)(fabs(x) < 64 ? fabs(x) * 30 : 255) : 7;
    break;
  case HP_BOOL: ((uint8_t *)at)[i] = x > 0; break;
  case HP_DTYPE_COUNT: break;
  }
}

static double get(hp_dtype t, const void *at, size_t i) {
  switch (t) {
  case HP_F32: return (double)((const float *)at)[i];
  case HP_BF16: return (double)bf16_to_f32(((const uint16_t *)at)[i]);
  case HP_F16: return (double)f16_to_f32(((const uint16_t *)at)[i]);
  case HP_I32: return ((const int32_t *)at)[i];
  case HP_I64: return (double)((const int64_t *)at)[i];
  case HP_U8: return ((const uint8_t *)at)[i];
  case HP_BOOL: return ((const uint8_t *)at)[i] != 0;
  case HP_DTYPE_COUNT: break;
  }
  return 0;
}

void loop_case_make(const loop *l, uint32_t seed, bool wild, loop_case *d) {
  int64_t low, high;
  *d = (loop_case){0};
  for (int i = 0; i < LOOP_CASE_OPERANDS; i++) {
    if (loop_extent(l, false, i, &d->in_type[i], &low, &high)) d->n_in[i] = (size_t)high + 1;
    if (loop_extent(l, true, i, &d->out_type[i], &low, &high)) d->n_out[i] = (size_t)high + 1;
    d->in[i] = malloc(d->n_in[i] * 8 + 1);
    size_t bytes = d->n_out[i] * dtype_size(d->out_type[i]);
    d->out[i] = malloc(bytes + 1);
    CHECK(d->in[i] && d->out[i]);
    memset(d->out[i], 0x5a, bytes);
    for (size_t k = 0; k < d->n_in[i]; k++)
      put(d->in_type[i], d->in[i], k, random_number(&seed, wild));
  }
}

void loop_case_free(loop_case *d) {
  for (int i = 0; i < LOOP_CASE_OPERANDS; i++) {
    free(d->in[i]);
    free(d->out[i]);
  }
}

/* --- evaluation in double ------------------------------------------------------------------- */

typedef struct {
  double f;
  int64_t i;
} number;

static int64_t element(const loop *l, const loop_access *at, const int64_t *index) {
  int64_t e = at->offset;
  for (int d = 0; d < l->space.rank; d++) e += index[d] * at->stride[d];
  return e;
}

static double round_to(hp_dtype t, double x) {
  if (t == HP_BF16) return (double)bf16_to_f32(f32_to_bf16((float)x));
  if (t == HP_F16) return (double)f16_to_f32(f32_to_f16((float)x));
  return x;
}

static number op_value(const char *name, const number *a, bool ints) {
  double x = a[0].f, y = a[1].f;
  int64_t i = a[0].i, j = a[1].i;
  number r = {0};
#define IS(word) !strcmp(name, word)
  if (ints) {
    r.i = IS("add")      ? i + j
          : IS("sub")    ? i - j
          : IS("mul")    ? i * j
          : IS("max")    ? (i > j ? i : j)
          : IS("min")    ? (i < j ? i : j)
          : IS("eq")     ? i == j
          : IS("ne")     ? i != j
          : IS("lt")     ? i < j
          : IS("le")     ? i <= j
          : IS("gt")     ? i > j
          : IS("ge")     ? i >= j
          : IS("and")    ? i && j
          : IS("or")     ? i || j
          : IS("not")    ? !i
          : IS("neg")    ? -i
          : IS("abs")    ? llabs(i)
          : IS("square") ? i * i
          : IS("relu")   ? (i > 0 ? i : 0)
          : IS("div")    ? (j ? i / j : 0)
          : IS("mod")    ? (j ? ((i % j) + j) % j : 0)
                         : INT64_MIN;
  } else {
    r.i = IS("eq")   ? x == y
          : IS("ne") ? x != y
          : IS("lt") ? x < y
          : IS("le") ? x <= y
          : IS("gt") ? x > y
          : IS("ge") ? x >= y
                     : 0;
    r.f = IS("add")         ? x + y
          : IS("sub")       ? x - y
          : IS("mul")       ? x * y
          : IS("div")       ? x / y
          : IS("max")       ? fmax(x, y)
          : IS("min")       ? fmin(x, y)
          : IS("pow")       ? pow(x, y)
          : IS("mod")       ? x - y * floor(x / y)
          : IS("neg")       ? -x
          : IS("abs")       ? fabs(x)
          : IS("exp")       ? exp(x)
          : IS("exp2")      ? exp2(x)
          : IS("log")       ? log(x)
          : IS("sqrt")      ? sqrt(x)
          : IS("rsqrt")     ? 1 / sqrt(x)
          : IS("recip")     ? 1 / x
          : IS("tanh")      ? tanh(x)
          : IS("sigmoid")   ? 1 / (1 + exp(-x))
          : IS("silu")      ? x / (1 + exp(-x))
          : IS("gelu")      ? 0.5 * x * erfc(-x * sqrt(0.5))
          : IS("gelu_tanh") ? 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)))
          : IS("relu")      ? fmax(x, 0)
          : IS("sin")       ? sin(x)
          : IS("cos")       ? cos(x)
          : IS("floor")     ? floor(x)
          : IS("erf")       ? erf(x)
          : IS("square")    ? x * x
                            : NAN;
  }
#undef IS
  return r;
}

/* Reductions that are known already, by the place of their row or column in the space. */
typedef struct {
  number *at[LOOP_VALUES_MAX];
  bool *known[LOOP_VALUES_MAX];
} memo;

static number value_at(const loop *l, const loop_case *d, memo *m, int n, const int64_t *index);

static number reduction_at(const loop *l, const loop_case *d, memo *m, int n,
                           const int64_t *index) {
  const loop_value *v = &l->value.at[n];
  int dim = loop_reduced_dim(l);
  int64_t at[HP_MAX_RANK], place = 0, total = 1;
  memcpy(at, index, sizeof at);
  for (int k = 0; k < l->space.rank; k++) {
    place = place * l->space.dim[k] + (k == dim ? 0 : index[k]);
    total *= l->space.dim[k];
  }
  if (!m->at[n]) {
    m->at[n] = calloc((size_t)total + 1, sizeof(number));
    m->known[n] = calloc((size_t)total + 1, 1);
    CHECK(m->at[n] && m->known[n]);
  }
  if (m->known[n][place]) return m->at[n][place];
  number r = {0};
  for (int64_t k = 0; k < l->space.dim[dim]; k++) {
    at[dim] = k;
    number x = value_at(l, d, m, v->arg[0], at);
    if (v->reduce == LOOP_SUM) r = (number){r.f + x.f, r.i + x.i};
    else if (k == 0) r = x;
    else if (v->reduce == LOOP_PROD) r = (number){r.f * x.f, r.i * x.i};
    else if (v->reduce == LOOP_MAX) r = (number){fmax(r.f, x.f), r.i > x.i ? r.i : x.i};
    else r = (number){fmin(r.f, x.f), r.i < x.i ? r.i : x.i};
  }
  m->known[n][place] = true;
  return m->at[n][place] = r;
}

static number value_at(const loop *l, const loop_case *d, memo *m, int n, const int64_t *index) {
  const loop_value *v = &l->value.at[n];
  number arg[3] = {{0}}, r = {0};
  for (int k = 0; k < 3 && v->what != LOOP_REDUCE; k++)
    if (v->arg[k] >= 0) arg[k] = value_at(l, d, m, v->arg[k], index);
  bool from_int = v->arg[0] >= 0 && l->value.at[v->arg[0]].cls == LOOP_INT;
  switch ((loop_what)v->what) {
  case LOOP_IN:
    r.f = get(v->type, d->in[v->operand], (size_t)element(l, &v->at, index));
    r.i = v->type == HP_I64    ? ((int64_t *)d->in[v->operand])[element(l, &v->at, index)]
          : v->cls == LOOP_INT ? (int64_t)r.f
                               : 0;
    break;
  case LOOP_CONST: r.f = (double)v->f32; break;
  case LOOP_INTEGER: r.i = v->i64; break;
  case LOOP_UNIFORM:
    r.f = (double)philox_uniform((uint64_t)arg[0].i, (uint64_t)v->i64,
                                 (uint64_t)element(l, &v->at, index));
    break;
  case LOOP_IOTA: r.i = index[v->dim] + v->at.offset; break;
  case LOOP_CAST:
    if (v->cls == LOOP_FLOAT) r.f = round_to(v->type, from_int ? (double)arg[0].i : arg[0].f);
    else {
      r.i = from_int ? arg[0].i : (int64_t)arg[0].f;
      if (v->type == HP_I32) r.i = (int32_t)r.i;
      if (v->type == HP_U8) r.i = from_int ? (uint8_t)r.i : r.i < 0 ? 0 : r.i > 255 ? 255 : r.i;
      if (v->type == HP_BOOL) r.i = from_int ? arg[0].i != 0 : arg[0].f != 0;
    }
    break;
  case LOOP_OP:
    if (!strcmp(loop_expr_row(v->op)->name, "select")) return arg[0].i ? arg[1] : arg[2];
    return op_value(loop_expr_row(v->op)->name, arg, from_int);
  case LOOP_REDUCE: return reduction_at(l, d, m, n, index);
  }
  return r;
}

void loop_case_check(const loop *l, const loop_case *d, double tol) {
  int64_t index[HP_MAX_RANK] = {0}, total = 1;
  memo m = {0};
  for (int k = 0; k < l->space.rank; k++) total *= l->space.dim[k];
  for (int64_t u = 0; u < total; u++) {
    int64_t t = u;
    for (int k = l->space.rank - 1; k >= 0; k--) {
      index[k] = t % l->space.dim[k];
      t /= l->space.dim[k];
    }
    for (size_t s = 0; s < l->store.len; s++) {
      const loop_store *o = &l->store.at[s];
      int dim = loop_reduced_dim(l);
      if (dim >= 0 && !o->at.stride[dim] && index[dim]) continue;
      number want = value_at(l, d, &m, o->value, index);
      size_t e = (size_t)element(l, &o->at, index);
      double got = get(o->type, d->out[o->operand], e);
      bool is_int = loop_class_of(o->type) == LOOP_INT;
      double w = o->type == HP_BOOL ? want.i != 0
                 : o->type == HP_U8 ? (uint8_t)want.i
                 : is_int           ? (double)want.i
                                    : want.f;
      double unit = o->type == HP_BF16 ? 1.0 / 256 : o->type == HP_F16 ? 1.0 / 2048 : 0;
      CHECK_NEAR(got, w, is_int ? 0.0 : (tol + unit) * (1 + fabs(w)));
    }
  }
  for (int i = 0; i < LOOP_VALUES_MAX; i++) {
    free(m.at[i]);
    free(m.known[i]);
  }
}

/* --- running ---------------------------------------------------------------------------------- */

void loop_case_parse(const char *text, loop *l) {
  CHECK_OK(loop_parse(text, strlen(text), "kernel", l));
}

void loop_case_run(const loop_kernel *k, loop_case *d, pool *p) {
  size_t bytes = loop_scratch(k);
  void *scratch = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
  loop_run(k, (const void *const *)d->in, d->out, scratch, p);
  free(scratch);
}

void loop_case_run_chunks(const loop_kernel *k, loop_case *d, uint32_t seed) {
  void *scratch = aligned_alloc(64, (loop_scratch(k) + 64) / 64 * 64);
  CHECK(scratch);
  for (int phase = 0; phase < loop_phases(k); phase++) {
    int64_t parts = loop_parts(k, phase), cut = parts ? loop_case_random(&seed) % parts : 0;
    const int64_t bound[] = {cut, parts, cut / 2, cut, 0, cut / 2};
    for (int i = 0; i < 6; i += 2)
      for (int64_t at = bound[i], to; at < bound[i + 1]; at = to) {
        to = at + 1 + loop_case_random(&seed) % 9;
        to = to < bound[i + 1] ? to : bound[i + 1];
        loop_run_parts(k, phase, (const void *const *)d->in, d->out, scratch, at, to);
      }
  }
  free(scratch);
}

loop_module *loop_case_module(loop_isa isa, bool interpret) {
  loop_module *m;
  if (loop_module_create(&(loop_options){.isa = isa,
                                         .interpret = interpret,
                                         .cc = getenv("TEST_CC")},
                         &m)) {
    CHECK(strstr(err_message(), "CPU has no"));
    test_skip(err_message());
  }
  return m;
}

static bool is_nan_element(hp_dtype t, const void *at, size_t i) {
  return dtype_is_float(t) && isnan(get(t, at, i));
}

void loop_case_same(const char *text, const loop_case *a, const loop_case *b) {
  for (int o = 0; o < LOOP_CASE_OPERANDS; o++) {
    size_t size = dtype_size(a->out_type[o]);
    if (!a->n_out[o] || !memcmp(a->out[o], b->out[o], a->n_out[o] * size)) continue;
    for (size_t i = 0; i < a->n_out[o]; i++) {
      const char *x = (const char *)a->out[o] + i * size, *y = (const char *)b->out[o] + i * size;
      if (!memcmp(x, y, size)) continue;
      if (is_nan_element(a->out_type[o], a->out[o], i) &&
          is_nan_element(b->out_type[o], b->out[o], i))
        continue;
      test_fail(__FILE__, __LINE__, "out %d element %zu: %.9g and %.9g of\n%s", o, i,
                get(a->out_type[o], a->out[o], i), get(b->out_type[o], b->out[o], i), text);
    }
  }
}

/* Skips the test where there is no compiler: what one does not compile is a defect. */
static void check_compiled(const loop_module *m) {
  jit_cc cc;
  if (!loop_module_report(m).interpreted) return;
  if (jit_cc_find(getenv("TEST_CC"), &cc)) test_skip("no C compiler");
  jit_cc_free(&cc);
  test_fail(__FILE__, __LINE__, "the compiler refuses some of the kernels");
}

/* Has the kernel the code that it has for the best instruction set?  Without bf16 instructions
 * AVX-512 is another code for bf16 alone. */
static bool is_repeated(loop_isa isa, const char *text) {
#if defined(__x86_64__)
  return isa == LOOP_ISA_AVX512 && __builtin_cpu_supports("avx512bf16") && !strstr(text, "bf16");
#else
  (void)isa, (void)text;
  return false;
#endif
}

void loop_case_check_isa(loop_isa isa, const char *const *text, int n, bool wild) {
  loop_module *m = loop_case_module(isa, false), *plain = loop_case_module(LOOP_ISA_BEST, true);
  loop_kernel **k = calloc((size_t)n, sizeof *k), **p = calloc((size_t)n, sizeof *p);
  loop *l = calloc((size_t)n, sizeof *l);
  int added = 0;
  CHECK(k && p && l);
  for (int i = 0; i < n; i++) {
    if (is_repeated(isa, text[i])) continue;
    loop_case_parse(text[i], &l[i]);
    CHECK_OK(loop_module_add(m, &l[i], &k[i]));
    CHECK_OK(loop_module_add(plain, &l[i], &p[i]));
    added++;
  }
  CHECK_OK(loop_module_build(m));
  CHECK_OK(loop_module_build(plain));
  check_compiled(m);
  CHECK_EQ(loop_module_report(m).kernels, added);
  for (int i = 0; i < n; i++) {
    if (!k[i]) continue;
    loop_case a, b;
    loop_case_make(&l[i], (uint32_t)i * 77, wild, &a);
    loop_case_make(&l[i], (uint32_t)i * 77, wild, &b);
    loop_case_run(k[i], &a, NULL);
    loop_case_run(p[i], &b, NULL);
    loop_case_same(text[i], &a, &b);
    loop_case_free(&a);
    loop_case_free(&b);
    loop_free(&l[i]);
  }
  free(k);
  free(p);
  free(l);
  loop_module_free(m);
  loop_module_free(plain);
}
