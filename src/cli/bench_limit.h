/* The least time of what a model does: every matrix product of it back to back, each by the engine
 * that is fastest at it, and the bytes that must move at the bandwidth of memory.  All are measured
 * in turns, between those of what is held against them. */
#ifndef CLI_BENCH_LIMIT_H
#define CLI_BENCH_LIMIT_H

#include "backend/cpu/engine/engine_measure.h"
#include "model/lm.h"

typedef enum {
  BENCH_TRAIN,  /* forward, gradients of inputs and weights; the optimizer's 28 bytes a param */
  BENCH_PROMPT, /* forward; the head reads its weights for the last token only */
  BENCH_TOKEN   /* weights and cache are read once */
} bench_work;

typedef struct bench_limit bench_limit;
/* Of B sequences of T tokens, in at most `turns` turns by these threads, which stay the caller's.
 */
hp_status bench_limit_create(const lm *m, bench_work work, int64_t B, int64_t T, pool *threads,
                             int turns, bench_limit **out);
void bench_limit_free(bench_limit *l);
hp_status bench_limit_turn(bench_limit *l);

/* Medians of the turns so far. */
typedef struct {
  double flops, bytes;            /* of the work */
  double matmul_s, bytes_s;       /* at the machine's limits */
  double peak_flops, bytes_per_s; /* the machine's: operations in the model's dtype */
} bench_limit_result;
bench_limit_result bench_limit_get(const bench_limit *l);

#endif
