/* A disk that is full or failing for a while.  $FAIL names a file "CALL ERRNO TIMES PART": while it
 * is there, CALL (write, fsync or rename) of files whose path has PART in it fails with ERRNO, so
 * many TIMES in a process (0: always).  A write writes half of its bytes first, as a disk that
 * fills up. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int done, half; /* calls that failed; was the last write cut short? */

static int is_due(const char *call, const char *path) {
  char name[16], part[256];
  int code, times, due = 0, before = errno;
  const char *control = getenv("FAIL");
  FILE *f = control && path && !strstr(path, control) ? fopen(control, "r") : NULL;
  if (f && fscanf(f, "%15s %d %d %255s", name, &code, &times, part) == 4)
    due = !strcmp(name, call) && strstr(path, part) && (!times || done < times) ? code : 0;
  if (f) fclose(f);
  errno = before;
  return due;
}

static const char *path_of(int fd, char path[4096]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, 4095);
  path[n < 0 ? 0 : n] = 0;
  return path;
}

ssize_t write(int fd, const void *bytes, size_t n) {
  char path[4096];
  ssize_t (*next)(int, const void *, size_t) = NULL;
  *(void **)&next = dlsym(RTLD_NEXT, "write");
  int code = fd > 2 ? is_due("write", path_of(fd, path)) : 0;
  if (!code) return next(fd, bytes, n);
  half = !half;
  if (half && n > 1) return next(fd, bytes, n / 2);
  done++;
  errno = code;
  return -1;
}

int fsync(int fd) {
  char path[4096];
  int (*next)(int) = NULL;
  *(void **)&next = dlsym(RTLD_NEXT, "fsync");
  int code = is_due("fsync", path_of(fd, path));
  if (!code) return next(fd);
  done++;
  errno = code;
  return -1;
}

int rename(const char *from, const char *to) {
  int (*next)(const char *, const char *) = NULL;
  *(void **)&next = dlsym(RTLD_NEXT, "rename");
  int code = is_due("rename", from);
  if (!code) return next(from, to);
  done++;
  errno = code;
  return -1;
}
