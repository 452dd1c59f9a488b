/* Padding of dims that their layouts do not divide. */
#ifndef SHARD_SHARD_PAD_H
#define SHARD_SHARD_PAD_H

#include "shard/shard.h"

typedef struct {
  hp_graph *graph; /* NULL: every layout divides its dims, and g can be sharded unchanged */
  val *of; /* by value of g: the value of `graph` that contains it, from index 0 in every dim */
  ir_value *was; /* by value of `graph`: the type of the value of g that it contains */
  double true_flops, all_flops; /* operations of g, without padding and with it */
} padded;

/* Rebuilds the global graph with dims extended so that the declared layouts divide them. */
hp_status shard_pad(const hp_graph *g, const shard_plan *plan, padded *out);
void padded_free(padded *p);

#endif
