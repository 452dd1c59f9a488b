/* Internal to mem/offsets: which addresses are taken, by when.  Answers "where does this item fit"
 * without looking at the items placed before it one by one.
 *
 * Per pair of streams (t, s) a segment tree over time holds the items defined on t, each from its
 * definition to its death for s; an item defined on s meets exactly those whose interval meets its
 * own.  A node keeps two sets of address runs: `whole`, taken during all of its time, and `some`,
 * taken at any moment of it.  Runs that touch are merged, so the stacks that programs build are
 * few runs however many buffers they hold. */
#ifndef MEM_OFFSETS_SPACE_H
#define MEM_OFFSETS_SPACE_H

#include "mem/offsets_items.h"

typedef struct offsets_space offsets_space;

hp_status offsets_space_create(const offsets_items *t, offsets_space **out);
void offsets_space_free(offsets_space *p);
/* *work grows by the steps done, here and below: some 5 ns each, whatever is asked. */
void offsets_space_clear(offsets_space *p, uint64_t *work);
/* Takes [offset, offset + size of the item) for the life of the item. */
hp_status offsets_space_add(offsets_space *p, uint32_t item, uint64_t offset, uint64_t *work);

typedef enum {
  SPACE_FIRST, /* the lowest gap that is large enough */
  SPACE_BEST   /* the smallest such gap, the lowest of equals; the end counts as the largest */
} offsets_fit;
/* Where the item fits. */
uint64_t offsets_space_find(offsets_space *p, uint32_t item, offsets_fit fit, uint64_t *work);
/* Whether nothing that the item meets lies in [offset, offset + size of the item). */
bool offsets_space_is_free(offsets_space *p, uint32_t item, uint64_t offset);

#endif
