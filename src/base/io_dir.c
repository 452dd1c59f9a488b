#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/milestone.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

hp_status dir_sync(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", path, strerror(errno));
  milestone_begin_sync();
  int e = fsync(fd) ? errno : 0;
  milestone_end_sync();
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

hp_status dir_next(DIR *d, const char *path, struct dirent **out) {
  errno = 0;
  *out = readdir(d);
  if (!*out && errno) HP_FAIL(HP_ERR_IO, "%s: cannot read the folder: %s", path, strerror(errno));
  return HP_OK;
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
  for (struct dirent *e; !st && !(st = dir_next(d, path->at, &e)) && e;) {
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

static uint32_t machine;

/* Numbers of processes mean something within one process namespace of one machine. */
static void find_machine(void) {
  enum { NAMESPACE = 64, ID = 64 };
  char host[HOST_NAME_MAX + 1] = "", space[NAMESPACE] = "", id[ID] = "";
  str text = {0};
  if (gethostname(host, sizeof host - 1)) host[0] = 0;
  if (readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) space[0] = 0;
  FILE *f = fopen("/etc/machine-id", "re");
  if (f && !fgets(id, sizeof id, f)) id[0] = 0;
  if (f) fclose(f);
  str_printf(&text, "%s %s %s", host, space, id);
  machine = text.failed ? 0 : (uint32_t)hash_bytes128(text.at, text.len).lo;
  str_free(&text);
}

uint32_t dir_machine(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_machine);
  return machine;
}

/* Who a temporary name is of; pid 0: it is no such name. */
typedef struct {
  pid_t pid;
  uint32_t machine;
} temp_writer;

/* After *at: a dash and 8 hex digits. */
static bool take_hex(const char **at, uint32_t *out) {
  enum { DIGITS = 8 };
  static const char hex[] = "0123456789abcdef";
  if (**at != '-' || strspn(*at + 1, hex) != (size_t)DIGITS) return false;
  *out = (uint32_t)strtoul(*at + 1, NULL, 16);
  *at += 1 + DIGITS;
  return true;
}

/* NAME.tmp.PID-MACHINE-RANDOM or, as it was once, NAME.tmp.PID-RANDOM and NAME.tmp.PID, which are
 * taken to be of this machine. */
static temp_writer writer_of(const char *name) {
  const temp_writer none = {0};
  const char *at = NULL, *p = name;
  while ((p = strstr(p, ".tmp."))) at = p += 5;
  if (!at || at == name + 5 || !isdigit((unsigned char)*at)) return none;
  char *end;
  errno = 0;
  long pid = strtol(at, &end, 10);
  if (errno || pid <= 0 || pid > INT32_MAX) return none;
  temp_writer w = {(pid_t)pid, dir_machine()};
  uint32_t first, random;
  at = end;
  if (take_hex(&at, &first) && take_hex(&at, &random)) w.machine = first;
  return *at ? none : w;
}

/* Of another machine only the time of the last write is known, by two clocks. */
static bool is_old(const struct stat *s) {
  enum { OLD_S = 24 * 3600 };
  return time(NULL) - s->st_mtim.tv_sec > OLD_S;
}

/* A process that has ended keeps its number until its parent has asked for its exit code, which a
 * parent that is gone, too, leaves to another. */
static bool is_zombie(pid_t pid) {
  char path[32], text[512];
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
  FILE *f = fopen(path, "re");
  size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  if (f) fclose(f);
  text[n] = 0;
  const char *name_end = strrchr(text, ')'); /* the name itself may hold anything */
  return name_end && (!strncmp(name_end, ") Z", 3) || !strncmp(name_end, ") X", 3));
}

/* The number of a process that is gone may be that of this one, which has written nothing yet. */
static bool is_gone(temp_writer w, const struct stat *s, bool locked) {
  if (w.machine != dir_machine()) return locked || is_old(s);
  return w.pid == getpid() || (kill(w.pid, 0) && errno == ESRCH) || is_zombie(w.pid);
}

/* NAME in the open folder `at`, whose path is for messages. */
static void remove_leftover(int at, const char *path, const char *name, temp_writer w,
                            bool locked) {
  struct stat s;
  const char *where = w.machine == dir_machine() ? "" : " of another machine";
  if (fstatat(at, name, &s, AT_SYMLINK_NOFOLLOW) || !S_ISREG(s.st_mode)) return;
  if (!is_gone(w, &s, locked)) return;
  if (!unlinkat(at, name, 0))
    log_info("%s/%s: removed, process %ld%s was ended while it wrote it", path, name, (long)w.pid,
             where);
  else if (errno != ENOENT) /* else another process was faster */
    log_warn("%s/%s: left by process %ld%s, which was ended while it wrote it, and cannot be "
             "removed: %s; it stays",
             path, name, (long)w.pid, where, strerror(errno));
}

hp_status dir_remove_leftovers(const char *path, bool locked) {
  DIR *d = opendir(path);
  if (!d) HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", path, strerror(errno));
  hp_status st = HP_OK;
  for (struct dirent *e; !(st = dir_next(d, path, &e)) && e;) {
    temp_writer w = writer_of(e->d_name);
    if (w.pid) remove_leftover(dirfd(d), path, e->d_name, w, locked);
  }
  closedir(d);
  return st;
}
