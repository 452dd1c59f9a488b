/* Reductions: sums of squares, the search for NaN and infinity, the largest of a row, rows by id
 * (an embedding) and the sum of them (its gradient). */
#include "backend/cpu/rows/rows_isa.h"
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

SIMD void compute_sums(const hp_dtype t, rows_job *j, int64_t from, int64_t to) {
  int64_t c = from, whole = j->n / ROWS_CHUNK < to ? j->n / ROWS_CHUNK : to;
  for (; c + CHAINS <= whole; c += CHAINS) sum_chunks(t, j, c, CHAINS);
  for (; c < whole; c++) sum_chunks(t, j, c, 1);
  if (c < to) j->out[c] = sum_rest(t, j);
}

void ISA_NAME(rows_sum_sq)(rows_job *j, int64_t from, int64_t to) {
  if (j->dtype == HP_F32) compute_sums(HP_F32, j, from, to);
  else if (j->dtype == HP_BF16) compute_sums(HP_BF16, j, from, to);
  else compute_sums(HP_F16, j, from, to);
}

/* Index of the first NaN of a row, or of the first of its largest. */
static int32_t find_argmax(hp_dtype t, const void *x, int64_t at, int64_t n) {
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
    ((int32_t *)j->y)[row] = find_argmax(j->dtype, j->x, row * j->width, j->width);
}

/* n words past the caches, as floats that nobody looks at; `next` is fetched meanwhile. */
SIMD void copy_past(void *to, const void *from, const void *next, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    int left = v16_left(n, i);
    v16_fetch(HP_F32, next, i);
    v16_stream_as(HP_F32, to, i, v16_load_as(HP_F32, from, i, left), left);
  }
}

void ISA_NAME(rows_embedding)(rows_job *j, int64_t from, int64_t to) {
  const row_ids *r = j->ids;
  for (int64_t i = from; i < to; i++) {
    int64_t id = rows_index(r->ids, r->id_type, i);
    int64_t next = rows_index(r->ids, r->id_type, i + 1 < to ? i + 1 : i);
    const char *x = j->x;
    char *y = (char *)j->y + i * j->width;
    if (id == ID_ELSEWHERE) memset(y, 0, (size_t)j->width);
    else if (!j->stream) memcpy(y, x + id * j->width, (size_t)j->width);
    else copy_past(y, x + id * j->width, x + (next < 0 ? id : next) * j->width, j->width / 4);
  }
  v16_streamed();
}

/* Columns c .. of a row of the table, `vecs` vectors (a constant), the last with `left` lanes:
 * their sums stay in registers over the positions of the row. */
SIMD void sum_positions(const hp_dtype t, const hp_dtype out, rows_job *j, int64_t row, int64_t c,
                        const int vecs, int left) {
  v16f sum[4];
  for (int v = 0; v < vecs; v++)
    sum[v] = j->onto ? v16_load_as(out, j->y, row * j->width + c + 16 * v, left) : v16_zero();
  for (int64_t i = j->start[row]; i < j->start[row + 1]; i++)
    for (int v = 0; v < vecs; v++)
      sum[v] = v16_add(sum[v], v16_load_as(t, j->x, j->position[i] * j->width + c + 16 * v, left));
  for (int v = 0; v < vecs; v++) {
    int64_t at = row * j->width + c + 16 * v;
    if (j->stream) v16_stream_as(out, j->y, at, sum[v], left);
    else v16_store_as(out, j->y, at, sum[v], left);
  }
}

/* The same of bf16, 64 columns from a place of whole lines: two vectors are a line. */
SIMD void sum_lines(rows_job *j, int64_t row, int64_t c) {
  v16f sum[4], x[2];
  for (int v = 0; v < 4; v++) sum[v] = v16_zero();
  for (int64_t i = j->start[row]; i < j->start[row + 1]; i++)
    for (int v = 0; v < 4; v += 2) {
      v16_load_bf16_two((const uint16_t *)j->x + j->position[i] * j->width + c + 16 * v, x);
      sum[v] = v16_add(sum[v], x[0]);
      sum[v + 1] = v16_add(sum[v + 1], x[1]);
    }
  for (int v = 0; v < 4; v += 2)
    v16i_stream((uint16_t *)j->y + row * j->width + c + 16 * v, v16_join_bf16_two(sum + v));
}

SIMD void add_embedding_grads(const hp_dtype t, const hp_dtype out, rows_job *j, int64_t from,
                              int64_t to) {
  const int64_t C = j->width;
  const bool lines =
      t == HP_BF16 && out == t && j->stream && !j->onto && C % 32 == 0 && !((uintptr_t)j->y & 63);
  for (int64_t row = from; row < to; row++) {
    int64_t c = 0;
    if (j->onto && j->start[row] == j->start[row + 1]) continue;
    for (; lines && c + 64 <= C; c += 64) sum_lines(j, row, c);
    for (; c + 64 <= C; c += 64) sum_positions(t, out, j, row, c, 4, 16);
    for (; c < C; c += 16) sum_positions(t, out, j, row, c, 1, v16_left(C, c));
  }
  v16_streamed();
}

void ISA_NAME(rows_embedding_grad)(rows_job *j, int64_t from, int64_t to) {
  const bool same = j->dtype == j->out_type;
  if (same && j->dtype == HP_F32) add_embedding_grads(HP_F32, HP_F32, j, from, to);
  else if (same && j->dtype == HP_BF16) add_embedding_grads(HP_BF16, HP_BF16, j, from, to);
  else add_embedding_grads(j->dtype, j->out_type, j, from, to);
}
