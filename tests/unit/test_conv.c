/* Convolutions against a scalar loop with the same chains: the same bits whatever sizes, threads
 * and instruction set are. */
#include "test.h"

#include "backend/cpu/conv/conv.h"
#include "backend/cpu/gemm/gemm.h"
#include "base/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* batch, in, out, groups, size, kernel, stride, pad, dilation */
#define SPEC(N, C, O, G, H, W, KH, KW, SH, SW, PH, PW, DH, DW)                                     \
  {                                                                                                \
    .batch = N, .in = C, .out = O, .groups = G, .size = {H, W}, .kernel = {KH, KW},                \
    .stride = {SH, SW}, .pad = {PH, PW}, .dilation = {DH, DW}, .type = HP_F32                      \
  }
enum { FAR = 1 << 18 };
static const conv_spec specs[] = {
    SPEC(2, 3, 5, 1, 7, 9, 3, 3, 1, 1, 1, 1, 1, 1), /* the usual */
    SPEC(5, 1, 6, 1, 28, 28, 5, 5, 1, 1, 2, 2, 1, 1),
    SPEC(3, 6, 16, 1, 14, 14, 5, 5, 1, 1, 0, 0, 1, 1),
    SPEC(1, 130, 40, 1, 9, 11, 3, 3, 1, 1, 1, 1, 1, 1), /* chains of more than one block */
    SPEC(2, 20, 300, 1, 5, 6, 1, 1, 1, 1, 0, 0, 1, 1),  /* blocks of rows */
    SPEC(1, 9, 33, 1, 1, 700, 1, 5, 1, 1, 0, 2, 1, 1),  /* one spatial dim, cut into boxes */
    SPEC(3, 8, 8, 8, 13, 17, 3, 3, 1, 1, 1, 1, 1, 1),   /* depthwise */
    SPEC(2, 12, 20, 4, 10, 9, 3, 2, 2, 3, 1, 0, 1, 2),  /* groups, strides, dilation */
    SPEC(2, 4, 3, 1, 12, 12, 2, 2, 3, 3, 0, 0, 1, 1),   /* places that no tap reads */
    SPEC(2, 4, 9, 1, 12, 12, 1, 1, 2, 2, 0, 0, 1, 1),
    SPEC(1, 2, 11, 1, 16, 15, 3, 3, 2, 2, 5, 4, 2, 2),  /* dilation and stride in step */
    SPEC(1, 1, 2, 1, 40, 40, 33, 34, 1, 1, 0, 0, 1, 1), /* more taps than a block has steps */
    SPEC(40, 2, 3, 1, 3, 3, 2, 2, 1, 1, 0, 0, 1, 1),    /* boxes of several images */
    SPEC(9, 4, 40, 1, 24, 24, 3, 3, 1, 1, 1, 1, 1, 1), /* dw in parts, spread over threads or not */
    SPEC(0, 2, 3, 1, 3, 3, 2, 2, 1, 1, 0, 0, 1, 1),
    /* taps far apart next to the box: by rows, columns, both; with strides and groups */
    SPEC(3, 8, 5, 1, 4, 4, 2, 2, 1, 1, FAR, FAR, 2 * FAR, 2 * FAR),
    SPEC(2, 4, 20, 2, 5, 9, 2, 3, 1, 1, FAR, 1, 2 * FAR, 1),
    SPEC(2, 3, 20, 1, 30, 31, 3, 3, 2, 3, 45, 40, 50, 37),
    SPEC(1, 2, 18, 1, 1, 600, 1, 3, 1, 2, 0, 812, 1, 900),
    /* taps that read places of their own, in groups that go alike */
    SPEC(2, 3, 4, 1, 20, 21, 5, 5, 5, 5, 0, 0, 1, 1),
    SPEC(2, 2, 3, 1, 17, 23, 7, 6, 7, 6, 3, 2, 1, 1),
    SPEC(1, 3, 5, 1, 40, 40, 4, 4, 7, 7, 1, 0, 1, 1),
    SPEC(1, 2, 3, 1, 30, 40, 6, 5, 9, 11, 2, 3, 4, 3),
    SPEC(2, 6, 4, 2, 12, 40, 3, 1, 3, 2, 1, 0, 1, 1),
    SPEC(1, 2, 20, 1, 60, 70, 17, 33, 16, 32, 8, 5, 1, 1),
    SPEC(1, 4, 9, 1, 1, 90, 1, 40, 1, 45, 0, 3, 1, 1),
};
enum { SPECS = sizeof specs / sizeof *specs };
enum { TRIES = 100 };

/* False where the kernel does not fit. */
static bool set_result(conv_spec *s) {
  for (int d = 0; d < 2; d++) {
    int64_t room = s->size[d] + 2 * s->pad[d] - s->dilation[d] * (s->kernel[d] - 1) - 1;
    if (room < 0) return false;
    s->result[d] = room / s->stride[d] + 1;
  }
  return true;
}

static conv_spec spec_get(int i) {
  conv_spec s = specs[i];
  HP_ASSERT(set_result(&s));
  return s;
}
/* x, w, y of a spec; where a is the operand of a pass. */
typedef struct {
  int64_t x, w, y;
} counts;
static counts counts_of(const conv_spec *s) {
  return (counts){s->batch * s->in * s->size[0] * s->size[1],
                  s->out * (s->in / s->groups) * s->kernel[0] * s->kernel[1],
                  s->batch * s->out * s->result[0] * s->result[1]};
}

static float *numbers(int64_t n, uint32_t seed) {
  float *x = malloc((size_t)(n + 1) * sizeof *x);
  HP_ASSERT(x);
  for (int64_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    x[i] = (float)(seed >> 8) / 8388608 - 1;
  }
  return x;
}

/* Element of x that position (i, j) reads with tap (u, v), -1: padding. */
static int64_t place_of(const conv_spec *s, int64_t n, int64_t c, int64_t i, int64_t j, int64_t u,
                        int64_t v) {
  int64_t h = i * s->stride[0] + u * s->dilation[0] - s->pad[0];
  int64_t l = j * s->stride[1] + v * s->dilation[1] - s->pad[1];
  if (h < 0 || h >= s->size[0] || l < 0 || l >= s->size[1]) return -1;
  return ((n * s->in + c) * s->size[0] + h) * s->size[1] + l;
}

/* All products, in the order of the chains of each pass: k is channel, row, column of the kernel.
 */
static void scalar(const conv_spec *s, conv_way way, const float *a, const float *b, float *out) {
  int64_t per = s->in / s->groups, outs = s->out / s->groups, pixels = s->result[0] * s->result[1];
  for (int64_t n = 0; n < s->batch; n++)
    for (int64_t o = 0; o < s->out; o++)
      for (int64_t k = 0; k < per * s->kernel[0] * s->kernel[1]; k++)
        for (int64_t p = 0; p < pixels; p++) {
          int64_t v = k % s->kernel[1], u = k / s->kernel[1] % s->kernel[0];
          int64_t c = o / outs * per + k / s->kernel[1] / s->kernel[0];
          int64_t x = place_of(s, n, c, p / s->result[1], p % s->result[1], u, v);
          int64_t w = o * per * s->kernel[0] * s->kernel[1] + k, y = (n * s->out + o) * pixels + p;
          if (way == CONV_FORWARD) out[y] = fmaf(b[w], x < 0 ? 0 : a[x], out[y]);
          else if (way == CONV_DX && x >= 0) out[x] = fmaf(b[w], a[y], out[x]);
          else if (way == CONV_DW) out[w] += x < 0 ? 0 : a[x] * b[y];
        }
}

static float *run(cpu_isa isa, pool *threads, const conv_spec *s, conv_way way, const float *a,
                  const float *b, int64_t n) {
  size_t bytes;
  float *out = numbers(n, 99);
  CHECK_OK(conv_work(isa, s, way, pool_size(threads), &bytes));
  void *work = NULL;
  HP_ASSERT(!posix_memalign(&work, GEMM_ALIGN, bytes + 1));
  memset(work, 0xff, bytes); /* NaN, where a kernel reads what it has not written */
  conv_run(isa, threads, s, way, a, b, out, work);
  free(work);
  return out;
}

/* y and dx to the bit, dw within the rounding of its sums; every set and number of threads alike.
 */
static void check_pass(const conv_spec *s, int at, conv_way way) {
  counts c = counts_of(s);
  float *a = numbers(way == CONV_DX ? c.y : c.x, 1), *b = numbers(way == CONV_DW ? c.y : c.w, 2);
  int64_t n = way == CONV_FORWARD ? c.y : way == CONV_DX ? c.x : c.w;
  float *want = calloc((size_t)n + 1, sizeof *want), *first = NULL;
  scalar(s, way, a, b, want);
  for (int isa = 0; isa <= ISA_AVX512; isa++)
    for (int threads = 1; threads <= 3; threads += 2) {
      pool *p;
      if (!cpu_has_isa((cpu_isa)isa)) continue;
      CHECK_OK(pool_create(threads, false, &p));
      float *got = run((cpu_isa)isa, p, s, way, a, b, n);
      for (int64_t i = 0; i < n; i++) {
        double off = way == CONV_DW ? 1e-5 * sqrt((double)(c.y / s->out)) + 1e-5 : 0;
        if (!(fabs((double)got[i] - (double)want[i]) <= off))
          test_fail(__FILE__, __LINE__, "spec %d, pass %d, %s, %d threads: %lld is %g, want %g", at,
                    way, cpu_isa_name((cpu_isa)isa), threads, (long long)i, (double)got[i],
                    (double)want[i]);
      }
      if (first) CHECK(!memcmp(first, got, (size_t)n * sizeof *got));
      else first = got;
      if (first != got) free(got);
      pool_free(p);
    }
  free(first);
  free(want);
  free(a);
  free(b);
}

TEST(convolutions_are_chains_over_channels_and_taps) {
  for (int i = 0; i < SPECS; i++) {
    conv_spec s = spec_get(i);
    check_pass(&s, i, CONV_FORWARD);
  }
}

TEST(gradients_of_convolutions_by_their_operand_are_chains) {
  for (int i = 0; i < SPECS; i++) {
    conv_spec s = spec_get(i);
    check_pass(&s, i, CONV_DX);
  }
}

TEST(gradients_of_convolutions_by_their_weights_do_not_depend_on_threads) {
  for (int i = 0; i < SPECS; i++) {
    conv_spec s = spec_get(i);
    check_pass(&s, i, CONV_DW);
  }
}

static int64_t below(uint32_t *seed, uint32_t n) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 10 & 0xffff ? (*seed >> 10 & 0xffff) % n : 0;
}

TEST(convolutions_of_any_geometry_are_chains) {
  uint32_t seed = 5;
  for (int i = 0, tried = 0; tried < TRIES; i++) {
    conv_spec s = {.batch = below(&seed, 4), .groups = 1 + below(&seed, 3), .type = HP_F32};
    s.in = s.groups * (1 + below(&seed, 4));
    s.out = s.groups * (1 + below(&seed, 20));
    for (int d = 0; d < 2; d++) {
      bool far = below(&seed, 4) == 0;
      s.size[d] = below(&seed, 24);
      s.kernel[d] = 1 + below(&seed, 5);
      s.stride[d] = 1 + below(&seed, far ? 9 : 4);
      s.pad[d] = below(&seed, far ? 60 : 6);
      s.dilation[d] = 1 + below(&seed, far ? 50 : 4);
    }
    if (!set_result(&s)) continue;
    tried++;
    for (int way = CONV_FORWARD; way <= CONV_DW; way++) check_pass(&s, 1000 + i, (conv_way)way);
  }
}

static size_t work_of(conv_spec s, conv_way way) {
  size_t bytes;
  HP_ASSERT(set_result(&s));
  CHECK_OK(conv_work(ISA_PLAIN, &s, way, 2, &bytes));
  return bytes;
}

/* The elements that taps read decide, not those between them. */
TEST(work_memory_of_convolutions_does_not_grow_with_the_dilation) {
  for (int way = CONV_FORWARD; way <= CONV_DW; way++) {
    conv_spec near = SPEC(64, 8, 8, 1, 4, 4, 2, 2, 1, 1, 4, 4, 8, 8), far = near;
    for (int d = 0; d < 2; d++) {
      far.pad[d] = FAR;
      far.dilation[d] = 2 * FAR;
    }
    CHECK(work_of(far, (conv_way)way) <= work_of(near, (conv_way)way));
    CHECK(work_of(far, (conv_way)way) < 16 << 20);
  }
}

/* CPU seconds of `times` runs of a pass. */
static double seconds_of(conv_spec s, conv_way way, int times) {
  pool *p;
  HP_ASSERT(set_result(&s));
  counts c = counts_of(&s);
  int64_t n = way == CONV_FORWARD ? c.y : way == CONV_DX ? c.x : c.w;
  float *a = numbers(way == CONV_DX ? c.y : c.x, 1), *b = numbers(way == CONV_DW ? c.y : c.w, 2);
  CHECK_OK(pool_create(2, false, &p));
  clock_t start = clock();
  for (int i = 0; i < times; i++) free(run(cpu_best_isa(), p, &s, way, a, b, n));
  double t = (double)(clock() - start) / CLOCKS_PER_SEC;
  pool_free(p);
  free(a);
  free(b);
  return t;
}

/* As many products as a kernel of 10 x 10 has, and more weights; a pass for each of 90,000 places,
 * or a copy of all of them for each block of the chains, takes 0.8 to 3 seconds. */
TEST(convolutions_take_time_by_their_products_not_their_stride) {
  static const int times[] = {[CONV_FORWARD] = 3, [CONV_DX] = 10, [CONV_DW] = 1};
  for (int way = CONV_FORWARD; way <= CONV_DW; way++) {
    conv_spec few = SPEC(1, 3, 8, 1, 300, 300, 10, 10, 10, 10, 0, 0, 1, 1);
    conv_spec many = SPEC(1, 3, 8, 1, 300, 300, 300, 300, 300, 300, 0, 0, 1, 1);
    conv_spec line = SPEC(1, 3, 8, 1, 1, 90000, 1, 90000, 1, 90000, 0, 0, 1, 1);
    conv_spec both = SPEC(1, 3, 8, 1, 500, 500, 301, 301, 299, 299, 50, 50, 1, 1);
    double least = seconds_of(few, (conv_way)way, times[way]);
    CHECK(seconds_of(many, (conv_way)way, times[way]) < 0.3 + 10 * least);
    CHECK(seconds_of(line, (conv_way)way, times[way]) < 0.3 + 10 * least);
    CHECK(seconds_of(both, (conv_way)way, times[way]) < 0.3 + 10 * least);
  }
}
