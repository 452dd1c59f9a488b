/* Redistribution: the cheapest way from one layout of a tensor to another on the same mesh, as a
 * shortest path (Dijkstra) over layouts.  Every edge is one collective over one group of axes:
 *
 *   split           keeps a part of what the device holds                      nothing received
 *   gather          the innermost axes of a dim are undone               (n-1)/n of the result
 *   all_to_all      the innermost axes of a dim come to cut another      (n-1)/n of the part
 *   reduce_scatter  a partial reduction is done, and its axes cut a dim  (n-1)/n of the part
 *   all_reduce      a partial reduction is done everywhere              2(n-1)/n of the part
 *   drop            replicas become a partial reduction: all but one are zeroed         nothing
 *   permute         parts change places (only where `permute` asks for it)         the part
 *
 * Dims that the layouts do not divide evenly are padded to a size that both divide, for the whole
 * way.  Fixed orders such as slice, all-to-all, gather are up to ten times dearer. */
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
  int dim;                   /* that is split, gathered, scattered; of all_to_all: gathered */
  int to;                    /* of all_to_all: the dim that is cut instead */
  partial_op op;             /* of reductions and drop */
  int n;                     /* axes of the group, outermost first: */
  uint8_t axis[LAYOUT_AXES]; /* mesh_group gives its ranks in the order of their parts */
  uint8_t cut[LAYOUT_AXES];  /* of all_to_all: the axes in the order in which they cut `to` */
  double bytes;              /* received per device */
  layout after;
} path_move;

enum { PATH_MOVES = 32 };
typedef struct {
  path_move move[PATH_MOVES];
  int n;
  double bytes, cost;
  int64_t local, peak; /* elements of a device before, and at most on the way */
} path;

typedef struct {
  const mesh *mesh;
  const int64_t *shape;
  double element_bytes;
  int64_t peak; /* elements that a device may hold on the way; 0: any number */
  bool permute;
  /* Cost of a move in any unit; NULL: its bytes.  Ties go to fewer moves. */
  double (*price)(const void *model, const path_move *move);
  const void *model;
} path_request;

/* HP_ERR_LAYOUT when the ranks differ, or when `peak` leaves no way. */
hp_status path_find(const path_request *q, const layout *from, const layout *to, path *out);
const char *move_name(move_kind kind); /* "all_split", "all_concat", "all_to_all", ... */
int64_t move_devices(const mesh *m, const path_move *move); /* of its group */

#endif
