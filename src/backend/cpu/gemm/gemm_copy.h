/* Strided copies between tensors of the same dims: transpositions before and after a product. */
#ifndef GEMM_COPY_H
#define GEMM_COPY_H

#include "base/thread.h"

enum { COPY_DIMS = HP_MAX_RANK };

typedef struct {
  int rank;
  struct {
    int64_t size, from, to; /* elements from one index to the next, in either tensor */
  } dim[COPY_DIMS];
  hp_dtype from_type, to_type; /* floating types */
  float alpha;                 /* scales each element; 1 changes no bit */
} gemm_copy;

/* to[...] = from[...] * alpha; the tensors do not overlap. */
void gemm_copy_run(const gemm_copy *c, const void *from, void *to, pool *threads);

#endif
