/* Numbers by position: the largest, and the first position that has it, are known after any number
 * of additions to ranges.  A binary tree of maxima. */
#ifndef MEM_PEAK_TREE_H
#define MEM_PEAK_TREE_H

#include "base/status.h"

#include <stdint.h>

typedef struct {
  int64_t *most; /* [2 * leaves] by node, with what was added to it, without that of those above */
  int64_t *add;  /* [2 * leaves] to all positions below a node */
  uint32_t n, leaves;
} peak_tree;

/* The sums that numbers pass through stay within this. */
#define PEAK_TREE_MOST (INT64_C(1) << 61)

/* Of value[n].  peak_tree_free(t), also after a failure. */
hp_status peak_tree_create(const int64_t *value, uint32_t n, peak_tree *t);
void peak_tree_free(peak_tree *t);
/* Adds to positions from..until-1. */
void peak_tree_add(peak_tree *t, uint32_t from, uint32_t until, int64_t more);
/* Position i does not count any more. */
void peak_tree_remove(peak_tree *t, uint32_t i);
/* The number of a position that was not removed. */
int64_t peak_tree_at(const peak_tree *t, uint32_t i);
/* The largest of those that count; below -PEAK_TREE_MOST: there is none. */
int64_t peak_tree_most(const peak_tree *t);
/* The first position that has it; n: there is none. */
uint32_t peak_tree_first(const peak_tree *t);

#endif
