#include "base/io.h"
#include "base/log.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

hp_status dir_sync(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", path, strerror(errno));
  int e = fsync(fd) ? errno : 0;
  close(fd);
  /* some file systems cannot sync folders: they say EINVAL and keep their own order */
  if (e && e != EINVAL) HP_FAIL(HP_ERR_IO, "%s: fsync of the folder failed: %s", path, strerror(e));
  return HP_OK;
}

/* One folder, with its name on the disk; there already is fine. */
static hp_status create_one(const char *path) {
  str parent = {0};
  if (mkdir(path, 0755)) {
    if (errno == EEXIST) return HP_OK;
    HP_FAIL(HP_ERR_IO, "%s: cannot create the folder: %s", path, strerror(errno));
  }
  hp_status st = path_parent(path, &parent);
  if (!st) st = dir_sync(parent.at);
  str_free(&parent);
  return st;
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
    HP_TRY_GOTO(create_one(p.at), st);
    p.at[i] = c;
  }
  if (!dir_exists(path)) HP_FAIL_GOTO(st, HP_ERR_IO, "%s: exists and is not a folder", path);
done:
  str_free(&p);
  return st;
}

hp_status dir_create_new(const char *path) {
  if (!mkdir(path, 0755)) return HP_OK;
  HP_FAIL(HP_ERR_IO, "%s: cannot create the folder: %s", path, strerror(errno));
}

/* --- removing --------------------------------------------------------------------------------- */

static hp_status remove_entry(int at, const char *name, str *path);

/* All that is in the folder, which is closed. */
static hp_status empty_folder(int fd, str *path) {
  size_t len = path->len;
  hp_status st = HP_OK;
  DIR *d = fdopendir(fd);
  if (!d) {
    int e = errno;
    close(fd);
    HP_FAIL(HP_ERR_IO, "%s: cannot read the folder: %s", path->at, strerror(e));
  }
  for (struct dirent *e; !st && (e = readdir(d));) {
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
    str_printf(path, "/%s", e->d_name);
    st = str_status(path);
    if (!st) st = remove_entry(fd, e->d_name, path);
    path->at[path->len = len] = 0;
  }
  closedir(d);
  return st;
}

/* What has this name in the folder `at`.  It is opened before it is looked at: what was a folder
 * then cannot have become a link. */
static hp_status remove_entry(int at, const char *name, str *path) {
  int flags = 0, fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0) {
    HP_TRY(empty_folder(fd, path));
    flags = AT_REMOVEDIR;
  } else if (errno != ENOTDIR && errno != ELOOP && errno != ENOENT) {
    HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", path->at, strerror(errno));
  }
  if (unlinkat(at, name, flags) && errno != ENOENT)
    HP_FAIL(HP_ERR_IO, "%s: cannot remove%s: %s", path->at, flags ? " the folder" : "",
            strerror(errno));
  return HP_OK;
}

hp_status dir_remove(const char *path) {
  str full = {0}, parent = {0}, name = {0};
  hp_status st = HP_OK;
  int at = -1;
  str_add(&full, path);
  HP_TRY_GOTO(str_status(&full), st);
  while (full.len > 1 && full.at[full.len - 1] == '/') full.at[--full.len] = 0;
  const char *slash = strrchr(full.at, '/');
  str_add(&name, slash ? slash + 1 : full.at);
  HP_TRY_GOTO(str_status(&name), st);
  if (!name.len || !strcmp(name.at, ".") || !strcmp(name.at, ".."))
    HP_FAIL_GOTO(st, HP_ERR_ARG, "\"%s\": expected the name of a folder to remove", path);
  HP_TRY_GOTO(path_parent(full.at, &parent), st);
  at = open(parent.at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (at < 0 && errno != ENOENT)
    HP_FAIL_GOTO(st, HP_ERR_IO, "%s: cannot open the folder: %s", parent.at, strerror(errno));
  if (at >= 0) st = remove_entry(at, name.at, &full);
done:
  if (at >= 0) close(at);
  str_free(&full);
  str_free(&parent);
  str_free(&name);
  return st;
}

/* --- leftovers -------------------------------------------------------------------------------- */

/* The process that a temporary name holds, NAME.tmp.PID-RANDOM or, as it was once, NAME.tmp.PID;
 * 0: it is no such name. */
static pid_t writer_of(const char *name) {
  const char *at = NULL, *p = name;
  while ((p = strstr(p, ".tmp."))) at = p += 5;
  if (!at || at == name + 5 || !isdigit((unsigned char)*at)) return 0;
  char *end;
  errno = 0;
  long pid = strtol(at, &end, 10);
  if (errno || pid <= 0 || pid > INT32_MAX) return 0;
  bool random = *end == '-' && strspn(end + 1, "0123456789abcdef") == 8 && !end[9];
  return random || !*end ? (pid_t)pid : 0;
}

/* The number of a process that is gone may be that of this one, which has written nothing yet. */
static bool is_gone(pid_t pid) { return pid == getpid() || (kill(pid, 0) && errno == ESRCH); }

/* NAME in the open folder `at`, whose path is for messages. */
static void remove_leftover(int at, const char *path, const char *name, pid_t pid) {
  struct stat s;
  if (fstatat(at, name, &s, AT_SYMLINK_NOFOLLOW) || !S_ISREG(s.st_mode)) return;
  if (!unlinkat(at, name, 0))
    log_info("%s/%s: removed, process %ld was ended while it wrote it", path, name, (long)pid);
  else if (errno != ENOENT) /* else another process was faster */
    log_warn("%s/%s: left by process %ld, which was ended while it wrote it, and cannot be "
             "removed: %s; it stays",
             path, name, (long)pid, strerror(errno));
}

hp_status dir_remove_leftovers(const char *path) {
  DIR *d = opendir(path);
  if (!d) HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", path, strerror(errno));
  for (struct dirent *e; (e = readdir(d));) {
    pid_t pid = writer_of(e->d_name);
    if (pid && is_gone(pid)) remove_leftover(dirfd(d), path, e->d_name, pid);
  }
  closedir(d);
  return HP_OK;
}
