/* What the files of `hyper bench copy` share: rows, and what is kept of them for a cluster file. */
#ifndef CLI_BENCH_COPY_H
#define CLI_BENCH_COPY_H

#include "cli/bench.h"
#include "topo/cluster.h"

enum { COPY_ROUNDS_MAX = 101, COPY_STREAMS_MAX = 4 };

typedef struct {
  const bench_args *a;
  bench_machine k;
  double read_bytes_per_s; /* of memory, by all threads, as last measured */
  int rounds;              /* of each row; the median counts */
} copy_bench;

/* Copies in a round: all of their bytes, by the time of the round, and the time of one. */
typedef struct {
  double bytes_per_s, copy_s;
} copy_rate;
static const double COPY_ROUND_S = 0.02; /* the least time of a round */

/* Measures read_bytes_per_s again: before rows of another size, so that they see the same machine.
 */
hp_status copy_bench_limit(copy_bench *b);

/* One row: `bytes` at a time in `streams` at once; each byte passes memory so often. */
typedef struct {
  const char *tier, *direction;
  uint64_t bytes;
  int streams, passes;
} copy_row;
/* How a stream, 0 .. streams - 1, copies for a round. */
typedef struct {
  hp_status (*run)(void *context, int64_t stream, copy_rate *out);
  void *context;
} copy_work;
/* Runs it in rounds, prints the medians, and returns them: the rate of all streams, the time of one
 * copy. */
hp_status copy_bench_row(const copy_bench *b, const copy_row *r, const copy_work *w,
                         copy_rate *out);

/* A file in --flash DIR, or in the cache folder, with all its blocks. */
typedef struct bench_file bench_file;
hp_status bench_file_open(const bench_args *a, bench_file **out);
void bench_file_close(bench_file *f);
/* Sets the figures of the tier. */
hp_status copy_bench_flash(copy_bench *b, bench_file *f, cluster_tier *out);
/* Three digits of it: more are chance. */
double copy_bench_round(double x);

#endif
