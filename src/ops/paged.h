/* Blocks of a paged cache of keys and values. */
#ifndef OPS_PAGED_H
#define OPS_PAGED_H

enum {
  PAGE_TOKENS = 32, /* tokens of a block: two vectors of scores */
  PAGED_STATE = 16  /* numbers of a state before its sums: maximum, sum of weights, zeros */
};

#endif
