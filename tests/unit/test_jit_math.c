/* The functions of math.def against libm in long double, at their ends, and as vector code. */
#include "test.h"

#include "base/dtype.h"
#include "base/io.h"
#include "codegen/loop_c.h"
#include "codegen/loop_expr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOP_FN(...) __VA_ARGS__
#include "codegen/math.def"

/* Distance in units of the last place of the nearest float. */
static double ulps(float got, long double want) {
  if (isnan(got) || isnan((double)want)) return isnan(got) && isnan((double)want) ? 0 : INFINITY;
  if (isinf(got) || isinf((float)want)) return got == (float)want ? 0 : INFINITY;
  int e;
  (void)frexpl(want, &e);
  return (double)fabsl(((long double)got - want) / ldexpl(1, (e < -125 ? -125 : e) - 24));
}

static long double sigmoid_l(long double x) { return 1 / (1 + expl(-x)); }
static long double silu_l(long double x) { return x / (1 + expl(-x)); }
static long double softplus_l(long double x) { return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x))); }
static long double gelu_l(long double x) { return 0.5L * x * erfcl(-x * sqrtl(0.5L)); }
static long double gelu_tanh_l(long double x) {
  return 0.5L * x * (1 + tanhl(sqrtl(2 / M_PIl) * (x + 0.044715L * x * x * x)));
}

TEST(own_functions_are_accurate_to_a_few_units_of_the_last_place) {
  static const struct {
    const char *name;
    float (*own)(float);
    long double (*exact)(long double);
    float low, high;
    double limit;
  } row[] = {{"exp", hp_exp, expl, -86.9f, 88.72f, 1.1},
             {"exp2", hp_exp2, exp2l, -125.4f, 127.99f, 2},
             {"log", hp_log, logl, 1e-45f, 3.4e38f, 0.9},
             {"log near 1", hp_log, logl, 0.7f, 1.4f, 0.9},
             {"log1p", hp_log1p, log1pl, -0.9999999f, 3.4e38f, 1.5},
             {"log1p near 0", hp_log1p, log1pl, -0.5f, 1, 1.5},
             {"softplus", hp_softplus, softplus_l, -86, 3.4e38f, 2.5},
             {"tanh", hp_tanh, tanhl, -20, 20, 1.4},
             {"erf", hp_erf, erfl, -6, 6, 2.1},
             {"sin", hp_sin, sinl, -1.3e8f, 1.3e8f, 1.6},
             {"cos", hp_cos, cosl, -1.3e8f, 1.3e8f, 1.6},
             {"sigmoid", hp_sigmoid, sigmoid_l, -20, 80, 4},
             {"silu", hp_silu, silu_l, -20, 80, 4},
             {"gelu", hp_gelu, gelu_l, -2, 30, 8},
             {"gelu_tanh", hp_gelu_tanh, gelu_tanh_l, -2, 30, 8}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    double worst = 0;
    float at = 0;
    for (uint64_t u = 0; u < 0xffffffffu; u += 30011) {
      float x = f32_from_bits((uint32_t)u);
      if (!(x >= row[i].low && x <= row[i].high)) continue;
      double off = ulps(row[i].own(x), row[i].exact((long double)x));
      if (off > worst) {
        worst = off;
        at = x;
      }
    }
    if (!(worst <= row[i].limit))
      test_fail(__FILE__, __LINE__, "%s(%.9g) = %.9g is off by %.2f units, limit %.2f", row[i].name,
                (double)at, (double)row[i].own(at), worst, row[i].limit);
  }
}

TEST(tails_of_gelu_keep_a_small_absolute_error) {
  for (float x = -30; x < 0; x += 0.0137f) {
    CHECK_NEAR(hp_gelu(x), (double)gelu_l((long double)x), 4e-8);
    CHECK_NEAR(hp_gelu_tanh(x), (double)gelu_tanh_l((long double)x), 1e-7);
  }
}

static const float ends[] = {0.0f,   -0.0f,  1,           -1,       2,         -2,   3,
                             -3,     0.5f,   -0.5f,       INFINITY, -INFINITY, NAN,  1e30f,
                             -1e30f, 1e-30f, 16777217.0f, 1e-45f,   -1e-45f,   1.5f, -1.5f};
enum { ENDS = sizeof ends / sizeof *ends };

TEST(functions_are_right_at_their_ends) {
  CHECK(hp_exp(-INFINITY) == 0 && hp_exp(INFINITY) == INFINITY && isnan(hp_exp(NAN)));
  CHECK(hp_exp(88.8f) == INFINITY && hp_exp(-104) == 0 && hp_exp(0) == 1 && hp_exp(-0.0f) == 1);
  CHECK(hp_exp2(-INFINITY) == 0 && hp_exp2(INFINITY) == INFINITY && isnan(hp_exp2(NAN)));
  CHECK(hp_exp2(128) == INFINITY && hp_exp2(-126) == 0 && hp_exp2(0) == 1 && hp_exp2(-3) == 0.125f);
  CHECK(hp_log(0) == -INFINITY && hp_log(-0.0f) == -INFINITY && hp_log(INFINITY) == INFINITY);
  CHECK(isnan(hp_log(-1)) && isnan(hp_log(-INFINITY)) && isnan(hp_log(NAN)) && hp_log(1) == 0);
  CHECK(hp_log1p(-1) == -INFINITY && isnan(hp_log1p(-2)) && isnan(hp_log1p(NAN)));
  CHECK(hp_log1p(INFINITY) == INFINITY && signbit(hp_log1p(-0.0f)) && hp_log1p(1e-40f) == 1e-40f);
  CHECK(hp_softplus(INFINITY) == INFINITY && hp_softplus(-INFINITY) == 0 &&
        isnan(hp_softplus(NAN)));
  CHECK(hp_tanh(INFINITY) == 1 && hp_tanh(-INFINITY) == -1 && isnan(hp_tanh(NAN)));
  CHECK(signbit(hp_tanh(-0.0f)) && hp_tanh(1e-45f) == 1e-45f && hp_tanh(100) == 1);
  CHECK(hp_erf(INFINITY) == 1 && hp_erf(-INFINITY) == -1 && isnan(hp_erf(NAN)) && hp_erf(0) == 0);
  CHECK(isnan(hp_sin(INFINITY)) && isnan(hp_cos(-INFINITY)) && isnan(hp_sin(NAN)) &&
        hp_cos(0) == 1);
  for (float x = 1e8f; x < 3e38f; x *= 1.7f) CHECK(fabsf(hp_sin(x)) <= 1 && fabsf(hp_cos(x)) <= 1);
  CHECK(hp_silu(INFINITY) == INFINITY && hp_silu(-1e30f) == 0 && isnan(hp_silu(NAN)));
  CHECK(hp_sigmoid(INFINITY) == 1 && hp_sigmoid(-INFINITY) == 0 && isnan(hp_sigmoid(NAN)));
  CHECK(hp_gelu(INFINITY) == INFINITY && hp_gelu(-1e30f) == 0 && hp_gelu_tanh(-1e30f) == 0);
  CHECK(isnan(hp_max(NAN, 1)) && isnan(hp_max(1, NAN)) && isnan(hp_min(NAN, 1)) &&
        hp_max(1, 2) == 2);
  for (int i = 0; i < ENDS; i++)
    for (int j = 0; j < ENDS; j++) {
      float a = ends[i], b = ends[j], got = hp_pow(a, b);
      if (ulps(got, powl((long double)a, (long double)b)) > 1 ||
          (!isnan(got) && !signbit(got) != !signbit(powf(a, b))))
        test_fail(__FILE__, __LINE__, "pow(%g, %g) = %g, want %g", (double)a, (double)b,
                  (double)got, (double)powf(a, b));
      float r = fmodf(a, b);
      if (r != 0 && (r < 0) != (b < 0)) r += b;
      got = hp_mod(a, b);
      if (fabsf(a / b) < 5e8f && ulps(got, (long double)r) > 0)
        test_fail(__FILE__, __LINE__, "mod(%g, %g) = %g, want %g", (double)a, (double)b,
                  (double)got, (double)r);
    }
}

TEST(powers_are_nearly_correctly_rounded) {
  uint32_t seed = 1;
  for (int i = 0; i < 100000; i++) {
    seed = seed * 1664525u + 1013904223u;
    float a = hp_exp((float)(seed >> 8) / 16777216 * 40 - 20);
    seed = seed * 1664525u + 1013904223u;
    float b = ((float)(seed >> 8) / 16777216 - 0.5f) * 8;
    CHECK(ulps(hp_pow(a, b), powl((long double)a, (long double)b)) < 0.52);
  }
}

TEST(element_types_convert_as_everywhere_else) {
  for (uint32_t h = 0; h < 65536; h++) {
    CHECK_EQ(hp_bits(hp_load_bf16((uint16_t)h)), f32_bits(bf16_to_f32((uint16_t)h)));
    CHECK_EQ(hp_bits(hp_load_f16((uint16_t)h)), f32_bits(f16_to_f32((uint16_t)h)));
  }
  for (uint64_t u = 0; u < 0xffffffffu; u += 4099) {
    float x = f32_from_bits((uint32_t)u);
    CHECK_EQ(hp_store_bf16(x), f32_to_bf16(x));
    CHECK_EQ(hp_store_f16(x), f32_to_f16(x));
  }
  CHECK_EQ(hp_to_int(NAN), 0);
  CHECK_EQ(hp_to_int(1e30f), INT64_MAX);
  CHECK_EQ(hp_to_int(-1e30f), INT64_MIN);
  CHECK_EQ(hp_to_int(-2.9f), -2);
  CHECK_EQ(hp_div_int(INT64_MIN, -1), INT64_MIN);
  CHECK_EQ(hp_div_int(7, 0), 0);
  CHECK_EQ(hp_mod_int(-7, 3), 2);
  CHECK_EQ(hp_mod_int(7, -3), -2);
  CHECK_EQ(hp_mod_int(INT64_MIN, -1), 0);
}

/* --- vector code ------------------------------------------------------------------------------ */

/* Adds a kernel's C to a file. */
static void add_kernel(const char *text, str *source, int n) {
  loop l;
  loop_plan p;
  CHECK_OK(loop_parse(text, strlen(text), "kernel", &l));
  CHECK_OK(plan_create(&l, &p));
  str_printf(source, "void k%d", n);
  loop_c_print(&p, source);
  plan_free(&p);
  loop_free(&l);
}

/* gcc must say of every line with a loop over elements, from character `from` on, that it is vector
 * code. */
static void check_vectorised(const str *source, size_t from) {
  char path[512], log[512], command[2048];
  snprintf(path, sizeof path, "%s/k.c", test_dir());
  snprintf(log, sizeof log, "%s/vec.txt", test_dir());
  CHECK_OK(file_write(path, source->at, source->len));
  snprintf(
      command, sizeof command,
      "gcc -std=gnu11 -O2 -ftree-vectorize -fvect-cost-model=dynamic -w -fPIC -shared "
      "-ffp-contract=off -fno-math-errno -fno-trapping-math -fno-strict-aliasing -fwrapv -mavx2 "
      "-mfma -fno-tree-loop-distribute-patterns -fopt-info-vec-optimized=%s -o /dev/null %s "
      "2>/dev/null",
      log, path);
  if (system("command -v gcc >/dev/null 2>&1") || system(command)) test_skip("no gcc for x86-64");
  char *said;
  size_t n;
  int line = 1;
  CHECK_OK(file_read(log, 0, &said, &n));
  for (const char *at = source->at; *at; line++) {
    const char *end = strchr(at, '\n'), *found = strstr(at, "IVDEP for");
    char want[32];
    snprintf(want, sizeof want, "k.c:%d:", line);
    if (found && found < end && found >= source->at + from && !strstr(said, want))
      test_fail(__FILE__, __LINE__, "not vectorised: %.*s in\n%.*s", (int)(end - at), at, 900,
                at - 700);
    at = end + 1;
  }
  mem_free(said);
}

TEST(every_float_op_becomes_vector_code) {
  str source = {0}, text = {0};
  loop_c_preamble(&source);
  const size_t from = source.len; /* what no kernel uses is not compiled */
  for (int i = 0; i < loop_expr_count(); i++) {
    const loop_expr *e = loop_expr_row(i);
    if (e->arg[0] != LOOP_FLOAT || e->cls != LOOP_FLOAT) continue;
    str_clear(&text);
    str_printf(&text,
               "map [9]; %%0 = in 0 f32 [1]; %%1 = in 1 f32 [1]; %%2 = %s %%0%s; "
               "out 0 f32 [1] %%2",
               e->name, e->n > 1 ? " %1" : "");
    add_kernel(text.at, &source, i);
  }
  check_vectorised(&source, from);
  str_free(&source);
  str_free(&text);
}

TEST(kernels_of_models_become_vector_code) {
  static const char *const kernels[] =
      {"row [8,99]; %0 = in 0 f32 [99,1]; %1 = in 1 f32 [99,1]; %2 = add %0 %1; %3 = square %2; %4 "
       "= sum %3; %5 = rsqrt %4; %6 = mul %2 %5; %7 = silu %6; out 0 f32 [99,1] %7",
       "row [8,99]; %0 = in 0 bf16 [99,1]; %1 = max %0; %2 = sub %0 %1; %3 = exp %2; %4 = sum %3; "
       "%5 = div %3 %4; out 0 bf16 [99,1] %5",
       "row [40,40]; %0 = in 0 f32 [40,1]; %1 = iota 1; %2 = iota 0; %3 = le %1 %2; %4 = const "
       "-inf; %5 = select %3 %0 %4; %6 = max %5; out 0 f32 [1,0] %6",
       "col [64,99]; %0 = in 0 f32 [99,1]; %1 = in 1 f32 [1,0]; %2 = mul %0 %1; %3 = sum %2; out 0 "
       "f32 [0,1] %3",
       "map [99]; %0 = in 0 f32 [1]; %1 = in 1 bf16 [1]; %2 = in 2 f32 [0]; %3 = mul %1 %2; %4 = "
       "sub %0 %3; out 0 f32 [1] %4; out 1 bf16 [1] %4",
       "map [99]; %0 = in 0 f16 [1]; %1 = silu %0; %2 = mul %1 %0; out 0 f16 [1] %2"};
  str source = {0};
  loop_c_preamble(&source);
  for (int i = 0; i < 6; i++) add_kernel(kernels[i], &source, i);
  check_vectorised(&source, 0);
  str_free(&source);
}
