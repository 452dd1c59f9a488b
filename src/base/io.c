#include "base/io.h"

#include <dirent.h>
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
    m.at = p;
  } else {
    close(fd);
  }
  *out = m;
  return HP_OK;
}

void file_map_close(file_map *m) {
  if (m->at) munmap((void *)(uintptr_t)m->at, m->len);
  *m = (file_map){0};
}

/* The folder that holds path, as text in buf. */
static hp_status parent_of(const char *path, str *buf) {
  const char *slash = strrchr(path, '/');
  str_clear(buf);
  if (!slash) str_add(buf, ".");
  else str_add_n(buf, path, slash == path ? 1 : (size_t)(slash - path));
  return str_status(buf);
}

hp_status dir_sync(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", path, strerror(errno));
  int e = fsync(fd) ? errno : 0;
  close(fd);
  /* some file systems cannot sync folders: they say EINVAL and keep their own order */
  if (e && e != EINVAL) HP_FAIL(HP_ERR_IO, "%s: fsync of the folder failed: %s", path, strerror(e));
  return HP_OK;
}

hp_status file_check_target(const char *path) {
  struct stat s;
  str parent = {0};
  if (!*path) HP_FAIL(HP_ERR_IO, "an empty file name; expected the name of a file to write");
  if (!stat(path, &s) && !S_ISREG(s.st_mode))
    HP_FAIL(HP_ERR_IO, "%s: is a %s; expected the name of a file to write", path,
            S_ISDIR(s.st_mode)    ? "folder"
            : S_ISFIFO(s.st_mode) ? "pipe"
                                  : "device");
  hp_status st = parent_of(path, &parent);
  if (!st && !dir_exists(parent.at))
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot create: there is no folder \"%s\"",
                 path, parent.at);
  else if (!st && access(parent.at, W_OK))
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot create: %s", path, strerror(errno));
  str_free(&parent);
  return st;
}

hp_status file_writer_open(const char *path, file_writer *w) {
  file_writer v = {.fd = -1};
  str temp = {0};
  HP_TRY(file_check_target(path));
  str_printf(&temp, "%s.tmp.%ld", path, (long)getpid());
  v.temp = str_take(&temp);
  str_add(&temp, path);
  v.path = str_take(&temp);
  if (!v.temp || !v.path) {
    file_writer_abort(&v);
    return HP_ERR_OOM;
  }
  v.fd = open(v.temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (v.fd < 0) {
    int e = errno;
    mem_free(v.path);
    mem_free(v.temp);
    HP_FAIL(HP_ERR_IO, "%s: cannot create: %s", path, strerror(e));
  }
  *w = v;
  return HP_OK;
}

hp_status file_writer_write(file_writer *w, const void *bytes, size_t len) {
  const char *p = bytes;
  while (len) {
    ssize_t n = write(w->fd, p, len > (1u << 30) ? (1u << 30) : len);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      HP_FAIL(HP_ERR_IO, "%s: write failed after %llu bytes: %s%s", w->path,
              (unsigned long long)w->written, n < 0 ? strerror(errno) : "nothing written",
              n < 0 && (errno == ENOSPC || errno == EDQUOT)
                  ? "; free some space, or choose another folder"
                  : "");
    p += n;
    len -= (size_t)n;
    w->written += (uint64_t)n;
  }
  return HP_OK;
}

void file_writer_abort(file_writer *w) {
  if (w->fd >= 0) close(w->fd);
  if (w->temp) unlink(w->temp);
  mem_free(w->temp);
  mem_free(w->path);
  *w = (file_writer){.fd = -1};
}

hp_status file_writer_commit(file_writer *w) {
  hp_status st = HP_OK;
  str parent = {0};
  HP_TRY_GOTO(parent_of(w->path, &parent), st);
  if (fsync(w->fd)) HP_FAIL_GOTO(st, HP_ERR_IO, "%s: fsync failed: %s", w->path, strerror(errno));
  int bad = close(w->fd);
  w->fd = -1;
  if (bad) HP_FAIL_GOTO(st, HP_ERR_IO, "%s: close failed: %s", w->path, strerror(errno));
  if (rename(w->temp, w->path))
    HP_FAIL_GOTO(st, HP_ERR_IO, "%s: cannot rename %s to it: %s", w->path, w->temp,
                 strerror(errno));
  mem_free(w->temp);
  w->temp = NULL;
  HP_TRY_GOTO(dir_sync(parent.at), st);
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

bool file_exists(const char *path) {
  struct stat s;
  return !stat(path, &s) && !S_ISDIR(s.st_mode);
}

bool path_exists(const char *path) {
  struct stat s;
  return !lstat(path, &s);
}

bool dir_exists(const char *path) {
  struct stat s;
  return !stat(path, &s) && S_ISDIR(s.st_mode);
}

hp_status dir_create(const char *path) {
  str p = {0};
  str_add(&p, path);
  HP_TRY(str_status(&p));
  hp_status st = HP_OK;
  for (size_t i = 1; i <= p.len; i++) {
    if (p.at[i] != '/' && p.at[i]) continue;
    char c = p.at[i];
    p.at[i] = 0;
    if (mkdir(p.at, 0755) && errno != EEXIST)
      HP_FAIL_GOTO(st, HP_ERR_IO, "%s: cannot create the folder: %s", p.at, strerror(errno));
    p.at[i] = c;
  }
  if (!dir_exists(path)) HP_FAIL_GOTO(st, HP_ERR_IO, "%s: exists and is not a folder", path);
done:
  str_free(&p);
  return st;
}

hp_status dir_remove(const char *path) {
  DIR *d = opendir(path);
  if (!d) {
    if (errno == ENOENT) return HP_OK;
    HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", path, strerror(errno));
  }
  hp_status st = HP_OK;
  str p = {0};
  for (struct dirent *e; !st && (e = readdir(d));) {
    struct stat s;
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
    HP_TRY_GOTO(path_join(&p, path, e->d_name), st);
    if (!lstat(p.at, &s) && S_ISDIR(s.st_mode)) {
      HP_TRY_GOTO(dir_remove(p.at), st);
    } else if (unlink(p.at) && errno != ENOENT) {
      HP_FAIL_GOTO(st, HP_ERR_IO, "%s: cannot remove: %s", p.at, strerror(errno));
    }
  }
done:
  closedir(d);
  str_free(&p);
  if (!st && rmdir(path) && errno != ENOENT)
    HP_FAIL(HP_ERR_IO, "%s: cannot remove the folder: %s", path, strerror(errno));
  return st;
}

hp_status path_join(str *out, const char *dir, const char *name) {
  str_clear(out);
  str_add(out, dir);
  if (out->len && out->at[out->len - 1] != '/') str_add_char(out, '/');
  str_add(out, name);
  return str_status(out);
}
