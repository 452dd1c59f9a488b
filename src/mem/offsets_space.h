/* Internal to mem/offsets: which addresses are taken, and when.  Finds where an item fits without
 * visiting the earlier items one by one.
 *
 * Per pair of streams (t, s) a segment tree over time holds the items defined on t, each from
 * its definition to its death for s; an item defined on s conflicts exactly with those whose
 * interval overlaps its own.  A node keeps two sets of address runs: `whole`, taken during all
 * of its time, and `some`, taken at any moment of it.  Adjacent runs are merged, so the stacks
 * that programs build are few runs for any number of buffers. */
#ifndef MEM_OFFSETS_SPACE_H
#define MEM_OFFSETS_SPACE_H

#include "mem/offsets_items.h"

typedef struct offsets_space offsets_space;

hp_status offsets_space_create(const offsets_items *t, offsets_space **out);
void offsets_space_free(offsets_space *p);
/* *work grows by the steps done, here and below: about 5 ns each. */
void offsets_space_clear(offsets_space *p, uint64_t *work);
/* Takes [offset, offset + size of the item) for the live range of the item. */
hp_status offsets_space_add(offsets_space *p, uint32_t item, uint64_t offset, uint64_t *work);

typedef enum {
  SPACE_FIRST, /* the lowest gap that is large enough */
  SPACE_BEST   /* the smallest such gap, the lowest of equals; the end counts as the largest */
} offsets_fit;
/* The lowest or smallest gap for the item. */
uint64_t offsets_space_find(offsets_space *p, uint32_t item, offsets_fit fit, uint64_t *work);
/* Is [offset, offset + size of the item) free of conflicting items? */
bool offsets_space_is_free(offsets_space *p, uint32_t item, uint64_t offset);

#endif
