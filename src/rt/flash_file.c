#include "rt/flash_file.h"

#include "base/log.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { BLOCK = 4096 };

static hp_status open_folder(flash_file *f) {
  f->folder = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (f->folder >= 0) return HP_OK;
  HP_FAIL(HP_ERR_ARG, "flash path \"%s\": %s; expected an existing folder", f->path,
          strerror(errno));
}

/* Some file systems of a network lock no folder: there the file is still this process's alone. */
static hp_status lock_folder(const flash_file *f) {
  while (flock(f->folder, LOCK_EX | LOCK_NB)) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK)
      HP_FAIL(HP_ERR_ARG,
              "flash path \"%s\": another job, or another device opened here, uses it; wait for "
              "its end, or name a folder for each",
              f->path);
    log_warn("flash path \"%s\": cannot be locked (%s): another job that uses it is not noticed",
             f->path, strerror(errno));
    return HP_OK;
  }
  return HP_OK;
}

/* A new file under a random name, which it loses at once. */
static int open_unlinked(const flash_file *f, int flags) {
  uint64_t random;
  char name[40];
  if (random_bytes(&random, sizeof random)) return errno = EIO, -1;
  snprintf(name, sizeof name, ".hyper-flash-%016llx", (unsigned long long)random);
  int fd = openat(f->folder, name, flags | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (fd >= 0 && unlinkat(f->folder, name, 0)) {
    int why = errno;
    close(fd);
    return errno = why, -1;
  }
  return fd;
}

static int open_nameless(const flash_file *f, int flags) {
  int fd = openat(f->folder, ".", flags | O_TMPFILE, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL))
    return fd;
  return open_unlinked(f, flags);
}

/* The alignment that the file system asks of memory, if the system can say; false: it reads and
 * writes through the page cache only. */
static bool find_alignment(flash_file *f) {
  f->memory_align = BLOCK;
#ifdef STATX_DIOALIGN
  struct statx x;
  if (statx(f->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) || !(x.stx_mask & STATX_DIOALIGN))
    return true;
  if (!x.stx_dio_mem_align || x.stx_dio_offset_align > BLOCK || x.stx_dio_mem_align > BLOCK)
    return false;
  f->memory_align = x.stx_dio_mem_align;
#endif
  return true;
}

static hp_status open_new(flash_file *f) {
  const int flags = O_RDWR | O_CLOEXEC;
  f->fd = open_nameless(f, flags | O_DIRECT);
  f->direct = f->fd >= 0 && find_alignment(f);
  if (f->fd >= 0 && !f->direct) close(f->fd), f->fd = -1, errno = EINVAL;
  if (f->fd < 0 && errno == EINVAL) {
    f->memory_align = 1;
    f->fd = open_nameless(f, flags);
    if (f->fd >= 0)
      log_info("flash path \"%s\": its file system has no O_DIRECT: the page cache is used",
               f->path);
  }
  if (f->fd >= 0) return HP_OK;
  HP_FAIL(HP_ERR_IO, "flash path \"%s\": no file can be made in it: %s", f->path, strerror(errno));
}

static uint64_t free_bytes(const flash_file *f) {
  struct statvfs v;
  if (fstatvfs(f->fd, &v)) return 0;
  return (uint64_t)v.f_bavail * v.f_frsize;
}

static hp_status no_room(const flash_file *f, int why) {
  HP_FAIL(HP_ERR_IO,
          "flash path \"%s\": %llu bytes cannot be taken: %s (%llu are free); lower flash_limit, "
          "free some, or name more paths",
          f->path, (unsigned long long)f->bytes, strerror(why), (unsigned long long)free_bytes(f));
}

/* posix_fallocate writes every block where the file system cannot take them: there the free bytes
 * are only looked at, and a disk that fills up later is told then. */
static hp_status take_room(const flash_file *f) {
  while (fallocate(f->fd, 0, 0, (off_t)f->bytes)) {
    if (errno == EINTR) continue;
    if (errno != EOPNOTSUPP) return no_room(f, errno);
    if (free_bytes(f) < f->bytes) return no_room(f, ENOSPC);
    if (ftruncate(f->fd, (off_t)f->bytes)) return no_room(f, errno);
    log_warn("flash path \"%s\": its file system takes no room in advance: another program may "
             "fill it up",
             f->path);
    return HP_OK;
  }
  return HP_OK;
}

hp_status flash_file_open(const char *path, uint64_t bytes, bool locks, flash_file *out) {
  flash_file f = {.fd = -1, .folder = -1, .path = path, .bytes = bytes};
  hp_status st = open_folder(&f);
  if (!st && locks) st = lock_folder(&f);
  if (!st) st = open_new(&f);
  if (!st) st = take_room(&f);
  if (st) flash_file_close(&f);
  else *out = f;
  return st;
}

void flash_file_close(flash_file *f) {
  if (f->fd >= 0) close(f->fd);
  if (f->folder >= 0) close(f->folder); /* and its lock */
  f->fd = f->folder = -1;
}
