/* The memory of one tier of a device: named tensors from its low end on, and the work memory that
 * all programs share, one after the other, in its upper half.
 *
 * Address space is reserved once, and memory is committed when it is used, so nothing in it ever
 * moves.  A place in it is an offset; kernels get its address.  Tier flash has no addresses: its
 * memory is the device's part of the store of the process, with work memory at its upper end, and
 * the mover alone reads and writes it. */
#ifndef RT_TIER_MEMORY_H
#define RT_TIER_MEMORY_H

#include "backend/backend.h"
#include "rt/flash_store.h"
#include "rt/host_pool.h"

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
  host_pool *pool;    /* of tier host: what devices take of the machine's; NULL: nobody counts it */
  int place;          /* of the device in it */
  flash_store *store; /* of tier flash; NULL: there is none */
  uint64_t from, size; /* the device's part of it */
} tier_memory;

/* What a tensor takes of a tier. */
static inline uint64_t tier_memory_pad(int tier, uint64_t bytes) {
  uint64_t align = tier == TIER_FLASH ? FLASH_ALIGN : 256;
  return bytes > UINT64_MAX - align ? UINT64_MAX / align * align
                                    : (bytes + align - 1) / align * align;
}

/* Memory of `bytes` for a tensor, at a multiple of 256, of flash of 4096, zeroed. */
hp_status tier_memory_take(tier_memory *m, uint64_t bytes, uint64_t *offset);
/* Frees it. */
void tier_memory_give(tier_memory *m, uint64_t offset, uint64_t bytes);
/* A program that is loaded needs so many bytes of work memory.  What is in it stays. */
hp_status tier_memory_add_need(tier_memory *m, uint64_t bytes);
/* It is gone: what no other program needs takes no memory any more. */
void tier_memory_drop_need(tier_memory *m, uint64_t bytes);
/* Not of flash. */
static inline void *tier_memory_address(const tier_memory *m, uint64_t offset) {
  return m->at + offset;
}
/* Start of work memory.  That of flash moves when a program comes or goes. */
static inline uint64_t tier_memory_work_offset(const tier_memory *m) {
  return m->tier == TIER_FLASH ? m->size - tier_memory_pad(TIER_FLASH, m->work_bytes) : m->half;
}
/* Of flash: bytes from an offset on, with the name that failures have.  ends: they are the end of a
 * tensor, behind which there is only what pads it. */
hp_status tier_memory_read(const tier_memory *m, uint64_t offset, void *to, uint64_t bytes,
                           const char *name);
hp_status tier_memory_write(const tier_memory *m, uint64_t offset, const void *from, uint64_t bytes,
                            bool ends, const char *name);
void tier_memory_free(tier_memory *m);

#endif
