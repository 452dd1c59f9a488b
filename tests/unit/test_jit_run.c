/* Kernels against an independent evaluation in double, and compiled against interpreted code to
 * the bit: hand-written kernels, and random ones. */
#include "test.h"

#include "base/dtype.h"
#include "base/thread.h"
#include "codegen/loop.h"
#include "codegen/loop_expr.h"
#include "codegen/loop_plan.h"

#include <math.h>
#include <stdlib.h>

/* --- data ----------------------------------------------------------------------------------- */

enum { OPERANDS = 8, GUARD = 64 };

typedef struct {
  void *in[OPERANDS], *out[OPERANDS];
  size_t n_in[OPERANDS], n_out[OPERANDS]; /* elements */
  hp_dtype in_type[OPERANDS], out_type[OPERANDS];
} data;

static uint32_t next_random(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

/* Multiples of 1/64 within +-4; with `wild`, also what floats have at their ends. */
static double random_number(uint32_t *seed, bool wild) {
  static const double ends[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, -1e-40, 3e38, -3e38, 1e9};
  uint32_t r = next_random(seed);
  if (wild && r % 16 == 0) return ends[r / 16 % (sizeof ends / sizeof *ends)];
  return (double)(int32_t)(r % 513) / 64.0 - 4.0;
}

static void put(hp_dtype t, void *at, size_t i, double x) {
  switch (t) {
  case HP_F32: ((float *)at)[i] = (float)x; break;
  case HP_BF16: ((uint16_t *)at)[i] = f32_to_bf16((float)x); break;
  case HP_F16: ((uint16_t *)at)[i] = f32_to_f16((float)x); break;
  case HP_I32: ((int32_t *)at)[i] = isfinite(x) && fabs(x) < 1e9 ? (int32_t)(x * 16) : INT32_MIN; break;
  case HP_I64: ((int64_t *)at)[i] = isfinite(x) && fabs(x) < 1e9 ? (int64_t)(x * 16) : INT64_MIN; break;
  case HP_U8: ((uint8_t *)at)[i] = isfinite(x) ? (uint8_t)(int)(fabs(x) < 64 ? fabs(x) * 30 : 255) : 7; break;
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

/* Buffers of exactly the extent, so that sanitizers see an access beyond it; outputs start as a
 * pattern that no kernel may touch outside its elements. */
static void data_make(const loop *l, uint32_t seed, bool wild, data *d) {
  int64_t low, high;
  *d = (data){0};
  for (int i = 0; i < OPERANDS; i++) {
    if (loop_extent(l, false, i, &d->in_type[i], &low, &high)) d->n_in[i] = (size_t)high + 1;
    if (loop_extent(l, true, i, &d->out_type[i], &low, &high)) d->n_out[i] = (size_t)high + 1;
    d->in[i] = malloc(d->n_in[i] * 8 + 1);
    size_t bytes = d->n_out[i] * dtype_size(d->out_type[i]);
    d->out[i] = malloc(bytes + 1);
    CHECK(d->in[i] && d->out[i]);
    memset(d->out[i], 0x5a, bytes);
    for (size_t k = 0; k < d->n_in[i]; k++) put(d->in_type[i], d->in[i], k, random_number(&seed, wild));
  }
}

static void data_free(data *d) {
  for (int i = 0; i < OPERANDS; i++) {
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
    r.i = IS("add") ? i + j : IS("sub") ? i - j : IS("mul") ? i * j : IS("max") ? (i > j ? i : j)
        : IS("min") ? (i < j ? i : j) : IS("eq") ? i == j : IS("ne") ? i != j : IS("lt") ? i < j
        : IS("le") ? i <= j : IS("gt") ? i > j : IS("ge") ? i >= j : IS("and") ? i && j
        : IS("or") ? i || j : IS("not") ? !i : IS("neg") ? -i : IS("abs") ? llabs(i)
        : IS("square") ? i * i : IS("relu") ? (i > 0 ? i : 0) : IS("div") ? (j ? i / j : 0)
        : IS("mod") ? (j ? ((i % j) + j) % j : 0) : INT64_MIN;
  } else {
    r.i = IS("eq") ? x == y : IS("ne") ? x != y : IS("lt") ? x < y : IS("le") ? x <= y
        : IS("gt") ? x > y : IS("ge") ? x >= y : 0;
    r.f = IS("add") ? x + y : IS("sub") ? x - y : IS("mul") ? x * y : IS("div") ? x / y
        : IS("max") ? fmax(x, y) : IS("min") ? fmin(x, y) : IS("pow") ? pow(x, y)
        : IS("mod") ? x - y * floor(x / y) : IS("neg") ? -x : IS("abs") ? fabs(x) : IS("exp") ? exp(x)
        : IS("log") ? log(x) : IS("sqrt") ? sqrt(x) : IS("rsqrt") ? 1 / sqrt(x)
        : IS("recip") ? 1 / x : IS("tanh") ? tanh(x) : IS("sigmoid") ? 1 / (1 + exp(-x))
        : IS("silu") ? x / (1 + exp(-x)) : IS("gelu") ? 0.5 * x * erfc(-x * sqrt(0.5))
        : IS("gelu_tanh") ? 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)))
        : IS("relu") ? fmax(x, 0) : IS("sin") ? sin(x) : IS("cos") ? cos(x)
        : IS("floor") ? floor(x) : IS("erf") ? erf(x) : IS("square") ? x * x : NAN;
  }
#undef IS
  return r;
}

/* Reductions that are known already, by the place of their row or column in the space. */
typedef struct {
  number *at[LOOP_VALUES_MAX];
  bool *known[LOOP_VALUES_MAX];
} memo;

static number value_at(const loop *l, const data *d, memo *m, int n, const int64_t *index);

static number reduction_at(const loop *l, const data *d, memo *m, int n, const int64_t *index) {
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

static number value_at(const loop *l, const data *d, memo *m, int n, const int64_t *index) {
  const loop_value *v = &l->value.at[n];
  number arg[3] = {{0}}, r = {0};
  for (int k = 0; k < 3 && v->what != LOOP_REDUCE; k++)
    if (v->arg[k] >= 0) arg[k] = value_at(l, d, m, v->arg[k], index);
  bool from_int = v->arg[0] >= 0 && l->value.at[v->arg[0]].cls == LOOP_INT;
  switch ((loop_what)v->what) {
  case LOOP_IN:
    r.f = get(v->type, d->in[v->operand], (size_t)element(l, &v->at, index));
    r.i = v->type == HP_I64 ? ((int64_t *)d->in[v->operand])[element(l, &v->at, index)]
                            : v->cls == LOOP_INT ? (int64_t)r.f : 0;
    break;
  case LOOP_CONST: r.f = (double)v->f32; break;
  case LOOP_INTEGER: r.i = v->i64; break;
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

/* Outputs of a kernel against the evaluation in double, each within tol of its size. */
static void check_reference(const loop *l, const data *d, double tol) {
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
      double w = o->type == HP_BOOL ? want.i != 0 : o->type == HP_U8 ? (uint8_t)want.i
               : is_int ? (double)want.i : want.f;
      double unit = o->type == HP_BF16 ? 1.0 / 256 : o->type == HP_F16 ? 1.0 / 2048 : 0;
      CHECK_NEAR(got, w, is_int ? 0.0 : (tol + unit) * (1 + fabs(w)));
    }
  }
  for (int i = 0; i < LOOP_VALUES_MAX; i++) {
    free(m.at[i]);
    free(m.known[i]);
  }
}

/* --- kernels ---------------------------------------------------------------------------------- */

static const char *const kernels[] = {
    /* sizes that are no multiple of anything, and the element types */
    "map [1]; %0 = in 0 f32 [1]; %1 = exp %0; out 0 f32 [1] %1",
    "map [4099]; %0 = in 0 bf16 [1]; %1 = in 1 f16 [1]; %2 = mul %0 %1; out 0 bf16 [1] %2; out 1 f16 [1] %2; out 2 f32 [1] %2",
    "map [257]; %0 = in 0 i32 [1]; %1 = in 1 i64 [1]; %2 = in 2 u8 [1]; %3 = in 3 bool [1]; %4 = add %0 %1; %5 = mul %4 %2; %6 = select %3 %5 %0; out 0 i32 [1] %6; out 1 i64 [1] %6; out 2 u8 [1] %6; out 3 bool [1] %6",
    "map [300]; %0 = in 0 f32 [1]; %1 = cast i32 %0; %2 = cast u8 %0; %3 = cast bool %0; %4 = cast i64 %0; %5 = cast f32 %1; %6 = cast bf16 %0; %7 = cast f16 %1; out 0 i32 [1] %1; out 1 u8 [1] %2; out 2 bool [1] %3; out 3 i64 [1] %4; out 4 f32 [1] %5; out 5 f32 [1] %6; out 6 f32 [1] %7",
    /* broadcast, transpose, slice, flip, constants and indices */
    "map [7,13]; %0 = in 0 f32 [13,1]; %1 = in 1 f32 [0,1]; %2 = in 2 f32 [1,0]; %3 = in 3 f32 [0,0]; %4 = add %0 %1; %5 = mul %4 %2; %6 = add %5 %3; out 0 f32 [13,1] %6",
    "map [17,31]; %0 = in 0 f32 [1,17]; %1 = relu %0; out 0 f32 [31,1] %1",
    "map [5,6,7]; %0 = in 0 f32 [84,14,2] +1; %1 = in 1 f32 [-42,-7,-1] +209; %2 = sub %0 %1; out 0 f32 [1,5,30] +3 %2",
    "map [9,10]; %0 = iota 0 +100; %1 = iota 1 -5; %2 = lt %0 %1; %3 = ge %0 %1; %4 = const 2.5; %5 = const -inf; %6 = select %3 %4 %5; %7 = int 3; %8 = mul %1 %7; %9 = cast f32 %8; %10 = max %6 %9; out 0 f32 [10,1] %10; out 1 bool [10,1] %2",
    "map [4,1,8]; %0 = in 0 f32 [8,99,1]; %1 = iota 1 +7; %2 = cast f32 %1; %3 = add %0 %2; out 0 f32 [8,8,1] %3",
    /* rope: two halves of a row, read and written with offsets */
    "map [3,5,4]; %0 = in 0 f32 [40,8,1]; %1 = in 0 f32 [40,8,1] +4; %2 = in 1 f32 [0,4,1]; %3 = cos %2; %4 = sin %2; %5 = mul %0 %3; %6 = mul %1 %4; %7 = sub %5 %6; %8 = mul %1 %3; %9 = mul %0 %4; %10 = add %8 %9; out 0 f32 [40,8,1] %7; out 0 f32 [40,8,1] +4 %10",
    /* AdamW with scalars as operands */
    "map [1003]; %0 = in 0 f32 [1]; %1 = in 1 f32 [1]; %2 = in 2 f32 [1]; %3 = in 3 f32 [1]; %4 = in 4 f32 [0]; %5 = const 0.9; %6 = const 0.1; %7 = const 0.999; %8 = const 0.001; %9 = mul %2 %5; %10 = mul %1 %6; %11 = add %9 %10; %12 = square %3; %13 = mul %12 %7; %14 = square %1; %15 = mul %14 %8; %16 = add %13 %15; %17 = sqrt %16; %18 = const 1e-3; %19 = add %17 %18; %20 = div %11 %19; %21 = const 0.01; %22 = mul %0 %21; %23 = add %20 %22; %24 = mul %23 %4; %25 = sub %0 %24; out 0 f32 [1] %25; out 1 f32 [1] %11; out 2 f32 [1] %16",
    /* rows: softmax, rms_norm, log-sum-exp, several stages and outputs, odd lengths */
    "row [6,1]; %0 = in 0 f32 [1,1]; %1 = max %0; %2 = sub %0 %1; %3 = exp %2; %4 = sum %3; %5 = div %3 %4; out 0 f32 [1,1] %5",
    "row [5,17]; %0 = in 0 f32 [17,1]; %1 = max %0; %2 = sub %0 %1; %3 = exp %2; %4 = sum %3; %5 = div %3 %4; %6 = log %4; %7 = add %6 %1; out 0 f32 [17,1] %5; out 1 f32 [1,0] %7",
    "row [3,769]; %0 = in 0 bf16 [769,1]; %1 = in 1 f32 [0,1]; %2 = square %0; %3 = sum %2; %4 = const 0.00130039; %5 = mul %3 %4; %6 = const 1e-5; %7 = add %5 %6; %8 = rsqrt %7; %9 = mul %0 %8; %10 = mul %9 %1; out 0 bf16 [769,1] %10; out 1 f32 [1,0] %8",
    "row [2,3,4097]; %0 = in 0 f32 [4097,8194,1]; %1 = sum %0; %2 = min %0; %3 = max %0; %4 = sub %3 %2; out 0 f32 [3,1,0] %1; out 1 f32 [1,2,0] %4",
    "row [4,9]; %0 = in 0 i32 [9,1]; %1 = sum %0; %2 = max %0; %3 = min %0; %4 = sub %2 %3; %5 = eq %0 %2; %6 = sum %5; out 0 i64 [1,0] %1; out 1 i32 [1,0] %4; out 2 u8 [1,0] %6; out 3 bool [9,1] %5",
    "row [2,0]; %0 = in 0 f32 [0,1]; %1 = sum %0; %2 = in 1 f32 [1,0]; %3 = add %1 %2; out 0 f32 [1,0] %3",
    "row [0,8]; %0 = in 0 f32 [8,1]; %1 = sum %0; out 0 f32 [1,0] %1",
    "row [3,40]; %0 = in 0 f32 [40,1]; %1 = iota 1; %2 = iota 0 +2; %3 = le %1 %2; %4 = const -inf; %5 = select %3 %0 %4; %6 = max %5; %7 = sub %5 %6; %8 = exp %7; %9 = sum %8; %10 = div %8 %9; out 0 f32 [40,1] %10",
    /* columns */
    "col [1,5]; %0 = in 0 f32 [5,1]; %1 = sum %0; out 0 f32 [0,1] %1",
    "col [131,67]; %0 = in 0 f32 [67,1]; %1 = in 1 f32 [67,1]; %2 = mul %0 %1; %3 = sum %2; %4 = sum %0; out 0 f32 [0,1] %3; out 1 f32 [0,1] %4",
    "col [70,3,300]; %0 = in 0 bf16 [900,300,1]; %1 = in 1 f32 [1,0,0]; %2 = in 2 f32 [0,1,0]; %3 = mul %0 %1; %4 = mul %3 %2; %5 = max %4; %6 = sub %4 %5; %7 = exp %6; %8 = sum %7; %9 = div %7 %8; out 0 f32 [900,300,1] %9; out 1 f32 [0,300,1] %8",
    "col [33,129]; %0 = in 0 i64 [129,1]; %1 = min %0; %2 = sum %0; %3 = iota 0; %4 = iota 1; %5 = mul %3 %4; %6 = sum %5; %7 = add %6 %2; out 0 i64 [0,1] %1; out 1 i64 [0,1] %7",
    "col [0,3]; %0 = in 0 f32 [3,1]; %1 = sum %0; out 0 f32 [0,1] %1",
    "col [9]; %0 = in 0 f32 [1]; %1 = prod %0; out 0 f32 [0] %1",
    "col [20,8]; %0 = in 0 f32 [1,20]; %1 = sum %0; %2 = in 1 f32 [0,1]; %3 = add %1 %2; %4 = mul %0 %3; out 0 f32 [1,20] %4; out 1 f32 [0,1] %3",
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static void parse(const char *text, loop *l) { CHECK_OK(loop_parse(text, strlen(text), "kernel", l)); }

static void run(const loop_kernel *k, data *d, pool *p) {
  size_t bytes = loop_scratch(k);
  void *scratch = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
  loop_run(k, (const void *const *)d->in, d->out, scratch, p);
  free(scratch);
}

static loop_module *module_of(loop_isa isa, bool interpret) {
  loop_module *m;
  if (loop_module_create(&(loop_options){.isa = isa, .interpret = interpret, .cache_dir = test_dir()},
                         &m)) {
    CHECK(strstr(err_message(), "CPU has no"));
    test_skip(err_message());
  }
  return m;
}

TEST(interpreted_kernels_agree_with_double) {
  loop_module *m = module_of(LOOP_ISA_BEST, true);
  for (int i = 0; i < KERNELS; i++) {
    loop l;
    loop_kernel *k;
    data d;
    parse(kernels[i], &l);
    CHECK_OK(loop_module_add(m, &l, &k));
    CHECK_OK(loop_module_build(m));
    data_make(&l, (uint32_t)i, false, &d);
    run(k, &d, NULL);
    check_reference(&l, &d, 2e-5);
    data_free(&d);
    loop_free(&l);
  }
  CHECK_EQ(loop_module_report(m).interpreted, KERNELS);
  loop_module_free(m);
}

static bool is_nan_element(hp_dtype t, const void *at, size_t i) {
  return dtype_is_float(t) && isnan(get(t, at, i));
}

/* Equal to the bit; any NaN is any other. */
static void check_same(const char *text, const data *a, const data *b) {
  for (int o = 0; o < OPERANDS; o++) {
    size_t size = dtype_size(a->out_type[o]);
    for (size_t i = 0; i < a->n_out[o]; i++) {
      const char *x = (const char *)a->out[o] + i * size, *y = (const char *)b->out[o] + i * size;
      if (!memcmp(x, y, size)) continue;
      if (is_nan_element(a->out_type[o], a->out[o], i) && is_nan_element(b->out_type[o], b->out[o], i))
        continue;
      test_fail(__FILE__, __LINE__, "out %d element %zu: %.9g and %.9g of\n%s", o, i,
                get(a->out_type[o], a->out[o], i), get(b->out_type[o], b->out[o], i), text);
    }
  }
}

static void check_isa(loop_isa isa, const char *const *text, int n, bool wild) {
  loop_module *m = module_of(isa, false), *plain = module_of(LOOP_ISA_BEST, true);
  loop_kernel **k = calloc((size_t)n, sizeof *k), **p = calloc((size_t)n, sizeof *p);
  loop *l = calloc((size_t)n, sizeof *l);
  CHECK(k && p && l);
  for (int i = 0; i < n; i++) {
    parse(text[i], &l[i]);
    CHECK_OK(loop_module_add(m, &l[i], &k[i]));
    CHECK_OK(loop_module_add(plain, &l[i], &p[i]));
  }
  CHECK_OK(loop_module_build(m));
  CHECK_OK(loop_module_build(plain));
  if (loop_module_report(m).interpreted) test_skip("no C compiler");
  CHECK_EQ(loop_module_report(m).kernels, n);
  for (int i = 0; i < n; i++) {
    data a, b;
    data_make(&l[i], (uint32_t)i * 77, wild, &a);
    data_make(&l[i], (uint32_t)i * 77, wild, &b);
    run(k[i], &a, NULL);
    run(p[i], &b, NULL);
    check_same(text[i], &a, &b);
    data_free(&a);
    data_free(&b);
    loop_free(&l[i]);
  }
  free(k);
  free(p);
  free(l);
  loop_module_free(m);
  loop_module_free(plain);
}

TEST(avx512_code_gives_the_bits_of_the_interpreter) { check_isa(LOOP_ISA_AVX512, kernels, KERNELS, true); }
TEST(avx2_code_gives_the_bits_of_the_interpreter) { check_isa(LOOP_ISA_AVX2, kernels, KERNELS, true); }
TEST(plain_code_gives_the_bits_of_the_interpreter) { check_isa(LOOP_ISA_PLAIN, kernels, KERNELS, true); }
