#include "codegen/jit_cache.h"

#include "base/io.h"
#include "base/log.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OBJECT_MAX = 256 << 20, LOCK_STEP_MS = 10, LEFT_S = 3600 };

/* The trailer after the object in a file of the cache. */
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

static hp_status find_default_dir(str *path) {
  const char *cache = getenv("HYPER_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
             *home = getenv("HOME");
  str_clear(path);
  if (cache && *cache) str_add(path, cache);
  else if (xdg && *xdg == '/') str_printf(path, "%s/hyperparallel", xdg);
  else if (home && *home == '/') str_printf(path, "%s/.cache/hyperparallel", home);
  return str_status(path);
}

/* Creates the folder for the owner alone; parent folders with usual permissions. */
static void make_dir(const char *path) {
  str up = {0};
  const char *slash = strrchr(path, '/');
  if (!mkdir(path, 0700) || errno != ENOENT || !slash || slash == path) return;
  str_add_n(&up, path, (size_t)(slash - path));
  if (!str_status(&up) && dir_create(up.at)) err_clear();
  str_free(&up);
  if (mkdir(path, 0700)) return; /* faults are found when it is checked */
}

static bool others_write(const struct stat *s) { return s->st_mode & (S_IWGRP | S_IWOTH); }

/* Anyone who may rename a parent folder could replace ours: each must belong to us or to root,
 * and others may write to it only if, as in /tmp, they cannot rename what is ours. */
static bool is_safe_above(char *path) {
  struct stat s;
  for (char *slash; (slash = strrchr(path, '/'));) {
    *slash = 0;
    if (stat(*path ? path : "/", &s)) return false;
    if (s.st_uid != geteuid() && s.st_uid != 0) return false;
    if (others_write(&s) && !(s.st_mode & S_ISVTX)) return false;
  }
  return true;
}

/* NULL if the folder may be used, else the reason.  `real` is its name without links, so that
 * the checked folder is the one used. */
static const char *find_refusal(const char *path, char real[PATH_MAX]) {
  struct stat s;
  char above[PATH_MAX];
  if (!realpath(path, real) || lstat(real, &s)) return strerror(errno);
  if (!S_ISDIR(s.st_mode)) return "it is not a folder";
  if (s.st_uid != geteuid()) return "it belongs to another user";
  if (others_write(&s)) return "others may write to it (chmod go-w)";
  memcpy(above, real, sizeof above);
  if (!is_safe_above(above))
    return "a folder above it belongs to another user, or others may write to it";
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
    HP_TRY_GOTO(find_default_dir(&path), st);
  }
  c.by_name = access("/proc/self/fd", X_OK) != 0;
  if (c.by_name) log_warn("/proc is missing: compiled kernels are loaded by name, not as checked");
  if (path.len) {
    char real[PATH_MAX];
    make_dir(path.at);
    const char *why = find_refusal(path.at, real);
    if (why)
      log_warn(
          "%s: compiled kernels are not kept there: %s; set HYPER_CACHE to a folder of your own",
          path.at, why);
    else {
      str_clear(&path);
      str_add(&path, real);
      HP_TRY_GOTO(str_status(&path), st);
      if (!(c.dir = str_take(&path))) st = HP_ERR_OOM;
    }
  }
done:
  str_free(&path);
  if (!st) *out = c;
  return st;
}

static void release_lock(jit_cache *c) {
  if (c->lock >= 0) close(c->lock); /* releases the lock */
  c->lock = -1;
}

void jit_cache_close(jit_cache *c) {
  release_lock(c);
  if (c->work && (!c->dir || strcmp(c->work, c->dir)) && dir_remove(c->work)) err_clear();
  mem_free(c->work);
  mem_free(c->dir);
  *c = (jit_cache){.lock = -1};
}

hp_status jit_cache_file(const str *text, const char *end, str *path) {
  jit_cache c;
  char hex[33];
  HP_TRY(str_status(text));
  HP_TRY(jit_cache_open(NULL, &c));
  hash_hex(hash_bytes128(text->at, text->len), hex);
  if (c.dir) str_printf(path, "%s/%s.%s", c.dir, hex, end);
  jit_cache_close(&c);
  return str_status(path);
}

static hp_status make_private_dir(jit_cache *c) {
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

/* Removes files of killed builds.  A build takes seconds. */
static void sweep_dir(const char *dir) {
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
    /* a file system without locks: two processes may compile the same */
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
    HP_TRY(make_private_dir(c));
  }
  if (c->dir && !strcmp(c->work, c->dir)) {
    take_lock(c, lock_ms);
    sweep_dir(c->dir);
  }
  return HP_OK;
}

/* --- files ------------------------------------------------------------------------------------ */

static void key_path(const char *dir, hash128 key, str *path) {
  char hex[33];
  hash_hex(key, hex);
  str_clear(path);
  str_printf(path, "%s/%s.so", dir, hex);
}

/* An open file of the cache: the file that is checked is the one that is loaded, even if its
 * name is reused. */
typedef struct {
  int fd;
  struct stat s;
} object_file;

/* Opens a file that belongs to us; a file opened for writing gets our permissions, with any
 * umask. */
static bool open_own(const char *path, int flags, object_file *out) {
  object_file f = {.fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
  if (f.fd >= 0 && flags == O_RDWR && fchmod(f.fd, 0700)) errno = 0; /* fstat checks the owner */
  bool own = f.fd >= 0 && !fstat(f.fd, &f.s) && S_ISREG(f.s.st_mode) && f.s.st_uid == geteuid() &&
             !others_write(&f.s) && f.s.st_size <= OBJECT_MAX;
  if (own) *out = f;
  else if (f.fd >= 0) close(f.fd);
  return own;
}

/* True if the file is complete and matches its seal. */
static bool is_sealed(const object_file *f) {
  size_t n = (size_t)f->s.st_size;
  seal found, want;
  if (n <= sizeof found) return false;
  const char *at = mmap(NULL, n, PROT_READ, MAP_PRIVATE, f->fd, 0);
  if (at == MAP_FAILED) return false;
  memcpy(&found, at + n - sizeof found, sizeof found);
  want = seal_of(at, n - sizeof found);
  munmap((void *)(uintptr_t)at, n);
  return !memcmp(&found, &want, sizeof found);
}

/* A unique name of an open file: the loader identifies libraries by name, and file descriptors
 * are reused.  So device and inode, which are unique while the file is loaded, are encoded in
 * slashes and dots. */
static void name_open(const object_file *f, str *out) {
  const uint64_t id[2] = {(uint64_t)f->s.st_dev, (uint64_t)f->s.st_ino};
  str_add(out, "/proc/self/fd");
  for (int i = 0; i < 2; i++)
    for (int bit = 0; bit < 64; bit++) str_add(out, id[i] >> bit & 1 ? "/." : "/");
  str_printf(out, "/%d", f->fd);
}

static void *load_open(const object_file *f) {
  str name = {0};
  name_open(f, &name);
  void *so = str_status(&name) ? NULL : dlopen(name.at, RTLD_NOW | RTLD_LOCAL);
  str_free(&name);
  return so;
}

/* Loads a copy in memory: for folders that are mounted noexec. */
static void *load_copy(const object_file *f) {
  object_file copy = {.fd = memfd_create("hyper-kernels", MFD_CLOEXEC)};
  void *so = NULL;
  off_t at = 0;
  if (copy.fd < 0) return NULL;
  while (at < f->s.st_size)
    if (sendfile(copy.fd, f->fd, &at, (size_t)(f->s.st_size - at)) <= 0) break;
  if (at == f->s.st_size && !fstat(copy.fd, &copy.s)) so = load_open(&copy);
  close(copy.fd);
  return so;
}

/* By name only if there is no other way. */
static void *load_object(const jit_cache *c, const object_file *f, const char *path) {
  void *so = c->by_name ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : load_open(f);
  return so || c->by_name ? so : load_copy(f);
}

static void *find_function(void *so, hash128 key) {
  char hex[33], name[48];
  hash_hex(key, hex);
  snprintf(name, sizeof name, "hp_k_%s", hex);
  return dlsym(so, name);
}

void *jit_cache_find(const jit_cache *c, hash128 key) {
  str path = {0};
  object_file f;
  void *so = NULL;
  if (!c->dir) return NULL;
  key_path(c->dir, key, &path);
  if (!str_status(&path) && open_own(path.at, O_RDONLY, &f)) {
    if (is_sealed(&f)) so = load_object(c, &f, path.at);
    close(f.fd);
  }
  str_free(&path);
  return so ? find_function(so, key) : NULL;
}

/* Links a file to the name `to` atomically, replacing any file there. */
static void publish_file(const char *from, const char *to) {
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
  unlink(temp.at); /* still exists if both names were one file already */
  str_free(&temp);
}

static hp_status seal_object(const char *path, const object_file *f) {
  size_t n = (size_t)f->s.st_size;
  const char *at = n ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, f->fd, 0) : "";
  if (at == MAP_FAILED) HP_FAIL(HP_ERR_IO, "%s: cannot map: %s", path, strerror(errno));
  seal s = seal_of(at, n);
  if (n) munmap((void *)(uintptr_t)at, n);
  if (pwrite(f->fd, &s, sizeof s, (off_t)n) != (ssize_t)sizeof s)
    HP_FAIL(HP_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
  return HP_OK;
}

static hp_status open_object(const char *path, object_file *out) {
  if (!open_own(path, O_RDWR, out))
    HP_FAIL(HP_ERR_IO, "%s: cannot open what the compiler wrote, or it is not ours", path);
  hp_status st = seal_object(path, out);
  if (!st && fstat(out->fd, &out->s)) st = HP_ERR_IO;
  if (st) close(out->fd);
  return st;
}

hp_status jit_cache_add(const jit_cache *c, const char *object, const hash128 *key, int n,
                        void **fn) {
  str path = {0};
  hp_status st = HP_OK;
  object_file f = {.fd = -1};
  void *so;
  HP_TRY_GOTO(open_object(object, &f), st);
  so = load_object(c, &f, object);
  if (!so) {
    const char *why = dlerror();
    HP_FAIL_GOTO(st, HP_ERR_IO, "%s: cannot load: %s", object, why ? why : "unknown reason");
  }
  for (int i = 0; i < n; i++) {
    fn[i] = find_function(so, key[i]);
    if (!fn[i]) HP_FAIL_GOTO(st, HP_ERR_INTERNAL, "%s: a kernel is missing in it", object);
  }
  for (int i = 0; c->dir && !strcmp(c->work, c->dir) && i < n; i++) {
    key_path(c->dir, key[i], &path);
    HP_TRY_GOTO(str_status(&path), st);
    publish_file(object, path.at);
  }
done:
  if (f.fd >= 0) close(f.fd);
  unlink(object);
  str_free(&path);
  return st;
}
