/* Disks that take long or for ever, in the process whose rank is $HANG_RANK: a file whose path has
 * $HANG in it is never mapped, and fsync of one with $SLOW in it takes $SLOW_S seconds. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void *mmap_fn(void *at, size_t n, int access, int flags, int fd, off_t from);

/* Is the file of this descriptor one that the variable means, in the process that is meant? */
static int is_meant(int fd, const char *variable) {
  char link[64], path[4096];
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *want = getenv("HANG_RANK");
  const char *part = getenv(variable);
  if (fd < 0 || !part || !rank || !want || strcmp(rank, want)) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t len = readlink(link, path, sizeof path - 1);
  path[len > 0 ? len : 0] = 0;
  return strstr(path, part) != NULL;
}

void *mmap(void *at, size_t n, int access, int flags, int fd, off_t from) {
  mmap_fn *next = NULL;
  *(void **)&next = dlsym(RTLD_NEXT, "mmap");
  while (is_meant(fd, "HANG")) sleep(1000);
  return next(at, n, access, flags, fd, from);
}

int fsync(int fd) {
  const char *seconds = getenv("SLOW_S");
  if (seconds && is_meant(fd, "SLOW")) sleep((unsigned)atoi(seconds));
  return (int)syscall(SYS_fsync, fd);
}
