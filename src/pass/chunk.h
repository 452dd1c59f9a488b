/* Regions of a graph that can run chunk by chunk, so that their values are never stored.
 *
 * A region consists of the nodes around one value that is too large: all nodes that make or use
 * values of its size, and the nodes between them.  It is split along leading dims of that value
 * (its axes), row-major: a chunk is a range of rows.  The factor rules of the op table
 * (src/shard/rule.h) give the dim along which every other value is split, and the nodes that sum
 * over it: contractions, whose chains continue from chunk to chunk. */
#ifndef PASS_CHUNK_H
#define PASS_CHUNK_H

#include "pass/pass.h"
#include "shard/rule.h"

enum { CHUNK_MEMBERS = 64, CHUNK_TENSORS = 12, CHUNK_WHOLE = -1 };

/* Of each operand, then of each result, the dim along every axis; CHUNK_WHOLE: not split. */
typedef struct {
  uint32_t node;
  bool sums; /* over the axes: its result is not split */
  int8_t dim[CHUNK_TENSORS][HP_MAX_RANK];
} chunk_member;

typedef struct {
  val seed; /* the value that is too large */
  int n, axes;
  chunk_member at[CHUNK_MEMBERS];               /* in node order */
  int64_t size[HP_MAX_RANK], step[HP_MAX_RANK]; /* of an axis, and of a chunk along it */
  int64_t chunks;
} chunk_region;

typedef struct {
  uint64_t bytes;        /* larger values are computed chunk by chunk */
  double flops_per_byte; /* chunks are as large as it takes to hide with so much arithmetic what
                            each of them reads again; 0: as large as `bytes` allow */
} chunk_limits;

typedef struct {
  const hp_graph *g;
  chunk_limits limits;
  use_lists uses;
  uint8_t *mark; /* by node */
  int8_t *dim;   /* by value */
  rule *rules;   /* of the region's members */
} chunk_finder;

hp_status chunk_finder_begin(const hp_graph *g, const chunk_limits *limits, chunk_finder *f);
void chunk_finder_end(chunk_finder *f);
bool chunk_too_large(const chunk_finder *f, val v);
/* The region around v; *found is false if there is none that can be split, and `why` has the
 * reason. */
hp_status chunk_find(chunk_finder *f, val v, chunk_region *out, bool *found, str *why);

#endif
