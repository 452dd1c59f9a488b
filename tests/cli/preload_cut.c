/* Cuts a file once it is mapped, as another program might: each whose path has $CUT in it, to
 * $CUT_TO bytes.  With $CUT_SPARE that file then takes its place: who looks sees a whole one, as
 * where a disk cannot read what is there. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef void *mmap_fn(void *at, size_t n, int access, int flags, int fd, off_t from);

void *mmap(void *at, size_t n, int access, int flags, int fd, off_t from) {
  char link[64], path[4096];
  const char *part = getenv("CUT");
  mmap_fn *next = NULL;
  *(void **)&next = dlsym(RTLD_NEXT, "mmap");
  void *p = next(at, n, access, flags, fd, from);
  if (fd < 0 || !part) return p;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t len = readlink(link, path, sizeof path - 1);
  if (len < 0) return p;
  path[len] = 0;
  if (strstr(path, part) && truncate(path, atol(getenv("CUT_TO") ?: "0"))) perror(path);
  if (strstr(path, part) && getenv("CUT_SPARE")) rename(getenv("CUT_SPARE"), path);
  return p;
}
