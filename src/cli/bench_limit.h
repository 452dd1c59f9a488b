/* A lower bound of the time of a training step, prompt or token of a model: all its matrix products
 * back to back, each with its fastest engine, plus the bytes that must move at the bandwidth of
 * memory.  They are measured in rounds that alternate with the runs that they are compared with. */
#ifndef CLI_BENCH_LIMIT_H
#define CLI_BENCH_LIMIT_H

#include "backend/cpu/engine/engine_measure.h"
#include "model/lm.h"
#include "train/optimizer.h"

typedef enum {
  BENCH_TRAIN,  /* forward, gradients of inputs and weights; the optimizer, which reads gradients
                   and reads and writes params and its state, and its products */
  BENCH_PROMPT, /* forward; the head reads its weights for the last token only */
  BENCH_TOKEN   /* weights and cache are read once */
} bench_work;

typedef struct bench_limit bench_limit;
/* For B sequences of T tokens and at most `rounds` rounds; by: of BENCH_TRAIN.  The caller keeps
 * the threads. */
hp_status bench_limit_create(const lm *m, bench_work work, const optimizer_options *by, int64_t B,
                             int64_t T, pool *threads, int rounds, bench_limit **out);
void bench_limit_free(bench_limit *l);
hp_status bench_limit_round(bench_limit *l);

/* Medians of the rounds so far. */
typedef struct {
  double flops, bytes;            /* work of the model */
  double matmul_s, bytes_s;       /* its time at the machine's limits */
  double peak_flops, bytes_per_s; /* these limits: flops/s in the model's dtype, bandwidth */
} bench_limit_result;
bench_limit_result bench_limit_get(const bench_limit *l);

#endif
