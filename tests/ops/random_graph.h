/* Random small graphs with their reference, for hunting bugs between the graph and the program:
 * fusing, lowering, aliases, offsets, recomputation, streams.  Everything follows from the seed. */
#ifndef RANDOM_GRAPH_H
#define RANDOM_GRAPH_H

#include "ops/ref.h"

enum { RANDOM_LEAVES = 12, RANDOM_POOL = 256, RANDOM_OUTPUTS = 16 };

typedef struct {
  uint64_t seed, at;
} rng;
uint32_t rng_next(rng *r);
int rng_below(rng *r, int n); /* 0 .. n - 1 */
bool rng_chance(rng *r, int percent);
double rng_unit(rng *r); /* [0, 1) */

typedef struct {
  val v;
  char name[8];
  void *data; /* bytes as the program gets them */
  size_t bytes;
  double low, high;
  bool whole; /* whole numbers */
} random_leaf;

typedef struct {
  hp_graph *g;
  ref_run ref;
  rng r;
  random_leaf leaf[RANDOM_LEAVES]; /* inputs and params */
  int leaves;
  val pool[RANDOM_POOL]; /* values to go on from */
  int pooled;
  struct {
    char name[8];
    val v;
  } output[RANDOM_OUTPUTS];
  int outputs;
  val becomes[RANDOM_LEAVES]; /* by leaf: the value assigned to a param, 0 = none */
  int64_t sizes[6];           /* dims that shapes are made of */
} random_graph;

typedef struct {
  bool large;   /* tensors that are worth several threads */
  bool streams; /* with values that go to the host and back */
  bool dtypes;  /* bf16, f16 and integers too */
} random_options;

void random_graph_make(uint64_t seed, const random_options *o, random_graph *out);
void random_graph_free(random_graph *x);
/* New numbers in a leaf, for another run. */
void random_leaf_fill(random_graph *x, random_leaf *l);

#endif
