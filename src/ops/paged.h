/* Blocks of a paged cache of keys and values. */
#ifndef OPS_PAGED_H
#define OPS_PAGED_H

enum { PAGE_TOKENS = 16 }; /* tokens of a block: the lanes of a vector of scores */

#endif
