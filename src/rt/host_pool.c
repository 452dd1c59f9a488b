#include "rt/host_pool.h"

#include "base/log.h"
#include "base/mem.h"
#include "comm/world.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { HEAD = 64 << 10, PART_STEP = 64 << 20, POOLS_MAX = 16 };

/* What the devices count together. */
typedef struct {
  uint64_t mark; /* of the file, comm/world_memory.c */
  _Atomic uint64_t used;
  link_times links;
} pool_head;
_Static_assert(sizeof(pool_head) <= HEAD, "the head fits before the parts");

struct host_pool {
  pool_head *head;
  int fd, devices; /* fd -1: of this process alone */
  int number;      /* of the pools of the file that this process has open; -1: not in the file */
  uint64_t limit, part;
};

/* --- a file of several processes -------------------------------------------------------------- */

/* The part of a device: twice the memory of the machine, as an arena takes address space at most.
 * Not what a cgroup leaves of it: that may be another number in each process, and the file has one
 * size. */
static uint64_t part_bytes(void) {
  uint64_t physical = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  return 2 * ((physical + PART_STEP - 1) / PART_STEP * PART_STEP);
}

/* A pool of the file: its head, and a part for each device. */
static uint64_t pool_bytes(const host_pool *p) { return HEAD + (uint64_t)p->devices * p->part; }

/* Grows the file to all pools, for every process to the same size.  A limit of the size of files
 * (ulimit -f) is one of this file, too, and kills who goes beyond it. */
static bool grow(int fd, uint64_t bytes) {
  struct rlimit most;
  if (getrlimit(RLIMIT_FSIZE, &most)) return false;
  if (most.rlim_cur == RLIM_INFINITY || bytes <= most.rlim_cur) return !ftruncate(fd, (off_t)bytes);
  errno = EFBIG;
  return false;
}

static hp_status map_head(host_pool *p, int fd) {
  off_t from = (off_t)((uint64_t)p->number * pool_bytes(p));
  void *at = mmap(NULL, HEAD, PROT_READ | PROT_WRITE, MAP_SHARED, fd, from);
  HP_TRY_MEM(at != MAP_FAILED);
  p->head = at;
  p->fd = fd;
  return HP_OK;
}

/* The file, or none: then each process counts its part of the limit alone. */
static hp_status share_file(host_pool *p) {
  const world_facts *w = world_get();
  int error = w->memory_error;
  if (w->here == 1) return HP_OK;
  if (w->memory >= 0) {
    p->number = world_memory_take(POOLS_MAX);
    if (p->number < 0)
      HP_FAIL(HP_ERR_OOM, "%d devices of this process are open; close one first", POOLS_MAX);
    if (grow(w->memory, POOLS_MAX * pool_bytes(p))) return map_head(p, w->memory);
    error = errno;
  }
  p->limit /= (uint64_t)w->here;
  p->devices /= w->here;
  if (w->place) return HP_OK;
  log_info("host memory cannot be shared between the processes of %s%s%s; each has an equal part "
           "of host_limit",
           w->host, error ? ": " : "", error ? strerror(error) : "");
  return HP_OK;
}

/* --- the pool --------------------------------------------------------------------------------- */

hp_status host_pool_open(uint64_t limit, int devices, host_pool **out) {
  host_pool *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  *p =
      (host_pool){.fd = -1, .number = -1, .devices = devices, .limit = limit, .part = part_bytes()};
  hp_status st = share_file(p);
  if (!st && !p->head) p->head = mem_calloc(1, sizeof *p->head);
  if (!st && !p->head) st = HP_ERR_OOM;
  if (st) host_pool_close(p);
  else *out = p;
  return st;
}

void host_pool_close(host_pool *p) {
  if (!p) return;
  if (p->fd < 0) mem_free(p->head);
  else munmap(p->head, HEAD);
  if (p->number >= 0) world_memory_give(p->number);
  mem_free(p);
}

bool host_pool_take(host_pool *p, uint64_t bytes) {
  uint64_t used = p->head->used;
  do {
    if (p->limit && (used > p->limit || bytes > p->limit - used)) return false;
  } while (!atomic_compare_exchange_weak(&p->head->used, &used, used + bytes));
  return true;
}

void host_pool_give(host_pool *p, uint64_t bytes) { p->head->used -= bytes; }

uint64_t host_pool_used(const host_pool *p) { return p->head->used; }
uint64_t host_pool_limit(const host_pool *p) { return p->limit; }
int host_pool_devices(const host_pool *p) { return p->devices; }
link_times *host_pool_links(host_pool *p) { return &p->head->links; }
bool host_pool_is_shared(const host_pool *p) { return p->fd >= 0; }

char *host_pool_map(const host_pool *p, int device, uint64_t bytes) {
  HP_ASSERT(device >= 0 && device < p->devices);
  uint64_t before = (uint64_t)p->number * pool_bytes(p);
  off_t from = (off_t)(before + HEAD + (uint64_t)device * p->part);
  if (bytes > p->part) return NULL;
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, p->fd, from);
  if (at == MAP_FAILED) return NULL;
  (void)madvise(at, bytes, MADV_HUGEPAGE);
  return at;
}

void host_pool_unmap(char *at, uint64_t bytes) {
  (void)madvise(at, bytes, MADV_REMOVE);
  munmap(at, bytes);
}

void host_pool_discard(char *at, uint64_t bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at, to = from + bytes;
  uintptr_t first = (from + page - 1) / page * page, last = to / page * page;
  if (first >= last || madvise((void *)first, last - first, MADV_REMOVE)) {
    memset(at, 0, bytes);
    return;
  }
  memset(at, 0, first - from);
  memset((void *)last, 0, to - last);
}
