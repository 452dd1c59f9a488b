/* All heap memory of the product: counted, and failable on purpose.
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
/* 2 MiB aligned, huge pages asked for, zeroed; free with mem_unmap and the same size. */
void *mem_map(size_t bytes);
void mem_unmap(void *p, size_t bytes);
/* Address space without memory, 2 MiB aligned; mem_unmap.  mem_commit gives a range of it memory,
 * zeroed, as it is touched; a range is widened to whole pages.  After mem_discard a range that has
 * memory is zeros, and whole pages of it take no memory until they are touched. */
void *mem_reserve(size_t bytes);
hp_status mem_commit(void *p, size_t bytes);
void mem_discard(void *p, size_t bytes);

/* From so many bytes on, a result is written past the caches.  Whoever reads a smaller one next may
 * find it in the last cache, of which the operands take their share and other cores theirs. */
enum { MEM_STREAM_BYTES = 16 << 20 };

/* Bytes of memory that the machine, or the control group of this process, has. */
uint64_t mem_physical(void);
/* Bytes of address space that the process may take beside what it has (ulimit -v); UINT64_MAX: no
 * limit is set. */
uint64_t mem_address_space(void);

uint64_t mem_count(void); /* allocations of this process so far */
/* Test hook: the n-th allocation from now (1 = the next) fails, once; 0 turns it off. */
void mem_fail_at(uint64_t n);

#define HP_TRY_MEM(p)                                                                              \
  do {                                                                                             \
    if (!(p)) return HP_ERR_OOM;                                                                   \
  } while (0)

/* a * b and a + b in *out; false when they do not fit. */
static inline bool size_mul(size_t a, size_t b, size_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}
static inline bool size_add(size_t a, size_t b, size_t *out) {
  return !__builtin_add_overflow(a, b, out);
}

#endif
