/* Internal to mem/offsets: the problem, checked and reduced.  An item is a buffer or an alias
 * group; times are ranks of definition positions, because two live ranges overlap iff one of
 * them contains the definition of the other. */
#ifndef MEM_OFFSETS_ITEMS_H
#define MEM_OFFSETS_ITEMS_H

#include "mem/offsets.h"

typedef struct {
  uint64_t size, align; /* size rounded up to align; 0 = empty, never placed */
  uint64_t offset;      /* when fixed */
  bool fixed;
  uint8_t tier;
  uint32_t name; /* a buffer of it, for messages */
  bool follows;  /* it is placed with an earlier item, to which it is tied */
  uint32_t tied; /* the next item of its ties; OFFSETS_NEVER: none */
} offsets_item;

typedef struct {
  offsets_item *item;
  size_t n;
  uint32_t streams;
  uint32_t points;    /* times are 0 .. points - 1 */
  uint32_t *position; /* [points] position in the program */
  uint32_t *first;    /* [n][streams] first definition on a stream; OFFSETS_NEVER if none */
  uint32_t *dead;     /* [n][streams] definitions on a stream from this time on find it dead;
                         first < dead <= points */
  uint32_t *of;       /* [buffers] its item */
} offsets_items;

/* Checks the problem (HP_ERR_ARG, HP_ERR_OOM as offsets_assign) and reduces it. */
hp_status offsets_items_build(const offsets_problem *p, offsets_items *out);
void offsets_items_free(offsets_items *t);

/* Whether items of one tier may not share bytes. */
static inline bool offsets_items_conflict(const offsets_items *t, uint32_t a, uint32_t b) {
  const uint32_t *fa = t->first + (size_t)a * t->streams, *da = t->dead + (size_t)a * t->streams;
  const uint32_t *fb = t->first + (size_t)b * t->streams, *db = t->dead + (size_t)b * t->streams;
  bool a_late = false, b_late = false; /* a outlives a definition of b, and vice versa */
  for (uint32_t s = 0; s < t->streams; s++) {
    a_late |= fb[s] < da[s];
    b_late |= fa[s] < db[s];
  }
  return a_late && b_late;
}

#endif
