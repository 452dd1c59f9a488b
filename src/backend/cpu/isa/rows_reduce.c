/* Reductions: sums of squares, the search for NaN and infinity, the largest of a row, and the sum
 * of rows by id (the gradient of an embedding). */
#include "backend/cpu/rows_isa.h"
#include "backend/cpu/simd.h"

enum { CHAINS = 4 }; /* sums that are computed side by side */

/* Whole chunks c .. c + n - 1, n a constant, side by side: each is a chain of sums that wait for
 * each other. */
SIMD void sum_chunks(const hp_dtype t, rows_job *j, int64_t c, const int n) {
  v16f sum[CHAINS];
  for (int k = 0; k < n; k++) sum[k] = v16_zero();
  for (int64_t i = 0; i < ROWS_CHUNK; i += 16)
    for (int k = 0; k < n; k++) {
      v16f x = v16_load_as(t, j->x, (c + k) * ROWS_CHUNK + i, 16);
      sum[k] = v16_fma(x, x, sum[k]);
    }
  for (int k = 0; k < n; k++) j->out[c + k] = v16_sum(sum[k]);
}

/* What is left of the tensor behind its whole chunks. */
SIMD float sum_rest(const hp_dtype t, const rows_job *j) {
  v16f sum = v16_zero();
  for (int64_t i = j->n / ROWS_CHUNK * ROWS_CHUNK; i < j->n; i += 16) {
    v16f x = v16_load_as(t, j->x, i, v16_left(j->n, i));
    sum = v16_fma(x, x, sum);
  }
  return v16_sum(sum);
}

SIMD void sums(const hp_dtype t, rows_job *j, int64_t from, int64_t to) {
  int64_t c = from, whole = j->n / ROWS_CHUNK < to ? j->n / ROWS_CHUNK : to;
  for (; c + CHAINS <= whole; c += CHAINS) sum_chunks(t, j, c, CHAINS);
  for (; c < whole; c++) sum_chunks(t, j, c, 1);
  if (c < to) j->out[c] = sum_rest(t, j);
}

void ISA_NAME(rows_sum_sq)(rows_job *j, int64_t from, int64_t to) {
  if (j->dtype == HP_F32) sums(HP_F32, j, from, to);
  else if (j->dtype == HP_BF16) sums(HP_BF16, j, from, to);
  else sums(HP_F16, j, from, to);
}

/* x - x is 0 for finite numbers and NaN for the others. */
SIMD bool all_finite(v16f x) {
  v16f d = v16_sub(x, x);
  return v16_sum(d) == 0;
}

void ISA_NAME(rows_nonfinite)(rows_job *j, int64_t from, int64_t to) {
  int64_t end = to * ROWS_CHUNK < j->n ? to * ROWS_CHUNK : j->n;
  for (int64_t i = from * ROWS_CHUNK; i < end; i += 256) {
    v16f sum = v16_zero();
    if (i > atomic_load_explicit(&j->found, memory_order_relaxed)) return;
    for (int64_t k = i; k < i + 256 && k < end; k += 16) {
      v16f x = v16_load_as(j->dtype, j->x, k, v16_left(end, k));
      sum = v16_add(sum, v16_sub(x, x));
    }
    if (all_finite(sum)) continue;
    int64_t k = i;
    float lane[16];
    for (;; k++) {
      v16_store(lane, v16_load_as(j->dtype, j->x, k, 1));
      if (!(lane[0] - lane[0] == 0)) break;
    }
    long long seen = atomic_load(&j->found);
    while (k < seen && !atomic_compare_exchange_weak(&j->found, &seen, k)) {}
    return;
  }
}

/* Index of the first NaN of a row, or of the first of its largest. */
static int32_t largest_of(hp_dtype t, const void *x, int64_t at, int64_t n) {
  float best[16];
  int32_t index[16];
  int64_t i = 0;
  v16f top = v16_set1(-INFINITY);
  v16i where = v16i_set1(0);
  v16m nan = v16_lt(top, top);
  for (; i + 16 <= n; i += 16) {
    v16f v = v16_load_as(t, x, at + i, 16);
    v16m larger = v16_lt(top, v);
    top = v16_select(larger, v, top);
    where = v16_as_i(v16_select(larger, v16i_as_f(v16i_set1((int32_t)i)), v16i_as_f(where)));
    nan = v16m_or(nan, v16_lt(v16_select(v16_eq(v, v), v16_zero(), v16_set1(-1.0f)), v16_zero()));
  }
  v16_store(best, top);
  v16i_store(index, where);
  int32_t out = 0;
  float max = -INFINITY;
  for (int k = 0; k < 16 && i; k++) {
    int32_t at_k = index[k] + k;
    if (best[k] > max || (best[k] == max && best[k] > -INFINITY && at_k < out))
      max = best[k], out = at_k;
  }
  bool tail_only = !v16m_any(nan);
  for (int64_t k = tail_only ? i : 0; k < n; k++) {
    v16_store(best, v16_load_as(t, x, at + k, 1));
    if (best[0] != best[0]) return (int32_t)k;
    if (best[0] > max) max = best[0], out = (int32_t)k;
  }
  return out;
}

void ISA_NAME(rows_argmax)(rows_job *j, int64_t from, int64_t to) {
  for (int64_t row = from; row < to; row++)
    ((int32_t *)j->y)[row] = largest_of(j->dtype, j->x, row * j->width, j->width);
}

/* Rows of the table: columns go by 64, so that a sum stays in registers over its occurrences. */
void ISA_NAME(rows_embedding_grad)(rows_job *j, int64_t from, int64_t to) {
  int64_t C = j->width;
  for (int64_t row = from; row < to; row++) {
    int64_t first = j->start[row], end = j->start[row + 1];
    for (int64_t c = 0; c < C; c += 64) {
      v16f sum[4];
      int vecs = C - c >= 64 ? 4 : (int)((C - c + 15) / 16);
      for (int v = 0; v < 4; v++) sum[v] = v16_zero();
      for (int64_t i = first; i < end; i++)
        for (int v = 0; v < vecs; v++)
          sum[v] = v16_add(sum[v], v16_load_as(j->dtype, j->x, j->position[i] * C + c + 16 * v,
                                               v16_left(C, c + 16 * v)));
      for (int v = 0; v < vecs; v++)
        v16_store_as(j->out_type, j->y, row * C + c + 16 * v, sum[v], v16_left(C, c + 16 * v));
    }
  }
}
