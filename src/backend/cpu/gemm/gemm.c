#include "backend/cpu/gemm/gemm.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>

gemm_query gemm_query_make(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, hp_dtype in,
                           hp_dtype out) {
  return (gemm_query){.m = m,
                      .n = n,
                      .k = k,
                      .a_m = trans_a ? 1 : k,
                      .a_k = trans_a ? m : 1,
                      .b_k = trans_b ? 1 : n,
                      .b_n = trans_b ? k : 1,
                      .c_m = n,
                      .c_n = 1,
                      .a_type = in,
                      .b_type = in,
                      .c_type = out,
                      .alpha = 1};
}

int64_t gemm_items(const gemm_query *q) {
  int64_t items = 1;
  for (int i = 0; i < q->n_batch; i++) items *= q->batch[i].size;
  return items;
}

void gemm_item(const gemm_query *q, int64_t i, int64_t at[3]) {
  at[0] = at[1] = at[2] = 0;
  for (int d = q->n_batch - 1; d >= 0; d--) {
    const gemm_batch *b = &q->batch[d];
    int64_t index = i % b->size;
    i /= b->size;
    at[0] += index * b->a, at[1] += index * b->b, at[2] += index * b->c;
  }
}

/* m * n * k * every batch size must stay far from overflow; a zero among them makes it fit. */
static bool work_fits(const gemm_query *q) {
  int64_t size[3 + GEMM_BATCH_DIMS] = {q->m, q->n, q->k}, product = 1;
  int n = 3;
  for (int i = 0; i < q->n_batch; i++) size[n++] = q->batch[i].size;
  for (int i = 0; i < n; i++)
    if (__builtin_mul_overflow(product, size[i] ? size[i] : 1, &product)) return false;
  return product <= INT64_MAX / 64;
}

static hp_status check_types(const gemm_query *q) {
  const hp_dtype type[] = {q->a_type, q->b_type, q->c_type};
  for (int i = 0; i < 3; i++)
    if ((unsigned)type[i] >= HP_DTYPE_COUNT || !dtype_is_float(type[i]))
      HP_FAIL(HP_ERR_ARG, "gemm: %c is %s; f32, bf16 and f16 can be multiplied", "abc"[i],
              (unsigned)type[i] < HP_DTYPE_COUNT ? dtype_name(type[i]) : "of no known type");
  if (q->rounded && (q->a_type == q->b_type || q->a_type == HP_F16 || q->b_type == HP_F16))
    HP_FAIL(HP_ERR_ARG, "gemm: %s and %s, rounded; expected f32 with bf16", dtype_name(q->a_type),
            dtype_name(q->b_type));
  return HP_OK;
}

hp_status gemm_check(const gemm_query *q) {
  if (q->m < 0 || q->n < 0 || q->k < 0)
    HP_FAIL(HP_ERR_SHAPE, "gemm: m %lld, n %lld, k %lld; each must be 0 or more", (long long)q->m,
            (long long)q->n, (long long)q->k);
  HP_TRY(check_types(q));
  if (q->n_batch < 0 || q->n_batch > GEMM_BATCH_DIMS)
    HP_FAIL(HP_ERR_SHAPE, "gemm: %d batch dims; at most %d are possible", q->n_batch,
            GEMM_BATCH_DIMS);
  for (int i = 0; i < q->n_batch; i++)
    if (q->batch[i].size < 0)
      HP_FAIL(HP_ERR_SHAPE, "gemm: batch dim %d has size %lld; it must be 0 or more", i,
              (long long)q->batch[i].size);
  if (q->b_pack && (q->b_n != 1 || q->n % GEMM_PACK))
    HP_FAIL(HP_ERR_SHAPE,
            "gemm: %lld columns, %lld apart, packed; expected a multiple of %d side by side",
            (long long)q->n, (long long)q->b_n, GEMM_PACK);
  if (!work_fits(q))
    HP_FAIL(HP_ERR_SHAPE,
            "gemm: %lld x %lld x %lld with its batch is more work than can be counted",
            (long long)q->m, (long long)q->n, (long long)q->k);
  if (!isfinite(q->alpha) || q->alpha == 0)
    HP_FAIL(HP_ERR_ARG,
            "gemm: alpha is %g; it must be finite and not 0 (1 leaves the sum as it is)",
            (double)q->alpha);
  if (q->accumulate && q->alpha != 1)
    HP_FAIL(HP_ERR_ARG,
            "gemm: alpha %g with accumulate; a sum that starts from the old C is not "
            "scaled: use alpha 1",
            (double)q->alpha);
  return HP_OK;
}

/* --- the scalar loop -------------------------------------------------------------------------- */

static float load_element(const void *p, hp_dtype type, int64_t i) {
  if (type == HP_F32) return ((const float *)p)[i];
  uint16_t h = ((const uint16_t *)p)[i];
  return type == HP_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

static void store_element(void *p, hp_dtype type, int64_t i, float x) {
  if (type == HP_F32) ((float *)p)[i] = x;
  else ((uint16_t *)p)[i] = type == HP_BF16 ? f32_to_bf16(x) : f32_to_f16(x);
}

typedef struct {
  const gemm_query *q;
  const gemm_args *args;
} scalar_job;

/* An element of A or B. */
static float load_factor(const gemm_query *q, const void *p, hp_dtype type, int64_t i) {
  float x = load_element(p, type, i);
  return q->rounded ? bf16_to_f32(f32_to_bf16(x)) : x;
}

/* Columns whose chains run beside each other: one alone waits for each of its sums. */
enum { COLUMNS = 8 };

/* Row `part % m` of batch item `part / m`. */
static inline __attribute__((always_inline)) void compute_row(const scalar_job *job, int64_t part) {
  const gemm_query *q = job->q;
  const gemm_args *x = job->args;
  int64_t i = part % q->m, at[3];
  gemm_item(q, part / q->m, at);
  int64_t a = at[0] + i * q->a_m, c = at[2] + i * q->c_m;
  for (int64_t j0 = 0; j0 < q->n; j0 += COLUMNS) {
    int columns = (int)(q->n - j0 < COLUMNS ? q->n - j0 : COLUMNS);
    int64_t b[COLUMNS];
    float s[COLUMNS];
    for (int j = 0; j < columns; j++) {
      b[j] = at[1] + gemm_b_at(q, 0, j0 + j);
      s[j] = q->accumulate ? load_element(x->c, q->c_type, c + (j0 + j) * q->c_n) : 0.0f;
    }
    for (int64_t k = 0; k < q->k; k++) {
      float f = load_factor(q, x->a, q->a_type, a + k * q->a_k);
      for (int j = 0; j < columns; j++)
        s[j] = fmaf(f, load_factor(q, x->b, q->b_type, b[j] + k * q->b_k), s[j]);
    }
    for (int j = 0; j < columns; j++) {
      s[j] *= q->alpha;
      if (q->bias) s[j] += x->bias[j0 + j];
      store_element(x->c, q->c_type, c + (j0 + j) * q->c_n, s[j]);
    }
  }
}

static void compute_scalar_row(void *ctx, int64_t part) { compute_row(ctx, part); }

#if defined(__x86_64__)
/* With an instruction for fmaf, which is a call otherwise. */
__attribute__((target("fma"))) static void compute_fma_row(void *ctx, int64_t part) {
  compute_row(ctx, part);
}
static void (*choose_row(void))(void *ctx, int64_t part) {
  return __builtin_cpu_supports("fma") ? compute_fma_row : compute_scalar_row;
}
#else
static void (*choose_row(void))(void *ctx, int64_t part) { return compute_scalar_row; }
#endif

void gemm_scalar_run(const gemm_query *q, const gemm_args *args, pool *threads) {
  scalar_job job = {q, args};
  int64_t rows = q->m * gemm_items(q);
  if (rows > 0) pool_run(threads, rows, choose_row(), &job);
}
