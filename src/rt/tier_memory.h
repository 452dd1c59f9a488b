/* The memory of one tier of a device: named tensors from its low end on, and the work memory that
 * all programs share, one after the other, in its upper half.
 *
 * Address space is reserved once, and memory is committed when it is used, so nothing in it ever
 * moves.  A place in it is an offset; kernels get its address. */
#ifndef RT_TIER_MEMORY_H
#define RT_TIER_MEMORY_H

#include "backend/backend.h"

typedef struct {
  uint64_t from, to;
} memory_gap;

typedef struct {
  const backend_iface *backend;
  void *dev;
  int tier;
  int devices;             /* of this process, which share its address space; 0: one */
  bool limited;            /* by ulimit -v, to less than the machine has */
  char *at;                /* address of offset 0; NULL before anything is in it */
  uint64_t half;           /* bytes of either half */
  uint64_t committed, end; /* of the lower half: has memory, is tensors and gaps */
  VEC(memory_gap) gaps;    /* between tensors, in order and apart */
  VEC(uint64_t) needs;     /* bytes of work memory of each loaded program */
  uint64_t work_bytes;     /* the most of them */
  uint64_t work_committed; /* of the upper half that may be touched */
} tier_memory;

/* Memory of `bytes` for a tensor, at a multiple of 256, zeroed. */
hp_status tier_memory_take(tier_memory *m, uint64_t bytes, uint64_t *offset);
/* Frees it. */
void tier_memory_give(tier_memory *m, uint64_t offset, uint64_t bytes);
/* A program that is loaded needs so many bytes of work memory.  What is in it stays. */
hp_status tier_memory_add_need(tier_memory *m, uint64_t bytes);
/* It is gone: what no other program needs takes no memory any more. */
void tier_memory_drop_need(tier_memory *m, uint64_t bytes);
static inline void *tier_memory_address(const tier_memory *m, uint64_t offset) {
  return m->at + offset;
}
/* Start of work memory. */
static inline uint64_t tier_memory_work_offset(const tier_memory *m) { return m->half; }
void tier_memory_free(tier_memory *m);

#endif
