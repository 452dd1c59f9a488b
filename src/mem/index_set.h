/* A set of indices below n: the next one from a place on, and the last one before it, are found by
 * words of bits, 64 to a word of the level above. */
#ifndef MEM_INDEX_SET_H
#define MEM_INDEX_SET_H

#include "base/status.h"

#include <stdint.h>

enum { INDEX_SET_LEVELS = 6 };

typedef struct {
  uint64_t *word[INDEX_SET_LEVELS]; /* a bit of a level above: a word of this one is not 0 */
  int levels;
  uint32_t n;
} index_set;

#define INDEX_SET_NONE UINT32_MAX

/* Empty, of indices below n < 2^32 - 1.  index_set_free(s), also after a failure. */
hp_status index_set_create(uint32_t n, index_set *s);
void index_set_free(index_set *s);
/* Index i is in it or not, from now on. */
void index_set_add(index_set *s, uint32_t i);
void index_set_remove(index_set *s, uint32_t i);
bool index_set_has(const index_set *s, uint32_t i);
/* The least of those >= i; n: there is none. */
uint32_t index_set_next(const index_set *s, uint32_t i);
/* The largest of those < i <= n; INDEX_SET_NONE: there is none. */
uint32_t index_set_last(const index_set *s, uint32_t i);

#endif
