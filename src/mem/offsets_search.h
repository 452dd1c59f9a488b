/* Internal to mem/offsets: exact search for a plan of at most `target` bytes. */
#ifndef MEM_OFFSETS_SEARCH_H
#define MEM_OFFSETS_SEARCH_H

#include "mem/offsets_items.h"

enum { SEARCH_ITEMS_MAX = 1000 };

typedef enum {
  SEARCH_FOUND, /* offset[] holds a plan */
  SEARCH_NONE,  /* there is none (with the space below fixed items taken as occupied) */
  SEARCH_TIRED  /* the work was used up first */
} search_result;

typedef struct offsets_search offsets_search;

/* For n items of one tier (at most SEARCH_ITEMS_MAX), the first n_fixed of them fixed.  Of items
 * that are tied only the first is among them, and offset[] gets that one's alone. */
hp_status offsets_search_create(const offsets_items *t, const uint32_t *item, uint32_t n,
                                uint32_t n_fixed, offsets_search **out);
void offsets_search_free(offsets_search *w);
/* Searches with `*work` steps of about 1 ns, decremented by the steps taken: in one order after the
 * other, each with its share.  offset[] is indexed by item. */
search_result offsets_search_run(offsets_search *w, uint64_t target, uint64_t *work,
                                 uint64_t *offset);

#endif
