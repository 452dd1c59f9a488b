/* Cross-entropy and its gradient.  A row is read twice: for its maximum, then, from cache, for the
 * sum of exponentials in 32 chains and a fixed tree; beside both the next row is fetched.
 * Exponentials are powers of 2, and their sum has the error that its terms have. */
#include "backend/cpu/rows_isa.h"
#include "backend/cpu/simd.h"

enum {
  AHEAD = 1024, /* elements that are fetched before they are read */
  BF16_MINUS_INF = 0xff80,
  F16_MINUS_INF = 0xfc00
};

/* x[k] = e^(x[k] - from) for k < n. */
SIMD void exps_from(v16f *x, const int n, v16f from) {
  for (int k = 0; k < n; k++) x[k] = v16_mul(v16_sub(x[k], from), v16_set1(0x1.715476p0f));
  v16_exp2s(x, n);
}
SIMD v16f exp_from(v16f x, v16f from) {
  exps_from(&x, 1, from);
  return x;
}

/* Elements i .. i + 32 as two vectors: of bf16 as v16_load_bf16_two has them. */
SIMD void load_two(hp_dtype t, const void *x, int64_t i, v16f *v) {
  if (t == HP_BF16) v16_load_bf16_two((const uint16_t *)x + i, v);
  else v[0] = v16_load_as(t, x, i, 16), v[1] = v16_load_as(t, x, i + 16, 16);
}
/* 32 elements of `to`: those from i on, of which n are left in the row, then -inf. */
typedef union {
  float f32[32];
  uint16_t half[32];
} rest;
SIMD const rest *rest_of(hp_dtype t, const void *x, int64_t i, int64_t n, rest *to) {
  const size_t size = t == HP_F32 ? 4 : 2;
  for (int k = 0; k < 32; k++)
    if (t == HP_F32) to->f32[k] = -INFINITY;
    else to->half[k] = t == HP_BF16 ? BF16_MINUS_INF : F16_MINUS_INF;
  memcpy(to, (const char *)x + (size_t)i * size, (n < 32 ? (size_t)n : 32) * size);
  return to;
}

/* The largest of a row.  Beside it a quarter of the next is fetched; of bf16 nothing, for it is
 * found faster than memory gives a quarter. */
SIMD float row_max_bf16(const uint16_t *x, int64_t n) {
  v32_top top = v32_top_none();
  rest r;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) v32_top_join(&top, x + i);
  if (i < n) v32_top_join(&top, rest_of(HP_BF16, x, i, n - i, &r)->half);
  return v32_top_value(&top);
}
SIMD float row_max(hp_dtype t, const void *logits, int64_t row, int64_t n) {
  if (t == HP_BF16) return row_max_bf16((const uint16_t *)logits + row * n, n);
  v16f top[4], v[2];
  rest r;
  int64_t i = 0;
  for (int k = 0; k < 4; k++) top[k] = v16_set1(-INFINITY);
  for (; i + 64 <= n; i += 64) {
    v16_fetch(t, logits, (row + 1) * n + i / 4);
    for (int k = 0; k < 4; k++)
      top[k] = v16_max(v16_load_as(t, logits, row * n + i + 16 * k, 16), top[k]);
  }
  for (; i < n; i += 32) {
    load_two(t, rest_of(t, logits, row * n + i, n - i, &r), 0, v);
    for (int k = 0; k < 2; k++) top[k] = v16_max(v[k], top[k]);
  }
  return v16_max_lane(v16_max(v16_max(top[0], top[1]), v16_max(top[2], top[3])));
}

SIMD float row_lse(hp_dtype t, const void *logits, int64_t row, int64_t n) {
  const int64_t next = (row + 1) * n + (t == HP_BF16 ? 0 : n / 4); /* what row_max has left */
  const v16f max = v16_set1(row_max(t, logits, row, n));
  v16f sum[2] = {v16_zero(), v16_zero()}, x[SIMD_WIDE];
  rest r;
  int64_t i = 0;
  for (; i + 16 * SIMD_WIDE <= n; i += 16 * SIMD_WIDE) {
    for (int k = 0; k < SIMD_WIDE; k += t == HP_F32 ? 1 : 2)
      v16_fetch(t, logits, next + (t == HP_BF16 ? i + 16 * k : (i + 16 * k) / 4 * 3));
    for (int k = 0; k < SIMD_WIDE; k += 2) load_two(t, logits, row * n + i + 16 * k, &x[k]);
    exps_from(x, SIMD_WIDE, max);
    for (int k = 0; k < SIMD_WIDE; k++) sum[k % 2] = v16_add(sum[k % 2], x[k]);
  }
  for (; i < n; i += 32) {
    load_two(t, rest_of(t, logits, row * n + i, n - i, &r), 0, x);
    exps_from(x, 2, max);
    for (int k = 0; k < 2; k++) sum[k] = v16_add(sum[k], x[k]);
  }
  float out[16];
  v16_store(out, v16_add(max, v16_log(v16_set1(v16_sum(v16_add(sum[0], sum[1]))))));
  return out[0];
}

SIMD float scalar_at(hp_dtype t, const void *x, int64_t i) {
  if (t == HP_F32) return ((const float *)x)[i];
  uint16_t h = ((const uint16_t *)x)[i];
  return t == HP_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

SIMD void losses(const hp_dtype t, rows_job *j, int64_t from, int64_t to) {
  const row_labels *r = j->labels;
  for (int64_t row = from; row < to; row++) {
    int64_t label = rows_index(r->labels, r->label_type, row);
    float lse = row_lse(t, r->logits, row, r->V);
    j->lse_out[row] = lse;
    float own = label < 0 ? 0 : scalar_at(t, r->logits, row * r->V + label);
    j->out[row] = label == r->ignore ? 0 : label == ID_ELSEWHERE ? lse : lse - own;
  }
}

/* The gradient of a row but for its label: scale exp(x - lse). */
SIMD void grad_row(const hp_dtype t, const bool stream, rows_job *j, int64_t row) {
  const row_labels *r = j->labels;
  const int64_t at = row * r->V;
  v16f lse = v16_set1(j->lse[row]), scale = v16_set1(j->dloss[row]);
  int64_t i = 0;
  for (; i + 16 * SIMD_WIDE <= r->V; i += 16 * SIMD_WIDE) {
    v16f x[SIMD_WIDE];
    for (int k = 0; k < SIMD_WIDE; k++) {
      v16_fetch(t, r->logits, at + i + 16 * k + AHEAD);
      x[k] = v16_load_as(t, r->logits, at + i + 16 * k, 16);
    }
    exps_from(x, SIMD_WIDE, lse);
    for (int k = 0; k < SIMD_WIDE; k++) {
      v16f p = v16_mul(x[k], scale);
      if (stream) v16_stream_as(t, j->y, at + i + 16 * k, p, 16);
      else v16_store_as(t, j->y, at + i + 16 * k, p, 16);
    }
  }
  for (; i < r->V; i += 16) {
    int left = v16_left(r->V, i);
    v16_fetch(t, r->logits, at + i + AHEAD);
    v16f p = v16_mul(exp_from(v16_load_as(t, r->logits, at + i, left), lse), scale);
    if (stream) v16_stream_as(t, j->y, at + i, p, left);
    else v16_store_as(t, j->y, at + i, p, left);
  }
}

SIMD void grads(const hp_dtype t, rows_job *j, int64_t from, int64_t to) {
  const row_labels *r = j->labels;
  for (int64_t row = from; row < to; row++) {
    int64_t label = rows_index(r->labels, r->label_type, row), at = row * r->V;
    if (label == r->ignore) {
      memset((char *)j->y + (size_t)at * dtype_size(t), 0, (size_t)r->V * dtype_size(t));
      continue;
    }
    v16f one = v16_zero();
    if (label != ID_ELSEWHERE) { /* before the row is overwritten */
      v16f x = v16_set1(scalar_at(t, r->logits, at + label));
      one = v16_sub(exp_from(x, v16_set1(j->lse[row])), v16_set1(1.0f));
      one = v16_mul(one, v16_set1(j->dloss[row]));
    }
    if (j->stream) grad_row(t, true, j, row);
    else grad_row(t, false, j, row);
    v16_streamed(); /* the label's place is written once more */
    if (label != ID_ELSEWHERE) v16_store_as(t, j->y, at + label, one, 1);
  }
}

void ISA_NAME(rows_xent)(rows_job *j, int64_t from, int64_t to) {
  if (j->labels->dtype == HP_F32) losses(HP_F32, j, from, to);
  else if (j->labels->dtype == HP_BF16) losses(HP_BF16, j, from, to);
  else losses(HP_F16, j, from, to);
}

void ISA_NAME(rows_xent_grad)(rows_job *j, int64_t from, int64_t to) {
  if (j->labels->dtype == HP_F32) grads(HP_F32, j, from, to);
  else if (j->labels->dtype == HP_BF16) grads(HP_BF16, j, from, to);
  else grads(HP_F16, j, from, to);
}
