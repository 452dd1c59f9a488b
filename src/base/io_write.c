#include "base/file_record.h"
#include "base/io.h"
#include "base/milestone.h"
#include "base/written.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* CHUNK: no more is given to the system at once, so that progress is seen. */
enum { TEMP_TRIES = 16, CHUNK = 1 << 20 };

hp_status file_check_target(const char *path) {
  struct stat s;
  str parent = {0};
  if (!*path) HP_FAIL(HP_ERR_IO, "an empty file name; expected the name of a file to write");
  if (!stat(path, &s) && !S_ISREG(s.st_mode))
    HP_FAIL(HP_ERR_IO, "%s: is a %s; expected the name of a file to write", path,
            S_ISDIR(s.st_mode)    ? "folder"
            : S_ISFIFO(s.st_mode) ? "pipe"
                                  : "device");
  hp_status st = path_parent(path, &parent);
  if (!st && !dir_exists(parent.at))
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot create: there is no folder \"%s\"",
                 path, parent.at);
  else if (!st && access(parent.at, W_OK))
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot create: %s", path, strerror(errno));
  str_free(&parent);
  return st;
}

/* Differs from call to call, so that a temporary name cannot be planted before it is used. */
static uint32_t random_suffix(void) {
  uint32_t n;
  struct timespec t;
  if (getrandom(&n, sizeof n, GRND_NONBLOCK) == (ssize_t)sizeof n) return n;
  clock_gettime(CLOCK_REALTIME, &t); /* O_EXCL holds all the same */
  return (uint32_t)t.tv_nsec;
}

/* A new file next to the target, whose name dir_remove_leftovers knows. */
static hp_status create_temp(const char *path, str *temp, int *fd) {
  for (int i = 0; i < TEMP_TRIES; i++) {
    str_clear(temp);
    str_printf(temp, "%s.tmp.%ld-%08x-%08x", path, (long)getpid(), dir_machine(), random_suffix());
    HP_TRY(str_status(temp));
    *fd = open(temp->at, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (*fd >= 0) return HP_OK;
    if (errno != EEXIST) break;
  }
  HP_FAIL(HP_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
}

hp_status file_writer_open(const char *path, file_writer *w) {
  file_writer v = {.fd = -1};
  str text = {0};
  HP_TRY(file_check_target(path));
  str_add(&text, path);
  v.path = str_take(&text);
  hp_status st = v.path ? written_create(&v.meant) : HP_ERR_OOM;
  if (!st) st = create_temp(path, &text, &v.fd);
  if (!st && !(v.temp = str_take(&text))) st = HP_ERR_OOM;
  str_free(&text);
  if (st) file_writer_abort(&v);
  else *w = v;
  return st;
}

hp_status file_writer_write(file_writer *w, const void *bytes, size_t len) {
  const char *p = bytes;
  HP_TRY(written_add(w->meant, bytes, len));
  while (len) {
    ssize_t n = write(w->fd, p, len < CHUNK ? len : CHUNK);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      HP_FAIL(HP_ERR_IO, "%s: write failed after %llu bytes: %s%s", w->path,
              (unsigned long long)w->written, n < 0 ? strerror(errno) : "nothing written",
              n < 0 && (errno == ENOSPC || errno == EDQUOT)
                  ? "; free some space, or choose another folder"
                  : "");
    milestone_count_work();
    p += n;
    len -= (size_t)n;
    w->written += (uint64_t)n;
  }
  return HP_OK;
}

void file_writer_abort(file_writer *w) {
  if (w->fd >= 0) close(w->fd);
  if (w->temp) unlink(w->temp);
  written_free(w->meant);
  mem_free(w->temp);
  mem_free(w->path);
  *w = (file_writer){.fd = -1};
}

/* All of it is on the disk; the errno of what stands in the way. */
static int sync_file(int fd) {
  milestone_begin_sync();
  int e = fsync(fd) ? errno : 0;
  milestone_end_sync();
  return e;
}

hp_status file_writer_commit(file_writer *w) {
  hp_status st = HP_OK;
  str parent = {0};
  HP_TRY_GOTO(path_parent(w->path, &parent), st);
  int unsynced = sync_file(w->fd);
  if (unsynced) HP_FAIL_GOTO(st, HP_ERR_IO, "%s: fsync failed: %s", w->path, strerror(unsynced));
  HP_TRY_GOTO(written_compare(w->meant, w->fd, w->path), st);
  int bad = close(w->fd);
  w->fd = -1;
  if (bad) HP_FAIL_GOTO(st, HP_ERR_IO, "%s: close failed: %s", w->path, strerror(errno));
  if (rename(w->temp, w->path))
    HP_FAIL_GOTO(st, HP_ERR_IO, "%s: cannot rename %s to it: %s", w->path, w->temp,
                 strerror(errno));
  mem_free(w->temp);
  w->temp = NULL;
  HP_TRY_GOTO(dir_sync(parent.at), st);
  HP_TRY_GOTO(file_record_note(w->path, w->written, written_hash(w->meant)), st);
done:
  str_free(&parent);
  file_writer_abort(w);
  return st;
}

hp_status file_write(const char *path, const void *bytes, size_t len) {
  file_writer w;
  HP_TRY(file_writer_open(path, &w));
  hp_status st = file_writer_write(&w, bytes, len);
  if (st) {
    file_writer_abort(&w);
    return st;
  }
  return file_writer_commit(&w);
}

hp_status file_rename(const char *from, const char *to) {
  if (!rename(from, to)) return file_record_rename(from, to);
  HP_FAIL(HP_ERR_IO, "%s: cannot rename %s to it: %s", to, from, strerror(errno));
}
