/* Loaded into hyper (LD_PRELOAD): one system call on files whose path has FAULT_PATH in it
 * fails, or stops the process before it is made.
 *
 *   FAULT_CALL   open read write fsync close rename mkdir unlink truncate mmap look (stat) list
 *                (readdir) room (fallocate)
 *   FAULT_AT     which of them, from 1; 0: none, they are counted
 *   FAULT_FOR    how many from there on; default 1
 *   FAULT_ERRNO  the number of the error
 *   FAULT_STOP   set: the call does not fail, but the process stops itself (SIGSTOP) before it
 *   FAULT_COUNT  file that gets "CALL N" of every call at exit
 *   FAULT_CALLS  set: files are read and written by the calls that are counted, for io_uring is
 *                forbidden
 *   FAULT_ROOM   set: no file system takes room in advance
 *
 * Programs that hyper starts are left alone. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum {
  OPEN,
  READ,
  WRITE,
  FSYNC,
  CLOSE,
  RENAME,
  MKDIR,
  UNLINK,
  TRUNCATE,
  MMAP,
  LOOK,
  LIST,
  ROOM,
  CALLS
} call;
static const char *const names[CALLS] = {"open",   "read",  "write",  "fsync",    "close",
                                         "rename", "mkdir", "unlink", "truncate", "mmap",
                                         "look",   "list",  "room"};

static atomic_long seen[CALLS];
static const char *part, *count_path;
static long at, run_of;
static int error_number, chosen = -1;
static int stops, no_uring, no_room;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
  const char *call_name = getenv("FAULT_CALL");
  if (strcmp(program_invocation_short_name, "hyper")) return;
  part = getenv("FAULT_PATH");
  count_path = getenv("FAULT_COUNT");
  at = getenv("FAULT_AT") ? atol(getenv("FAULT_AT")) : 0;
  run_of = getenv("FAULT_FOR") ? atol(getenv("FAULT_FOR")) : 1;
  error_number = getenv("FAULT_ERRNO") ? atoi(getenv("FAULT_ERRNO")) : EIO;
  stops = getenv("FAULT_STOP") != NULL;
  no_uring = getenv("FAULT_CALLS") != NULL;
  no_room = getenv("FAULT_ROOM") != NULL;
  for (int i = 0; call_name && i < CALLS; i++)
    if (!strcmp(names[i], call_name)) chosen = i;
}

__attribute__((destructor)) static void end(void) {
  FILE *f = count_path ? fopen(count_path, "w") : NULL;
  for (int i = 0; f && i < CALLS; i++) fprintf(f, "%s %ld\n", names[i], seen[i]);
  if (f) fclose(f);
}

/* Counts the call; true when it is one of those that are to fail, which stops
 * the process instead where FAULT_STOP says so. */
static int fails(call c, const char *path) {
  if (!part || !path || !strstr(path, part)) return 0;
  long n = atomic_fetch_add(&seen[c], 1) + 1;
  if ((int)c != chosen || !at || n < at || n >= at + run_of) return 0;
  if (stops) {
    raise(SIGSTOP);
    return 0;
  }
  errno = error_number;
  return 1;
}

static int fd_fails(call c, int fd) {
  char link[64], path[4096];
  if (!part || fd < 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return fails(c, path);
}

/* A path that is relative to the folder dir. */
static int path_fails(call c, int dir, const char *name) {
  char link[64], path[8192];
  if (dir == AT_FDCWD || *name == '/') return fails(c, name);
  snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
  ssize_t n = readlink(link, path, 4000);
  if (n < 0) return 0;
  snprintf(path + n, sizeof path - (size_t)n, "/%s", name);
  return fails(c, path);
}

static mode_t mode_of(int flags, va_list a) {
  return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(a, int) : 0;
}
#define OPEN_AS(name)                                                                              \
  int name(const char *path, int flags, ...) {                                                     \
    va_list a;                                                                                     \
    va_start(a, flags);                                                                            \
    mode_t mode = mode_of(flags, a);                                                               \
    va_end(a);                                                                                     \
    return fails(OPEN, path) ? -1 : REAL(name)(path, flags, mode);                                 \
  }
#define OPENAT_AS(name)                                                                            \
  int name(int dir, const char *path, int flags, ...) {                                            \
    va_list a;                                                                                     \
    va_start(a, flags);                                                                            \
    mode_t mode = mode_of(flags, a);                                                               \
    va_end(a);                                                                                     \
    return path_fails(OPEN, dir, path) ? -1 : REAL(name)(dir, path, flags, mode);                  \
  }
OPEN_AS(open)
OPEN_AS(open64)
OPENAT_AS(openat)
OPENAT_AS(openat64)

ssize_t read(int fd, void *to, size_t n) { return fd_fails(READ, fd) ? -1 : REAL(read)(fd, to, n); }
ssize_t pread(int fd, void *to, size_t n, off_t o) {
  return fd_fails(READ, fd) ? -1 : REAL(pread)(fd, to, n, o);
}
ssize_t pread64(int fd, void *to, size_t n, off64_t o) {
  return fd_fails(READ, fd) ? -1 : REAL(pread64)(fd, to, n, o);
}
ssize_t write(int fd, const void *from, size_t n) {
  return fd_fails(WRITE, fd) ? -1 : REAL(write)(fd, from, n);
}
ssize_t pwrite(int fd, const void *from, size_t n, off_t o) {
  return fd_fails(WRITE, fd) ? -1 : REAL(pwrite)(fd, from, n, o);
}
ssize_t pwrite64(int fd, const void *from, size_t n, off64_t o) {
  return fd_fails(WRITE, fd) ? -1 : REAL(pwrite64)(fd, from, n, o);
}
int fsync(int fd) { return fd_fails(FSYNC, fd) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fd_fails(FSYNC, fd) ? -1 : REAL(fdatasync)(fd); }
/* The descriptor is gone all the same, as on Linux. */
int close(int fd) {
  int bad = fd_fails(CLOSE, fd), e = errno, result = REAL(close)(fd);
  if (!bad) return result;
  errno = e;
  return -1;
}
int rename(const char *from, const char *to) {
  return fails(RENAME, to) ? -1 : REAL(rename)(from, to);
}
int renameat(int a, const char *from, int b, const char *to) {
  return path_fails(RENAME, b, to) ? -1 : REAL(renameat)(a, from, b, to);
}
int mkdir(const char *path, mode_t m) { return fails(MKDIR, path) ? -1 : REAL(mkdir)(path, m); }
int mkdirat(int dir, const char *path, mode_t m) {
  return path_fails(MKDIR, dir, path) ? -1 : REAL(mkdirat)(dir, path, m);
}
int unlink(const char *path) { return fails(UNLINK, path) ? -1 : REAL(unlink)(path); }
int unlinkat(int dir, const char *path, int flags) {
  return path_fails(UNLINK, dir, path) ? -1 : REAL(unlinkat)(dir, path, flags);
}
int rmdir(const char *path) { return fails(UNLINK, path) ? -1 : REAL(rmdir)(path); }
int ftruncate(int fd, off_t n) { return fd_fails(TRUNCATE, fd) ? -1 : REAL(ftruncate)(fd, n); }
void *mmap(void *p, size_t n, int prot, int flags, int fd, off_t o) {
  return fd >= 0 && fd_fails(MMAP, fd) ? MAP_FAILED : REAL(mmap)(p, n, prot, flags, fd, o);
}
int stat(const char *path, struct stat *s) { return fails(LOOK, path) ? -1 : REAL(stat)(path, s); }
int lstat(const char *path, struct stat *s) {
  return fails(LOOK, path) ? -1 : REAL(lstat)(path, s);
}
int fstatat(int dir, const char *path, struct stat *s, int flags) {
  return path_fails(LOOK, dir, path) ? -1 : REAL(fstatat)(dir, path, s, flags);
}
struct dirent *readdir(DIR *d) {
  return fd_fails(LIST, dirfd(d)) ? NULL : REAL(readdir)(d);
}
int fallocate(int fd, int mode, off_t from, off_t n) {
  if (fd_fails(ROOM, fd)) return -1;
  if (!no_room) return REAL(fallocate)(fd, mode, from, n);
  errno = EOPNOTSUPP;
  return -1;
}
/* Six words, as every system call has at most. */
long syscall(long number, ...) {
  va_list a;
  long word[6];
  va_start(a, number);
  for (int i = 0; i < 6; i++) word[i] = va_arg(a, long);
  va_end(a);
  if (!no_uring || number != SYS_io_uring_setup)
    return REAL(syscall)(number, word[0], word[1], word[2], word[3], word[4], word[5]);
  errno = EPERM;
  return -1;
}
