/* Redistribution: the cheapest path from one layout of a tensor to another on the same mesh
 * (Dijkstra over layouts).  Every edge is one collective over one group of axes:
 *
 *   split           keeps a shard of what the device holds                     nothing received
 *   gather          the innermost axes of a dim are undone               (n-1)/n of the result
 *   all_to_all      the innermost axes of a dim shard another dim        (n-1)/n of the shard
 *   reduce_scatter  reduces; the axes then shard a dim                   (n-1)/n of the shard
 *   all_reduce      reduces; every device has the result                2(n-1)/n of the shard
 *   drop            replicas become a partial reduction: all but one are zeroed        nothing
 *   permute         devices exchange shards (only if `permute` is set)               the shard
 *
 * For the length of a path, dims that the layouts do not divide are padded to a size that both
 * divide.  A fixed order, such as slice, all-to-all, gather, takes up to ten times the bytes. */
#ifndef SHARD_PATH_H
#define SHARD_PATH_H

#include "shard/slices.h"

typedef enum {
  MOVE_SPLIT,
  MOVE_GATHER,
  MOVE_ALL_TO_ALL,
  MOVE_REDUCE_SCATTER,
  MOVE_ALL_REDUCE,
  MOVE_DROP,
  MOVE_PERMUTE
} move_kind;

typedef struct {
  move_kind kind;
  int dim;                   /* dim that is split, gathered or scattered; of all_to_all: gathered */
  int to;                    /* of all_to_all: the dim that is sharded instead */
  partial_op op;             /* of reductions and drop */
  int n;                     /* axes of the communicator, outermost first: */
  uint8_t axis[LAYOUT_AXES]; /* mesh_get_ranks gives the ranks in the order of their shards */
  uint8_t cut[LAYOUT_AXES];  /* of all_to_all: the axes in the order in which they shard `to` */
  double bytes;              /* received per device */
  layout after;
} path_move;

enum { PATH_MOVES = 32 };
typedef struct {
  path_move move[PATH_MOVES];
  int n;
  double bytes, cost;
  int64_t local, peak; /* elements of a device before, and at the peak of the path */
} path;

typedef struct {
  const mesh *mesh;
  const int64_t *shape;
  double element_bytes;
  int64_t peak; /* limit of the elements that a device holds on the path; 0: none */
  bool permute;
  /* Cost of a step in any unit; NULL: its bytes.  Of equal costs the one with fewer steps wins. */
  double (*price)(const void *model, const path_move *move);
  const void *model;
} path_request;

/* HP_ERR_LAYOUT if the numbers of dims differ, or if `peak` allows no path. */
hp_status path_find(const path_request *q, const layout *from, const layout *to, path *out);
const char *move_name(move_kind kind); /* "all_split", "all_concat", "all_to_all", ... */
int64_t move_devices(const mesh *m, const path_move *move); /* of its communicator */

#endif
