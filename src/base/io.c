#include "base/io.h"
#include "base/map_names.h"
#include "base/milestone.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 };
static const size_t read_max = (size_t)1 << 30;

hp_status file_read_fd(int fd, const char *name, size_t max, char **out, size_t *len) {
  str s = {0};
  hp_status st = HP_OK;
  char *buf = mem_calloc(CHUNK, 1);
  HP_TRY_MEM(buf);
  if (!max) max = read_max;
  for (;;) {
    ssize_t n = read(fd, buf, CHUNK);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) HP_FAIL_GOTO(st, HP_ERR_IO, "%s: cannot read: %s", name, strerror(errno));
    if (n == 0) break;
    milestone_count_work();
    if (s.len + (size_t)n > max)
      HP_FAIL_GOTO(st, HP_ERR_INPUT, "%s: larger than the %zu bytes allowed for it", name, max);
    str_add_n(&s, buf, (size_t)n);
    HP_TRY_GOTO(str_status(&s), st);
  }
  *len = s.len;
  *out = str_take(&s);
  if (!*out) st = HP_ERR_OOM;
done:
  mem_free(buf);
  if (st) str_free(&s);
  return st;
}

static hp_status cannot_open(const char *path, int e) {
  struct stat info;
  if (e == ELOOP) HP_FAIL(HP_ERR_IO, "%s: symbolic links that lead nowhere", path);
  if (e == ENOENT && !lstat(path, &info))
    HP_FAIL(HP_ERR_IO, "%s: a symbolic link to a file that is not there", path);
  HP_FAIL(HP_ERR_IO, "%s: cannot open: %s", path, strerror(e));
}

static hp_status open_read(const char *path, int flags, int *fd, struct stat *info) {
  *fd = open(path, O_RDONLY | O_CLOEXEC | flags);
  if (*fd < 0) return cannot_open(path, errno);
  if (fstat(*fd, info) || S_ISDIR(info->st_mode)) {
    close(*fd);
    HP_FAIL(HP_ERR_IO, "%s: is a folder, a file was expected", path);
  }
  return HP_OK;
}

hp_status file_read(const char *path, size_t max, char **out, size_t *len) {
  int fd;
  struct stat info;
  HP_TRY(open_read(path, 0, &fd, &info));
  hp_status st = file_read_fd(fd, path, max, out, len);
  close(fd);
  return st;
}

hp_status file_map_open(const char *path, file_map *out) {
  int fd;
  struct stat info;
  HP_TRY(open_read(path, O_NONBLOCK, &fd, &info)); /* a pipe would wait for its writer */
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    HP_FAIL(HP_ERR_IO, "%s: is a %s, a file was expected", path,
            S_ISFIFO(info.st_mode) ? "pipe" : "device");
  }
  file_map m = {NULL, (size_t)info.st_size};
  if (m.len) {
    void *p = mmap(NULL, m.len, PROT_READ, MAP_PRIVATE, fd, 0);
    int e = errno;
    close(fd);
    if (p == MAP_FAILED) HP_FAIL(HP_ERR_IO, "%s: cannot map: %s", path, strerror(e));
    hp_status st = map_names_add(p, m.len, path);
    if (st) munmap(p, m.len);
    HP_TRY(st);
    m.at = p;
  } else {
    close(fd);
  }
  *out = m;
  return HP_OK;
}

void file_map_close(file_map *m) {
  if (m->at) map_names_remove(m->at);
  if (m->at) munmap((void *)(uintptr_t)m->at, m->len);
  *m = (file_map){0};
}

void file_map_release(const unsigned char *at, size_t n) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at, to = from + n;
  from -= from % page; /* the page before was partly used, and kept */
  to -= to % page;
  if (from < to) (void)madvise((void *)from, to - from, MADV_DONTNEED);
}

bool file_exists(const char *path) {
  struct stat s;
  return !stat(path, &s) && !S_ISDIR(s.st_mode);
}

bool path_exists(const char *path) {
  struct stat s;
  return !lstat(path, &s);
}

hp_status path_look(const char *path, bool *there) {
  struct stat s;
  *there = !lstat(path, &s);
  if (!*there && errno != ENOENT && errno != ENOTDIR)
    HP_FAIL(HP_ERR_IO, "%s: cannot be looked at: %s", path, strerror(errno));
  return HP_OK;
}

void file_print_stamp(const struct stat *s, str *out) {
  str_printf(out, "%lld %lld %lld %lld.%09ld %lld.%09ld", (long long)s->st_dev,
             (long long)s->st_ino, (long long)s->st_size, (long long)s->st_mtim.tv_sec,
             s->st_mtim.tv_nsec, (long long)s->st_ctim.tv_sec, s->st_ctim.tv_nsec);
}

bool dir_exists(const char *path) {
  struct stat s;
  return !stat(path, &s) && S_ISDIR(s.st_mode);
}

hp_status path_join(str *out, const char *dir, const char *name) {
  str_clear(out);
  str_add(out, dir);
  if (out->len && out->at[out->len - 1] != '/') str_add_char(out, '/');
  str_add(out, name);
  return str_status(out);
}

hp_status path_parent(const char *path, str *out) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  while (n && path[n - 1] != '/') n--;
  while (n > 1 && path[n - 1] == '/') n--;
  str_clear(out);
  if (!n) str_add_char(out, '.');
  else str_add_n(out, path, n);
  return str_status(out);
}
