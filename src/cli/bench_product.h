/* A matrix product by every engine that this machine has, in turns, so that all of them see the
 * same machine. */
#ifndef CLI_BENCH_PRODUCT_H
#define CLI_BENCH_PRODUCT_H

#include "backend/cpu/engine_table.h"

enum { BENCH_ENGINES = 8, BENCH_TURNS = 1001 };

/* One engine's share of the turns. */
typedef struct {
  const gemm_engine *engine;
  size_t work_bytes;
  int repeat;      /* runs of a turn: small products are repeated */
  double *seconds; /* of one run, by turn */
} bench_entrant;

typedef struct {
  gemm_query q;
  bench_entrant e[BENCH_ENGINES]; /* in the order of the table: ours first */
  int entrants, turns, turn;      /* turn: that comes next */
} bench_product;

/* The engines that can run q, on that many threads, for so many turns, BENCH_TURNS at
 * most. */
hp_status bench_product_open(const gemm_query *q, int threads, int turns, bench_product *out);
void bench_product_close(bench_product *p);

/* Memory that products use one after another. */
typedef struct {
  void *at[4]; /* A, B, C, work */
  size_t bytes[4];
} bench_operands;
/* Makes room for p too; before the first turn of any. */
void bench_operands_need(bench_operands *x, const bench_product *p);
/* Maps them, filled with numbers around 0 of that dtype. */
hp_status bench_operands_open(bench_operands *x, hp_dtype type);
void bench_operands_close(bench_operands *x);

/* Every engine once; before the first turn each runs twice, for what is done once. */
hp_status bench_product_turn(bench_product *p, const bench_operands *x, pool *threads);
/* Median seconds of one run by engine e, of the turns so far. */
double bench_product_seconds(const bench_product *p, int e);
/* The same by the fastest engine. */
double bench_product_best(const bench_product *p);
double bench_product_flops(const gemm_query *q);

#endif
