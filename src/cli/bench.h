/* What the kinds of `hyper bench` share: their options, and results as lines. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/engine/engine_measure.h"
#include "base/json.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "topo/cluster.h"

enum { BENCH_TRAINED = 4 }; /* sequences of a training step, unless they are given */
#define BENCH_USUAL INT64_MIN
/* Of what is printed: the head of the last line. */
typedef struct {
  str head;
} bench_table;
typedef struct {
  model_options m;
  bench_table *table;
  int64_t batch; /* BENCH_USUAL: not given */
  int64_t seq, steps, interleave, accumulate, context, sparse;
  bool remat, keep, serial; /* of activations: compute them again, keep them */
  bool host_update;
  uint64_t size; /* 0: not given */
  int64_t width; /* op: of rows; 0: those of a model */
  const char *trace, *shape, *write;
  const char *optimizer;   /* step: its name; NULL: adamw */
  const char *const *name; /* words after the kind */
  int names;
} bench_args;
/* Sequences: those asked for, or `usual`. */
static inline int64_t bench_batch(const bench_args *a, int64_t usual) {
  return a->batch == BENCH_USUAL ? usual : a->batch;
}

/* Bytes: those asked for, or `usual`. */
static inline uint64_t bench_size(const bench_args *a, uint64_t usual) {
  return a->size ? a->size : usual;
}

/* The kinds, by the rows of bench.def: each prints its results. */
#define KIND(name, about) hp_status bench_##name(const bench_args *a);
#include "cli/bench.def"
#undef KIND

/* One result: a JSON line, whose keys end with their unit; for people a list of figures with units,
 * or, where a kind has many results, a line of a table below its head. */
typedef struct {
  str text, head, columns; /* above the lines of a table: what is measured where; labels */
  json_writer w;
  bool json, in_table;
  bench_table *table;
} bench_row;
void bench_row_begin(bench_row *r, const bench_args *a, const char *what);
/* In a table, whose head is printed again when it changes. */
void bench_line_begin(bench_row *r, const bench_args *a, const char *what);
void bench_row_num(bench_row *r, const char *key, double x);
void bench_row_int(bench_row *r, const char *key, int64_t x);
void bench_row_text(bench_row *r, const char *key, const char *x);
hp_status bench_row_end(bench_row *r); /* prints it */

/* The machine as kinds below the level of models see it. */
typedef struct {
  pool *threads;
  cpu_isa isa;
  char name[96]; /* of the processor */
} bench_machine;
hp_status bench_machine_open(const bench_args *a, bench_machine *out);
void bench_machine_close(bench_machine *k);
void bench_row_machine(bench_row *r, const bench_machine *k);
/* The dtype of --dtype, or f32 and bf16 when it is not given. */
hp_status bench_dtypes(const bench_args *a, hp_dtype out[2], int *n);

/* A cluster file of what was measured: to --write, or for people to stdout. */
hp_status bench_write_cluster(const bench_args *a, const cluster *c);

#endif
