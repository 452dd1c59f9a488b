#include "codegen/jit_cache.h"

#include "base/io.h"
#include "base/log.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OBJECT_MAX = 256 << 20, LOCK_STEP_MS = 10, LEFT_S = 3600 };

/* What follows the object in a file of the cache. */
typedef struct {
  char magic[8];
  uint64_t length;
  hash128 hash;
} seal;

static const char seal_magic[8] = "HPLOOP1";

static seal seal_of(const void *bytes, size_t n) {
  seal s = {.length = n, .hash = hash_bytes128(bytes, n)};
  memcpy(s.magic, seal_magic, sizeof s.magic);
  return s;
}

/* --- the folder ------------------------------------------------------------------------------- */

static hp_status default_dir(str *path) {
  const char *cache = getenv("HYPER_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
             *home = getenv("HOME");
  str_clear(path);
  if (cache && *cache) str_add(path, cache);
  else if (xdg && *xdg == '/') str_printf(path, "%s/hyperparallel", xdg);
  else if (home && *home == '/') str_printf(path, "%s/.cache/hyperparallel", home);
  return str_status(path);
}

/* Creates the folder for the owner alone; folders above it as usual. */
static void make_dir(const char *path) {
  str up = {0};
  const char *slash = strrchr(path, '/');
  if (!mkdir(path, 0700) || errno != ENOENT || !slash || slash == path) return;
  str_add_n(&up, path, (size_t)(slash - path));
  if (!str_status(&up) && dir_create(up.at)) err_clear();
  str_free(&up);
  if (mkdir(path, 0700)) return; /* what is wrong is found when it is checked */
}

/* NULL when the folder may be used, else why not. */
static const char *refusal(const char *path) {
  struct stat s;
  if (stat(path, &s)) return strerror(errno);
  if (!S_ISDIR(s.st_mode)) return "it is not a folder";
  if (s.st_uid != geteuid()) return "it belongs to another user";
  if (s.st_mode & (S_IWGRP | S_IWOTH)) return "others may write to it (chmod go-w)";
  return NULL;
}

hp_status jit_cache_open(const char *dir, jit_cache *out) {
  jit_cache c = {.lock = -1};
  str path = {0};
  hp_status st = HP_OK;
  if (dir) {
    str_add(&path, dir);
    HP_TRY_GOTO(str_status(&path), st);
  } else {
    HP_TRY_GOTO(default_dir(&path), st);
  }
  if (path.len) {
    make_dir(path.at);
    const char *why = refusal(path.at);
    if (why)
      log_warn(
          "%s: compiled kernels are not kept there: %s; set HYPER_CACHE to a folder of your own",
          path.at, why);
    else if (!(c.dir = str_take(&path))) st = HP_ERR_OOM;
  }
done:
  str_free(&path);
  if (!st) *out = c;
  return st;
}

void jit_cache_close(jit_cache *c) {
  jit_cache_end(c);
  if (c->work && (!c->dir || strcmp(c->work, c->dir)) && dir_remove(c->work)) err_clear();
  mem_free(c->work);
  mem_free(c->dir);
  *c = (jit_cache){.lock = -1};
}

static hp_status private_dir(jit_cache *c) {
  const char *tmp = getenv("TMPDIR");
  str path = {0};
  str_printf(&path, "%s/hyper-kernels-XXXXXX", tmp && *tmp ? tmp : "/tmp");
  c->work = str_take(&path);
  HP_TRY_MEM(c->work);
  if (mkdtemp(c->work)) return HP_OK;
  int e = errno;
  mem_free(c->work);
  c->work = NULL;
  HP_FAIL(HP_ERR_IO, "%s: cannot create a folder to compile in: %s; set TMPDIR",
          tmp && *tmp ? tmp : "/tmp", strerror(e));
}

static bool can_write(const char *dir) {
  str path = {0};
  str_printf(&path, "%s/probe.%ld.XXXXXX", dir, (long)getpid());
  int fd = str_status(&path) ? -1 : mkostemp(path.at, O_CLOEXEC);
  if (fd >= 0) {
    unlink(path.at);
    close(fd);
  }
  str_free(&path);
  return fd >= 0;
}

static bool is_passing(const char *name) {
  size_t n = strlen(name);
  return !strncmp(name, "unit.", 5) || !strncmp(name, "probe.", 6) ||
         (n > 4 && !strcmp(name + n - 4, ".tmp"));
}

/* Removes what builds that were killed have left; a build takes seconds. */
static void sweep(const char *dir) {
  DIR *d = opendir(dir);
  str path = {0};
  struct stat s;
  for (struct dirent *e; d && (e = readdir(d));) {
    if (!is_passing(e->d_name) || path_join(&path, dir, e->d_name)) continue;
    if (!lstat(path.at, &s) && time(NULL) - s.st_mtime > LEFT_S) unlink(path.at);
  }
  if (d) closedir(d);
  str_free(&path);
}

static void take_lock(jit_cache *c, int wait_ms) {
  str path = {0};
  if (path_join(&path, c->dir, "lock")) err_clear();
  else c->lock = open(path.at, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  str_free(&path);
  for (int ms = 0; c->lock >= 0; ms += LOCK_STEP_MS) {
    /* a file system without locks: two may compile the same */
    if (!flock(c->lock, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK) return;
    if (ms >= wait_ms) break;
    nanosleep(&(struct timespec){.tv_nsec = LOCK_STEP_MS * 1000000L}, NULL);
  }
  if (c->lock >= 0) log_info("%s: another process compiles there; not waiting for it", c->dir);
}

hp_status jit_cache_begin(jit_cache *c, int lock_ms) {
  if (!c->work && c->dir && can_write(c->dir)) {
    str work = {0};
    str_add(&work, c->dir);
    c->work = str_take(&work);
    HP_TRY_MEM(c->work);
  } else if (!c->work) {
    if (c->dir) log_warn("%s: cannot be written; compiled kernels are not kept", c->dir);
    HP_TRY(private_dir(c));
  }
  if (c->dir && !strcmp(c->work, c->dir)) {
    take_lock(c, lock_ms);
    sweep(c->dir);
  }
  return HP_OK;
}

void jit_cache_end(jit_cache *c) {
  if (c->lock >= 0) close(c->lock); /* lets go of the lock */
  c->lock = -1;
}

/* --- files ------------------------------------------------------------------------------------ */

static void key_path(const char *dir, hash128 key, str *path) {
  char hex[33];
  hash_hex(key, hex);
  str_clear(path);
  str_printf(path, "%s/%s.so", dir, hex);
}

/* True when the file is ours, whole and as it was sealed. */
static bool is_sound(const char *path) {
  struct stat s;
  file_map m;
  if (lstat(path, &s) || !S_ISREG(s.st_mode) || s.st_uid != geteuid()) return false;
  if (s.st_size > OBJECT_MAX || file_map_open(path, &m)) {
    err_clear();
    return false;
  }
  seal found, want;
  bool ok = m.len > sizeof found;
  if (ok) {
    memcpy(&found, m.at + m.len - sizeof found, sizeof found);
    want = seal_of(m.at, m.len - sizeof found);
    ok = !memcmp(&found, &want, sizeof found);
  }
  file_map_close(&m);
  return ok;
}

/* Loads a copy in memory: for folders that are mounted noexec. */
static void *load_copy(const char *path) {
  char *bytes = NULL;
  size_t n;
  char name[40];
  if (file_read(path, OBJECT_MAX, &bytes, &n)) {
    err_clear();
    return NULL;
  }
  int fd = memfd_create("hyper-kernels", MFD_CLOEXEC);
  size_t done = 0;
  for (ssize_t w; fd >= 0 && done < n; done += (size_t)w)
    if ((w = write(fd, bytes + done, n - done)) <= 0) break;
  mem_free(bytes);
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  void *so = fd >= 0 && done == n ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
  /* stays open when it is in use: the loader knows objects by name, and the number must not be
   * given to another one */
  if (!so && fd >= 0) close(fd);
  return so;
}

static void *load(const char *path) {
  void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return so ? so : load_copy(path);
}

static void *function_of(void *so, hash128 key) {
  char hex[33], name[48];
  hash_hex(key, hex);
  snprintf(name, sizeof name, "hp_k_%s", hex);
  return dlsym(so, name);
}

void *jit_cache_find(const jit_cache *c, hash128 key) {
  str path = {0};
  void *so = NULL;
  if (!c->dir) return NULL;
  key_path(c->dir, key, &path);
  if (!str_status(&path) && is_sound(path.at)) so = load(path.at);
  str_free(&path);
  return so ? function_of(so, key) : NULL;
}

/* A second name for a file, appearing at once under `to`, whatever was there. */
static void publish(const char *from, const char *to) {
  str temp = {0};
  str_printf(&temp, "%s.%ld.tmp", to, (long)getpid());
  if (str_status(&temp)) {
    str_free(&temp);
    return;
  }
  unlink(temp.at);
  bool ok = !link(from, temp.at);
  if (!ok) { /* a file system without links */
    char *bytes;
    size_t n;
    if (!file_read(from, OBJECT_MAX, &bytes, &n)) {
      ok = !file_write(temp.at, bytes, n);
      mem_free(bytes);
    }
    err_clear();
  }
  if (ok && rename(temp.at, to)) ok = false;
  unlink(temp.at); /* still there when both names were one file already */
  str_free(&temp);
}

static hp_status append_seal(const char *path) {
  file_map m;
  HP_TRY(file_map_open(path, &m));
  seal s = seal_of(m.at, m.len);
  file_map_close(&m);
  int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  bool ok = fd >= 0 && write(fd, &s, sizeof s) == (ssize_t)sizeof s;
  if (fd >= 0 && close(fd)) ok = false;
  if (!ok) HP_FAIL(HP_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
  return HP_OK;
}

hp_status jit_cache_add(const jit_cache *c, const char *object, const hash128 *key, int n,
                        void **fn) {
  str path = {0};
  hp_status st = HP_OK;
  void *so;
  HP_TRY_GOTO(append_seal(object), st);
  so = load(object);
  if (!so) {
    const char *why = dlerror();
    HP_FAIL_GOTO(st, HP_ERR_IO, "%s: cannot load: %s", object, why ? why : "unknown reason");
  }
  for (int i = 0; i < n; i++) {
    fn[i] = function_of(so, key[i]);
    if (!fn[i]) HP_FAIL_GOTO(st, HP_ERR_INTERNAL, "%s: a kernel is missing in it", object);
  }
  for (int i = 0; c->dir && !strcmp(c->work, c->dir) && i < n; i++) {
    key_path(c->dir, key[i], &path);
    HP_TRY_GOTO(str_status(&path), st);
    publish(object, path.at);
  }
done:
  unlink(object);
  str_free(&path);
  return st;
}
