/* All heap memory of the product: counted, and made to fail by tests.
 *
 * mem_* return NULL with a failure recorded (HP_ERR_OOM); callers pass it on as
 * `if (!p) return HP_ERR_OOM;` or through HP_TRY_MEM.  The counters prove that nothing allocates
 * during a step; the fault hook lets a test fail the n-th allocation. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/status.h"

/* Zeroed memory of n elements of `size` bytes; n * size is checked. */
void *mem_calloc(size_t n, size_t size);
/* Grows or shrinks p (NULL allowed) to n * size bytes; on failure p stays valid. */
void *mem_realloc(void *p, size_t n, size_t size);
void mem_free(void *p);
/* 2 MiB aligned, zeroed, with huge pages if possible; free with mem_unmap and the same size. */
void *mem_map(size_t bytes);
void mem_unmap(void *p, size_t bytes);
/* Address space without memory, 2 MiB aligned; mem_unmap.  mem_commit makes a range usable,
 * zeroed; memory is taken when pages are touched, and ranges are extended to full pages.  After
 * mem_discard a committed range is zeros, and its full pages take no memory until they are
 * touched. */
void *mem_reserve(size_t bytes);
hp_status mem_commit(void *p, size_t bytes);
void mem_discard(void *p, size_t bytes);

/* From this size on, a result is written past the caches.  A smaller result may still be in the
 * last cache when it is read next; operands and other cores share this cache. */
enum { MEM_STREAM_BYTES = 16 << 20 };

/* Bytes of memory of the machine, or of the control group of this process. */
uint64_t mem_physical(void);
/* Bytes of address space that the process may still take under ulimit -v; UINT64_MAX: no limit. */
uint64_t mem_address_space(void);

uint64_t mem_count(void); /* allocations of this process so far */
/* Test hook: the n-th allocation from now (1 = the next) fails, once; 0 turns it off. */
void mem_fail_at(uint64_t n);

#define HP_TRY_MEM(p)                                                                              \
  do {                                                                                             \
    if (!(p)) return HP_ERR_OOM;                                                                   \
  } while (0)

/* a * b and a + b in *out; false if they overflow. */
static inline bool size_mul(size_t a, size_t b, size_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}
static inline bool size_add(size_t a, size_t b, size_t *out) {
  return !__builtin_add_overflow(a, b, out);
}

#endif
