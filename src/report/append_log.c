#include "report/append_log.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

hp_status append_log_open(const char *path, append_log *out) {
  append_log l = {.fd = -1};
  struct stat s;
  str name = {0};
  str_add(&name, path);
  l.path = str_take(&name);
  HP_TRY_MEM(l.path);
  l.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  int e = errno;
  if (l.fd < 0 || fstat(l.fd, &s)) {
    if (l.fd >= 0) close(l.fd);
    mem_free(l.path);
    HP_FAIL(HP_ERR_IO, "%s: cannot be written: %s", path, strerror(e));
  }
  l.len = s.st_size;
  *out = l;
  return HP_OK;
}

void append_log_close(append_log *l) {
  if (l->fd >= 0) {
    if (append_log_flush(l)) {
      log_warn("%s; %zu bytes of it are lost", err_message(), l->waiting.len);
      err_clear();
    }
    close(l->fd);
  }
  mem_free(l->path);
  str_free(&l->waiting);
  *l = (append_log){.fd = -1};
}

/* What an earlier try has left of a record goes first. */
static bool make_whole(append_log *l) {
  struct stat s;
  if (l->cut && ftruncate(l->fd, (off_t)l->len)) return false;
  l->cut = false;
  if (fstat(l->fd, &s)) return false;
  l->len = s.st_size;
  return true;
}

static bool write_waiting(append_log *l) {
  for (size_t at = 0; at < l->waiting.len;) {
    ssize_t n = write(l->fd, l->waiting.at + at, l->waiting.len - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += (size_t)n;
    l->cut = true;
  }
  l->cut = false;
  str_clear(&l->waiting);
  return true;
}

hp_status append_log_flush(append_log *l) {
  if (!l->waiting.len) return HP_OK;
  if (make_whole(l) && write_waiting(l)) return HP_OK;
  int e = errno;
  if (l->cut) (void)make_whole(l); /* the next try does it otherwise */
  HP_FAIL(HP_ERR_IO, "%s: cannot be written: %s", l->path, strerror(e));
}

void append_log_add(append_log *l, const void *bytes, size_t n) {
  bool lost = l->waiting.len + n > APPEND_LOG_WAITING_MAX;
  if (!lost) str_add_n(&l->waiting, bytes, n);
  if (l->waiting.failed) {
    str_clear(&l->waiting);
    lost = true;
  }
  if (lost && !l->losing)
    log_warn("%s: too much waits to be written; what follows is lost", l->path);
  l->losing = lost;
  if (append_log_flush(l)) {
    if (!l->failing)
      log_warn("%s; training continues, and the missing lines will be written when possible",
               err_message());
    l->failing = true;
  } else if (l->failing) {
    log_info("%s: is written again, and complete", l->path);
    l->failing = false;
  }
  err_clear();
}
