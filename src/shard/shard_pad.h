/* Dims that their layouts do not divide. */
#ifndef SHARD_SHARD_PAD_H
#define SHARD_SHARD_PAD_H

#include "shard/shard.h"

typedef struct {
  hp_graph *graph; /* NULL: every layout divides, and g can be sharded as it is */
  val *of;         /* by value of g: the value of graph that begins with it in every dim */
  ir_value *was;   /* by value of graph: the type of the value of g that it begins with */
  double true_flops, all_flops; /* of the nodes of g, without padding and with it */
} padded;

/* The graph of the whole once more, with dims so long that the layouts that are declared divide
 * them. */
hp_status shard_pad(const hp_graph *g, const shard_plan *plan, padded *out);
void padded_free(padded *p);

#endif
