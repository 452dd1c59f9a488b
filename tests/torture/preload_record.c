/* Records what a program does to the files under $RECORD_ROOT, in $RECORD_LOG; several processes
 * take turns.  With $RECORD_PROGRAM only in the program of that name; with $RECORD_NO_SWAP the file
 * system cannot swap two names. */
#include "fs_log.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static const char *root;

/* --- records ---------------------------------------------------------------------------------- */

static void put(const fs_record *r, const char *name, const char *name2, const void *data) {
  struct iovec part[] = {{(void *)(uintptr_t)r, sizeof *r},
                         {(void *)(uintptr_t)name, r->name_len},
                         {(void *)(uintptr_t)name2, r->name2_len},
                         {(void *)(uintptr_t)data, data ? r->bytes : 0}};
  ssize_t want = 0;
  for (int i = 0; i < 4; i++) want += (ssize_t)part[i].iov_len;
  if (syscall(SYS_writev, log_fd, part, 4) != want) abort();
}

__attribute__((constructor)) static void begin(void) {
  struct stat s;
  const char *path = getenv("RECORD_LOG");
  root = getenv("RECORD_ROOT");
  const char *only = getenv("RECORD_PROGRAM");
  if (!path || !root || stat(root, &s)) return;
  if (only && strcmp(only, program_invocation_short_name)) return;
  log_fd =
      (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  fs_record r = {.kind = FS_ROOT, .is_dir = 1, .object = s.st_ino};
  if (log_fd >= 0) put(&r, NULL, NULL, NULL);
}

/* --- paths ------------------------------------------------------------------------------------ */

/* A path from the root of the file system on, without "//" and "/./". */
static int full_path(int dir, const char *path, char out[PATH_MAX]) {
  char base[PATH_MAX] = "", link[64], text[2 * PATH_MAX];
  if (*path != '/' && dir == AT_FDCWD) {
    if (!getcwd(base, sizeof base)) return 0;
  } else if (*path != '/') {
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    ssize_t n = readlink(link, base, sizeof base - 1);
    if (n < 0) return 0;
    base[n] = 0;
  }
  snprintf(text, sizeof text, "%s/%s", base, path);
  size_t len = 0;
  for (const char *p = text; *p && len + 1 < PATH_MAX;) {
    if (p[0] == '/' && (p[1] == '/' || !p[1])) p++;
    else if (p[0] == '/' && p[1] == '.' && (p[2] == '/' || !p[2])) p += 2;
    else out[len++] = *p++;
  }
  out[len] = 0;
  return 1;
}

static int is_watched(const char *path) {
  size_t n = root ? strlen(root) : 0;
  return log_fd >= 0 && n && !strncmp(path, root, n) && (path[n] == '/' || !path[n]);
}

static int watched_path(int dir, const char *path, char out[PATH_MAX]) {
  return log_fd >= 0 && full_path(dir, path, out) && is_watched(out);
}

static int watched_fd(int fd, struct stat *s) {
  char link[64], path[PATH_MAX];
  if (log_fd < 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return is_watched(path) && !fstat(fd, s);
}

static uint64_t object_of(const char *path) {
  struct stat s;
  return lstat(path, &s) ? 0 : s.st_ino;
}

static uint64_t folder_of(const char *path) {
  char dir[PATH_MAX];
  snprintf(dir, sizeof dir, "%s", path);
  *strrchr(dir, '/') = 0;
  return object_of(dir);
}

static const char *name_of(const char *path) { return strrchr(path, '/') + 1; }

static void put_entry(fs_kind kind, const char *path, uint64_t object, int is_dir) {
  const char *name = name_of(path);
  fs_record r = {.kind = kind,
                 .is_dir = (uint32_t)is_dir,
                 .object = object,
                 .dir = folder_of(path),
                 .name_len = (uint32_t)strlen(name)};
  put(&r, name, NULL, NULL);
}

/* A call and its record are one: of this process's threads, and of all that write the log. */
static void begin_turn(void) {
  if (log_fd < 0) return; /* handlers of signals write, too */
  pthread_mutex_lock(&lock);
  flock(log_fd, LOCK_EX);
}

static void end_turn(void) {
  int e = errno;
  if (log_fd < 0) return;
  flock(log_fd, LOCK_UN);
  pthread_mutex_unlock(&lock);
  errno = e;
}

#define NEXT(type, name)                                                                           \
  type *next = NULL;                                                                               \
  *(void **)&next = dlsym(RTLD_NEXT, name);                                                        \
  begin_turn()
#define DONE(result)                                                                               \
  end_turn();                                                                                      \
  return result

/* --- files ------------------------------------------------------------------------------------ */

typedef int openat_fn(int dir, const char *path, int flags, ...);

static int open_any(int dir, const char *path, int flags, mode_t mode) {
  char full[PATH_MAX];
  struct stat s;
  NEXT(openat_fn, "openat");
  int watched = (flags & (O_CREAT | O_TRUNC)) && watched_path(dir, path, full);
  uint64_t there = watched ? object_of(full) : 0;
  int fd = next(dir, path, flags, mode);
  if (fd >= 0 && watched && !fstat(fd, &s)) {
    if (!there) put_entry(FS_CREATE, full, s.st_ino, 0);
    fs_record r = {.kind = FS_SIZE, .object = s.st_ino};
    if (there && (flags & O_TRUNC)) put(&r, NULL, NULL, NULL);
  }
  DONE(fd);
}

#define OPEN(dir)                                                                                  \
  mode_t mode = 0;                                                                                 \
  va_list more;                                                                                    \
  va_start(more, flags);                                                                           \
  if (flags & (O_CREAT | O_TMPFILE)) mode = va_arg(more, mode_t);                                  \
  va_end(more);                                                                                    \
  return open_any(dir, path, flags, mode)
int open(const char *path, int flags, ...) { OPEN(AT_FDCWD); }
int open64(const char *path, int flags, ...) { OPEN(AT_FDCWD); }
int openat(int dir, const char *path, int flags, ...) { OPEN(dir); }
int openat64(int dir, const char *path, int flags, ...) { OPEN(dir); }

static void put_write(const struct stat *s, off_t at, const void *bytes, ssize_t n) {
  fs_record r = {.kind = FS_WRITE,
                 .object = s->st_ino,
                 .offset = (uint64_t)at,
                 .bytes = (uint64_t)n};
  put(&r, NULL, NULL, bytes);
}

ssize_t write(int fd, const void *bytes, size_t n) {
  typedef ssize_t write_fn(int fd, const void *bytes, size_t n);
  struct stat s;
  NEXT(write_fn, "write");
  int watched = watched_fd(fd, &s);
  off_t at = !watched ? 0 : fcntl(fd, F_GETFL) & O_APPEND ? s.st_size : lseek(fd, 0, SEEK_CUR);
  ssize_t done = next(fd, bytes, n);
  if (watched && done > 0) put_write(&s, at, bytes, done);
  DONE(done);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) {
  typedef ssize_t pwrite_fn(int fd, const void *bytes, size_t n, off_t at);
  struct stat s;
  NEXT(pwrite_fn, "pwrite");
  int watched = watched_fd(fd, &s);
  ssize_t done = next(fd, bytes, n, at);
  if (watched && done > 0) put_write(&s, at, bytes, done);
  DONE(done);
}

int ftruncate(int fd, off_t bytes) {
  typedef int ftruncate_fn(int fd, off_t bytes);
  struct stat s;
  NEXT(ftruncate_fn, "ftruncate");
  int watched = watched_fd(fd, &s), bad = next(fd, bytes);
  fs_record r = {.kind = FS_SIZE, .object = watched ? s.st_ino : 0, .bytes = (uint64_t)bytes};
  if (watched && !bad) put(&r, NULL, NULL, NULL);
  DONE(bad);
}

static int sync_any(const char *name, int fd) {
  typedef int fsync_fn(int fd);
  struct stat s;
  NEXT(fsync_fn, name);
  int watched = watched_fd(fd, &s), bad = next(fd);
  fs_record r = {.kind = FS_SYNC, .object = watched ? s.st_ino : 0};
  if (watched && !bad) put(&r, NULL, NULL, NULL);
  DONE(bad);
}

int fsync(int fd) { return sync_any("fsync", fd); }
int fdatasync(int fd) { return sync_any("fdatasync", fd); }

/* --- names ------------------------------------------------------------------------------------ */

int mkdirat(int dir, const char *path, mode_t mode) {
  typedef int mkdirat_fn(int dir, const char *path, mode_t mode);
  char full[PATH_MAX];
  NEXT(mkdirat_fn, "mkdirat");
  int watched = watched_path(dir, path, full), bad = next(dir, path, mode);
  if (watched && !bad) put_entry(FS_CREATE, full, object_of(full), 1);
  DONE(bad);
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int unlinkat(int dir, const char *path, int flags) {
  typedef int unlinkat_fn(int dir, const char *path, int flags);
  char full[PATH_MAX];
  NEXT(unlinkat_fn, "unlinkat");
  int watched = watched_path(dir, path, full);
  uint64_t object = watched ? object_of(full) : 0;
  int bad = next(dir, path, flags);
  if (watched && !bad) put_entry(FS_REMOVE, full, object, (flags & AT_REMOVEDIR) != 0);
  DONE(bad);
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int renameat2(int dir, const char *from, int dir2, const char *to, unsigned flags) {
  typedef int rename_fn(int dir, const char *from, int dir2, const char *to, unsigned flags);
  char full[PATH_MAX], full2[PATH_MAX];
  fs_record r = {.kind = flags & RENAME_EXCHANGE ? FS_SWAP : FS_RENAME};
  if (flags & RENAME_EXCHANGE && getenv("RECORD_NO_SWAP")) {
    errno = EINVAL;
    return -1;
  }
  NEXT(rename_fn, "renameat2");
  int watched = watched_path(dir, from, full), watched2 = watched_path(dir2, to, full2);
  if (watched) r.object = object_of(full);
  if (watched2) r.object2 = object_of(full2);
  int bad = next(dir, from, dir2, to, flags);
  if (!bad && watched != watched2) abort(); /* into the folder, or out of it */
  if (!bad && watched) {
    r.dir = folder_of(full);
    r.dir2 = folder_of(full2);
    r.name_len = (uint32_t)strlen(name_of(full));
    r.name2_len = (uint32_t)strlen(name_of(full2));
    put(&r, name_of(full), name_of(full2), NULL);
  }
  DONE(bad);
}

int renameat(int dir, const char *from, int dir2, const char *to) {
  return renameat2(dir, from, dir2, to, 0);
}
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
