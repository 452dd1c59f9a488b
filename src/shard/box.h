/* Boxes: [start, stop) of every dim of a tensor.  Parts of a layout as boxes, what two boxes have
 * in common, and the way of their elements from one array to another.
 *
 * Resharding between meshes, files written on one mesh and read on another, and the parts that a
 * device is given are all the same question, and this is the one answer. */
#ifndef SHARD_BOX_H
#define SHARD_BOX_H

#include "shard/slices.h"

typedef struct {
  int rank;
  int64_t start[LAYOUT_DIMS], stop[LAYOUT_DIMS];
} box;

box box_of(const int64_t *shape, int rank); /* the whole tensor */
/* What the device holds, without padding, and the room that it has for it, padding included: its
 * part begins where the box begins, and is as long in every dim as the others. */
box box_of_shard(const mesh *m, const layout *l, const int64_t *shape, int64_t position);
box box_room(const mesh *m, const layout *l, const int64_t *shape, int64_t position);

int64_t box_elements(const box *b);
/* What both hold; false when that is nothing. */
bool box_intersect(const box *a, const box *b, box *out);
void box_print(const box *b, str *out); /* [0:16, 4:8] */

/* --- who holds it ----------------------------------------------------------------------------- */

/* The first of the devices that hold the same shard as this one, and the k-th of them,
 * k < layout_repeat. */
int64_t layout_first(const mesh *m, const layout *l, int64_t position);
int64_t layout_replica(const mesh *m, const layout *l, int64_t first, int64_t k);

/* The parts of a layout that a box meets: for (shards_begin(...); p.more; shards_next(&p)). */
typedef struct {
  bool more;
  int64_t first; /* device that holds this part first */
  box common;    /* what the box has of it */
  /* private */
  const mesh *m;
  const layout *l;
  const int64_t *shape;
  box within;
  int64_t low[LAYOUT_DIMS], high[LAYOUT_DIMS], at[LAYOUT_DIMS]; /* numbers of parts, by dim */
} shards_met;
void shards_begin(shards_met *p, const mesh *m, const layout *l, const int64_t *shape,
                  const box *b);
void shards_next(shards_met *p);

/* --- elements --------------------------------------------------------------------------------- */

/* The elements of b in two row-major arrays, which hold all of the boxes `from` and `to`: the runs
 * that lie together in both, for (runs_begin(...); r.n; runs_next(&r)). */
typedef struct {
  int64_t from, to, n; /* where the run begins in the arrays, and its length */
  /* private */
  int outer; /* dims before it are walked */
  int64_t size[LAYOUT_DIMS], step_from[LAYOUT_DIMS], step_to[LAYOUT_DIMS], at[LAYOUT_DIMS];
} box_runs;
void runs_begin(box_runs *r, const box *b, const box *from, const box *to);
void runs_next(box_runs *r);
/* Copies them; an element has so many bytes. */
void box_copy(const box *b, size_t element, const box *from, const void *src, const box *to,
              void *dst);

#endif
