/* Tokens of experts by rows: in the graph of a device of a mesh, an all_gather of rows that only
 * experts read becomes a dispatch, and a reduce_scatter of rows that are 0 where the device has
 * none of their experts a combine.  A row then goes to the devices that have one of its experts.
 * The bits of a run stay the same. */
#ifndef SHARD_DISPATCH_H
#define SHARD_DISPATCH_H

#include "ops/ops.h"
#include "topo/cluster.h"

/* HP_DISPATCH_AUTO: where that is predicted to be faster, with a uniform router.  *out NULL:
 * nothing changes. */
hp_status shard_dispatch(const hp_graph *g, const mesh *m, const cluster *c, hp_dispatch how,
                         hp_graph **out);

#endif
