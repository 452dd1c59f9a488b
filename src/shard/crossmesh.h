/* A tensor from one mesh to another, whose devices may be others, the same, or some of both: which
 * boxes go from whom to whom.  Devices are known by their ranks on the two meshes. */
#ifndef SHARD_CROSSMESH_H
#define SHARD_CROSSMESH_H

#include "base/vec.h"
#include "shard/box.h"

typedef struct {
  int64_t from, to; /* ranks; the same: the device has it already */
  box b;
} crossing;
typedef VEC(crossing) crossings; /* vec_free */

/* Appends to `out`, receiver by receiver, boxes that make up the part of each under b, without
 * overlap.  What a receiver holds under a it takes from itself.  What several hold is sent by all
 * of them in equal shares, for which boxes are cut: the busiest sends at most one slice of the
 * longest dim of a box more than the least that is possible.  HP_ERR_LAYOUT when the layouts have
 * unlike ranks or something is partial under one; HP_ERR_SHAPE for sizes that make no tensor. */
hp_status crossmesh_find(const int64_t *shape, const mesh *from, const layout *a, const mesh *to,
                         const layout *b, crossings *out);

#endif
