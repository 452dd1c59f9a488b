/* The blocks of a paged cache: which are free, how many sequences hold each, and what the full ones
 * contain, so that sequences with equal beginnings hold the same blocks.
 *
 * Only numbers: the keys and values of block i are wherever the cache has them.  A released block
 * keeps its content until it is taken for something else, the longest released first. */
#ifndef SERVE_BLOCK_POOL_H
#define SERVE_BLOCK_POOL_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct block_pool block_pool;

/* So many blocks of `tokens` tokens each, all free. */
hp_status block_pool_create(int64_t blocks, int64_t tokens, block_pool **out);
void block_pool_free(block_pool *p);
int64_t block_pool_blocks(const block_pool *p);
int64_t block_pool_available(const block_pool *p); /* that nobody holds */
int64_t block_pool_holders(const block_pool *p, int32_t block);

/* A block that nobody holds, with one holder, its content forgotten; -1: there is none. */
int32_t block_pool_take(block_pool *p);
/* One more holder, also of a block that block_pool_find found and nobody holds; one less. */
void block_pool_hold(block_pool *p, int32_t block);
void block_pool_release(block_pool *p, int32_t block);

/* A held block now contains these tokens after those of block `before`, which has a content itself;
 * -1: it is the first of its sequence. */
void block_pool_fill(block_pool *p, int32_t block, int32_t before, const int32_t *tokens);
/* Has it a content?  Not before it is filled. */
bool block_pool_is_filled(const block_pool *p, int32_t block);
/* The block with this content; -1: there is none. */
int32_t block_pool_find(const block_pool *p, int32_t before, const int32_t *tokens);

#endif
