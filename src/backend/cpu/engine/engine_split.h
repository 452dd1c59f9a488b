/* Splits one product into a share for each thread of a pool, so that library engines, which have
 * threads of their own, run on ours.  Each share is a single-threaded call. */
#ifndef ENGINE_SPLIT_H
#define ENGINE_SPLIT_H

#include "backend/cpu/gemm/gemm.h"

/* Runs a share; called by the pool's threads, `thread` below pool_size. */
typedef hp_status engine_share(const gemm_query *q, const gemm_args *args, int thread);

/* The product with a row-major C; a column-major one is transposed: C' = B' A'.  args:
 * transposed with it; NULL = not needed. */
gemm_query engine_row_major(const gemm_query *q, gemm_args *args);

/* Shares get the transposed product.  Splits the longest batch dim with an item for each thread,
 * else the rows or the columns. */
hp_status engine_split_run(const gemm_query *query, const gemm_args *given, pool *threads,
                           engine_share *share);

#endif
