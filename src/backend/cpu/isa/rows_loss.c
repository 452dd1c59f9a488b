/* Cross-entropy and its gradient.  A row is read twice: for its maximum, then, from cache, for the
 * sum of exponentials in 16 chains and a fixed tree; beside both the next row is fetched.
 * Exponentials are powers of 2, and their sum has the error that its terms have. */
#include "backend/cpu/rows_isa.h"
#include "backend/cpu/simd.h"

enum { AHEAD = 1024 }; /* elements that are fetched before they are read */

/* Elements i.. of a row; lanes past its end hold `pad`. */
SIMD v16f load_padded(hp_dtype t, const void *x, int64_t row, int64_t i, int64_t n, float pad) {
  int left = v16_left(n, i);
  v16f v = v16_load_as(t, x, row * n + i, left);
  if (left == 16) return v;
  float lane[16];
  v16_store(lane, v);
  for (int k = left; k < 16; k++) lane[k] = pad;
  return v16_load(lane);
}

/* x[k] = e^(x[k] - from) for k < n. */
SIMD void exps_from(v16f *x, const int n, v16f from) {
  for (int k = 0; k < n; k++) x[k] = v16_mul(v16_sub(x[k], from), v16_set1(0x1.715476p0f));
  v16_exp2s(x, n);
}
SIMD v16f exp_from(v16f x, v16f from) {
  exps_from(&x, 1, from);
  return x;
}

/* The largest of a row; a quarter of the next one is fetched. */
SIMD float row_max(hp_dtype t, const void *logits, int64_t row, int64_t n) {
  v16f top[4];
  for (int k = 0; k < 4; k++) top[k] = v16_set1(-INFINITY);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    v16_fetch(t, logits, (row + 1) * n + i / 4);
    for (int k = 0; k < 4; k++)
      top[k] = v16_max(v16_load_as(t, logits, row * n + i + 16 * k, 16), top[k]);
  }
  for (; i < n; i += 16) top[0] = v16_max(load_padded(t, logits, row, i, n, -INFINITY), top[0]);
  return v16_max_lane(v16_max(v16_max(top[0], top[1]), v16_max(top[2], top[3])));
}

SIMD float row_lse(hp_dtype t, const void *logits, int64_t row, int64_t n) {
  const int64_t next = (row + 1) * n + n / 4; /* what row_max has left of it */
  v16f max = v16_set1(row_max(t, logits, row, n)), sum = v16_zero();
  int64_t i = 0;
  for (; i + 16 * SIMD_WIDE <= n; i += 16 * SIMD_WIDE) {
    v16f x[SIMD_WIDE];
    for (int k = 0; k < SIMD_WIDE; k += t == HP_F32 ? 1 : 2)
      v16_fetch(t, logits, next + (i + 16 * k) / 4 * 3);
    for (int k = 0; k < SIMD_WIDE; k++) x[k] = v16_load_as(t, logits, row * n + i + 16 * k, 16);
    exps_from(x, SIMD_WIDE, max);
    for (int k = 0; k < SIMD_WIDE; k++) sum = v16_add(sum, x[k]);
  }
  for (; i < n; i += 16)
    sum = v16_add(sum, exp_from(load_padded(t, logits, row, i, n, -INFINITY), max));
  float out[16];
  v16_store(out, v16_add(max, v16_log(v16_set1(v16_sum(sum)))));
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
