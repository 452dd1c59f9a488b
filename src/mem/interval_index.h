/* The intervals of a set that cover a place, found without a look at the others.  The set is made
 * at once; intervals may be removed.  A balanced tree by their beginnings, whose nodes know how far
 * the intervals below them reach. */
#ifndef MEM_INTERVAL_INDEX_H
#define MEM_INTERVAL_INDEX_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint32_t from, until; /* until is not in it */
  uint32_t id;
} interval;

typedef struct {
  interval *at;   /* [n] by beginning; the root of a range is in its middle; removed: empty */
  uint32_t *most; /* [n] the largest `until` of the range that an interval is the root of */
  size_t n;
} interval_index;

/* Room for n intervals, which the caller writes to `at` before it builds.  interval_index_free. */
hp_status interval_index_create(size_t n, interval_index *x);
void interval_index_build(interval_index *x);
/* Takes the interval of this beginning and id out, if it is there and no other is like it. */
void interval_index_remove(interval_index *x, uint32_t from, uint32_t id);
/* The ids of those that cover `place`, by beginning, to ids[n of the index]; returns how many. */
size_t interval_index_find(const interval_index *x, uint32_t place, uint32_t *ids);
void interval_index_free(interval_index *x);

#endif
