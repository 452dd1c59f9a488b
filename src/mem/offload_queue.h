/* Internal to mem/offload: a heap of items by a key, smallest first.  An entry whose version is not
 * its item's any more is dropped when it comes up. */
#ifndef MEM_OFFLOAD_QUEUE_H
#define MEM_OFFLOAD_QUEUE_H

#include "base/vec.h"

typedef struct {
  double key;
  uint32_t item, version;
} offload_entry;

typedef struct {
  VEC(offload_entry) heap;
} offload_queue;

hp_status offload_queue_push(offload_queue *q, double key, uint32_t item, uint32_t version);
/* NULL: it is empty. */
const offload_entry *offload_queue_top(const offload_queue *q);
void offload_queue_pop(offload_queue *q);
static inline void offload_queue_clear(offload_queue *q) { q->heap.len = 0; }
static inline void offload_queue_free(offload_queue *q) { vec_free(&q->heap); }

#endif
