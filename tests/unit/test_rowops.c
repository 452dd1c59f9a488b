#include "rounded.h"
#include "test.h"

#include "backend/cpu/rows/rowops.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/philox.h"

#include <math.h>
#include <stdlib.h>

/* Runs body for every instruction set of this CPU and 1, 2, 3 threads. */
#define EVERYWHERE(isa, p)                                                                         \
  for (int i_ = 0; i_ < 3 * ISA_COUNT; i_++)                                                       \
    for (pool *p = open_pool((cpu_isa)(i_ / 3), i_ % 3 + 1); p; pool_free(p), p = NULL)            \
      for (cpu_isa isa = (cpu_isa)(i_ / 3), once_ = 0; !once_; once_ = 1)

static pool *open_pool(cpu_isa isa, int threads) {
  pool *p;
  if (!cpu_has_isa(isa)) return NULL;
  CHECK_OK(pool_create(threads, false, &p));
  return p;
}

static float *as_f32(const void *x, hp_dtype t, int64_t n) {
  float *y = room_for(n, sizeof *y);
  CHECK_OK(dtype_convert(HP_F32, y, t, x, (size_t)n));
  return y;
}

/* --- cross-entropy ---------------------------------------------------------------------------- */

enum { IGNORE = -100 };

static void check_loss_row(const float *x, int64_t V, int64_t label, float loss, float lse,
                           float dloss, const float *grad, double tol) {
  double top = -INFINITY, sum = 0;
  for (int64_t v = 0; v < V; v++) top = x[v] > top ? x[v] : top;
  for (int64_t v = 0; v < V; v++) sum += exp(x[v] - top);
  double want = top + log(sum);
  CHECK_NEAR(lse, want, 2e-6 * (1 + fabs(want)));
  CHECK_NEAR(loss, label == IGNORE ? 0 : want - x[label], 2e-6 * (1 + fabs(want)));
  for (int64_t v = 0; v < V; v++) {
    double g = (exp(x[v] - want) - (v == label)) * dloss;
    CHECK_NEAR(grad[v], label == IGNORE ? 0 : g, tol);
  }
}

static void check_cross_entropy(hp_dtype t, int64_t N, int64_t V, hp_dtype label_type) {
  float *x, loss[64], lse[64], dloss[64];
  int64_t wide[64];
  int32_t narrow[64];
  void *logits = rounded_normals(N * V, t, 3, 1, &x), *out = room_for(N * V, dtype_size(t)),
       *first = NULL;
  float first_loss[64];
  for (int64_t i = 0; i < N; i++) {
    wide[i] = i % 5 == 3 ? IGNORE : (int64_t)(philox_u32(1, 2, (uint64_t)i) % (uint64_t)V);
    narrow[i] = (int32_t)wide[i];
    dloss[i] = 0.25f * (float)(i + 1);
  }
  row_labels r =
      {N, V, logits, t, label_type == HP_I64 ? (void *)wide : (void *)narrow, label_type, IGNORE};
  EVERYWHERE(isa, p) {
    CHECK_OK(row_cross_entropy(isa, p, &r, loss, lse));
    CHECK_OK(row_cross_entropy_grad(isa, p, &r, lse, dloss, out));
    if (!first) {
      float *grad = as_f32(out, t, N * V);
      for (int64_t i = 0; i < N; i++)
        check_loss_row(x + i * V, V, wide[i], loss[i], lse[i], dloss[i], grad + i * V,
                       (t == HP_F32 ? 1e-6 : 4e-3) * (1 + dloss[i]));
      mem_free(grad);
      first = room_for(N * V, dtype_size(t));
      memcpy(first, out, (size_t)(N * V) * dtype_size(t));
      memcpy(first_loss, loss, sizeof loss);
    }
    CHECK(!memcmp(first, out, (size_t)(N * V) * dtype_size(t)));
    CHECK(!memcmp(first_loss, loss, sizeof(float) * (size_t)N));
  }
  pool *p = open_pool(cpu_best_isa(), 2); /* in place */
  CHECK_OK(row_cross_entropy_grad(cpu_best_isa(), p, &r, lse, dloss, logits));
  CHECK(!memcmp(first, logits, (size_t)(N * V) * dtype_size(t)));
  pool_free(p);
  mem_free(x), mem_free(logits), mem_free(out), mem_free(first);
}

TEST(cross_entropy_and_its_gradient_equal_the_formula) {
  check_cross_entropy(HP_F32, 7, 1003, HP_I64);
  check_cross_entropy(HP_F32, 33, 16, HP_I32);
  check_cross_entropy(HP_F32, 5, 1, HP_I32);
  check_cross_entropy(HP_BF16, 9, 517, HP_I64);
  check_cross_entropy(HP_BF16, 9, 1024, HP_I32);
  check_cross_entropy(HP_BF16, 3, 2, HP_I32);
  check_cross_entropy(HP_F16, 9, 67, HP_I32);
  check_cross_entropy(HP_F32, 0, 5, HP_I64);
  check_cross_entropy(HP_F32, 3, 8197, HP_I32); /* rows of several blocks */
  check_cross_entropy(HP_BF16, 3, 12289, HP_I32);
  check_cross_entropy(HP_F16, 2, 4095 + 130, HP_I32);
}

/* Each block has a larger maximum than those before it: the sum is scaled 32 times. */
TEST(cross_entropy_keeps_its_error_where_maxima_creep) {
  enum { V = 65536, STEP = 2048 };
  uint16_t *x = room_for(V, 2);
  float loss, lse;
  int32_t label = 0;
  double sum = 0;
  for (int i = 0; i < V; i++) {
    x[i] = f32_to_bf16((float)(i / STEP) * 0.09f - (float)(i % 5));
    sum += exp((double)bf16_to_f32(x[i]));
  }
  row_labels r = {1, V, x, HP_BF16, &label, HP_I32, -1};
  EVERYWHERE(isa, p) {
    CHECK_OK(row_cross_entropy(isa, p, &r, &loss, &lse));
    CHECK_NEAR(lse, log(sum), 0x1p-18);
  }
  mem_free(x);
}

TEST(cross_entropy_of_extreme_logits_stays_finite) {
  float x[2][20], loss[2], lse[2];
  int32_t label[2] = {0, 3};
  for (int i = 0; i < 20; i++) x[0][i] = i ? -INFINITY : 5, x[1][i] = 3e38f;
  row_labels r = {2, 20, x, HP_F32, label, HP_I32, -1};
  EVERYWHERE(isa, p) {
    CHECK_OK(row_cross_entropy(isa, p, &r, loss, lse));
    CHECK(loss[0] == 0 && lse[0] == 5);
    CHECK(isfinite(loss[1]));
  }
}

/* Blocks of a row whose largest number comes later and later, after one that is all -inf. */
TEST(cross_entropy_takes_the_sums_of_blocks_to_one_reference) {
  enum { V = 13000, B = 4096 };
  static float x[V];
  float loss, lse;
  int32_t label = 3 * B;
  for (int i = 0; i < V; i++) x[i] = i < B ? -INFINITY : (float)(i / B) * 2;
  for (hp_dtype t = HP_F32; t <= HP_F16; t = (hp_dtype)(t + 1)) {
    void *logits = room_for(V, dtype_size(t));
    CHECK_OK(dtype_convert(t, logits, HP_F32, x, V));
    row_labels r = {1, V, logits, t, &label, HP_I32, -1};
    EVERYWHERE(isa, p) {
      CHECK_OK(row_cross_entropy(isa, p, &r, &loss, &lse));
      CHECK_NEAR(lse, log(B * (exp(2) + exp(4)) + (V - 3 * B) * exp(6)), 1e-5);
      CHECK_NEAR(loss, lse - 6, 1e-5);
    }
    mem_free(logits);
  }
}

/* A NaN whose lower half would carry into its upper one. */
TEST(a_nan_of_any_kind_makes_gradients_nan) {
  enum { V = 300 };
  static uint16_t x[V], out[V];
  float lse[2] = {6, f32_from_bits(0xffffffffu)}, dloss[2] = {f32_from_bits(0x7fffffffu), 1};
  int32_t label = 200;
  row_labels r = {1, V, x, HP_BF16, &label, HP_I32, -1};
  EVERYWHERE(isa, p)
  for (int k = 0; k < 2; k++) {
    CHECK_OK(row_cross_entropy_grad(isa, p, &r, &lse[k], &dloss[k], out));
    for (int i = 0; i < V; i++) CHECK(isnan(bf16_to_f32(out[i])));
  }
}

/* bf16 whose largest is without a sign or with one, whose rest is -inf, and with a NaN. */
TEST(the_largest_of_bf16_logits_is_found_among_signs) {
  enum { V = 70 };
  static const float top[4] = {3, -2, -0.0f, -1}, rest[4] = {-9, -7, -INFINITY, NAN};
  uint16_t x[4][V];
  float loss[4], lse[4];
  int32_t label[4] = {33, 33, 33, 33};
  for (int r = 0; r < 4; r++)
    for (int i = 0; i < V; i++) x[r][i] = f32_to_bf16(i == 33 ? top[r] : rest[r]);
  row_labels l = {4, V, x, HP_BF16, label, HP_I32, -1};
  EVERYWHERE(isa, p) {
    CHECK_OK(row_cross_entropy(isa, p, &l, loss, lse));
    for (int r = 0; r < 3; r++)
      CHECK_NEAR(lse[r], top[r] + log1p((V - 1) * exp(rest[r] - top[r])), 1e-6);
    CHECK(loss[2] == 0 && isnan(lse[3]));
  }
}

/* Gradients past the caches, from rows at places of every alignment, against gradients in place. */
static void check_large_gradient(hp_dtype t, int64_t V) {
  enum { N = 40 };
  size_t bytes = (size_t)(N * V) * dtype_size(t);
  float lse[N], dloss[N], loss[N];
  int32_t label[N];
  float *wide = room_for(N * V, sizeof *wide);
  for (int64_t i = 0; i < N * V; i++) wide[i] = philox_unit((uint32_t)i * 2654435761u) * 8;
  void *x = room_for(N * V, dtype_size(t)), *out = room_for(N * V, dtype_size(t));
  CHECK_OK(dtype_convert(t, x, HP_F32, wide, (size_t)(N * V)));
  for (int i = 0; i < N; i++) label[i] = i % 7 ? i * 31 : -100, dloss[i] = (float)i;
  row_labels r = {N, V, x, t, label, HP_I32, -100};
  pool *p = open_pool(cpu_best_isa(), 2);
  CHECK_OK(row_cross_entropy(cpu_best_isa(), p, &r, loss, lse));
  CHECK_OK(row_cross_entropy_grad(cpu_best_isa(), p, &r, lse, dloss, out));
  CHECK_OK(row_cross_entropy_grad(cpu_best_isa(), p, &r, lse, dloss, x));
  CHECK(!memcmp(out, x, bytes));
  pool_free(p);
  mem_free(wide), mem_free(x), mem_free(out);
}

TEST(a_gradient_past_the_caches_is_that_in_place) {
  check_large_gradient(HP_F32, 110003);
  check_large_gradient(HP_BF16, 220003);
}

TEST(labels_outside_of_the_classes_are_refused) {
  float x[12] = {0}, loss[3], lse[3], d[3] = {1, 1, 1};
  int64_t label[3] = {0, -1, 4};
  row_labels r = {3, 4, x, HP_F32, label, HP_I64, -1};
  pool *p = open_pool(ISA_PLAIN, 1);
  CHECK_FAILS(row_cross_entropy(ISA_PLAIN, p, &r, loss, lse), "label 4 of row 2");
  CHECK_FAILS(row_cross_entropy_grad(ISA_PLAIN, p, &r, lse, d, x), "label 4 of row 2");
  r.ignore = -100;
  CHECK_FAILS(row_cross_entropy(ISA_PLAIN, p, &r, loss, lse), "label -1 of row 1");
  r.dtype = HP_U8;
  CHECK_FAILS(row_cross_entropy(ISA_PLAIN, p, &r, loss, lse), "u8");
  pool_free(p);
}

/* --- embedding -------------------------------------------------------------------------------- */

TEST(embedding_gathers_rows_and_its_gradient_sums_them) {
  enum { V = 37, C = 83, N = 300 };
  int32_t id[N];
  int64_t id64[N];
  for (int i = 0; i < N; i++) id64[i] = id[i] = (int32_t)(philox_u32(1, 7, (uint64_t)i) % (V - 2));
  for (int kind = 0; kind < 3; kind++) {
    hp_dtype t = kind == 0 ? HP_F32 : kind == 1 ? HP_BF16 : HP_F16;
    int32_t left_out = id[5];
    for (int i = 0; i < N && kind; i++)
      if (id[i] == left_out || id[i] < 0) id64[i] = id[i] = ID_ELSEWHERE;
    row_ids r = {V, C, N, kind ? (void *)id64 : (void *)id, kind ? HP_I64 : HP_I32};
    float *exact, *dy_exact, want[V * C] = {0};
    void *table = rounded_normals(V * C, t, 3, 3, &exact),
         *dy = rounded_normals(N * C, t, 3, 4, &dy_exact);
    void *out = room_for(N * C, dtype_size(t)), *grad = room_for(V * C, dtype_size(t));
    size_t bytes;
    CHECK_OK(row_embedding_grad_work(&r, &bytes));
    void *work = room_for((int64_t)bytes, 1);
    for (int i = 0; i < N; i++)
      for (int c = 0; c < C && id[i] >= 0; c++) want[id[i] * C + c] += dy_exact[i * C + c];
    EVERYWHERE(isa, p) {
      CHECK_OK(row_embedding(isa, p, &r, t, table, out));
      float *o = as_f32(out, t, N * C);
      for (int i = 0; i < N * C; i++)
        CHECK(o[i] == (id[i / C] < 0 ? 0 : exact[id[i / C] * C + i % C]));
      mem_free(o);
      memset(grad, 0xff, V * C * dtype_size(t));
      CHECK_OK(row_embedding_grad(isa, p, &r, t, dy, t, grad, false, work));
      float *g = as_f32(grad, t, V * C);
      for (int i = 0; i < V * C; i++) {
        float w = want[i];
        if (t == HP_BF16) w = bf16_to_f32(f32_to_bf16(w));
        if (t == HP_F16) w = f16_to_f32(f32_to_f16(w));
        CHECK(g[i] == w); /* the same sum in the same order */
      }
      mem_free(g);
    }
    mem_free(exact), mem_free(dy_exact), mem_free(table), mem_free(dy);
    mem_free(out), mem_free(grad), mem_free(work);
  }
}

/* The gradient [V,C] of n positions, the rows dy of which are those of `exact`. */
static void check_large_sums(cpu_isa isa, pool *p, const row_ids *r, hp_dtype t, const void *dy,
                             const float *exact, char *grad) {
  int64_t bytes = r->C * (int64_t)dtype_size(t);
  size_t work_bytes;
  CHECK_OK(row_embedding_grad_work(r, &work_bytes));
  void *work = room_for((int64_t)work_bytes, 1), *row = room_for(1, (size_t)bytes);
  float *sum = room_for(r->C, sizeof *sum);
  memset(grad, 0xff, (size_t)(r->V * bytes));
  CHECK_OK(row_embedding_grad(isa, p, r, t, dy, t, grad, false, work));
  for (int64_t v = 0; v < r->V; v++) {
    memset(sum, 0, (size_t)r->C * sizeof *sum);
    for (int64_t i = 0; i < r->n; i++)
      for (int64_t c = 0; c < r->C && ((const int32_t *)r->ids)[i] == v; c++)
        sum[c] += exact[i * r->C + c];
    CHECK_OK(dtype_convert(t, row, HP_F32, sum, (size_t)r->C));
    CHECK(!memcmp(grad + v * bytes, row, (size_t)bytes));
  }
  mem_free(work), mem_free(row), mem_free(sum);
}

/* Results past the caches, rows at places of every alignment. */
TEST(a_large_embedding_has_the_rows_of_the_table_and_its_gradient_their_sums) {
  enum { V = 11, N = 1100 };
  for (int kind = 0; kind < 3; kind++) {
    hp_dtype t = kind == 0 ? HP_F32 : HP_BF16;
    int64_t C = kind == 0 ? 4099 : 8190 + kind, bytes = C * (int64_t)dtype_size(t);
    int32_t id[N], place[V];
    for (int i = 0; i < N; i++) id[i] = i % 13 == 5 ? ID_ELSEWHERE : i * 7 % V;
    for (int i = 0; i < V; i++) place[i] = i % 4 * 300;
    row_ids r = {V, C, N, id, HP_I32}, back = {N, C, V, place, HP_I32};
    float *exact;
    char *table = rounded_normals(V * C, t, 3, 5, &exact), *out = mem_map((size_t)(N * bytes));
    char *none = room_for(1, (size_t)bytes);
    memset(none, 0, (size_t)bytes);
    EVERYWHERE(isa, p) {
      memset(out, 0xff, (size_t)(N * bytes));
      CHECK_OK(row_embedding(isa, p, &r, t, table, out));
      for (int i = 0; i < N; i++)
        CHECK(!memcmp(out + i * bytes, id[i] < 0 ? none : table + id[i] * bytes, (size_t)bytes));
      check_large_sums(isa, p, &back, t, table, exact, out);
    }
    mem_free(exact), mem_free(table), mem_unmap(out, (size_t)(N * bytes)), mem_free(none);
  }
}

TEST(ids_outside_of_the_table_are_refused) {
  float table[6] = {0}, out[6], work[16];
  int32_t id[2] = {1, 2};
  row_ids r = {2, 3, 2, id, HP_I32};
  pool *p = open_pool(ISA_PLAIN, 1);
  CHECK_FAILS(row_embedding(ISA_PLAIN, p, &r, HP_F32, table, out), "id 2 at position 1");
  CHECK_FAILS(row_embedding_grad(ISA_PLAIN, p, &r, HP_F32, out, HP_F32, table, false, work),
              "id 2 at position 1");
  id[1] = -1;
  CHECK_FAILS(row_embedding(ISA_PLAIN, p, &r, HP_F32, table, out), "id -1");
  r.id_type = HP_F32;
  CHECK_FAILS(row_embedding(ISA_PLAIN, p, &r, HP_F32, table, out), "i32 or i64");
  pool_free(p);
}

/* --- rotary embedding ------------------------------------------------------------------------- */

static void check_rope(int64_t R, int64_t D, bool interleaved, hp_dtype t) {
  enum { B = 2, T = 5, H = 3, P = 40 };
  int64_t n = B * T * H * D, half = R / 2;
  float *c = room_for(P * half, 4), *s = room_for(P * half, 4), *x;
  int32_t at[B * T];
  void *in = rounded_normals(n, t, 3, 5, &x), *y = room_for(n, dtype_size(t)),
       *back = room_for(n, dtype_size(t));
  for (int64_t i = 0; i < P * half; i++) {
    double a = (double)(i / half) * pow(10000, -2.0 * (double)(i % half) / (double)R);
    c[i] = (float)cos(a), s[i] = (float)sin(a);
  }
  for (int i = 0; i < B * T; i++) at[i] = (i * 7) % P;
  EVERYWHERE(isa, p) {
    row_rope_spec r = {B, T, H, D, P, R, c, s, at, interleaved, false};
    CHECK_OK(row_rope(isa, p, &r, t, in, y));
    float *got = as_f32(y, t, n);
    for (int64_t row = 0; row < B * T * H; row++)
      for (int64_t i = 0; i < D; i++) {
        const float *v = x + row * D;
        float want = v[i];
        if (i < R) {
          int64_t k = interleaved ? i / 2 : i % half;
          bool second = interleaved ? i % 2 : i >= half;
          float a = v[interleaved ? 2 * k : k], b = v[interleaved ? 2 * k + 1 : k + half];
          float ck = c[at[row / H] * half + k], sk = s[at[row / H] * half + k];
          float p1 = second ? b * ck : a * ck, p2 = second ? a * sk : b * sk;
          want = second ? p1 + p2 : p1 - p2;
        }
        if (t == HP_BF16) want = bf16_to_f32(f32_to_bf16(want));
        CHECK(got[row * D + i] == want);
      }
    mem_free(got);
    r.inverse = true;
    CHECK_OK(row_rope(isa, p, &r, t, y, back));
    got = as_f32(back, t, n);
    for (int64_t i = 0; i < n; i++) CHECK_NEAR(got[i], x[i], t == HP_F32 ? 2e-6 : 0.1);
    mem_free(got);
    CHECK_OK(row_rope(isa, p, &r, t, y, y));
    CHECK(!memcmp(y, back, (size_t)n * dtype_size(t)));
  }
  mem_free(c), mem_free(s), mem_free(x), mem_free(in), mem_free(y), mem_free(back);
}

TEST(rope_turns_pairs_and_back) {
  check_rope(64, 64, false, HP_F32);
  check_rope(64, 64, true, HP_F32);
  check_rope(20, 33, false, HP_F32);
  check_rope(6, 33, true, HP_F32);
  check_rope(0, 7, true, HP_F32);
  check_rope(32, 40, false, HP_BF16);
  check_rope(32, 40, true, HP_BF16);
}

TEST(rope_positions_outside_of_the_table_are_refused) {
  float x[8] = {0}, table[8] = {0};
  int32_t at[2] = {1, 4};
  row_rope_spec r = {1, 2, 1, 4, 4, 4, table, table, at, false, false};
  pool *p = open_pool(ISA_PLAIN, 1);
  CHECK_FAILS(row_rope(ISA_PLAIN, p, &r, HP_F32, x, x), "position 4 of token 1");
  at[1] = -1;
  CHECK_FAILS(row_rope(ISA_PLAIN, p, &r, HP_F32, x, x), "position -1");
  r.R = 3;
  CHECK_FAILS(row_rope(ISA_PLAIN, p, &r, HP_F32, x, x), "3 of 4");
  r.R = 6;
  CHECK_FAILS(row_rope(ISA_PLAIN, p, &r, HP_F32, x, x), "6 of 4");
  pool_free(p);
}

/* --- over a tensor ---------------------------------------------------------------------------- */

TEST(sums_of_squares_are_right_and_the_same_everywhere) {
  static const int64_t sizes[] = {0, 1, 17, 65536, 65537, 200003, 40 * 65536 + 5};
  for (int k = 0; k < 7; k++)
    for (int kind = 0; kind < 2; kind++) {
      hp_dtype t = kind ? HP_BF16 : HP_F32;
      float *exact;
      int64_t n = sizes[k];
      void *x = rounded_normals(n, t, 3, 6, &exact);
      double want = 0, got, first = -1;
      size_t bytes;
      for (int64_t i = 0; i < n; i++) want += (double)exact[i] * exact[i];
      CHECK_OK(row_sum_sq_work(n, &bytes));
      void *work = room_for((int64_t)bytes, 1);
      EVERYWHERE(isa, p) {
        CHECK_OK(row_sum_sq(isa, p, t, x, n, &got, work));
        CHECK_NEAR(got, want, 1e-5 * want);
        if (first < 0) first = got;
        CHECK(first == got);
      }
      mem_free(work), mem_free(x), mem_free(exact);
    }
}

TEST(argmax_takes_the_first_of_the_largest) {
  enum { N = 60 };
  for (int64_t V = 1; V < 70; V += 11)
    for (int kind = 0; kind < 2; kind++) {
      hp_dtype t = kind ? HP_F16 : HP_F32;
      float *exact;
      void *x = rounded_normals(N * V, t, 3, 9, &exact);
      for (int64_t i = 0; i < N; i++) {
        if (i % 4 == 1)
          for (int64_t v = 0; v < V; v++) exact[i * V + v] = floorf(exact[i * V + v]);
        if (i % 4 == 2) exact[i * V + V / 2] = NAN, exact[i * V + V - 1] = NAN;
        if (i % 4 == 3)
          for (int64_t v = 0; v < V; v++) exact[i * V + v] = v % 7 == 6 ? -1 : -INFINITY;
      }
      CHECK_OK(dtype_convert(t, x, HP_F32, exact, (size_t)(N * V)));
      EVERYWHERE(isa, p) {
        int32_t got[N];
        CHECK_OK(row_argmax(isa, p, t, x, N, V, got));
        for (int64_t i = 0; i < N; i++) {
          int64_t want = 0;
          const float *row = exact + i * V;
          for (int64_t v = 1; v < V && row[want] == row[want]; v++)
            if (row[v] > row[want] || row[v] != row[v]) want = v;
          CHECK_EQ(got[i], want);
        }
      }
      mem_free(x), mem_free(exact);
    }
  pool *p = open_pool(ISA_PLAIN, 1);
  CHECK_FAILS(row_argmax(ISA_PLAIN, p, HP_F32, NULL, 1, 0, NULL), "argmax");
  pool_free(p);
}

/* --- random numbers --------------------------------------------------------------------------- */

TEST(random_parts_equal_the_whole_and_the_scalar_functions) {
  enum { A = 3, B = 70, C = 51, ALL = A * B * C };
  static float whole[ALL], part[ALL];
  row_random_spec r = {ROW_NORMAL, 77, 5, {3, {A, B, C}}, {3, {A, B, C}}, {0}};
  EVERYWHERE(isa, p) {
    for (int kind = 0; kind < 2; kind++) {
      r.kind = (row_random_kind)kind;
      CHECK_OK(row_random(isa, p, &r, HP_F32, whole));
      for (int i = 0; i < ALL; i++) {
        float u = philox_uniform(77, 5, (uint64_t)i), g = philox_normal(77, 5, (uint64_t)i);
        CHECK(whole[i] == (kind == ROW_UNIFORM ? u : g));
      }
      row_random_spec cut = r;
      cut.local = (hp_shape){3, {2, 13, 17}};
      cut.start[0] = 1, cut.start[1] = 30, cut.start[2] = 34;
      CHECK_OK(row_random(isa, p, &cut, HP_F32, part));
      for (int i = 0; i < 2 * 13 * 17; i++)
        CHECK(part[i] == whole[((i / 221 + 1) * B + i / 17 % 13 + 30) * C + i % 17 + 34]);
    }
    /* where the counters of blocks need another word */
    const int64_t word = (int64_t)1 << 34;
    row_random_spec far = {ROW_UNIFORM, 77, 5, {1, {300}}, {1, {word + 1000}}, {word - 150}};
    CHECK_OK(row_random(isa, p, &far, HP_F32, part));
    for (int i = 0; i < 300; i++)
      CHECK(part[i] == philox_uniform(77, 5, (uint64_t)(word - 150 + i)));
  }
  pool *p = open_pool(ISA_PLAIN, 1);
  row_random_spec scalar = {.kind = ROW_UNIFORM, .seed = 77, .stream = 5};
  CHECK_OK(row_random(ISA_PLAIN, p, &scalar, HP_F32, part));
  CHECK(part[0] == philox_uniform(77, 5, 0));
  r.start[1] = 1;
  CHECK_FAILS(row_random(ISA_PLAIN, p, &r, HP_F32, whole), "dim 1");
  r.start[1] = 0;
  CHECK_FAILS(row_random(ISA_PLAIN, p, &r, HP_BOOL, whole), "bool");
  pool_free(p);
}

/* --- copies ----------------------------------------------------------------------------------- */

static void check_copy(pool *p, const row_layout *l, size_t element, const unsigned char *from,
                       unsigned char *to, unsigned char *want, size_t bytes) {
  int64_t n = 1;
  memset(to, 7, bytes);
  memset(want, 7, bytes);
  for (int d = 0; d < l->rank; d++) n *= l->dim[d];
  for (int64_t i = 0; i < n; i++) {
    int64_t k = i, f = 0, t = 0;
    for (int d = l->rank - 1; d >= 0; d--) {
      f += k % l->dim[d] * l->from[d], t += k % l->dim[d] * l->to[d];
      k /= l->dim[d];
    }
    memcpy(want + t * (int64_t)element, from + f * (int64_t)element, element);
  }
  CHECK_OK(row_copy(p, l, element, from, to));
  CHECK(!memcmp(to, want, bytes));
}

TEST(strided_copies_equal_a_loop_over_indices) {
  enum { ROOM = 1 << 18 };
  unsigned char *from = room_for(ROOM, 8), *to = room_for(ROOM, 8), *want = room_for(ROOM, 8);
  for (int i = 0; i < ROOM * 8; i++) from[i] = (unsigned char)(i * 131 >> 3);
  unsigned seed = 3;
  for (int threads = 1; threads < 4; threads++) {
    pool *p = open_pool(ISA_PLAIN, threads);
    for (int i = 0; i < 400; i++) {
      row_layout l = {.rank = (int)(rand_r(&seed) % 7)};
      int order[6] = {0, 1, 2, 3, 4, 5};
      size_t element = (size_t)1 << rand_r(&seed) % 4;
      int64_t stride = 1;
      for (int d = 0; d < l.rank; d++) {
        int most = l.rank < 3 ? 200 : l.rank < 5 ? 19 : 6;
        l.dim[d] = rand_r(&seed) % (unsigned)most + (i % 9 != 0);
        int k = (int)(rand_r(&seed) % (unsigned)(d + 1)), x = order[k];
        order[k] = order[d], order[d] = x;
      }
      for (int d = l.rank - 1; d >= 0; d--) l.from[d] = stride, stride *= l.dim[d] ? l.dim[d] : 1;
      if (stride > ROOM) continue;
      stride = 1;
      for (int d = l.rank - 1; d >= 0; d--) { /* some other order of dims, or the same */
        int k = i % 3 ? order[d] : d;
        l.to[k] = stride, stride *= l.dim[k] ? l.dim[k] : 1;
      }
      if (l.rank && i % 5 == 0) l.from[rand_r(&seed) % (unsigned)l.rank] = 0; /* a broadcast */
      check_copy(p, &l, element, from, to, want, ROOM * 8);
    }
    /* a long run, a big transposition, a part of a larger tensor, a reversed dim */
    check_copy(p, &(row_layout){1, {ROOM}, {1}, {1}}, 8, from, to, want, ROOM * 8);
    check_copy(p, &(row_layout){2, {300, 500}, {500, 1}, {1, 300}}, 4, from, to, want, ROOM * 8);
    check_copy(p, &(row_layout){3, {7, 40, 30}, {2000, 50, 1}, {4000, 90, 1}}, 2, from + 66, to,
               want, ROOM * 8);
    check_copy(p, &(row_layout){2, {100, 10}, {-10, 1}, {10, 1}}, 4, from + 3960, to, want,
               ROOM * 8);
    row_layout l = {2, {100, 50}, {0, 0}, {64, 1}};
    uint32_t value = 0x3f800000;
    CHECK_OK(row_fill(p, &l, 4, &value, to));
    for (int r = 0; r < 100; r++)
      for (int c = 0; c < 50; c++) CHECK_EQ(((uint32_t *)(void *)to)[r * 64 + c], value);
    pool_free(p);
  }
  pool *p = open_pool(ISA_PLAIN, 1);
  CHECK_FAILS(row_copy(p, &(row_layout){.rank = 7}, 4, from, to), "rank 7");
  CHECK_FAILS(row_copy(p, &(row_layout){.rank = 0}, 3, from, to), "3 bytes");
  CHECK_FAILS(row_copy(p, &(row_layout){1, {-1}, {1}, {1}}, 4, from, to), "dim 0 is -1");
  pool_free(p);
  mem_free(from), mem_free(to), mem_free(want);
}
