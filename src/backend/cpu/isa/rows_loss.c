/* Cross-entropy and its gradient.  A row goes by once, in blocks: besides the exponentials of one,
 * from the largest number so far, the largest of the next is found; a sum has 32 chains and a fixed
 * tree.  Exponentials are powers of 2, and their sum has the error that its terms have. */
#include "backend/cpu/rows/rows_isa.h"
#include "backend/cpu/simd.h"

#include <float.h>

enum {
  BLOCK = 2048,           /* elements of a row that have one reference */
  FETCHED = BLOCK + 2048, /* elements that are fetched before they are read, here */
  AHEAD = 1024,           /* and for the gradient */
  BF16_MINUS_INF = 0xff80,
  F16_MINUS_INF = 0xfc00
};

/* x[k] = e^(x[k] - from) for k < n, of logits of type t. */
SIMD void compute_exps(hp_dtype t, v16f *x, const int n, v16f from) {
  for (int k = 0; k < n; k++) x[k] = v16_mul(v16_sub(x[k], from), v16_set1(0x1.715476p0f));
  if (t == HP_F32) v16_exp2s(x, n);
  else v16_exp2s_half(x, n);
}
SIMD v16f compute_exp(hp_dtype t, v16f x, v16f from) {
  compute_exps(t, &x, 1, from);
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
SIMD const rest *load_rest(hp_dtype t, const void *x, int64_t i, int64_t n, rest *to) {
  const size_t size = t == HP_F32 ? 4 : 2;
  for (int k = 0; k < 32; k++)
    if (t == HP_F32) to->f32[k] = -INFINITY;
    else to->half[k] = t == HP_BF16 ? BF16_MINUS_INF : F16_MINUS_INF;
  memcpy(to, (const char *)x + (size_t)i * size, (n < 32 ? (size_t)n : 32) * size);
  return to;
}

/* The largest of numbers, 32 at a time. */
typedef struct {
  v32_top half;
  v16f top[2];
} largest;
SIMD void largest_join(hp_dtype t, largest *l, const void *x, int64_t i) {
  v16f v[2];
  if (t == HP_BF16) {
    v32_top_join(&l->half, (const uint16_t *)x + i);
    return;
  }
  load_two(t, x, i, v);
  for (int k = 0; k < 2; k++) l->top[k] = v16_max(v[k], l->top[k]);
}
SIMD void largest_join_all(hp_dtype t, largest *l, const void *x, int64_t i, int64_t end) {
  rest r;
  for (; i + 32 <= end; i += 32) largest_join(t, l, x, i);
  if (i < end) largest_join(t, l, load_rest(t, x, i, end - i, &r), 0);
}
SIMD largest start_largest(void) {
  const v16f none = v16_set1(-INFINITY);
  return (largest){v32_top_none(), {none, none}};
}
SIMD float largest_value(hp_dtype t, const largest *l) {
  return t == HP_BF16 ? v32_top_value(&l->half) : v16_max_lane(v16_max(l->top[0], l->top[1]));
}

/* The sum of e^(x - from) over elements i .. end.  Besides it the largest of those a block further
 * on, before n, is found. */
SIMD v16f sum_block(hp_dtype t, const void *x, int64_t i, int64_t end, int64_t n, v16f from,
                    largest *next) {
  v16f sum[2] = {v16_zero(), v16_zero()}, v[SIMD_WIDE];
  rest r;
  for (; i + 16 * SIMD_WIDE <= end; i += 16 * SIMD_WIDE) {
    for (int k = 0; k < SIMD_WIDE; k += 2) load_two(t, x, i + 16 * k, &v[k]);
    if (i + BLOCK + 16 * SIMD_WIDE <= n)
      for (int k = 0; k < SIMD_WIDE; k += 2) largest_join(t, next, x, i + BLOCK + 16 * k);
    else largest_join_all(t, next, x, i + BLOCK, n);
    for (int k = 0; k < SIMD_WIDE; k += t == HP_F32 ? 1 : 2)
      v16_fetch_once(t, x, i + FETCHED + 16 * k);
    compute_exps(t, v, SIMD_WIDE, from);
    for (int k = 0; k < SIMD_WIDE; k++) /* a sum by the pipes of products, which have room */
      sum[k % 2] = v16_fma(v[k], v16_set1(1.0f), sum[k % 2]);
  }
  for (; i < end; i += 32) {
    load_two(t, load_rest(t, x, i, end - i, &r), 0, v);
    compute_exps(t, v, 2, from);
    for (int k = 0; k < 2; k++) sum[k] = v16_add(sum[k], v[k]);
  }
  return v16_add(sum[0], sum[1]);
}

SIMD float compute_row_lse(hp_dtype t, const void *logits, int64_t row, int64_t n) {
  const void *x = (const char *)logits + (size_t)(row * n) * dtype_size(t);
  v16f sum = v16_zero(), from = v16_set1(-FLT_MAX); /* finite: all may be -inf so far */
  largest next = start_largest();
  largest_join_all(t, &next, x, 0, n < BLOCK ? n : BLOCK);
  for (int64_t i = 0; i < n; i += BLOCK) {
    const v16f max = v16_max(from, v16_set1(largest_value(t, &next)));
    sum = v16_mul(sum, compute_exp(HP_F32, from, max));
    from = max;
    next = start_largest();
    sum = v16_add(sum, sum_block(t, x, i, n - i < BLOCK ? n : i + BLOCK, n, from, &next));
  }
  float out[16];
  v16_store(out, v16_add(from, v16_log(v16_set1(v16_sum(sum)))));
  return out[0];
}

SIMD float load_scalar(hp_dtype t, const void *x, int64_t i) {
  if (t == HP_F32) return ((const float *)x)[i];
  uint16_t h = ((const uint16_t *)x)[i];
  return t == HP_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

SIMD void compute_losses(const hp_dtype t, rows_job *j, int64_t from, int64_t to) {
  const row_labels *r = j->labels;
  for (int64_t row = from; row < to; row++) {
    int64_t label = rows_index(r->labels, r->label_type, row);
    float lse = compute_row_lse(t, r->logits, row, r->V);
    j->lse_out[row] = lse;
    float own = label < 0 ? 0 : load_scalar(t, r->logits, row * r->V + label);
    j->out[row] = label == r->ignore ? 0 : label == ID_ELSEWHERE ? lse : lse - own;
  }
}

/* Elements i .. i + 32 of y from two vectors as load_two has them; `stream`: y + i is a whole line.
 */
SIMD void store_two(hp_dtype t, bool stream, void *y, int64_t i, const v16f *v) {
  if (t == HP_BF16) {
    v16i u = v16_join_bf16_two(v);
    if (stream) v16i_stream((uint16_t *)y + i, u);
    else v16i_store((void *)((uint16_t *)y + i), u);
    return;
  }
  for (int k = 0; k < 2; k++)
    if (stream) v16_stream_as(t, y, i + 16 * k, v[k], 16);
    else v16_store_as(t, y, i + 16 * k, v[k], 16);
}

/* A row's lse and what its gradient is scaled by, whose NaN has a lower half of 0. */
typedef struct {
  v16f lse, scale;
} grad_scalars;
SIMD v16f broadcast_or_nan(float x) { return v16_set1(x == x ? x : NAN); }

/* Elements i .. end of the logits: scale exp(x - lse). */
SIMD void grad_few(const hp_dtype t, rows_job *j, const grad_scalars *s, int64_t i, int64_t end) {
  for (; i < end; i += 16) {
    int left = v16_left(end, i);
    v16f x = compute_exp(t, v16_load_as(t, j->labels->logits, i, left), s->lse);
    v16_store_as(t, j->y, i, v16_mul(x, s->scale), left);
  }
}

/* The gradient of a row but for its label.  What is streamed is whole lines. */
SIMD void grad_row(const hp_dtype t, const bool stream, rows_job *j, int64_t row) {
  const row_labels *r = j->labels;
  const int64_t at = row * r->V, end = at + r->V, size = (int64_t)dtype_size(t);
  const grad_scalars s = {broadcast_or_nan(j->lse[row]), broadcast_or_nan(j->dloss[row])};
  const int64_t head =
      stream ? (-(int64_t)((uintptr_t)j->y + (uint64_t)(at * size)) & 63) / size : 0;
  int64_t i = head < r->V ? at + head : end;
  grad_few(t, j, &s, at, i);
  for (; i + 16 * SIMD_WIDE <= end; i += 16 * SIMD_WIDE) {
    v16f x[SIMD_WIDE];
    for (int k = 0; k < SIMD_WIDE; k += 2) {
      for (int e = 0; e < 32; e += 64 / (int)size) v16_fetch(t, r->logits, i + 16 * k + e + AHEAD);
      load_two(t, r->logits, i + 16 * k, &x[k]);
    }
    compute_exps(t, x, SIMD_WIDE, s.lse);
    for (int k = 0; k < SIMD_WIDE; k++) x[k] = v16_mul(x[k], s.scale);
    for (int k = 0; k < SIMD_WIDE; k += 2) store_two(t, stream, j->y, i + 16 * k, &x[k]);
  }
  grad_few(t, j, &s, i, end);
}

SIMD void compute_grads(const hp_dtype t, rows_job *j, int64_t from, int64_t to) {
  const row_labels *r = j->labels;
  for (int64_t row = from; row < to; row++) {
    int64_t label = rows_index(r->labels, r->label_type, row), at = row * r->V;
    if (label == r->ignore) {
      memset((char *)j->y + (size_t)at * dtype_size(t), 0, (size_t)r->V * dtype_size(t));
      continue;
    }
    v16f one = v16_zero();
    if (label != ID_ELSEWHERE) { /* before the row is overwritten */
      v16f x = v16_set1(load_scalar(t, r->logits, at + label));
      one = v16_sub(compute_exp(t, x, v16_set1(j->lse[row])), v16_set1(1.0f));
      one = v16_mul(one, v16_set1(j->dloss[row]));
    }
    if (j->stream) grad_row(t, true, j, row);
    else grad_row(t, false, j, row);
    v16_streamed(); /* the label's place is written once more */
    if (label != ID_ELSEWHERE) v16_store_as(t, j->y, at + label, one, 1);
  }
}

void ISA_NAME(rows_xent)(rows_job *j, int64_t from, int64_t to) {
  if (j->labels->dtype == HP_F32) compute_losses(HP_F32, j, from, to);
  else if (j->labels->dtype == HP_BF16) compute_losses(HP_BF16, j, from, to);
  else compute_losses(HP_F16, j, from, to);
}

void ISA_NAME(rows_xent_grad)(rows_job *j, int64_t from, int64_t to) {
  if (j->labels->dtype == HP_F32) compute_grads(HP_F32, j, from, to);
  else if (j->labels->dtype == HP_BF16) compute_grads(HP_BF16, j, from, to);
  else compute_grads(HP_F16, j, from, to);
}
