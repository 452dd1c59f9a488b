/* Which shard of a tensor each device of a mesh holds under a layout. */
#ifndef SHARD_SLICES_H
#define SHARD_SLICES_H

#include "ir/layout.h"
#include "topo/mesh.h"

/* Number of shards of dim d. */
int64_t layout_shard_count(const mesh *m, const layout *l, int d);
/* Devices that hold the same shard, not counting axes with partial reductions. */
int64_t layout_repeat(const mesh *m, const layout *l);
/* Length of a shard of dim d: given by the layout, or size / shards, rounded up.  If the shards
 * together are longer than the dim, it is padded at its end, and the last slices are shorter or
 * empty. */
int64_t layout_shard_size(const mesh *m, const layout *l, int d, int64_t size);
/* Length of the dim with its padding: the sum of all shards; saturates at INT64_MAX. */
int64_t layout_padded_size(const mesh *m, const layout *l, int d, int64_t size);
/* The first dim whose shards together are too short; -1: none, also if no length is given. */
int layout_short_dim(const mesh *m, const layout *l, const int64_t *shape);
/* The number of the device's shard of dim d. */
int64_t layout_shard_index(const mesh *m, const layout *l, int d, int64_t position);
/* The device's slice [start, stop) of every dim, without padding. */
void layout_slice(const mesh *m, const layout *l, const int64_t *shape, int64_t position,
                  int64_t *start, int64_t *stop);
/* Axes over which devices hold the same shard, in the order of the mesh; returns how many. */
int layout_free_axes(const mesh *m, const layout *l, uint8_t out[LAYOUT_AXES]);

#endif
