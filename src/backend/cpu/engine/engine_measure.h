/* Measures a matrix product with every engine of this machine, in alternating rounds, so that
 * all of them run under the same conditions: for benches, and for tuning. */
#ifndef ENGINE_MEASURE_H
#define ENGINE_MEASURE_H

#include "backend/cpu/engine/engine_table.h"

enum { MEASURE_ENGINES = 8, MEASURE_ROUNDS = 1001 };

/* One engine's rounds. */
typedef struct {
  const gemm_engine *engine;
  size_t work_bytes;
  int repeat;      /* runs per round: small products are repeated */
  double *seconds; /* of one run, by round */
} measured_entrant;

typedef struct {
  gemm_query q;
  measured_entrant e[MEASURE_ENGINES]; /* in the order of the table: ours first */
  int entrants, rounds, round;         /* round: the next one */
  size_t need[3];                      /* bytes of A, B, C */
} engine_measure;

/* The engines that can run q on this many threads, for this many rounds, at most MEASURE_ROUNDS. */
hp_status engine_measure_open(const gemm_query *q, int threads, int rounds, engine_measure *out);
void engine_measure_close(engine_measure *r);

/* Memory that is used for one product after another. */
typedef struct {
  void *at[4]; /* A, B, C, work */
  size_t bytes[4];
  bool cold;    /* every run has other operands, which are not in the caches */
  int64_t runs; /* so far */
} measured_operands;
/* Makes room for r, too; before the first round of any. */
void measured_operands_need(measured_operands *x, const engine_measure *r);
/* Maps them, filled with numbers around 0 of that dtype. */
hp_status measured_operands_open(measured_operands *x, hp_dtype type);
void measured_operands_close(measured_operands *x);

/* Every engine once; before the first round each runs twice, to warm up. */
hp_status engine_measure_round(engine_measure *r, measured_operands *x, pool *threads);
/* Median seconds of one run by engine e, over the rounds so far. */
double engine_measure_seconds(const engine_measure *r, int e);
/* The same by the fastest engine. */
double engine_measure_best(const engine_measure *r);
/* Median of the ratios of engine e's seconds to ours, by round. */
double engine_measure_ratio(const engine_measure *r, int e);

/* Tuning drops engines that took so many times as long as the fastest in the first round. */
#define ENGINE_HOPELESS 1.3
/* Removes engines that took more than `most` times as long as the fastest in the last round;
 * never ours. */
void engine_measure_drop(engine_measure *r, double most);
/* Ours, unless another is 3 % faster both in the median of the rounds and in the best ones, so
 * that neither a busy machine nor a lucky round decides. */
const gemm_engine *engine_measure_winner(const engine_measure *r);

double measured_flops(const gemm_query *q);
double measured_median(double *x, int64_t n); /* sorts x */

#endif
