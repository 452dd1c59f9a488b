/* The packed GEMM against the scalar loop, bit for bit. */
#include "test.h"

#include "backend/cpu/engine/engine_table.h"
#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

static uint64_t next_random(uint64_t *seed) {
  *seed += 0x9e3779b97f4a7c15u;
  uint64_t z = *seed;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static int64_t random_below(uint64_t *seed, int64_t n) {
  return (int64_t)(next_random(seed) % (uint64_t)n);
}

/* n elements of mixed magnitude, so that another order of additions shows. */
static void *random_array(uint64_t *seed, hp_dtype type, int64_t n) {
  float *x = mem_calloc((size_t)n, sizeof *x);
  void *out = mem_calloc((size_t)n, dtype_size(type));
  for (int64_t i = 0; i < n; i++) {
    float f = (float)(int32_t)next_random(seed) * 0x1p-31f;
    x[i] = ldexpf(f, (int)random_below(seed, 9) - 4);
  }
  CHECK_OK(dtype_convert(type, out, HP_F32, x, (size_t)n));
  mem_free(x);
  return out;
}

static pool *threads_of(int n) {
  static pool *made[4];
  if (!made[n]) CHECK_OK(pool_create(n, false, &made[n]));
  return made[n];
}

/* Elements from the first to one past the last that a query touches in A, B, C. */
static int64_t extent(int64_t m, int64_t s_m, int64_t n, int64_t s_n) {
  return m && n ? (m - 1) * s_m + (n - 1) * s_n + 1 : 0;
}

typedef struct {
  void *a, *b, *c; /* c is what it holds before */
  float *bias;
  int64_t c_len;
} operands;

static operands make_operands(uint64_t *seed, const gemm_query *q) {
  int64_t a = extent(q->m, q->a_m, q->k, q->a_k), b = extent(q->k, q->b_k, q->n, q->b_n),
          c = extent(q->m, q->c_m, q->n, q->c_n);
  for (int i = 0; i < q->n_batch; i++) {
    a += (q->batch[i].size - 1) * q->batch[i].a;
    b += (q->batch[i].size - 1) * q->batch[i].b;
    c += (q->batch[i].size - 1) * q->batch[i].c;
  }
  operands o = {.c_len = c};
  o.a = random_array(seed, q->a_type, a);
  o.b = random_array(seed, q->b_type, b);
  o.c = random_array(seed, q->c_type, c);
  o.bias = random_array(seed, HP_F32, q->n);
  return o;
}

static void free_operands(operands *o) {
  mem_free(o->a);
  mem_free(o->b);
  mem_free(o->c);
  mem_free(o->bias);
}

/* Work memory that is exactly as large as asked for, with a guard after it. */
typedef struct {
  char *raw, *at;
  size_t size;
} work_memory;
enum { GUARD = 64 };
static work_memory make_work(size_t size) {
  work_memory w = {.raw = mem_calloc(size + GEMM_ALIGN + GUARD, 1), .size = size};
  w.at = w.raw + (GEMM_ALIGN - (uintptr_t)w.raw % GEMM_ALIGN);
  memset(w.at, 0xff, size); /* NaN: anything read before it is written shows */
  memset(w.at + size, 0x5a, GUARD);
  return w;
}
static void check_work(work_memory *w) {
  for (int i = 0; i < GUARD; i++) CHECK_EQ(w->at[w->size + (size_t)i], 0x5a);
  mem_free(w->raw);
}

static void *copy_of(const void *p, size_t n) {
  void *c = mem_calloc(n, 1);
  memcpy(c, p, n);
  return c;
}

static const char *describe(const gemm_query *q, cpu_isa isa, int threads) {
  static char text[256];
  snprintf(
      text, sizeof text,
      "%lldx%lldx%lld a %lld,%lld b %lld,%lld c %lld,%lld types %d%d%d%s batch %d acc %d bias %d "
      "alpha %g isa %s threads %d",
      (long long)q->m, (long long)q->n, (long long)q->k, (long long)q->a_m, (long long)q->a_k,
      (long long)q->b_k, (long long)q->b_n, (long long)q->c_m, (long long)q->c_n, q->a_type,
      q->b_type, q->c_type, q->rounded ? " rounded" : "", q->n_batch, q->accumulate, q->bias,
      (double)q->alpha, cpu_isa_name(isa), threads);
  return text;
}

/* Runs q on every instruction set with 1, 2 and 3 threads; each must give the scalar loop's bits.
 */
static void check_query(const gemm_query *q, const operands *o) {
  CHECK_OK(gemm_check(q));
  size_t bytes = (size_t)o->c_len * dtype_size(q->c_type);
  void *want = copy_of(o->c, bytes);
  gemm_args args = {o->a, o->b, want, q->bias ? o->bias : NULL};
  gemm_scalar_run(q, &args, threads_of(1));
  for (cpu_isa isa = 0; isa < ISA_COUNT; isa++) {
    if (!cpu_has_isa(isa)) continue;
    for (int t = 1; t <= 3; t++) {
      void *got = copy_of(o->c, bytes);
      work_memory w = make_work(gemm_packed_workspace(isa, q, t));
      args.c = got;
      gemm_packed_run(isa, q, &args, threads_of(t), w.at);
      if (memcmp(got, want, bytes)) test_fail(__FILE__, __LINE__, "%s", describe(q, isa, t));
      check_work(&w);
      mem_free(got);
    }
  }
  mem_free(want);
}

static int64_t random_size(uint64_t *seed) {
  static const int64_t some[] = {0, 1, 2, 3, 5, 7, 13, 14, 15, 16, 17, 28, 31, 32, 33, 47, 64, 97};
  if (random_below(seed, 3)) return some[random_below(seed, sizeof some / sizeof *some)];
  return random_below(seed, 120);
}

static void check_random(uint64_t seed, int rounds, bool mixed_types) {
  for (int i = 0; i < rounds; i++) {
    hp_dtype in = mixed_types ? (hp_dtype)random_below(&seed, 3) : HP_F32;
    gemm_query q = gemm_query_make(random_size(&seed), random_size(&seed), random_size(&seed),
                                   random_below(&seed, 2), random_below(&seed, 2), in, HP_F32);
    if (mixed_types) {
      q.b_type = (hp_dtype)random_below(&seed, 3);
      q.c_type = (hp_dtype)random_below(&seed, 3);
      bool floats = q.a_type == HP_F32 || q.b_type == HP_F32;
      q.rounded = floats && (q.a_type == HP_BF16 || q.b_type == HP_BF16) && random_below(&seed, 2);
    }
    q.accumulate = random_below(&seed, 2);
    q.bias = random_below(&seed, 4) == 0;
    if (!q.accumulate && random_below(&seed, 3) == 0) q.alpha = 0.3f;
    if (random_below(&seed, 4) == 0) q.c_m += random_below(&seed, 5); /* room between rows */
    if (random_below(&seed, 4) == 0) {                                /* C stored [n, m] */
      q.c_m = 1;
      q.c_n = q.m;
    }
    if (random_below(&seed, 8) == 0) q.a_m *= 3, q.a_k *= 3;
    if (random_below(&seed, 8) == 0) q.b_k *= 2, q.b_n *= 2;
    operands o = make_operands(&seed, &q);
    check_query(&q, &o);
    free_operands(&o);
  }
}

TEST(gemm_f32_is_one_chain_over_k_in_any_shape_and_layout) { check_random(1, 200, false); }
TEST(gemm_of_16_bit_types_is_the_chain_of_the_widened) { check_random(2, 200, true); }

static void plan_is(cpu_isa isa, const gemm_query *q, int threads, int busy) {
  char want[64];
  str plan = {0};
  gemm_packed_print(isa, q, threads, &plan);
  snprintf(want, sizeof want, " regions, %d of %d threads", busy, threads);
  if (!plan.at || !strstr(plan.at, want))
    test_fail(__FILE__, __LINE__, "%s: the plan is \"%s\", want \"%s\"", describe(q, isa, threads),
              plan.at, want);
  str_free(&plan);
}

/* Square, short, narrow, long products, a batch of small ones, products of decoding. */
TEST(gemm_uses_all_threads_wherever_there_is_work_for_them) {
  static const struct {
    int64_t m, n, k, items;
  } size[] = {{512, 512, 512, 1},  {64, 4096, 64, 1}, {4096, 64, 64, 1},  {256, 256, 8192, 1},
              {1, 32000, 768, 1},  {3, 4096, 768, 1}, {32000, 1, 768, 1}, {32, 64, 64, 12},
              {2048, 2047, 33, 1}, {16, 16, 16, 64}};
  for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
    for (int k = 0; k < 4; k++) {
      gemm_query q = gemm_query_make(size[i].m, size[i].n, size[i].k, k & 1, k & 2, HP_F32, HP_F32);
      q.n_batch = 1;
      q.batch[0] = (gemm_batch){size[i].items, q.m * q.k, q.k * q.n, q.m * q.n};
      for (cpu_isa isa = 0; isa < ISA_COUNT; isa++)
        for (int t = 1; t <= 8; t *= 2) plan_is(isa, &q, t, t);
    }
  }
}

TEST(gemm_plans_name_the_threads_without_work) {
  gemm_query tile = gemm_query_make(4, 16, 64, false, false, HP_F32, HP_F32), none = tile;
  for (cpu_isa isa = 0; isa < ISA_COUNT; isa++) plan_is(isa, &tile, 4, 1);
  tile.n_batch = 1;
  tile.batch[0] = (gemm_batch){3, 4 * 64, 64 * 16, 4 * 16};
  for (cpu_isa isa = 0; isa < ISA_COUNT; isa++) plan_is(isa, &tile, 4, 3);
  str plan = {0};
  none.n = 0;
  gemm_packed_print(ISA_PLAIN, &none, 4, &plan);
  CHECK_STR(plan.at, "nothing to do");
  str_free(&plan);
}

TEST(gemm_carries_its_chains_across_blocks) {
  uint64_t seed = 3;
  const int64_t size[][3] = {{17, 33, 1013}, {3, 50, 1200},  {171, 20, 600},
                             {9, 530, 390},  {20, 1100, 6},  {600, 17, 5},
                             {9, 40, 2100},  {31, 70, 4101}, {290, 36, 1030}};
  for (size_t i = 0; i < sizeof size / sizeof *size; i++)
    for (int layout = 0; layout < 8; layout++) {
      hp_dtype type = layout & 4 ? HP_BF16 : HP_F32;
      gemm_query q =
          gemm_query_make(size[i][0], size[i][1], size[i][2], layout & 1, layout & 2, type, type);
      q.accumulate = layout % 3 == 0;
      operands o = make_operands(&seed, &q);
      check_query(&q, &o);
      free_operands(&o);
    }
}

/* Products that threads take pieces of at once have the bits that each has alone. */
TEST(gemm_of_several_products_gives_the_bits_of_each) {
  uint64_t seed = 11;
  for (int i = 0; i < 12; i++) {
    gemm_query q[GEMM_TOGETHER];
    operands o[GEMM_TOGETHER];
    gemm_args args[GEMM_TOGETHER];
    void *want[GEMM_TOGETHER];
    size_t work = 0;
    int threads = 1 + i % 3, n = 2 + i % 2;
    for (int k = 0; k < n; k++) {
      int64_t cols = k == i % 4 ? 0 : 1 + random_below(&seed, 900);
      q[k] = gemm_query_make(i % 2 ? 3 : 40, cols, 50, false, k == 1, i % 5 ? HP_F32 : HP_BF16,
                             HP_F32);
      o[k] = make_operands(&seed, &q[k]);
      want[k] = copy_of(o[k].c, (size_t)o[k].c_len * sizeof(float));
      gemm_scalar_run(&q[k], &(gemm_args){o[k].a, o[k].b, want[k], NULL}, threads_of(1));
      args[k] = (gemm_args){o[k].a, o[k].b, o[k].c, NULL};
      size_t bytes = gemm_packed_workspace(cpu_best_isa(), &q[k], threads);
      if (bytes > work) work = bytes;
    }
    work_memory w = make_work(work);
    gemm_packed_run_all(cpu_best_isa(), q, args, n, threads_of(threads), w.at);
    check_work(&w);
    for (int k = 0; k < n; k++) {
      CHECK(!memcmp(o[k].c, want[k], (size_t)o[k].c_len * sizeof(float)));
      mem_free(want[k]);
      free_operands(&o[k]);
    }
  }
}

/* What bf16 dot instructions do otherwise: numbers under 2^-126 are 0, as operands and as sums. */
TEST(gemm_of_bf16_by_dot_instructions_takes_tiny_numbers_as_0) {
  enum { M = 20, N = 40, K = 6 };
  if (!cpu_has_isa(ISA_AVX512_BF16)) return;
  uint16_t a[M * K], b[K * N];
  float c[M * N];
  const float in[][2] = {{0x1p-130f, 0x1p20f}, {0x1p-70f, 0x1p-60f}, {0x1p-63f, 0x1p-63f}};
  const float sum[] = {0, 0, K * 0x1p-126f};
  for (size_t i = 0; i < sizeof sum / sizeof *sum; i++) {
    for (int j = 0; j < M * K; j++) a[j] = f32_to_bf16(in[i][0]);
    for (int j = 0; j < K * N; j++) b[j] = f32_to_bf16(in[i][1]);
    gemm_query q = gemm_query_make(M, N, K, false, false, HP_BF16, HP_F32);
    work_memory w = make_work(gemm_packed_workspace(ISA_AVX512_BF16, &q, 1));
    gemm_packed_run(ISA_AVX512_BF16, &q, &(gemm_args){a, b, c, NULL}, threads_of(1), w.at);
    for (int j = 0; j < M * N; j++) CHECK(c[j] == sum[i]);
    check_work(&w);
  }
}

TEST(gemm_few_rows_and_few_columns_read_the_other_operand_in_place) {
  uint64_t seed = 4;
  for (int64_t few = 1; few <= 17; few++)
    for (int layout = 0; layout < 8; layout++) {
      bool cols = layout & 4;
      gemm_query q = gemm_query_make(cols ? 130 : few, cols ? few : 130, 50, layout & 1, layout & 2,
                                     few % 3 ? HP_F32 : HP_BF16, HP_F32);
      q.bias = few % 2;
      q.accumulate = few % 4 == 1;
      operands o = make_operands(&seed, &q);
      check_query(&q, &o);
      free_operands(&o);
    }
}

/* The same weights [n,k], packed. */
static void *pack_rows(const gemm_query *q, const void *rows) {
  size_t size = dtype_size(q->b_type);
  char *packs = mem_calloc((size_t)(q->n * q->k) + 1, size);
  for (int64_t n = 0; n < q->n; n++)
    for (int64_t k = 0; k < q->k; k++)
      memcpy(packs + (size_t)gemm_b_at(q, k, n) * size,
             (const char *)rows + (size_t)(n * q->k + k) * size, size);
  return packs;
}

/* mixed: B is f32 with an A of bf16, and rounded. */
static void check_packed(uint64_t *seed, int64_t m, int64_t n, int64_t k, hp_dtype type,
                         bool mixed) {
  gemm_query q = gemm_query_make(m, n, k, false, true, type, type), packs;
  q.rounded = mixed;
  if (mixed) q.b_type = HP_F32;
  packs = q;
  operands o = make_operands(seed, &q);
  size_t bytes = (size_t)o.c_len * dtype_size(type);
  void *rows = o.b, *want = copy_of(o.c, bytes), *got = copy_of(o.c, bytes);
  gemm_scalar_run(&q, &(gemm_args){o.a, rows, want, NULL}, threads_of(1));
  packs.b_k = GEMM_PACK, packs.b_n = 1, packs.b_pack = GEMM_PACK * k;
  o.b = pack_rows(&packs, rows);
  CHECK_EQ(gemm_b_at(&packs, 1, 17), 17 / GEMM_PACK * GEMM_PACK * k + GEMM_PACK + 17 % GEMM_PACK);
  gemm_scalar_run(&packs, &(gemm_args){o.a, o.b, got, NULL}, threads_of(1));
  if (memcmp(got, want, bytes)) test_fail(__FILE__, __LINE__, "other sums: %s", describe(&q, 0, 1));
  check_query(&packs, &o);
  mem_free(rows);
  mem_free(want);
  mem_free(got);
  free_operands(&o);
}

TEST(gemm_of_a_packed_matrix_gives_the_bits_of_its_rows) {
  static const int64_t few[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 40};
  static const hp_dtype type[] = {HP_F32, HP_BF16, HP_F16};
  uint64_t seed = 21;
  for (int t = 0; t < 3; t++) {
    for (size_t i = 0; i < sizeof few / sizeof *few; i++)
      for (int64_t n = 16; n <= 112; n += 32)
        check_packed(&seed, few[i], n, 1 + 24 * t, type[t], false);
    check_packed(&seed, 1, 1040, 70, type[t], false); /* several regions and pieces */
    check_packed(&seed, 30, 1040, 1100, type[t], false);
    check_packed(&seed, 290, 48, 1030, type[t], false); /* several blocks of rows and of k */
    check_packed(&seed, 20, 112, 26, type[t], false);   /* a panel that is not whole */
  }
  check_packed(&seed, 290, 48, 2060, HP_BF16, false);
  check_packed(&seed, 5, 48, 70, HP_BF16, true);
  check_packed(&seed, 40, 48, 70, HP_BF16, true);
}

TEST(gemm_batches_of_several_dims_and_shared_operands) {
  uint64_t seed = 5;
  for (int i = 0; i < 30; i++) {
    gemm_query q =
        gemm_query_make(1 + random_below(&seed, 40), 1 + random_below(&seed, 40),
                        random_below(&seed, 40), i & 1, i & 2, i % 5 ? HP_F32 : HP_BF16, HP_F32);
    q.n_batch = 2;
    int64_t a = q.m * q.k, b = q.k * q.n, c = q.m * q.n;
    int64_t outer = 1 + random_below(&seed, 3), inner = 1 + random_below(&seed, 4);
    q.batch[0] = (gemm_batch){outer, a * inner, 0, c}; /* B is shared along the outer dim */
    q.batch[1] = (gemm_batch){inner, a, b, c * outer};
    operands o = make_operands(&seed, &q);
    check_query(&q, &o);
    free_operands(&o);
  }
}

/* Rows and columns cut out of a product have the bits that they have in the whole. */
TEST(gemm_of_some_rows_and_columns_gives_the_bits_of_the_whole) {
  uint64_t seed = 6;
  gemm_query q = gemm_query_make(61, 83, 450, false, true, HP_F32, HP_F32);
  operands o = make_operands(&seed, &q);
  work_memory w = make_work(gemm_packed_workspace(cpu_best_isa(), &q, 2));
  gemm_args args = {o.a, o.b, o.c, NULL};
  gemm_packed_run(cpu_best_isa(), &q, &args, threads_of(2), w.at);
  for (int i = 0; i < 20; i++) {
    int64_t m0 = random_below(&seed, 61), n0 = random_below(&seed, 83);
    gemm_query part = q;
    part.m = 1 + random_below(&seed, 61 - m0);
    part.n = 1 + random_below(&seed, 83 - n0);
    part.c_m = part.n;
    float *c = mem_calloc((size_t)(part.m * part.n), sizeof *c);
    work_memory pw = make_work(gemm_packed_workspace(cpu_best_isa(), &part, 3));
    gemm_args pa = {(float *)o.a + m0 * 450, (float *)o.b + n0 * 450, c, NULL};
    gemm_packed_run(cpu_best_isa(), &part, &pa, threads_of(3), pw.at);
    for (int64_t m = 0; m < part.m; m++)
      CHECK(!memcmp(c + m * part.n, (float *)o.c + (m0 + m) * 83 + n0, sizeof *c * (size_t)part.n));
    check_work(&pw);
    mem_free(c);
  }
  check_work(&w);
  free_operands(&o);
}

/* NaN and infinity reach exactly the elements whose chains they are in. */
TEST(gemm_propagates_nan_and_infinity) {
  uint64_t seed = 7;
  for (int shape = 0; shape < 2; shape++) {
    int64_t m = shape ? 3 : 29, n = 45, k = 33;
    for (int layout = 0; layout < 4; layout++) {
      gemm_query q = gemm_query_make(m, n, k, layout & 1, layout & 2, HP_F32, HP_F32);
      operands o = make_operands(&seed, &q);
      ((float *)o.a)[1 * q.a_m + 7 * q.a_k] = INFINITY;
      ((float *)o.b)[5 * q.b_k + 40 * q.b_n] = NAN;
      for (cpu_isa isa = 0; isa < ISA_COUNT; isa++) {
        if (!cpu_has_isa(isa)) continue;
        work_memory w = make_work(gemm_packed_workspace(isa, &q, 2));
        gemm_args args = {o.a, o.b, o.c, NULL};
        gemm_packed_run(isa, &q, &args, threads_of(2), w.at);
        for (int64_t i = 0; i < m; i++)
          for (int64_t j = 0; j < n; j++) {
            float c = ((float *)o.c)[i * n + j];
            if (j == 40) CHECK(isnan(c));
            else if (i == 1) CHECK(isinf(c));
            else CHECK(isfinite(c));
          }
        check_work(&w);
      }
      free_operands(&o);
    }
  }
}

TEST(gemm_refuses_queries_that_make_no_sense) {
  gemm_query good = gemm_query_make(2, 3, 4, false, false, HP_F32, HP_F32), q = good;
  CHECK_OK(gemm_check(&q));
  q.m = -1;
  CHECK_FAILS(gemm_check(&q), "m -1");
  q = good, q.a_type = HP_I32;
  CHECK_FAILS(gemm_check(&q), "a is i32");
  q = good, q.c_type = (hp_dtype)77;
  CHECK_FAILS(gemm_check(&q), "c is of no known type");
  q = good, q.n_batch = GEMM_BATCH_DIMS + 1;
  CHECK_FAILS(gemm_check(&q), "13 batch dims");
  q = good, q.n_batch = 1, q.batch[0].size = -2;
  CHECK_FAILS(gemm_check(&q), "size -2");
  q = good, q.m = q.n = q.k = INT64_C(1) << 31;
  CHECK_FAILS(gemm_check(&q), "more work");
  q = good, q.alpha = 0;
  CHECK_FAILS(gemm_check(&q), "alpha is 0");
  q = good, q.alpha = NAN;
  CHECK_FAILS(gemm_check(&q), "alpha is nan");
  q = good, q.alpha = 2, q.accumulate = true;
  CHECK_FAILS(gemm_check(&q), "accumulate");
}

TEST(gemm_allocates_nothing_while_running) {
  uint64_t seed = 8;
  gemm_query q = gemm_query_make(100, 100, 100, false, false, HP_F32, HP_F32);
  operands o = make_operands(&seed, &q);
  work_memory w = make_work(gemm_packed_workspace(cpu_best_isa(), &q, 2));
  gemm_args args = {o.a, o.b, o.c, NULL};
  pool *p = threads_of(2);
  uint64_t before = mem_count();
  gemm_packed_run(cpu_best_isa(), &q, &args, p, w.at);
  CHECK_EQ(mem_count(), before);
  check_work(&w);
  free_operands(&o);
}

/* Every engine of the table on queries that it supports: within rounding of the scalar loop. */
TEST(gemm_engines_agree_with_the_scalar_loop) {
  uint64_t seed = 9;
  int rows;
  const gemm_engine *const *engine = engine_rows(&rows);
  for (int i = 0; i < 60; i++) {
    bool bf16 = i % 3 == 2;
    gemm_query q =
        gemm_query_make(1 + random_below(&seed, 90), 1 + random_below(&seed, 90),
                        1 + random_below(&seed, 90), i & 1, i & 2, bf16 ? HP_BF16 : HP_F32, HP_F32);
    if (i & 4)
      q.n_batch = 1, q.batch[0] = (gemm_batch){3, q.m * q.k, i & 8 ? 0 : q.k * q.n, q.m * q.n};
    q.accumulate = i % 5 == 0;
    if (i % 5 == 1) q.alpha = 0.3f;
    if (i % 5 == 2) q.bias = true;
    if (i % 4 == 1) q.c_m = 1, q.c_n = q.m;
    operands o = make_operands(&seed, &q);
    size_t n = (size_t)o.c_len, bytes = n * sizeof(float);
    float *want = copy_of(o.c, bytes);
    gemm_args args = {o.a, o.b, want, o.bias};
    gemm_scalar_run(&q, &args, threads_of(1));
    for (int e = 0; e < rows; e++)
      for (int t = 1; t <= 3; t++) {
        if (!engine[e]->available() || !engine[e]->supports(&q)) continue;
        float *got = copy_of(o.c, bytes);
        work_memory w = make_work(engine[e]->workspace(&q, t));
        args.c = got;
        CHECK_OK(engine[e]->run(&q, &args, threads_of(t), w.at));
        check_work(&w);
        for (size_t x = 0; x < n; x++)
          if (!(fabsf(got[x] - want[x]) <= (engine[e]->exact ? 0 : 1e-2f)))
            test_fail(__FILE__, __LINE__, "%s: element %zu is %g, want %g: %s", engine[e]->name, x,
                      (double)got[x], (double)want[x], describe(&q, cpu_best_isa(), t));
        mem_free(got);
      }
    mem_free(want);
    free_operands(&o);
  }
}
