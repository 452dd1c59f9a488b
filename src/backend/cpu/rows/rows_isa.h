/* What rowops.c hands to the kernels in isa/rows_*.c: each computes items from .. to - 1. */
#ifndef ROWS_ISA_H
#define ROWS_ISA_H

#include "backend/cpu/rows/rowops.h"

enum { ROWS_CHUNK = 65536 }; /* elements of a partial sum */

typedef struct {
  const row_labels *labels;
  const row_ids *ids;
  const row_rope_spec *rope;
  const row_random_spec *random;
  hp_dtype dtype, out_type;
  const void *x;
  void *y;
  int64_t n, width; /* elements in all, or of a row */
  const float *lse, *dloss;
  float *out, *lse_out;
  bool stream;                     /* y goes past the caches */
  const int64_t *start, *position; /* embedding gradient: positions by id, start[id].. */
  bool onto;                       /* embedding gradient: sums start from y */
} rows_job;

typedef void rows_fn(rows_job *j, int64_t from, int64_t to);
#define ROWS_KERNEL(name) rows_fn name##_plain, name##_avx2, name##_avx512
ROWS_KERNEL(rows_xent); /* items are rows */
ROWS_KERNEL(rows_xent_grad);
ROWS_KERNEL(rows_embedding);      /* positions; width is in bytes */
ROWS_KERNEL(rows_embedding_grad); /* rows of the table */
ROWS_KERNEL(rows_rope);           /* positions b * T + t */
ROWS_KERNEL(rows_sum_sq);         /* chunks */
ROWS_KERNEL(rows_argmax);
ROWS_KERNEL(rows_random); /* chunks of runs */

static inline int64_t rows_index(const void *ids, hp_dtype t, int64_t i) {
  return t == HP_I64 ? ((const int64_t *)ids)[i] : ((const int32_t *)ids)[i];
}

#endif
