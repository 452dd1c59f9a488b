#include "ckpt/manifest.h"

#include "base/io.h"
#include "base/json.h"
#include "base/milestone.h"
#include "base/sealed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MANIFEST_BYTES_MAX = 64 << 20, STEP = 1 << 20, HASH_LINE = 33 };

#define RESTORE "; restore it from a copy, or use another checkpoint"

/* --- the file --------------------------------------------------------------------------------- */

hp_status manifest_find(const char *dir, bool *there) {
  str path = {0};
  *there = false;
  hp_status st = path_join(&path, dir, MANIFEST_NAME);
  if (!st) st = path_look(path.at, there);
  str_free(&path);
  return st;
}

hp_status manifest_check_target(const char *dir) {
  bool there;
  HP_TRY(manifest_find(dir, &there));
  if (there)
    HP_FAIL(HP_ERR_INPUT,
            "%s: is a checkpoint of a run (it has a " MANIFEST_NAME
            "), which is damaged when anything else is written there; choose another folder",
            dir);
  return HP_OK;
}

/* Refuses a path that is not a regular file: retrying would not help. */
static hp_status check_is_file(const char *path) {
  struct stat s;
  if (stat(path, &s)) {
    if (errno == ENOENT || errno == ELOOP)
      HP_FAIL(HP_ERR_INPUT, "%s: is missing, or a link that leads nowhere" RESTORE, path);
    HP_FAIL(HP_ERR_IO, "%s: cannot be looked at: %s", path, strerror(errno));
  }
  if (!S_ISREG(s.st_mode)) HP_FAIL(HP_ERR_INPUT, "%s: is not a file" RESTORE, path);
  return HP_OK;
}

hp_status manifest_read(const char *dir, tree *out) {
  str path = {0};
  char *text = NULL;
  size_t len, body = 0;
  hp_status st = path_join(&path, dir, MANIFEST_NAME);
  if (!st) st = check_is_file(path.at);
  if (!st) st = file_read(path.at, MANIFEST_BYTES_MAX, &text, &len);
  if (!st) st = sealed_check(path.at, text, len, &body);
  if (!st) st = json_parse(text, body, path.at, out);
  mem_free(text);
  str_free(&path);
  return st;
}

/* --- one file of it --------------------------------------------------------------------------- */

/* What the manifest says of a file. */
typedef struct {
  const char *name;
  uint64_t bytes;
  const char *hex;
} listed;

static hp_status read_listed(const tree_node *f, listed *out) {
  int64_t bytes;
  *out = (listed){.name = f->key};
  HP_TRY(tree_need_int(f, "bytes", &bytes));
  HP_TRY(tree_need_string(f, "xxh3_128", &out->hex));
  if (strchr(f->key, '/')) TREE_FAIL(f, "a file name with a slash");
  if (bytes < 0) TREE_FAIL(f, "a file of %lld bytes", (long long)bytes);
  out->bytes = (uint64_t)bytes;
  return HP_OK;
}

static bool is_text(const listed *l) {
  static const char end[] = ".safetensors";
  size_t n = strlen(l->name), m = sizeof end - 1;
  return n < m || strcmp(l->name + n - m, end) != 0;
}

static hp_status fail_wrong_size(const char *path, uint64_t have, const listed *l) {
  HP_FAIL(HP_ERR_INPUT, "%s: has %llu bytes, the manifest says %llu; it is damaged" RESTORE, path,
          (unsigned long long)have, (unsigned long long)l->bytes);
}

static hp_status check_size(const char *path, const listed *l) {
  struct stat s;
  if (stat(path, &s)) {
    if (errno == ENOENT || errno == ELOOP || errno == ENAMETOOLONG)
      HP_FAIL(HP_ERR_INPUT, "%s: is missing, the manifest names it" RESTORE, path);
    HP_FAIL(HP_ERR_IO, "%s: cannot be looked at: %s", path, strerror(errno));
  }
  if (!S_ISREG(s.st_mode)) HP_FAIL(HP_ERR_INPUT, "%s: is not a file, the manifest names one", path);
  return (uint64_t)s.st_size == l->bytes ? HP_OK : fail_wrong_size(path, (uint64_t)s.st_size, l);
}

static hp_status check_hash(const char *path, const listed *l, hash128 have) {
  char hex[HASH_LINE];
  hash_hex(have, hex);
  if (strcmp(hex, l->hex))
    HP_FAIL(HP_ERR_INPUT, "%s: its hash does not match the manifest; it is damaged" RESTORE, path);
  return HP_OK;
}

/* Read, not mapped: a truncation meanwhile is then an ordinary failure. */
static hp_status hash_open_file(int fd, const char *path, const listed *l, char *room,
                                const atomic_bool *stop) {
  hash_stream *s;
  uint64_t bytes = 0;
  hp_status st = HP_OK;
  HP_TRY(hash_stream_create(&s));
  (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  for (ssize_t n; !(stop && *stop);) {
    n = read(fd, room, STEP);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) HP_FAIL_GOTO(st, HP_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
    if (n == 0) break;
    hash_stream_add(s, room, (size_t)n);
    milestone_count_work();
    bytes += (uint64_t)n;
  }
  if (stop && *stop) goto done;
  st =
      bytes == l->bytes ? check_hash(path, l, hash_stream_get(s)) : fail_wrong_size(path, bytes, l);
done:
  hash_stream_free(s);
  return st;
}

/* Reads the file; stop: NULL, or a flag that ends it early, with HP_OK. */
static hp_status check_content(const char *path, const listed *l, const atomic_bool *stop) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) HP_FAIL(HP_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
  char *room = mem_calloc(STEP, 1);
  hp_status st = room ? hash_open_file(fd, path, l, room, stop) : HP_ERR_OOM;
  mem_free(room);
  close(fd);
  return st;
}

/* --- all of them ------------------------------------------------------------------------------ */

static hp_status check_name(const char *dir, const char *name, const tree_node *files) {
  struct stat s;
  str path = {0};
  if (*name == '.' || !strcmp(name, MANIFEST_NAME) || tree_get(files, name)) return HP_OK;
  HP_TRY(path_join(&path, dir, name));
  hp_status st = HP_OK;
  if (lstat(path.at, &s)) {
    if (errno != ENOENT) /* else it was removed meanwhile */
      st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot be looked at: %s", path.at,
                   strerror(errno));
  } else if (!S_ISDIR(s.st_mode))
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: is not in the manifest, which names all files of the checkpoint; move it "
                 "elsewhere, if it does not belong to another checkpoint in this folder",
                 path.at);
  str_free(&path);
  return st;
}

/* Files that the manifest does not name. */
static hp_status check_names(const char *dir, const tree_node *files) {
  DIR *d = opendir(dir);
  if (!d) HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", dir, strerror(errno));
  hp_status st = HP_OK;
  for (struct dirent *e; !st && !(st = dir_next(d, dir, &e)) && e;)
    st = check_name(dir, e->d_name, files);
  closedir(d);
  return st;
}

/* One file: its size and, if requested, its content. */
static hp_status check_file(const char *dir, const tree_node *f, bool all) {
  listed l;
  str path = {0};
  HP_TRY(read_listed(f, &l));
  hp_status st = path_join(&path, dir, l.name);
  if (!st) st = check_size(path.at, &l);
  if (!st && (all || is_text(&l))) st = check_content(path.at, &l, NULL);
  str_free(&path);
  return st;
}

static hp_status verify_files(const char *dir, const tree *manifest, bool all) {
  const tree_node *files;
  HP_TRY(tree_expect(manifest->root, TREE_MAP));
  HP_TRY(tree_need_map(manifest->root, "files", &files));
  for (uint32_t i = 0; i < files->len; i++) HP_TRY(check_file(dir, files->child[i], all));
  return check_names(dir, files);
}

hp_status manifest_verify(const char *dir, const tree *manifest) {
  return verify_files(dir, manifest, true);
}

hp_status manifest_verify_texts(const char *dir) {
  tree manifest;
  bool there;
  HP_TRY(manifest_find(dir, &there));
  if (!there) return HP_OK;
  HP_TRY(manifest_read(dir, &manifest));
  hp_status st = verify_files(dir, &manifest, false);
  tree_free(&manifest);
  return st;
}

/* --- besides loading ---------------------------------------------------------------------------
 */

typedef struct {
  listed l;
  bool claimed, done;
} tensor_file;

struct manifest_check {
  tree manifest;
  char *dir;
  tensor_file *file; /* tensor files */
  size_t n;
  pthread_t thread;
  bool started;
  atomic_bool stop;
  hp_status st; /* of the thread, with its report */
  err_report why;
};

static void free_check(manifest_check *c) {
  tree_free(&c->manifest);
  mem_free(c->dir);
  mem_free(c->file);
  mem_free(c);
}

static hp_status list_tensor_files(manifest_check *c) {
  const tree_node *files;
  HP_TRY(tree_need_map(c->manifest.root, "files", &files));
  c->file = mem_calloc((size_t)files->len + 1, sizeof *c->file);
  HP_TRY_MEM(c->file);
  for (uint32_t i = 0; i < files->len; i++) {
    listed l;
    HP_TRY(read_listed(files->child[i], &l));
    if (!is_text(&l)) c->file[c->n++].l = l;
  }
  return HP_OK;
}

hp_status manifest_check_begin(const char *dir, manifest_check **out) {
  str copy = {0};
  bool there;
  *out = NULL;
  HP_TRY(manifest_find(dir, &there));
  if (!there) return HP_OK;
  manifest_check *c = mem_calloc(1, sizeof *c);
  HP_TRY_MEM(c);
  str_add(&copy, dir);
  c->dir = str_take(&copy);
  hp_status st = c->dir ? manifest_read(dir, &c->manifest) : HP_ERR_OOM;
  if (!st) st = verify_files(dir, &c->manifest, false);
  if (!st) st = list_tensor_files(c);
  if (st) free_check(c);
  else *out = c;
  return st;
}

static tensor_file *find_file(manifest_check *c, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  for (size_t i = 0; i < c->n; i++)
    if (!strcmp(c->file[i].l.name, name)) return &c->file[i];
  return NULL;
}

void manifest_check_claim(manifest_check *c, const char *path) {
  tensor_file *f = c ? find_file(c, path) : NULL;
  if (f) f->claimed = true;
}

hp_status manifest_check_give(manifest_check *c, const char *path, hash128 hash) {
  tensor_file *f = c ? find_file(c, path) : NULL;
  if (!f) return HP_OK;
  f->done = true;
  return check_hash(path, &f->l, hash);
}

/* The claimed files, or the others. */
static hp_status check_contents(manifest_check *c, bool claimed) {
  str path = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; i < c->n && !st; i++) {
    tensor_file *f = &c->file[i];
    if (f->claimed != claimed || f->done) continue;
    st = path_join(&path, c->dir, f->l.name);
    if (!st) st = check_content(path.at, &f->l, &c->stop);
  }
  str_free(&path);
  return st;
}

static void *run_check(void *arg) {
  manifest_check *c = arg;
  c->st = check_contents(c, false);
  if (c->st) err_take(c->st, &c->why);
  return NULL;
}

hp_status manifest_check_start(manifest_check *c) {
  if (!c) return HP_OK;
  c->started = !pthread_create(&c->thread, NULL, run_check, c);
  if (!c->started) HP_FAIL(HP_ERR_DEVICE, "cannot start the thread that verifies %s", c->dir);
  return HP_OK;
}

/* Takes the result of the thread and checks the remaining files; without a thread, all files. */
static hp_status finish_check(manifest_check *c, bool failed) {
  if (c->started) pthread_join(c->thread, NULL);
  if (c->st) return err_give(&c->why);
  if (failed && !c->started) HP_TRY(check_contents(c, false));
  return check_contents(c, true);
}

hp_status manifest_check_end(manifest_check *c, hp_status loaded) {
  err_report why;
  if (!c) return loaded;
  bool by_damage = loaded == HP_ERR_INPUT || loaded == HP_ERR_UNSUPPORTED;
  if (loaded) err_take(loaded, &why);
  if (loaded && !by_damage) c->stop = true;
  hp_status st = finish_check(c, loaded != HP_OK);
  free_check(c);
  if (!loaded || (st && by_damage)) return st;
  err_clear();
  return err_give(&why);
}
