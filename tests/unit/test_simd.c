#include "test.h"

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/simd_probe.h"
#include "base/dtype.h"

#include <math.h>
#include <stdlib.h>

enum { N = 4096 };

typedef struct {
  probe_op op;
  double (*f)(double);
  double ulp;
} reference;

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static const reference refs[] = {{PROBE_EXP, exp, 1},          {PROBE_EXP2, exp2, 2},
                                 {PROBE_EXP2_HALF, exp2, 48},  {PROBE_LOG, log, 1},
                                 {PROBE_TANH, tanh, 1.5},      {PROBE_ERF, erf, 1.5},
                                 {PROBE_SIGMOID, sigmoid, 2.5}};

/* Equal bits, or both NaN. */
static bool same(float a, float b) { return f32_bits(a) == f32_bits(b) || (a != a && b != b); }

static double ulps_off(float got, double want) {
  float w = (float)want;
  if (isnan(w) || isnan(got)) return isnan(w) == isnan(got) ? 0 : 1e9;
  if (isinf(w) || isinf(got)) return w == got ? 0 : 1e9;
  int e;
  frexp(want, &e);
  return fabs(got - want) / ldexp(1, (e < -125 ? -125 : e) - 24);
}

TEST(own_functions_have_the_promised_error_and_the_same_bits_on_every_isa) {
  static float x[N], y[ISA_COUNT][N];
  for (size_t k = 0; k < sizeof refs / sizeof *refs; k++) {
    for (uint64_t u = 0; u < 1ull << 32; u += (uint64_t)N * 9973) {
      for (int i = 0; i < N; i++) x[i] = f32_from_bits((uint32_t)(u + (uint64_t)i * 9973));
      for (int isa = 0; isa < ISA_COUNT; isa++)
        if (cpu_has_isa((cpu_isa)isa)) simd_probe[isa](refs[k].op, x, NULL, NULL, y[isa], N);
      for (int i = 0; i < N; i++) {
        double off = ulps_off(y[0][i], refs[k].f(x[i]));
        if (off > refs[k].ulp)
          test_fail(__FILE__, __LINE__, "function %d of %a is %a: off by %g ulp", refs[k].op,
                    (double)x[i], (double)y[0][i], off);
        for (int isa = 1; isa < ISA_COUNT; isa++)
          if (cpu_has_isa((cpu_isa)isa)) CHECK(same(y[isa][i], y[0][i]));
      }
    }
  }
}

TEST(own_functions_are_exact_where_kernels_rely_on_it) {
  const float x[16] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1, 0x1p-149f, -1, 88.8f, -104.5f};
  float y[16];
  for (int isa = 0; isa < ISA_COUNT; isa++) {
    if (!cpu_has_isa((cpu_isa)isa)) continue;
    simd_probe[isa](PROBE_EXP, x, NULL, NULL, y, 16);
    CHECK(y[0] == 1 && y[1] == 1 && y[2] == INFINITY && y[3] == 0 && isnan(y[4]));
    CHECK(y[8] == INFINITY && y[9] == 0);
    for (int half = 0; half < 2; half++) {
      simd_probe[isa](half ? PROBE_EXP2_HALF : PROBE_EXP2, x, NULL, NULL, y, 16);
      CHECK(y[0] == 1 && y[1] == 1 && y[2] == INFINITY && y[3] == 0 && isnan(y[4]));
    }
    simd_probe[isa](PROBE_LOG, x, NULL, NULL, y, 16);
    CHECK(y[0] == -INFINITY && y[2] == INFINITY && isnan(y[3]) && isnan(y[4]) && y[5] == 0);
    CHECK_NEAR(y[6], log(0x1p-149), 1e-5);
    CHECK(isnan(y[7]));
    simd_probe[isa](PROBE_TANH, x, NULL, NULL, y, 16);
    CHECK(y[2] == 1 && y[3] == -1 && isnan(y[4]) && signbit(y[1]));
    simd_probe[isa](PROBE_ERF, x, NULL, NULL, y, 16);
    CHECK(y[2] == 1 && y[3] == -1 && isnan(y[4]) && signbit(y[1]));
  }
}

TEST(basic_operations_equal_scalar_c_on_every_isa) {
  static float a[N], b[N], c[N], y[N];
  unsigned seed = 7;
  for (int i = 0; i < N; i++) {
    a[i] = (float)rand_r(&seed) / 1e9f - 1, b[i] = (float)rand_r(&seed) / 1e9f - 1;
    c[i] = (float)rand_r(&seed) * (i % 3 ? 1e-9f : 1e-20f);
  }
  b[5] = NAN, a[6] = NAN;
  for (int isa = 0; isa < ISA_COUNT; isa++) {
    if (!cpu_has_isa((cpu_isa)isa)) continue;
    simd_probe[isa](PROBE_FMA, a, b, c, y, N);
    for (int i = 0; i < N; i++) CHECK(same(y[i], fmaf(a[i], b[i], c[i])));
    simd_probe[isa](PROBE_FNMA, a, b, c, y, N);
    for (int i = 0; i < N; i++) CHECK(same(y[i], fmaf(-a[i], b[i], c[i])));
    simd_probe[isa](PROBE_MAX, a, b, c, y, N);
    for (int i = 0; i < N; i++) CHECK(same(y[i], a[i] > b[i] ? a[i] : b[i]));
    simd_probe[isa](PROBE_SUM, a + 16, NULL, NULL, y, N - 16);
    for (int i = 0; i + 16 < N; i += 16) {
      float s[16];
      memcpy(s, a + 16 + i, sizeof s);
      for (int w = 8; w; w /= 2)
        for (int j = 0; j < w; j++) s[j] += s[j + w];
      CHECK(same(y[i], s[0]));
    }
  }
}

TEST(narrow_floats_convert_like_the_scalar_functions) {
  static uint16_t all[65536], back[65536];
  static float x[65536];
  for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
  for (int isa = 0; isa < ISA_COUNT; isa++) {
    if (!cpu_has_isa((cpu_isa)isa)) continue;
    for (int t = 0; t < 2; t++) {
      simd_probe_narrow[isa](t ? HP_F16 : HP_BF16, all, x, back, 65536);
      for (int i = 0; i < 65536; i++) {
        CHECK(same(x[i], t ? f16_to_f32(all[i]) : bf16_to_f32(all[i])));
        /* the probe narrows x * (1 + 2^-9): a value that must be rounded */
        float v = x[i] * 0x1.008p0f;
        CHECK_EQ(back[i], t ? f32_to_f16(v) : f32_to_bf16(v));
      }
    }
  }
}

TEST(parts_of_vectors_of_narrow_floats_touch_nothing_else) {
  uint16_t h[16], back[17];
  float x[16];
  for (int i = 0; i < 16; i++) h[i] = (uint16_t)(0x3f80 + i);
  for (int isa = 0; isa < ISA_COUNT; isa++) {
    if (!cpu_has_isa((cpu_isa)isa)) continue;
    for (int n = 1; n <= 16; n++)
      for (int t = 0; t < 2; t++) {
        memset(back, 0xff, sizeof back);
        simd_probe_narrow[isa](t ? HP_F16 : HP_BF16, h, x, back, n);
        for (int i = 0; i < 16; i++) {
          float v = t ? f16_to_f32(h[i]) : bf16_to_f32(h[i]), up = v * 0x1.008p0f;
          CHECK(same(x[i], i < n ? v : 0));
          CHECK_EQ(back[i], i >= n ? 0xffff : t ? f32_to_f16(up) : f32_to_bf16(up));
        }
        CHECK_EQ(back[16], 0xffff);
      }
  }
}

TEST(the_isa_can_be_lowered_by_the_environment) {
  setenv("HYPER_ISA", "plain", 1);
  CHECK_EQ(cpu_best_isa(), ISA_PLAIN);
  CHECK_OK(cpu_isa_check());
  setenv("HYPER_ISA", "avx2", 1);
  CHECK(cpu_best_isa() <= ISA_AVX2);
  setenv("HYPER_ISA", "avx512", 1);
  CHECK(cpu_best_isa() <= ISA_AVX512);
  setenv("HYPER_ISA", "sse9", 1);
  CHECK_FAILS(cpu_isa_check(), "sse9");
  CHECK(cpu_has_isa(cpu_best_isa()));
  CHECK_STR(cpu_isa_name(ISA_AVX512_BF16), "avx512bf16");
}
