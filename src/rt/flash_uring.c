/* The engine of the flash store through io_uring (Linux 5.6 and later): the caller keeps DEPTH
 * pieces a path in flight, and checks one while the others are read.
 *
 * The three system calls are used as they are: what liburing adds are rings that are shared or
 * polled, and it would be one more library to build with (docs/adr/0025).  A ring belongs to one
 * caller at a time, so nothing in it is locked.  Whatever is not done completely by the ring is
 * done again with the calls that wait, which also find the message of a failure. */
#include "base/mem.h"
#include "rt/flash_piece.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RINGS = 4, DEPTH = 4, MOST = 16 };

typedef struct {
  flash_piece piece;
  char *io;
} in_flight;

typedef struct {
  int fd;
  char *map; /* of both queues */
  size_t map_bytes;
  struct io_uring_sqe *sqe;
  size_t sqe_bytes;
  unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
  struct io_uring_cqe *cqe;
  bool taken;
  char *bounce;         /* depth * FLASH_STRIPE */
  in_flight slot[MOST]; /* io NULL: free */
} ring;

typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t given_back;
  int depth;
  char *bounce;
  ring ring[RINGS];
} rings;

/* --- a ring ----------------------------------------------------------------------------------- */

static int enter(const ring *r, unsigned submit, unsigned least) {
  return (int)syscall(SYS_io_uring_enter, r->fd, submit, least, IORING_ENTER_GETEVENTS, NULL, 0);
}

static bool map_ring(ring *r, const struct io_uring_params *p) {
  size_t sq = p->sq_off.array + p->sq_entries * sizeof(unsigned);
  size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
  const int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
  r->map_bytes = sq > cq ? sq : cq;
  r->sqe_bytes = p->sq_entries * sizeof *r->sqe;
  void *map = mmap(NULL, r->map_bytes, prot, flags, r->fd, IORING_OFF_SQ_RING);
  if (map == MAP_FAILED) return false;
  r->map = map;
  void *sqe = mmap(NULL, r->sqe_bytes, prot, flags, r->fd, IORING_OFF_SQES);
  if (sqe == MAP_FAILED) return false;
  r->sqe = sqe;
  r->sq_tail = (unsigned *)(void *)(r->map + p->sq_off.tail);
  r->sq_mask = (unsigned *)(void *)(r->map + p->sq_off.ring_mask);
  r->sq_array = (unsigned *)(void *)(r->map + p->sq_off.array);
  r->cq_head = (unsigned *)(void *)(r->map + p->cq_off.head);
  r->cq_tail = (unsigned *)(void *)(r->map + p->cq_off.tail);
  r->cq_mask = (unsigned *)(void *)(r->map + p->cq_off.ring_mask);
  r->cqe = (struct io_uring_cqe *)(void *)(r->map + p->cq_off.cqes);
  return true;
}

/* Also whether both calls are allowed; FEAT_RW_CUR_POS came with the operations that are used. */
static bool open_ring(ring *r, int depth) {
  struct io_uring_params p = {0};
  r->fd = (int)syscall(SYS_io_uring_setup, (unsigned)depth, &p);
  if (r->fd < 0) return false;
  const unsigned needed = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_RW_CUR_POS;
  if ((p.features & needed) != needed) return errno = ENOSYS, false;
  return map_ring(r, &p) && enter(r, 0, 0) == 0;
}

static void close_ring(ring *r) {
  if (r->sqe) munmap(r->sqe, r->sqe_bytes);
  if (r->map) munmap(r->map, r->map_bytes);
  if (r->fd >= 0) close(r->fd);
}

static void push(ring *r, int slot) {
  const flash_piece *p = &r->slot[slot].piece;
  unsigned tail = *r->sq_tail, at = tail & *r->sq_mask;
  r->sqe[at] = (struct io_uring_sqe){.opcode = p->t->writes ? IORING_OP_WRITE : IORING_OP_READ,
                                     .fd = p->file->fd,
                                     .off = p->at,
                                     .addr = (uint64_t)(uintptr_t)r->slot[slot].io,
                                     .len = (uint32_t)p->bytes,
                                     .user_data = (uint64_t)slot};
  r->sq_array[at] = at;
  __atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
}

/* A finished one: its slot, and how many bytes, or -errno; false: there is none. */
static bool pop(ring *r, int *slot, int *result) {
  unsigned head = *r->cq_head;
  if (head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE)) return false;
  const struct io_uring_cqe *c = &r->cqe[head & *r->cq_mask];
  *slot = (int)c->user_data;
  *result = c->res;
  __atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
  return true;
}

/* Submits what was pushed and waits until one is finished; returns how many were submitted. */
static unsigned wait_for_one(const ring *r, unsigned pushed) {
  for (;;) {
    int n = enter(r, pushed, 1);
    if (n >= 0) return (unsigned)n;
    HP_ASSERT(errno == EINTR || errno == EAGAIN || errno == EBUSY);
    if (errno != EINTR) usleep(100); /* the system is short of memory for requests */
  }
}

/* --- a transfer ------------------------------------------------------------------------------- */

/* Pushes pieces while there are free slots. */
static unsigned fill_slots(ring *r, int depth, flash_transfer *t) {
  unsigned pushed = 0;
  for (int s = 0; s < depth && t->next < t->pieces && !t->failed; s++) {
    in_flight *f = &r->slot[s];
    while (!f->io && t->next < t->pieces) {
      f->piece = flash_piece_get(t, t->next++);
      f->io = flash_piece_begin(&f->piece, r->bounce + (size_t)s * FLASH_STRIPE);
      if (!f->io) continue;
      push(r, s);
      pushed++;
    }
  }
  return pushed;
}

static hp_status finish(in_flight *f, int result) {
  hp_status st = HP_OK;
  if (result < 0 || (size_t)result != f->piece.bytes) st = flash_piece_transfer(&f->piece, f->io);
  if (!st) st = flash_piece_end(&f->piece, f->io);
  f->io = NULL;
  return st;
}

static hp_status run_on(ring *r, int depth, flash_transfer *t) {
  unsigned pushed = 0, flying = 0;
  hp_status st = HP_OK;
  for (;;) {
    unsigned more = fill_slots(r, depth, t);
    pushed += more;
    flying += more;
    if (!flying) return st;
    pushed -= wait_for_one(r, pushed);
    int slot, result;
    while (pop(r, &slot, &result)) {
      flying--;
      hp_status one = t->failed ? (r->slot[slot].io = NULL, HP_OK) : finish(&r->slot[slot], result);
      if (one) st = one, t->failed = true;
    }
  }
}

static ring *take_ring(rings *e) {
  ring *r = NULL;
  pthread_mutex_lock(&e->lock);
  while (!r) {
    for (int i = 0; i < RINGS && !r; i++)
      if (!e->ring[i].taken) r = &e->ring[i];
    if (!r) pthread_cond_wait(&e->given_back, &e->lock);
  }
  r->taken = true;
  pthread_mutex_unlock(&e->lock);
  return r;
}

static hp_status run(void *engine, flash_transfer *t) {
  rings *e = engine;
  ring *r = take_ring(e);
  hp_status st = run_on(r, e->depth, t);
  pthread_mutex_lock(&e->lock);
  r->taken = false;
  pthread_cond_signal(&e->given_back);
  pthread_mutex_unlock(&e->lock);
  return st;
}

/* --- the engine ------------------------------------------------------------------------------- */

static void close_rings(void *engine) {
  rings *e = engine;
  for (int i = 0; i < RINGS; i++) close_ring(&e->ring[i]);
  mem_unmap(e->bounce, (size_t)RINGS * MOST * FLASH_STRIPE);
  pthread_cond_destroy(&e->given_back);
  pthread_mutex_destroy(&e->lock);
  mem_free(e);
}

static hp_status open_rings(const flash_layout *l, void **engine) {
  rings *e = mem_calloc(1, sizeof *e);
  HP_TRY_MEM(e);
  e->depth = DEPTH * l->n < MOST ? DEPTH * l->n : MOST;
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->given_back, NULL);
  for (int i = 0; i < RINGS; i++) e->ring[i].fd = -1;
  e->bounce = mem_map((size_t)RINGS * MOST * FLASH_STRIPE);
  hp_status st = e->bounce ? HP_OK : HP_ERR_OOM;
  for (int i = 0; !st && i < RINGS; i++) {
    e->ring[i].bounce = e->bounce + (size_t)i * MOST * FLASH_STRIPE;
    if (!open_ring(&e->ring[i], e->depth))
      st = err_set(HP_ERR_UNSUPPORTED, __FILE__, __LINE__, "io_uring: %s", strerror(errno));
  }
  if (st) close_rings(e);
  else *engine = e;
  return st;
}

const flash_engine flash_uring = {"io_uring", open_rings, close_rings, run};
