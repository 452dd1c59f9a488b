#include "test.h"

#include "base/philox.h"

/* The vectors that the authors publish with their code (Random123, kat_vectors). */
TEST(philox_gives_the_published_vectors) {
  static const uint32_t row[3][10] = {{0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c,
                                       0x9b00dbd8},
                                      {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
                                       0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                      {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822,
                                       0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
  for (int i = 0; i < 3; i++) {
    philox_block c;
    memcpy(c.at, row[i], sizeof c.at);
    c = philox_rounds(c, row[i][4], row[i][5]);
    for (int j = 0; j < 4; j++) CHECK_EQ(c.at[j], row[i][6 + j]);
  }
}

TEST(a_number_depends_on_seed_stream_and_index_alone) {
  for (uint64_t i = 0; i < 64; i++) {
    philox_block b = philox_get(5, 9, i / 4);
    CHECK_EQ(philox_u32(5, 9, i), b.at[i % 4]);
  }
  CHECK(philox_u32(5, 9, 3) != philox_u32(5, 10, 3));
  CHECK(philox_u32(5, 9, 3) != philox_u32(6, 9, 3));
  CHECK(philox_u32(5ull << 32, 9, 3) != philox_u32(5, 9, 3));
  CHECK(philox_u32(5, 9ull << 32, 3) != philox_u32(5, 9, 3));
  CHECK(philox_u32(5, 9, 1ull << 40) != philox_u32(5, 9, 0));
}

TEST(uniform_numbers_fill_the_half_open_unit_interval) {
  CHECK(philox_unit(0) == 0);
  CHECK(philox_unit(UINT32_MAX) < 1);
  double sum = 0, square = 0;
  const int n = 200000;
  for (int i = 0; i < n; i++) {
    double u = philox_uniform(1, 2, (uint64_t)i);
    CHECK(u >= 0 && u < 1);
    sum += u, square += u * u;
  }
  CHECK_NEAR(sum / n, 0.5, 0.003);
  CHECK_NEAR(square / n, 1.0 / 3, 0.003);
}

TEST(normal_numbers_have_the_moments_of_a_normal) {
  double sum[5] = {0};
  const int n = 400000;
  for (int i = 0; i < n; i++) {
    double x = philox_normal(3, 4, (uint64_t)i), y = 1;
    for (int k = 0; k < 5; k++) sum[k] += y, y *= x;
  }
  CHECK_NEAR(sum[1] / n, 0, 0.005);
  CHECK_NEAR(sum[2] / n, 1, 0.01);
  CHECK_NEAR(sum[3] / n, 0, 0.02);
  CHECK_NEAR(sum[4] / n, 3, 0.06);
}

TEST(normals_equal_the_formula_in_double) {
  const double pi = 3.14159265358979323846;
  uint32_t u = 0, v = 0;
  for (int i = 0; i < 100000; i++) {
    float got[2];
    philox_normals(u, v, got);
    double r = sqrt(-2 * log(((double)(float)u + 1) / 4294967296.0)), a = 2 * pi * v / 4294967296.0;
    CHECK_NEAR(got[0], r * cos(a), 2e-6);
    CHECK_NEAR(got[1], r * sin(a), 2e-6);
    u += 42949671u, v += 777767777u;
  }
  float got[2];
  philox_normals(0, 0, got); /* the largest radius */
  CHECK_NEAR(got[0], 6.66043, 1e-4);
  philox_normals(UINT32_MAX, 1u << 30, got); /* the smallest */
  CHECK_NEAR(got[1], 0, 1e-3);
}
