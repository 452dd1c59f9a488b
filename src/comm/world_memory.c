/* A file of memory that the processes of a machine share, without a name: the first of them makes
 * it, the others open it under /proc; the last that ends takes it along, however it ends.  It is
 * made as the job begins: later calls of all processes would bind programs of different meshes. */
#include "base/random.h"
#include "comm/world_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static int make_file(memory_place *out) {
  uint64_t mark = 0;
  while (!mark)
    if (random_bytes(&mark, sizeof mark)) return -1;
  int fd = memfd_create("hyper-shared-memory", MFD_CLOEXEC);
  if (fd >= 0 && pwrite(fd, &mark, sizeof mark, 0) == sizeof mark) {
    *out = (memory_place){.mark = mark, .pid = getpid(), .fd = fd};
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

/* Of the processes of a machine only the first makes a file, and only its own opens here. */
static int open_file(const memory_place *of) {
  char path[64];
  uint64_t mark;
  snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)of->pid, (long long)of->fd);
  int fd = of->mark ? open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK) : -1;
  if (fd < 0) return -1;
  if (pread(fd, &mark, sizeof mark, 0) == sizeof mark && mark == of->mark) return fd;
  close(fd);
  return -1;
}

void world_memory_make(memory_place *mine) {
  world_facts *w = &world.facts;
  *mine = (memory_place){0};
  if (w->here == 1 || w->place) return;
  w->memory = make_file(mine);
  if (w->memory < 0) w->memory_error = errno;
}

bool world_memory_open(const memory_place *all) {
  world_facts *w = &world.facts;
  for (int i = 0; w->here > 1 && w->place && w->memory < 0 && i < w->size; i++)
    w->memory = open_file(&all[i]);
  return w->here == 1 || w->memory >= 0;
}

void world_memory_drop(void) {
  if (world.facts.memory >= 0) close(world.facts.memory);
  world.facts.memory = -1;
}

int world_memory_take(int most) {
  uint32_t users = world.memory_users;
  for (;;) {
    int k = 0;
    while (k < most && users >> k & 1) k++;
    if (k == most) return -1;
    if (atomic_compare_exchange_weak(&world.memory_users, &users, users | UINT32_C(1) << k))
      return k;
  }
}

void world_memory_give(int number) { world.memory_users &= ~(UINT32_C(1) << number); }
