/* A cache on a farther tier: which blocks a chunk of tokens has in which slots of the device
 * (model_cache). */
#ifndef SERVE_SLOT_MAP_H
#define SERVE_SLOT_MAP_H

#include "serve/sequence.h"

/* Blocks of the tail of one sequence: with T new tokens at any place, all segments that they are
 * in.
 */
int64_t slot_map_tail(int64_t T);
/* Blocks before the tail of a sequence of so many tokens; those of segments that were given back.
 */
int64_t slot_map_before(int64_t tokens);
int64_t slot_map_dropped(const sequence *q);
/* The slots of parts for `blocks` blocks of a group, of which a part has at most slots_max; numbers
 * of slots and of parts are rounded up, so that few programs serve all lengths. */
void slot_map_plan(int64_t blocks, int64_t slots_max, model_cache *c);

/* As many blocks, in whole segments, rounded up in the same way. */
int64_t slot_map_round(int64_t blocks);

/* The inputs of a group: rows of the table, and its lists. */
typedef struct {
  const model_cache *cache;
  int64_t rows;
  const sequence *const *in_row; /* [rows], after they grew; NULL: padding */
  int32_t *table, *fetch, *store;
} slot_map;
/* Fills them.  Sequences with equal segments in a part share their slots. */
void slot_map_fill(const slot_map *m);

#endif
