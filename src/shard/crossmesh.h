/* Redistribution of a tensor between two meshes, which may share none, some or all devices:
 * which boxes each device sends to which.  Devices are named by their ranks on the two meshes. */
#ifndef SHARD_CROSSMESH_H
#define SHARD_CROSSMESH_H

#include "base/vec.h"
#include "shard/box.h"

typedef struct {
  int64_t from, to; /* ranks; equal: the device has the box already */
  box b;
} crossing;
typedef VEC(crossing) crossings; /* vec_free */

/* Appends to `out`, receiver by receiver, boxes without overlap that make up the receiver's
 * shard under b.  A receiver takes from itself what it holds under a.  Devices that hold the
 * same shard send equal shares of it, for which boxes are split: the busiest device sends at
 * most one slice of the longest dim of a box more than the least that is possible.
 * HP_ERR_LAYOUT if the layouts have different numbers of dims or one is partial; HP_ERR_SHAPE
 * for invalid sizes. */
hp_status crossmesh_find(const int64_t *shape, const mesh *from, const layout *a, const mesh *to,
                         const layout *b, crossings *out);

#endif
