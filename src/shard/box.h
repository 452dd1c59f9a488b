/* Boxes: [start, stop) of every dim of a tensor.  Shards of a layout as boxes, intersection of
 * boxes, and copying a box between arrays.
 *
 * Resharding between meshes, reading files that another mesh wrote, and giving a device its
 * shards all use these functions. */
#ifndef SHARD_BOX_H
#define SHARD_BOX_H

#include "shard/slices.h"

typedef struct {
  int rank;
  int64_t start[LAYOUT_DIMS], stop[LAYOUT_DIMS];
} box;

box box_of(const int64_t *shape, int rank); /* the global tensor */
/* The device's shard without padding, and the box of its memory with padding: this one has the
 * same start, and its length is the same on all devices. */
box box_of_shard(const mesh *m, const layout *l, const int64_t *shape, int64_t position);
box box_room(const mesh *m, const layout *l, const int64_t *shape, int64_t position);

int64_t box_elements(const box *b);
/* The intersection; false if it is empty. */
bool box_intersect(const box *a, const box *b, box *out);
void box_print(const box *b, str *out); /* [0:16, 4:8] */

/* --- who holds it ----------------------------------------------------------------------------- */

/* The first of the devices that hold the same shard as this one, and the k-th of them, k <
 * layout_repeat. */
int64_t layout_first(const mesh *m, const layout *l, int64_t position);
int64_t layout_replica(const mesh *m, const layout *l, int64_t first, int64_t k);

/* The shards of a layout that overlap a box: for (shards_begin(...); p.more; shards_next(&p)). */
typedef struct {
  bool more;
  int64_t first; /* the first device that holds this shard */
  box common;    /* its intersection with the box */
  /* private */
  const mesh *m;
  const layout *l;
  const int64_t *shape;
  box within;
  int64_t low[LAYOUT_DIMS], high[LAYOUT_DIMS], at[LAYOUT_DIMS]; /* shard numbers, by dim */
} overlapping_shards;
void shards_begin(overlapping_shards *p, const mesh *m, const layout *l, const int64_t *shape,
                  const box *b);
void shards_next(overlapping_shards *p);

/* --- elements --------------------------------------------------------------------------------- */

/* Copies the elements of b between two row-major arrays that hold the boxes `from` and `to`: the
 * runs that are contiguous in both, for (runs_begin(...); r.n; runs_next(&r)). */
typedef struct {
  int64_t from, to, n; /* start of the run in both arrays, and its length */
  /* private */
  int outer; /* dims before it are iterated */
  int64_t size[LAYOUT_DIMS], step_from[LAYOUT_DIMS], step_to[LAYOUT_DIMS], at[LAYOUT_DIMS];
} box_runs;
void runs_begin(box_runs *r, const box *b, const box *from, const box *to);
void runs_next(box_runs *r);
/* Copies them; `element` is the size of an element in bytes. */
void box_copy(const box *b, size_t element, const box *from, const void *src, const box *to,
              void *dst);

#endif
