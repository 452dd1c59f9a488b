#include "rounded.h"
#include "test.h"

#include "backend/cpu/attn/attention.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/philox.h"

#include <math.h>
#include <stdlib.h>

/* One call: tensors with the strides of a contiguous layout, results and their f64 reference. */
typedef struct {
  attn_spec s;
  hp_dtype dtype;
  float *q, *k, *v, *d_o; /* values as the kernel sees them after rounding to dtype */
  void *in[4];            /* the same as dtype */
  void *o, *dq, *dk, *dv;
  float *lse;
} problem;

static int64_t count_q(const attn_spec *s) { return s->B * s->Tq * s->H * s->D; }
static int64_t count_k(const attn_spec *s) { return s->B * s->Tk * s->KV * s->D; }
static int64_t count_v(const attn_spec *s) { return s->B * s->Tk * s->KV * s->Dv; }
static int64_t count_o(const attn_spec *s) { return s->B * s->Tq * s->H * s->Dv; }

static void *zeroed(int64_t n, size_t size) {
  void *p = mem_calloc((size_t)(n ? n : 1), size);
  CHECK(p);
  return p;
}

static float *random_values(int64_t n, uint64_t stream, hp_dtype t, void **narrow) {
  float *x = zeroed(n, sizeof *x);
  memcpy(x, shared_normals(11, stream, n), (size_t)n * sizeof *x);
  *narrow = zeroed(n, dtype_size(t));
  CHECK_OK(dtype_convert(t, *narrow, HP_F32, x, (size_t)n));
  CHECK_OK(dtype_convert(HP_F32, x, t, *narrow, (size_t)n));
  return x;
}

static problem make(attn_spec s, hp_dtype t) {
  problem p = {.s = s, .dtype = t};
  p.q = random_values(count_q(&s), 1, t, &p.in[0]);
  p.k = random_values(count_k(&s), 2, t, &p.in[1]);
  p.v = random_values(count_v(&s), 3, t, &p.in[2]);
  p.d_o = random_values(count_o(&s), 4, t, &p.in[3]);
  p.o = zeroed(count_o(&s), dtype_size(t));
  p.dq = zeroed(count_q(&s), dtype_size(t));
  p.dk = zeroed(count_k(&s), dtype_size(t));
  p.dv = zeroed(count_v(&s), dtype_size(t));
  p.lse = zeroed(s.B * s.H * s.Tq, sizeof(float));
  return p;
}
static void drop(problem *p) {
  void *all[] = {p->q,     p->k, p->v,  p->d_o, p->in[0], p->in[1], p->in[2],
                 p->in[3], p->o, p->dq, p->dk,  p->dv,    p->lse};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) mem_free(all[i]);
}

static attn_view view(void *at, hp_dtype t, int64_t T, int64_t heads, int64_t D) {
  return (attn_view){at, t, T * heads * D, heads * D, D};
}

typedef struct {
  cpu_isa isa;
  int threads;
} runner;

static void *aligned_work(size_t bytes) {
  void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
  CHECK(p);
  memset(p, 0xff, bytes); /* NaN: work memory must not be read before it is written */
  return p;
}

static attn_grad grads_of(problem *p) {
  const attn_spec *s = &p->s;
  return (attn_grad){.q = view(p->in[0], p->dtype, s->Tq, s->H, s->D),
                     .k = view(p->in[1], p->dtype, s->Tk, s->KV, s->D),
                     .v = view(p->in[2], p->dtype, s->Tk, s->KV, s->Dv),
                     .o = view(p->o, p->dtype, s->Tq, s->H, s->Dv),
                     .d_o = view(p->in[3], p->dtype, s->Tq, s->H, s->Dv),
                     .lse = p->lse,
                     .dq = view(p->dq, p->dtype, s->Tq, s->H, s->D),
                     .dk = view(p->dk, p->dtype, s->Tk, s->KV, s->D),
                     .dv = view(p->dv, p->dtype, s->Tk, s->KV, s->Dv)};
}

static void run_forward(problem *p, runner r) {
  pool *threads;
  size_t bytes;
  attn_grad g = grads_of(p);
  CHECK_OK(pool_create(r.threads, false, &threads));
  CHECK_OK(attn_forward_work(&p->s, r.threads, &bytes));
  void *work = aligned_work(bytes);
  CHECK_OK(attn_forward(r.isa, threads, &p->s, &g.q, &g.k, &g.v, &g.o, p->lse, work));
  free(work);
  pool_free(threads);
}

static void run_backward(problem *p, runner r) {
  pool *threads;
  size_t bytes;
  attn_grad g = grads_of(p);
  CHECK_OK(pool_create(r.threads, false, &threads));
  CHECK_OK(attn_backward_work(&p->s, r.threads, &bytes));
  void *work = aligned_work(bytes);
  CHECK_OK(attn_backward(r.isa, threads, &p->s, &g, work));
  free(work);
  pool_free(threads);
}

/* --- the formula, in double ------------------------------------------------------------------- */

static bool sees(const attn_spec *s, int64_t b, int64_t t, int64_t j) {
  int64_t pos = t + s->Tk - s->Tq, anchor = pos;
  if (s->span) {
    const int32_t *x = s->span + 2 * (b * s->Tq + t);
    if (j < x[0] || j > x[1]) return false;
    anchor = x[1];
  } else if (s->causal && j > pos) {
    return false;
  }
  return !s->window || anchor - j < s->window;
}

typedef struct {
  double *o, *lse, *dq, *dk, *dv;
} reference;

/* What dropout multiplies the weight of query row `row` and key j with. */
static double kept(const attn_spec *s, int64_t row, int64_t j) {
  const attn_dropout *d = &s->dropout;
  if (d->p == 0) return 1;
  return philox_uniform(d->seed, d->stream, (uint64_t)row << 34 | (uint64_t)j) < (float)d->p
             ? 0
             : 1 / (1 - d->p);
}

static void reference_row(const problem *p, reference *r, int64_t b, int64_t h, int64_t t,
                          double *prob) {
  const attn_spec *s = &p->s;
  int64_t kv = h / (s->H / s->KV), row = (b * s->Tq + t) * s->H + h,
          turned = (b * s->H + h) * s->Tq + t;
  double top = -INFINITY, sum = 0, delta = 0;
  const float *q = p->q + row * s->D, *d_o = p->d_o + row * s->Dv;
  for (int64_t j = 0; j < s->Tk; j++) {
    const float *k = p->k + ((b * s->Tk + j) * s->KV + kv) * s->D;
    prob[j] = -INFINITY;
    if (!sees(s, b, t, j)) continue;
    prob[j] = 0;
    for (int64_t d = 0; d < s->D; d++) prob[j] += (double)q[d] * k[d];
    prob[j] *= s->scale;
    if (prob[j] > top) top = prob[j];
  }
  for (int64_t j = 0; j < s->Tk; j++)
    sum += prob[j] = prob[j] == -INFINITY ? 0 : exp(prob[j] - top);
  r->lse[turned] = sum > 0 ? top + log(sum) : -INFINITY;
  for (int64_t j = 0; j < s->Tk; j++) {
    const float *v = p->v + ((b * s->Tk + j) * s->KV + kv) * s->Dv;
    double mask = kept(s, turned, j);
    prob[j] = sum > 0 ? prob[j] / sum : 0;
    for (int64_t d = 0; d < s->Dv; d++) r->o[row * s->Dv + d] += prob[j] * mask * v[d];
  }
  for (int64_t d = 0; d < s->Dv; d++) delta += r->o[row * s->Dv + d] * d_o[d];
  for (int64_t j = 0; j < s->Tk; j++) {
    int64_t at = (b * s->Tk + j) * s->KV + kv;
    double dp = 0, mask = kept(s, turned, j);
    for (int64_t d = 0; d < s->Dv; d++) {
      dp += mask * p->v[at * s->Dv + d] * d_o[d];
      r->dv[at * s->Dv + d] += prob[j] * mask * d_o[d];
    }
    double ds = prob[j] * (dp - delta) * s->scale;
    for (int64_t d = 0; d < s->D; d++) {
      r->dq[row * s->D + d] += ds * p->k[at * s->D + d];
      r->dk[at * s->D + d] += ds * q[d];
    }
  }
}

static reference refer(const problem *p) {
  const attn_spec *s = &p->s;
  reference r = {zeroed(count_o(s), 8), zeroed(s->B * s->H * s->Tq, 8), zeroed(count_q(s), 8),
                 zeroed(count_k(s), 8), zeroed(count_v(s), 8)};
  double *prob = zeroed(s->Tk, sizeof *prob);
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t h = 0; h < s->H; h++)
      for (int64_t t = 0; t < s->Tq; t++) reference_row(p, &r, b, h, t, prob);
  mem_free(prob);
  return r;
}
static void drop_reference(reference *r) {
  mem_free(r->o), mem_free(r->lse), mem_free(r->dq), mem_free(r->dk), mem_free(r->dv);
}

static void check_near(const char *what, const void *got, hp_dtype t, const double *want, int64_t n,
                       double tol) {
  float *x = zeroed(n, sizeof *x);
  CHECK_OK(dtype_convert(HP_F32, x, t, got, (size_t)n));
  for (int64_t i = 0; i < n; i++)
    if (!(fabs(x[i] - want[i]) <= tol * (1 + fabs(want[i])) || x[i] == want[i]))
      test_fail(__FILE__, __LINE__, "%s[%lld] = %.9g, want %.9g", what, (long long)i, (double)x[i],
                want[i]);
  mem_free(x);
}

static void check_problem(problem *p, runner r, double tol) {
  reference want = refer(p);
  const attn_spec *s = &p->s;
  run_forward(p, r);
  check_near("o", p->o, p->dtype, want.o, count_o(s), tol);
  check_near("lse", p->lse, HP_F32, want.lse, s->B * s->H * s->Tq, tol > 1e-4 ? 1e-4 : tol);
  run_backward(p, r);
  check_near("dq", p->dq, p->dtype, want.dq, count_q(s), 8 * tol);
  check_near("dk", p->dk, p->dtype, want.dk, count_k(s), 8 * tol);
  check_near("dv", p->dv, p->dtype, want.dv, count_v(s), 8 * tol);
  drop_reference(&want);
}

/* Spans of packed sequences of uneven length, some rows blind. */
static int32_t *packed_spans(int64_t B, int64_t Tq, int64_t Tk) {
  int32_t *x = zeroed(B * Tq * 2, sizeof *x);
  for (int64_t b = 0, start = 0; b < B; b++, start = 0)
    for (int64_t t = 0; t < Tq; t++) {
      if (philox_uniform(5, (uint64_t)b, (uint64_t)t) < 0.06f) start = t;
      int32_t *at = x + 2 * (b * Tq + t);
      at[0] = (int32_t)start, at[1] = (int32_t)(t + Tk - Tq);
      if (t % 17 == 5) at[0] = 9, at[1] = 3;
      if (t % 29 == 7) at[0] = -4, at[1] = INT32_MAX;
    }
  return x;
}

static const attn_spec grid[] = {
    {1, 1, 1, 1, 1, 1, 1, 1.0f, true, 0, NULL, {.p = 0}},
    {4, 1, 300, 12, 12, 8, 8, 0.3f, true, 0, NULL, {.p = 0}}, /* heads by fours, dealt to few */
    {2, 7, 7, 2, 1, 5, 3, 0.5f, true, 0, NULL, {.p = 0}},
    {1, 33, 33, 3, 3, 16, 16, 0.25f, false, 0, NULL, {.p = 0}},
    {2, 65, 65, 4, 2, 64, 64, 0.125f, true, 0, NULL, {.p = 0}},
    {1, 37, 150, 2, 1, 33, 47, 0.2f, true, 0, NULL, {.p = 0}},   /* more keys than queries */
    {1, 90, 50, 1, 1, 8, 24, 0.3f, true, 0, NULL, {.p = 0}},     /* and fewer: blind rows */
    {1, 200, 200, 2, 2, 24, 8, 0.2f, true, 70, NULL, {.p = 0}},  /* window */
    {1, 131, 131, 1, 1, 20, 20, 0.2f, false, 9, NULL, {.p = 0}}, /* window without causal */
    {1, 40, 1100, 2, 1, 16, 16, 0.3f, true, 0, NULL, {.p = 0}},  /* segments */
    {2, 1, 1300, 6, 2, 40, 24, 0.2f, true, 0, NULL, {.p = 0}},   /* decoding */
    {1, 1, 333, 7, 7, 72, 88, 0.1f, true, 50, NULL, {.p = 0}},   /* one row a head, heads abreast */
    {1, 3, 600, 2, 1, 17, 31, 0.2f, true, 100, NULL, {.p = 0}},
    {1, 2, 130, 20, 1, 8, 8, 0.3f, true, 0, NULL, {.p = 0}},
    {1, 5, 0, 2, 1, 8, 8, 0.3f, false, 0, NULL, {.p = 0}},
    {1, 0, 5, 2, 1, 8, 8, 0.3f, false, 0, NULL, {.p = 0}},
    {1, 5, 9, 1, 1, 512, 300, 0.05f, false, 0, NULL, {.p = 0}},
    {0, 5, 9, 1, 1, 8, 8, 1.0f, false, 0, NULL, {.p = 0}},
    {2, 70, 90, 4, 2, 20, 12, 0.3f, true, 0, NULL, {0.25, 77, 3, 0, 0}},
    {1, 300, 300, 2, 1, 8, 24, 0.3f, true, 40, NULL, {0.1, UINT64_MAX, UINT64_MAX, 0, 0}},
    {2, 1, 600, 6, 3, 16, 16, 0.2f, true, 0, NULL, {0.5, 1, 0, 0, 0}}, /* few rows, segments */
};
enum { GRID = sizeof grid / sizeof *grid };

TEST(output_and_gradients_equal_the_formula) {
  for (int i = 0; i < GRID; i++) {
    problem p = make(grid[i], HP_F32);
    check_problem(&p, (runner){cpu_best_isa(), 2}, 5e-6);
    drop(&p);
  }
}

TEST(spans_replace_the_causal_rule_and_blind_rows_give_zero) {
  for (int64_t window = 0; window < 40; window += 30) {
    attn_spec s = {2, 150, 170, 2, 1, 24, 16, 0.3f, true, window, NULL, {.p = 0}};
    int32_t *span = packed_spans(s.B, s.Tq, s.Tk);
    s.span = span;
    problem p = make(s, HP_F32);
    check_problem(&p, (runner){cpu_best_isa(), 2}, 5e-6);
    float *o = p.o;
    for (int64_t i = 0; i < s.H * s.Dv; i++) CHECK(o[5 * s.H * s.Dv + i] == 0);
    CHECK(p.lse[5] == -INFINITY);
    drop(&p);
    mem_free(span);
  }
}

/* All result bits, one after the other. */
static uint64_t bits_of(const problem *p) {
  uint64_t h = 1469598103934665603u;
  const attn_spec *s = &p->s;
  const void *at[] = {p->o, p->lse, p->dq, p->dk, p->dv};
  size_t n[] = {(size_t)count_o(s), (size_t)(s->B * s->H * s->Tq), (size_t)count_q(s),
                (size_t)count_k(s), (size_t)count_v(s)};
  for (int i = 0; i < 5; i++) {
    size_t bytes = n[i] * (i == 1 ? 4 : dtype_size(p->dtype));
    for (size_t j = 0; j < bytes; j++) h = (h ^ ((const unsigned char *)at[i])[j]) * 1099511628211u;
  }
  return h;
}

TEST(bits_depend_on_neither_isa_nor_threads) {
  for (int i = 0; i < 2 * (GRID + 1); i++) {
    attn_spec s = grid[i / 2 % GRID];
    int32_t *span = NULL;
    if (i / 2 == GRID) {
      s = (attn_spec){2, 70, 150, 2, 1, 20, 12, 0.3f, true, 33, NULL, {.p = 0}};
      s.span = span = packed_spans(s.B, s.Tq, s.Tk);
    }
    problem p = make(s, i % 2 ? HP_BF16 : HP_F32);
    uint64_t want = 0;
    for (int isa = ISA_COUNT; isa-- > 0;)
      for (int threads = 1; threads <= 3 && cpu_has_isa((cpu_isa)isa); threads++) {
        if (isa == ISA_PLAIN && threads == 2) continue;
        runner r = {(cpu_isa)isa, isa == ISA_AVX2 && threads == 3 ? 16 : threads};
        run_forward(&p, r);
        run_backward(&p, r);
        uint64_t got = bits_of(&p);
        if (!want) want = got;
        if (got != want)
          test_fail(__FILE__, __LINE__, "shape %d: other bits with %s, %d threads", i,
                    cpu_isa_name(r.isa), r.threads);
      }
    drop(&p);
    mem_free(span);
  }
}

/* Rows from .. from + n - 1 of the prefill, computed with the keys there were at that moment. */
static void check_rows(const problem *p, int64_t from, int64_t n, runner r) {
  attn_spec s = p->s;
  pool *threads;
  size_t bytes, each = dtype_size(p->dtype);
  int64_t row = s.H * s.Dv;
  s.Tq = n, s.Tk = from + n;
  char *o = zeroed(s.B * n * row, each), *first = p->in[0];
  float *lse = zeroed(s.B * s.H * n, sizeof *lse);
  attn_view q = view(first + from * s.H * s.D * (int64_t)each, p->dtype, p->s.Tq, s.H, s.D);
  attn_view k = view(p->in[1], p->dtype, p->s.Tk, s.KV, s.D);
  attn_view v = view(p->in[2], p->dtype, p->s.Tk, s.KV, s.Dv);
  attn_view to = view(o, p->dtype, n, s.H, s.Dv);
  CHECK_OK(pool_create(r.threads, false, &threads));
  CHECK_OK(attn_forward_work(&s, r.threads, &bytes));
  void *work = aligned_work(bytes);
  CHECK_OK(attn_forward(r.isa, threads, &s, &q, &k, &v, &to, lse, work));
  const char *want = p->o;
  for (int64_t b = 0; b < s.B; b++) {
    const char *a = o + b * n * row * (int64_t)each;
    const char *c = want + (b * p->s.Tq + from) * row * (int64_t)each;
    if (memcmp(a, c, each * (size_t)(n * row)))
      test_fail(__FILE__, __LINE__, "rows %lld..%lld have other bits", (long long)from,
                (long long)(from + n - 1));
    for (int64_t h = 0; h < s.H; h++)
      CHECK(!memcmp(lse + (b * s.H + h) * n, p->lse + (b * s.H + h) * p->s.Tq + from,
                    sizeof(float) * (size_t)n));
  }
  free(work);
  mem_free(o), mem_free(lse);
  pool_free(threads);
}

TEST(prefill_and_decoding_give_the_same_bits) {
  attn_spec s = {2, 1090, 1090, 4, 2, 24, 20, 0.2f, true, 0, NULL, {.p = 0}};
  for (int pass = 0; pass < 3; pass++, s.window = 333) {
    problem p = make(s, pass < 2 ? HP_F32 : HP_BF16);
    run_forward(&p, (runner){cpu_best_isa(), 2});
    for (int64_t t = 0; t < s.Tq; t += 63)
      check_rows(&p, t, 1, (runner){cpu_best_isa(), 1 + t % 3});
    check_rows(&p, 1089, 1, (runner){ISA_PLAIN, 1});
    check_rows(&p, 511, 4, (runner){cpu_best_isa(), 3});
    check_rows(&p, 1000, 7, (runner){cpu_best_isa(), 16});
    check_rows(&p, 600, 13, (runner){cpu_best_isa(), 1});
    check_rows(&p, 500, 300, (runner){cpu_best_isa(), 2});
    drop(&p);
  }
}

TEST(narrow_types_round_what_they_store_and_bf16_its_weights) {
  attn_spec s = {1, 75, 75, 4, 2, 32, 24, 0.2f, true, 0, NULL, {.p = 0}};
  problem p = make(s, HP_BF16);
  check_problem(&p, (runner){cpu_best_isa(), 2}, 4e-3);
  drop(&p);
  p = make(s, HP_F16);
  check_problem(&p, (runner){cpu_best_isa(), 2}, 5e-4);
  drop(&p);
  s.Tq = 1, s.Tk = 700;
  p = make(s, HP_F16);
  check_problem(&p, (runner){cpu_best_isa(), 2}, 5e-4);
  drop(&p);
}

static void check_differences(const attn_dropout *dropout) {
  attn_spec s = {1, 9, 12, 2, 1, 6, 5, 0.4f, true, 0, NULL, *dropout};
  problem p = make(s, HP_F32);
  runner r = {cpu_best_isa(), 1};
  run_forward(&p, r);
  run_backward(&p, r);
  float *x[3] = {p.in[0], p.in[1], p.in[2]}, *g[3] = {p.dq, p.dk, p.dv};
  int64_t n[3] = {count_q(&s), count_k(&s), count_v(&s)};
  for (int k = 0; k < 3; k++)
    for (int64_t i = 0; i < n[k]; i += 5) {
      double loss[2] = {0};
      float old = x[k][i], want = g[k][i];
      for (int side = 0; side < 2; side++) {
        x[k][i] = old + (side ? 0.01f : -0.01f);
        run_forward(&p, r);
        for (int64_t j = 0; j < count_o(&s); j++)
          loss[side] += (double)((float *)p.o)[j] * p.d_o[j];
      }
      x[k][i] = old;
      CHECK_NEAR((loss[1] - loss[0]) / 0.02, want, 2e-3);
    }
  drop(&p);
}
TEST(gradients_equal_finite_differences) {
  check_differences(&(attn_dropout){.p = 0});
  check_differences(&(attn_dropout){0.4, 5, 6, 0, 0});
}

TEST(a_fused_buffer_is_read_in_place_and_stale_cache_is_not_read) {
  /* q, k, v side by side in one row; a cache with room for 96 keys of which 70 are filled */
  enum { T = 40, H = 3, D = 20, ROW = 3 * H * D, ROOM = 96, FILLED = 70 };
  attn_spec s = {1, T, T, H, H, D, D, 0.2f, true, 0, NULL, {.p = 0}};
  problem p = make(s, HP_F32);
  runner r = {cpu_best_isa(), 2};
  run_forward(&p, r);
  float *fused = zeroed(T * ROW, sizeof *fused), *o = zeroed(T * H * D, sizeof *o);
  for (int t = 0; t < T; t++) {
    memcpy(fused + t * ROW, p.q + t * H * D, sizeof(float) * H * D);
    memcpy(fused + t * ROW + H * D, p.k + t * H * D, sizeof(float) * H * D);
    memcpy(fused + t * ROW + 2 * H * D, p.v + t * H * D, sizeof(float) * H * D);
  }
  attn_view q = {fused, HP_F32, 0, ROW, D}, k = q, v = q, to = view(o, HP_F32, T, H, D);
  k.at = fused + H * D, v.at = fused + 2 * H * D;
  pool *threads;
  size_t bytes;
  CHECK_OK(pool_create(2, false, &threads));
  CHECK_OK(attn_forward_work(&s, 2, &bytes));
  void *work = aligned_work(bytes);
  uint64_t before = mem_count();
  CHECK_OK(attn_forward(r.isa, threads, &s, &q, &k, &v, &to, NULL, work));
  CHECK_EQ(mem_count(), before);
  CHECK(!memcmp(o, p.o, sizeof(float) * T * H * D));
  free(work);
  drop(&p);

  s = (attn_spec){1, 1, ROOM, H, H, D, D, 0.2f, false, 0, NULL, {.p = 0}};
  int32_t span[2] = {0, FILLED - 1};
  p = make(s, HP_F32);
  float *kc = p.in[1], *vc = p.in[2];
  for (int64_t i = FILLED * H * D; i < ROOM * H * D; i++) kc[i] = vc[i] = p.k[i] = p.v[i] = NAN;
  p.s.span = span;
  run_forward(&p, r);
  reference want = refer(&p);
  (void)want;
  for (int64_t i = 0; i < H * D; i++) CHECK(isfinite(((float *)p.o)[i]));
  drop_reference(&want);
  drop(&p);
  mem_free(fused), mem_free(o);
  pool_free(threads);
}

TEST(shapes_that_make_no_sense_are_refused) {
  const attn_spec good = {1, 4, 4, 4, 2, 8, 8, 1.0f, true, 0, NULL, {.p = 0}};
  size_t bytes;
  attn_spec s = good;
  CHECK_OK(attn_forward_work(&s, 1, &bytes));
  s.KV = 3;
  CHECK_FAILS(attn_forward_work(&s, 1, &bytes), "4 query heads on 3 key heads");
  s = good, s.KV = 0;
  CHECK_FAILS(attn_backward_work(&s, 1, &bytes), "key heads");
  s = good, s.D = 513;
  CHECK_FAILS(attn_forward_work(&s, 1, &bytes), "513");
  s = good, s.Tk = -1;
  CHECK_FAILS(attn_backward_work(&s, 1, &bytes), "-1 keys");
  s = good, s.window = -2;
  CHECK_FAILS(attn_forward_work(&s, 1, &bytes), "window of -2");
  s = good, s.window = INT64_MAX;
  problem p = make(s, HP_F32);
  check_problem(&p, (runner){cpu_best_isa(), 1}, 5e-6);
  drop(&p);
  s = good, s.Tq = 1, s.Tk = 1 << 30, s.B = 1 << 24, s.H = s.KV = 1 << 24;
  CHECK_FAILS(attn_forward_work(&s, 1, &bytes), "larger than can be addressed");
}
