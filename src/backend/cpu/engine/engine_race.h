/* A matrix product by every engine that this machine has, in turns, so that all of them see the
 * same machine: what benches print, and what picks the engines of a run that asks for the fastest.
 */
#ifndef ENGINE_RACE_H
#define ENGINE_RACE_H

#include "backend/cpu/engine/engine_table.h"

enum { RACE_ENGINES = 8, RACE_TURNS = 1001 };

/* One engine's share of the turns. */
typedef struct {
  const gemm_engine *engine;
  size_t work_bytes;
  int repeat;      /* runs of a turn: small products are repeated */
  double *seconds; /* of one run, by turn */
} race_entrant;

typedef struct {
  gemm_query q;
  race_entrant e[RACE_ENGINES]; /* in the order of the table: ours first */
  int entrants, turns, turn;    /* turn: that comes next */
  size_t need[3];               /* bytes of A, B, C */
} engine_race;

/* The engines that can run q, on that many threads, for so many turns, RACE_TURNS at
 * most. */
hp_status engine_race_open(const gemm_query *q, int threads, int turns, engine_race *out);
void engine_race_close(engine_race *r);

/* Memory that products use one after another. */
typedef struct {
  void *at[4]; /* A, B, C, work */
  size_t bytes[4];
  bool cold;    /* every run has others of its operands, which have left the caches */
  int64_t runs; /* so far */
} race_operands;
/* Makes room for r too; before the first turn of any. */
void race_operands_need(race_operands *x, const engine_race *r);
/* Maps them, filled with numbers around 0 of that dtype. */
hp_status race_operands_open(race_operands *x, hp_dtype type);
void race_operands_close(race_operands *x);

/* Every engine once; before the first turn each runs twice, for what is done once. */
hp_status engine_race_turn(engine_race *r, race_operands *x, pool *threads);
/* Median seconds of one run by engine e, of the turns so far. */
double engine_race_seconds(const engine_race *r, int e);
/* The same by the fastest engine. */
double engine_race_best(const engine_race *r);
/* Median of the seconds of engine e over those of ours, turn by turn. */
double engine_race_ratio(const engine_race *r, int e);

/* Leaves out who took more than `most` times as long as the fastest in the last turn; never ours.
 */
void engine_race_drop(engine_race *r, double most);
/* Ours, unless another is 3 % faster, both in the median of the turns and in the best of them: so
 * neither a busy machine nor a lucky turn decides. */
const gemm_engine *engine_race_winner(const engine_race *r);

double race_flops(const gemm_query *q);
double race_median(double *x, int64_t n); /* sorts x */

#endif
