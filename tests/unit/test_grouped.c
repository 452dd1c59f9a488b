/* Products of rows with the weights that they choose: the bits of one chain of fused multiply-adds
 * an element, on every instruction set and number of threads. */
#include "rounded.h"
#include "test.h"

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/grouped.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/philox.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
  grouped_spec s;
  float *x, *w, *dy; /* as stored, widened */
  void *stored_x, *stored_w, *stored_dy;
  int32_t *ids;
} operands;

/* Some ids are of no expert; the last expert has no rows. */
static operands make(grouped_spec s) {
  operands o = {.s = s};
  int64_t slots = s.rows * s.slots;
  o.stored_x = rounded_normals((s.shared ? s.rows : slots) * s.k, s.type, 1, 1, &o.x);
  o.stored_w = rounded_normals(s.experts * s.n * s.k, s.type, 1, 2, &o.w);
  o.stored_dy = rounded_normals(slots * s.n, s.type, 1, 3, &o.dy);
  o.ids = room_for(slots, sizeof *o.ids);
  for (int64_t i = 0; i < slots; i++) {
    int32_t id = (int32_t)(philox_u32(7, 4, (uint64_t)i) % (uint64_t)(s.experts + 1)) - 1;
    o.ids[i] = id == s.experts - 1 ? INT32_MIN : id;
  }
  return o;
}

static void release(operands *o) {
  void *const all[] = {o->x, o->w, o->dy, o->stored_x, o->stored_w, o->stored_dy, o->ids};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) mem_free(all[i]);
}

static int64_t row_of(const grouped_spec *s, int64_t slot) {
  return s->shared ? slot / s->slots : slot;
}
static bool has_expert(const operands *o, int64_t slot) {
  return o->ids[slot] >= 0 && o->ids[slot] < o->s.experts;
}

static void product(const operands *o, float *y) {
  const grouped_spec *s = &o->s;
  for (int64_t i = 0; i < s->rows * s->slots; i++)
    for (int64_t n = 0; n < s->n; n++) {
      float sum = 0;
      const float *x = o->x + row_of(s, i) * s->k;
      const float *w = o->w + (has_expert(o, i) ? o->ids[i] : 0) * s->n * s->k;
      for (int64_t k = 0; k < s->k && has_expert(o, i); k++)
        sum = fmaf(x[k], w[s->transposed ? k * s->n + n : n * s->k + k], sum);
      y[i * s->n + n] = sum;
    }
}

static void gradient(const operands *o, float *dw) {
  const grouped_spec *s = &o->s;
  memset(dw, 0, (size_t)(s->experts * s->n * s->k) * sizeof *dw);
  for (int64_t i = 0; i < s->rows * s->slots; i++)
    for (int64_t n = 0; n < s->n && has_expert(o, i); n++)
      for (int64_t k = 0; k < s->k; k++) {
        float *sum = &dw[(o->ids[i] * s->n + n) * s->k + k];
        *sum = fmaf(o->dy[i * s->n + n], o->x[row_of(s, i) * s->k + k], *sum);
      }
}

static void check_one(const operands *o, bool grad, cpu_isa isa, int threads, const void *want,
                      int64_t n) {
  size_t bytes, size = (size_t)n * dtype_size(o->s.out_type);
  pool *p;
  CHECK_OK(pool_create(threads, false, &p));
  CHECK_OK((grad ? grouped_grad_work : grouped_work)(isa, &o->s, threads, &bytes));
  void *work = aligned_alloc(GEMM_ALIGN, (bytes / GEMM_ALIGN + 1) * GEMM_ALIGN);
  void *got = room_for((int64_t)size, 1);
  CHECK(work);
  memset(work, 0xff, bytes); /* NaN */
  memset(got, 0xff, size);
  if (grad) grouped_grad_run(isa, p, &o->s, o->stored_dy, o->stored_x, o->ids, got, work);
  else grouped_run(isa, p, &o->s, o->stored_x, o->stored_w, o->ids, got, work);
  if (memcmp(got, want, size))
    test_fail(__FILE__, __LINE__,
              "%s of %lld x %lld rows, %lld experts [%lld,%lld] on %s, %d threads",
              grad ? "gradient" : "product", (long long)o->s.rows, (long long)o->s.slots,
              (long long)o->s.experts, (long long)o->s.n, (long long)o->s.k, cpu_isa_name(isa),
              threads);
  mem_free(got);
  free(work);
  pool_free(p);
}

static void check(grouped_spec s) {
  operands o = make(s);
  for (int grad = 0; grad < 2; grad++) {
    int64_t n = grad ? s.experts * s.n * s.k : s.rows * s.slots * s.n;
    float *exact = room_for(n, sizeof *exact);
    void *want = room_for(n, dtype_size(s.out_type));
    (grad ? gradient : product)(&o, exact);
    CHECK_OK(dtype_convert(s.out_type, want, HP_F32, exact, (size_t)n));
    for (cpu_isa isa = 0; isa < ISA_COUNT; isa++)
      for (int threads = 1; threads <= 3 && cpu_has_isa(isa); threads += 2)
        check_one(&o, grad, isa, threads, want, n);
    mem_free(exact);
    mem_free(want);
  }
  release(&o);
}

TEST(grouped_rows_are_chains_whatever_runs_them) {
  static const grouped_spec shapes[] =
      {{.rows = 1, .slots = 1, .experts = 2, .n = 1, .k = 1},
       {.rows = 5, .slots = 2, .experts = 4, .n = 33, .k = 70},     /* few rows each */
       {.rows = 130, .slots = 3, .experts = 3, .n = 19, .k = 37},   /* panels */
       {.rows = 1200, .slots = 1, .experts = 2, .n = 9, .k = 11},   /* items of an expert */
       {.rows = 40, .slots = 2, .experts = 3, .n = 530, .k = 23},   /* more columns than an item */
       {.rows = 30, .slots = 2, .experts = 3, .n = 21, .k = 1100}}; /* packings of a chain */
  static const hp_dtype types[][2] = {{HP_F32, HP_F32},
                                      {HP_BF16, HP_BF16},
                                      {HP_F16, HP_F32},
                                      {HP_BF16, HP_F32}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int t = 0; t < 4; t++) {
      grouped_spec s = shapes[i];
      s.type = types[t][0];
      s.out_type = types[t][1];
      s.shared = t % 2 == 0;
      s.transposed = (t / 2 + (int)i) % 2;
      check(s);
    }
}

/* What a row is worth does not depend on which other rows are there. */
TEST(grouped_rows_do_not_know_each_other) {
  grouped_spec s =
      {.rows = 200, .slots = 2, .experts = 3, .n = 40, .k = 50, .type = HP_F32, .out_type = HP_F32};
  operands o = make(s), one = o;
  float *all = room_for(s.rows * s.slots * s.n, sizeof *all);
  product(&o, all);
  one.s.rows = 1;
  for (int64_t i = 0; i < s.rows; i += 37) {
    one.stored_x = (float *)o.stored_x + i * s.slots * s.k;
    one.ids = o.ids + i * s.slots;
    check_one(&one, false, cpu_best_isa(), 1, all + i * s.slots * s.n, s.slots * s.n);
  }
  mem_free(all);
  release(&o);
}
