#include "base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static _Atomic uint64_t count;   /* allocations so far */
static _Atomic uint64_t fail_at; /* value of count that fails; 0 = never */

static bool may_allocate(void) {
  uint64_t n = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1;
  uint64_t f = atomic_load_explicit(&fail_at, memory_order_relaxed);
  if (f != n) return true;
  atomic_store_explicit(&fail_at, 0, memory_order_relaxed);
  return false;
}

void *mem_calloc(size_t n, size_t size) {
  void *p = may_allocate() ? calloc(n ? n : 1, size ? size : 1) : NULL;
  if (!p) (void)err_set(HP_ERR_OOM, __FILE__, __LINE__, "cannot allocate %zu x %zu bytes", n, size);
  return p;
}

void *mem_realloc(void *p, size_t n, size_t size) {
  size_t bytes;
  void *q = NULL;
  if (size_mul(n, size, &bytes) && may_allocate()) q = realloc(p, bytes ? bytes : 1);
  if (!q) (void)err_set(HP_ERR_OOM, __FILE__, __LINE__, "cannot allocate %zu x %zu bytes", n, size);
  return q;
}

void mem_free(void *p) { free(p); }

enum { HUGE_PAGE = 2 << 20 };

/* A limit of address space is told, as less work would not always be enough under it. */
static void *cannot_map(size_t bytes) {
  uint64_t room = mem_address_space();
  if (room == UINT64_MAX)
    (void)err_set(HP_ERR_OOM, __FILE__, __LINE__, "cannot map %zu bytes of memory", bytes);
  else
    (void)err_set(HP_ERR_OOM, __FILE__, __LINE__,
                  "cannot map %zu bytes of memory: ulimit -v leaves %llu bytes of address space; "
                  "raise it",
                  bytes, (unsigned long long)room);
  return NULL;
}

static void *map(size_t bytes, int access, int flags) {
  size_t want, page = (size_t)sysconf(_SC_PAGESIZE);
  if (!size_add(bytes ? bytes : 1, HUGE_PAGE + page - 1, &want) || !may_allocate()) {
    (void)err_set(HP_ERR_OOM, __FILE__, __LINE__, "cannot map %zu bytes", bytes);
    return NULL;
  }
  want -= want % page; /* whole pages: munmap refuses to cut one */
  char *raw = mmap(NULL, want, access, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (raw == MAP_FAILED) return cannot_map(bytes);
  /* cut the ends off, so that the mapping starts on a huge page */
  char *p = (char *)(((uintptr_t)raw + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
  size_t keep = want - HUGE_PAGE;
  if (p > raw) munmap(raw, (size_t)(p - raw));
  if (raw + want > p + keep) munmap(p + keep, (size_t)(raw + want - (p + keep)));
  madvise(p, keep, MADV_HUGEPAGE);
  return p;
}

void *mem_map(size_t bytes) { return map(bytes, PROT_READ | PROT_WRITE, 0); }

void mem_unmap(void *p, size_t bytes) {
  if (p) munmap(p, bytes ? bytes : 1);
}

void *mem_reserve(size_t bytes) { return map(bytes, PROT_NONE, MAP_NORESERVE); }

hp_status mem_commit(void *p, size_t bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p / page * page;
  size_t n = (size_t)((uintptr_t)p + bytes - from);
  if (may_allocate() && !mprotect((void *)from, n, PROT_READ | PROT_WRITE)) return HP_OK;
  HP_FAIL(HP_ERR_OOM, "cannot map %zu bytes of memory", bytes);
}

void mem_discard(void *p, size_t bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p, to = from + bytes;
  uintptr_t first = (from + page - 1) / page * page, last = to / page * page;
  if (first >= last || madvise((void *)first, last - first, MADV_DONTNEED)) {
    memset(p, 0, bytes);
    return;
  }
  memset(p, 0, first - from);
  memset((void *)last, 0, to - last);
}

uint64_t mem_physical(void) {
  uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  unsigned long long most;
  FILE *f = fopen("/sys/fs/cgroup/memory.max", "re");
  if (f && fscanf(f, "%llu", &most) == 1 && most < bytes) bytes = most;
  if (f) fclose(f);
  return bytes;
}

uint64_t mem_address_space(void) {
  struct rlimit most;
  unsigned long long pages = 0;
  if (getrlimit(RLIMIT_AS, &most) || most.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  FILE *f = fopen("/proc/self/statm", "re");
  if (f && fscanf(f, "%llu", &pages) != 1) pages = 0;
  if (f) fclose(f);
  uint64_t taken = pages * (uint64_t)sysconf(_SC_PAGESIZE);
  return taken < most.rlim_cur ? most.rlim_cur - taken : 0;
}

uint64_t mem_count(void) { return atomic_load_explicit(&count, memory_order_relaxed); }

void mem_fail_at(uint64_t n) {
  atomic_store_explicit(&fail_at, n ? mem_count() + n : 0, memory_order_relaxed);
}
