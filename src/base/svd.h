/* Leading singular vectors of a matrix: a ~ U diag(s) V^T.  Computed in double, with the same bits
 * for any number of threads. */
#ifndef BASE_SVD_H
#define BASE_SVD_H

#include "base/mt19937.h"
#include "base/thread.h"

typedef struct {
  const float *at; /* [rows,columns]; turned: [columns,rows] */
  int64_t rows, columns;
  bool turned;
} svd_matrix;

/* u [rows,rank], s [rank] from the largest to the smallest, v [columns,rank]. */
typedef struct {
  int64_t rank; /* from 1 to the smaller dim */
  double *u, *s, *v;
} svd_vectors;

/* Exact, by Jacobi rotations: time grows with the smaller dim squared times the larger one. */
hp_status svd_exact(const svd_matrix *a, svd_vectors *out);
/* Those of the subspace that so many iterations find from random vectors: torch.svd_lowrank, with
 * its numbers.  The time is that of 2 iterations + 2 products with a. */
hp_status svd_lowrank(const svd_matrix *a, int64_t iterations, mt19937 *random, pool *p,
                      svd_vectors *out);

#endif
