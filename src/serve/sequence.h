/* A sequence in a paged cache: how many tokens it has there, and in which blocks.
 *
 * A feed looks for blocks of equal beginnings (match), makes room for its tokens (grow), runs, and
 * notes what the blocks now contain (commit), or, if it failed, gives the new ones back (undo). */
#ifndef SERVE_SEQUENCE_H
#define SERVE_SEQUENCE_H

#include "base/vec.h"
#include "model/family.h"
#include "serve/block_pool.h"

typedef struct {
  bool used, fed;            /* fed: its place in the feed at hand is known */
  int64_t group;             /* whose pool has its blocks */
  int64_t length;            /* tokens with keys and values in the cache */
  VEC(int32_t) block;        /* of its tokens, in order; -1: given back */
  int64_t dropped;           /* blocks at its beginning that were given back */
  int32_t tail[CACHE_BLOCK]; /* tokens of the last block, if it is not full */
  /* Between grow and commit: the shared block whose place the first written one took, and whose
   * content it gets (copy-on-write), -1: none; and blocks before grow. */
  int32_t copy;
  size_t before;
} sequence;

/* A sequence without tokens holds the blocks of the longest equal beginning of ids, but not of the
 * last token, whose logits are wanted; its length is that of the blocks. */
hp_status sequence_match(sequence *s, block_pool *p, const int32_t *ids, int64_t n);
/* Blocks that must be free for n more tokens. */
int64_t sequence_count_needed(const sequence *s, const block_pool *p, int64_t n);
/* Room for n more tokens; the blocks must be free. */
hp_status sequence_grow(sequence *s, block_pool *p, int64_t n);
/* The n tokens are in the cache.  share: other sequences may find full blocks. */
void sequence_commit(sequence *s, block_pool *p, const int32_t *ids, int64_t n, bool share);
void sequence_undo(sequence *s, block_pool *p);
/* Gives back the blocks whose tokens are all before token `first`, but not the last two. */
void sequence_drop(sequence *s, block_pool *p, int64_t first);
/* A second sequence with the same tokens and blocks; `to` has none. */
hp_status sequence_fork(const sequence *s, block_pool *p, sequence *to);
/* Forgets its tokens and releases its blocks. */
void sequence_clear(sequence *s, block_pool *p);

#endif
