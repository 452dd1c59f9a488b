#include "test.h"

#include "base/dtype.h"

#include <math.h>

TEST(every_f16_and_bf16_value_survives_a_trip_through_f32) {
  for (unsigned h = 0; h < 65536; h++) {
    bool nan16 = (h & 0x7c00) == 0x7c00 && (h & 0x3ff);
    unsigned want = nan16 ? h | 0x200 : h;
    CHECK_EQ(f32_to_f16(f16_to_f32((uint16_t)h)), want);
    bool nanb = (h & 0x7f80) == 0x7f80 && (h & 0x7f);
    CHECK_EQ(f32_to_bf16(bf16_to_f32((uint16_t)h)), nanb ? h | 0x40 : h);
    if (!nan16) {
      int e = (int)(h >> 10 & 31);
      double m = h & 0x3ff, v = e == 31 ? INFINITY : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
      CHECK((double)f16_to_f32((uint16_t)h) == (h & 0x8000 ? -v : v));
    }
  }
}

/* The nearest 16-bit value, ties to even, found by comparing with both neighbours in double. */
static void check_rounding(uint16_t below, float (*up)(uint16_t), uint16_t (*down)(float)) {
  double a = (double)up(below), b = (double)up((uint16_t)(below + 1)), mid = (a + b) / 2;
  float m = (float)mid;
  CHECK((double)m == mid);
  CHECK_EQ(down(m), below & 1 ? below + 1 : below);
  CHECK_EQ(down(nextafterf(m, 0)), below);
  CHECK_EQ(down(nextafterf(m, INFINITY)), below + 1);
  CHECK_EQ(down(-m), (below & 1 ? below + 1 : below) | 0x8000);
}

TEST(narrowing_rounds_to_nearest_even_at_every_midpoint) {
  for (unsigned h = 0; h < 0x7bff; h++) check_rounding((uint16_t)h, f16_to_f32, f32_to_f16);
  for (unsigned h = 0; h < 0x7f7f; h++) check_rounding((uint16_t)h, bf16_to_f32, f32_to_bf16);
  CHECK_EQ(f32_to_f16(65519.996f), 0x7bff);
  CHECK_EQ(f32_to_f16(65520.0f), 0x7c00);
  CHECK_EQ(f32_to_f16(-1e30f), 0xfc00);
  CHECK_EQ(f32_to_f16(1e-30f), 0);
  CHECK_EQ(f32_to_bf16(3.4e38f), 0x7f80);
  CHECK(isnan(f16_to_f32(f32_to_f16(NAN))));
  CHECK(isnan(bf16_to_f32(f32_to_bf16(f32_from_bits(0x7f800001u)))));
}

TEST(arrays_convert_between_all_floating_types_unaligned) {
  static const double x[] = {0, -0.0, 1, -2.5, 1e-8, 65504, 3.0e38, INFINITY, 0.333333333333};
  enum { N = sizeof x / sizeof *x };
  static const hp_dtype types[] = {HP_F32, HP_BF16, HP_F16};
  char a[N * 4 + 1], b[N * 4 + 1];
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) {
      float f[N];
      double one[N];
      CHECK_OK(dtype_from_f64(types[i], a + 1, x, N));
      CHECK_OK(dtype_convert(HP_F32, f, types[i], a + 1, N));
      for (int k = 0; k < N; k++) one[k] = (double)f[k];
      CHECK_OK(dtype_convert(types[j], b + 1, types[i], a + 1, N));
      CHECK_OK(dtype_from_f64(types[j], a + 1, one, N));
      CHECK(!memcmp(a + 1, b + 1, N * dtype_size(types[j])));
      CHECK_OK(dtype_convert(HP_F32, f, types[j], b + 1, N));
      for (int k = 0; k < N; k++) CHECK(!signbit(f[k]) == !signbit(x[k]));
    }
  CHECK_FAILS(dtype_convert(HP_I32, a, HP_F32, b, 1), "f32 to i32");
  CHECK_FAILS(dtype_from_f64(HP_I64, a, x, 1), "i64");
  CHECK_OK(dtype_convert(HP_I64, a, HP_I64, b, 2));
  CHECK_OK(dtype_convert(HP_F16, NULL, HP_F32, NULL, 0));
}

TEST(dtype_words_of_other_programs_are_read) {
  static const struct {
    const char *word;
    hp_dtype want;
  } row[] = {{"float32", HP_F32},
             {"F32", HP_F32},
             {"fp32", HP_F32},
             {"float", HP_F32},
             {"BF16", HP_BF16},
             {"bf16", HP_BF16},
             {"torch.bfloat16", HP_BF16},
             {"bfloat16", HP_BF16},
             {"half", HP_F16},
             {"F16", HP_F16},
             {"float16", HP_F16},
             {"int64", HP_I64},
             {"I32", HP_I32},
             {"BOOL", HP_BOOL},
             {"uint8", HP_U8},
             {"U8", HP_U8}};
  hp_dtype t;
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    CHECK(dtype_parse(row[i].word, &t));
    CHECK_EQ(t, row[i].want);
  }
  for (int i = 0; i < HP_DTYPE_COUNT; i++) {
    CHECK(dtype_parse(dtype_name((hp_dtype)i), &t) && t == (hp_dtype)i);
    CHECK(dtype_parse(dtype_long_name((hp_dtype)i), &t) && t == (hp_dtype)i);
    CHECK(dtype_size((hp_dtype)i) >= 1);
  }
  CHECK(!dtype_parse("", &t) && !dtype_parse("float31", &t) && !dtype_parse("torch.", &t));
}
