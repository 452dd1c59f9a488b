#include "ckpt/checkpoint.h"

#include "base/file_record.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/random.h"
#include "base/sealed.h"
#include "base/vec.h"
#include "ckpt/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char sums_prefix[] = ".sums-";
enum { FORMAT = 1 };
static const int64_t steps_max = (int64_t)1 << 60;

/* --- lock ------------------------------------------------------------------------------------- */

struct run_lock {
  int fd;
  char *path;  /* of the file; after its removal, of the folder */
  size_t made; /* length of the outermost folder of path that was created for it; 0 = none */
};

/* Creates the folder of l->path, whose name has this length. */
static hp_status make_folder(run_lock *l, size_t folder) {
  for (size_t i = 1; i <= folder && !l->made; i++) {
    char c = l->path[i];
    if (c != '/') continue;
    l->path[i] = 0;
    if (!path_exists(l->path)) l->made = i;
    l->path[i] = c;
  }
  l->path[folder] = 0;
  hp_status st = dir_create(l->path);
  l->path[folder] = '/';
  return st;
}

enum { HOLDER = 32 + HOST_NAME_MAX };

/* The holder in the file, "PID on HOST"; "" if it has none. */
static void read_holder(const run_lock *l, char holder[HOLDER]) {
  ssize_t n = pread(l->fd, holder, HOLDER - 1, 0);
  holder[n > 0 ? n : 0] = 0;
  holder[strcspn(holder, "\n")] = 0;
}

static void write_holder(const run_lock *l) {
  char holder[HOLDER], host[HOST_NAME_MAX + 1] = "", before[HOLDER];
  if (gethostname(host, sizeof host - 1)) host[0] = 0;
  read_holder(l, before);
  const char *other = strstr(before, " on ");
  if (other && strcmp(other + 4, host))
    log_warn("%s: process %s has not ended its run here, and holds the lock no more; it is taken "
             "for dead (on a file system that does not carry locks from machine to machine, see "
             "to it that it is)",
             l->path, before);
  int n = snprintf(holder, sizeof holder, "%ld on %s\n", (long)getpid(), host);
  if (ftruncate(l->fd, 0) || pwrite(l->fd, holder, (size_t)n, 0) != n) {
    /* the lock is held all the same */
  }
}

/* Opens and locks the file, again if its holder has removed it meanwhile.  A lock by fcntl
 * belongs to this process only: a compiler started by it does not inherit it. */
static hp_status lock_file(run_lock *l) {
  struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  struct stat mine, there;
  char holder[HOLDER];
  for (;;) {
    l->fd = open(l->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (l->fd < 0 && errno == ELOOP)
      HP_FAIL(HP_ERR_IO, "%s: is a symbolic link, a file was expected; remove it", l->path);
    if (l->fd < 0) HP_FAIL(HP_ERR_IO, "%s: cannot create: %s", l->path, strerror(errno));
    if (fcntl(l->fd, F_SETLK, &all)) {
      if (errno != EACCES && errno != EAGAIN)
        HP_FAIL(HP_ERR_IO, "%s: cannot be locked: %s", l->path, strerror(errno));
      read_holder(l, holder);
      HP_FAIL(HP_ERR_INPUT,
              "%s: another run (process %s) writes to this folder; wait for it or choose another "
              "output_dir",
              l->path, *holder ? holder : "?");
    }
    if (!fstat(l->fd, &mine) && !stat(l->path, &there) && mine.st_ino == there.st_ino) break;
    close(l->fd);
  }
  write_holder(l);
  return HP_OK;
}

/* Removes the empty ones of the folders that were created for the lock, whose file is l->path. */
static void remove_folders(run_lock *l) {
  char *slash;
  while ((slash = strrchr(l->path, '/')) && (size_t)(slash - l->path) >= l->made && l->made) {
    *slash = 0;
    if (rmdir(l->path) && errno != ENOENT) return;
  }
}

hp_status run_lock_take(const char *out_dir, run_lock **out) {
  str path = {0};
  run_lock *l = mem_calloc(1, sizeof *l);
  HP_TRY_MEM(l);
  l->fd = -1;
  hp_status st = path_join(&path, out_dir, "run.lock");
  if (!st && !(l->path = str_take(&path))) st = HP_ERR_OOM;
  if (!st) st = make_folder(l, (size_t)(strrchr(l->path, '/') - l->path));
  if (!st) st = lock_file(l);
  if (st) {
    /* the file stays: another process may have opened and locked it */
    if (l->fd < 0 && l->path) remove_folders(l);
    if (l->fd >= 0) close(l->fd);
    mem_free(l->path);
    mem_free(l);
  } else {
    *out = l;
  }
  str_free(&path);
  return st;
}

typedef enum { OWN, GONE, UNKNOWN } lock_file_state;

/* Is the file of that name the locked one?  Safe in a signal handler. */
static lock_file_state find_own(const run_lock *l) {
  struct stat mine, there;
  if (fstat(l->fd, &mine)) return UNKNOWN;
  if (stat(l->path, &there)) return errno == ENOENT ? GONE : UNKNOWN;
  return mine.st_ino == there.st_ino && mine.st_dev == there.st_dev ? OWN : GONE;
}

void run_lock_remove(run_lock *l) {
  if (find_own(l) == GONE) return; /* the folder belongs to another run */
  unlink(l->path);
  remove_folders(l);
}

hp_status run_lock_keep(run_lock *l) {
  run_lock next = *l;
  if (find_own(l) != GONE) return HP_OK;
  hp_status st = lock_file(&next);
  if (!st) log_warn("%s: was gone while the run went on; it is taken again", l->path);
  int unused = st ? next.fd : l->fd;
  if (unused >= 0) close(unused);
  if (!st) l->fd = next.fd;
  if (st != HP_ERR_IO) return st;
  err_clear(); /* no folder or no space: later writes will report it */
  return HP_OK;
}

void run_lock_free(run_lock *l) {
  if (!l) return;
  run_lock_remove(l);
  close(l->fd);
  mem_free(l->path);
  mem_free(l);
}

/* --- folders ---------------------------------------------------------------------------------- */

hp_status checkpoint_path(const char *out_dir, int64_t step, str *path) {
  char name[48];
  snprintf(name, sizeof name, "checkpoint-%lld", (long long)step);
  return path_join(path, out_dir, name);
}

/* Files that cannot be removed (open on another machine, immutable) do not fail a run. */
static void remove_left(const char *path) {
  if (!dir_remove(path)) return;
  log_warn("%s; what a dead run left there stays", err_message());
  err_clear();
}

/* OUT/.was-checkpoint-N, which a save was replacing on a file system that cannot swap names: the
 * save died before or after the new one got the name. */
static hp_status put_back(const char *out_dir, const char *hidden) {
  str path = {0}, name = {0};
  hp_status st = path_join(&path, out_dir, hidden);
  if (!st) st = path_join(&name, out_dir, hidden + sizeof ".was-" - 1);
  if (!st && path_exists(name.at)) remove_left(path.at);
  else if (!st && rename(path.at, name.at))
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot rename %s back to it: %s", name.at,
                 path.at, strerror(errno));
  str_free(&path);
  str_free(&name);
  return st;
}

static bool starts_with(const char *text, const char *start) {
  return !strncmp(text, start, strlen(start));
}

hp_status checkpoint_clean(const char *out_dir) {
  DIR *d = opendir(out_dir);
  if (!d) HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", out_dir, strerror(errno));
  hp_status st = HP_OK;
  str path = {0};
  for (struct dirent *e; !st && !(st = dir_next(d, out_dir, &e)) && e;) {
    if (starts_with(e->d_name, ".was-checkpoint-")) st = put_back(out_dir, e->d_name);
    if (!starts_with(e->d_name, ".tmp-checkpoint-") && !starts_with(e->d_name, ".old-checkpoint-"))
      continue;
    st = path_join(&path, out_dir, e->d_name);
    if (!st) remove_left(path.at);
  }
  closedir(d);
  str_free(&path);
  return st ? st : dir_remove_leftovers(out_dir, true);
}

/* --- saving ----------------------------------------------------------------------------------- */

static hp_status write_files(const char *dir, const checkpoint_content *c) {
  str path = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < c->n_text; i++) {
    st = path_join(&path, dir, c->text[i].name);
    if (!st) st = file_write(path.at, c->text[i].bytes, c->text[i].len);
  }
  str_free(&path);
  return st;
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef VEC(char *) name_list;

/* Names of the files in dir, sorted; strings are of `mem`. */
static hp_status list_files(const char *dir, arena *mem, name_list *out) {
  DIR *d = opendir(dir);
  if (!d) HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", dir, strerror(errno));
  hp_status st = HP_OK;
  for (struct dirent *e; !st && !(st = dir_next(d, dir, &e)) && e;) {
    if (e->d_name[0] == '.' || !strcmp(e->d_name, MANIFEST_NAME)) continue;
    char *name = arena_strdup(mem, e->d_name);
    if (!name || !vec_push(out, name)) st = HP_ERR_OOM;
  }
  closedir(d);
  if (!st && out->len) qsort(out->at, out->len, sizeof *out->at, by_name);
  return st;
}

/* The intended size and hash of a file, from its writer; the file must exist with that size. */
static hp_status need_sum(const file_record *r, const char *dir, const char *name,
                          const file_sum **out) {
  struct stat there;
  str path = {0};
  const file_sum *s = file_record_find(r, name);
  if (!s)
    HP_FAIL(HP_ERR_IO, "%s/%s: is there, but no process of this run has written it", dir, name);
  HP_TRY(path_join(&path, dir, name));
  hp_status st = HP_OK;
  if (stat(path.at, &there))
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: was written and is gone: %s", path.at,
                 strerror(errno));
  else if ((uint64_t)there.st_size != s->bytes)
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: has %lld bytes, %llu were written", path.at,
                 (long long)there.st_size, (unsigned long long)s->bytes);
  str_free(&path);
  if (!st) *out = s;
  return st;
}

/* "files": {name: {"bytes": n, "xxh3_128": hex}}, from the data written, not from the files. */
static hp_status print_files(const char *dir, const file_record *r, str *out) {
  arena mem = {0};
  name_list names = {0};
  hp_status st = list_files(dir, &mem, &names);
  if (!st && names.len < file_record_count(r))
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: holds %zu files, %zu were written", dir,
                 names.len, file_record_count(r));
  str_add(out, "\"files\": {");
  for (size_t i = 0; !st && i < names.len; i++) {
    const file_sum *s = NULL;
    char hex[33];
    st = need_sum(r, dir, names.at[i], &s);
    if (st) break;
    hash_hex(s->hash, hex);
    str_printf(out, "%s\n\"%s\": {\"bytes\": %llu, \"xxh3_128\": \"%s\"}", i ? "," : "", s->name,
               (unsigned long long)s->bytes, hex);
  }
  str_add(out, "}");
  vec_free(&names);
  arena_free(&mem);
  return st;
}

/* {"format": 1, "step": N, "line": ID, "parents": [...], "state": {...}, "files": {...}}, sealed.
 */
static hp_status print_manifest(const char *dir, const checkpoint_content *c, const file_record *r,
                                str *out) {
  str_printf(out, "{\"format\": %d, \"step\": %lld,\n", FORMAT, (long long)c->step);
  if (c->line) run_line_print(c->line, out);
  str_printf(out, "\"state\": %s,\n", c->state);
  HP_TRY(print_files(dir, r, out));
  str_add(out, "}\n");
  sealed_close(out);
  return str_status(out);
}

/* Swaps two folders atomically; false: the file system cannot. */
static bool swap_folders(const char *a, const char *b) {
  return !renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

/* In two steps, between which neither has the name; checkpoint_clean restores it. */
static hp_status replace_folder(const char *temp, const char *path, const char *old) {
  HP_TRY(dir_remove(old));
  if (rename(path, old)) HP_FAIL(HP_ERR_IO, "%s: cannot be replaced: %s", path, strerror(errno));
  if (!rename(temp, path)) return HP_OK;
  hp_status st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot rename %s to it: %s", path,
                         temp, strerror(errno));
  if (rename(old, path)) { /* it cannot be restored: the first message says why */
  }
  return st;
}

/* Is that a checkpoint of this run, which may be replaced?  If not, HP_ERR_INPUT says so, or the
 * failure to read it. */
static hp_status check_own(const char *path, const checkpoint_content *c) {
  checkpoint old;
  run_line line = {0};
  HP_TRY(checkpoint_open(path, &old));
  hp_status st = run_line_parse(old.manifest.root, &line);
  if (!st && old.step != c->step)
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__, "%s: holds step %lld, which its name is not",
                 path, (long long)old.step);
  else if (!st && c->line && !run_line_has(c->line, line.id, c->step))
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__, "%s: is a checkpoint of another run", path);
  run_line_free(&line);
  checkpoint_free(&old);
  return st;
}

/* OUT/replaced-checkpoint-N, with a number appended if that name exists. */
static hp_status choose_replaced(const char *out_dir, int64_t step, str *to) {
  bool there = true;
  for (int n = 1; there; n++) {
    str_clear(to);
    str_printf(to, "%s/replaced-checkpoint-%lld", out_dir, (long long)step);
    if (n > 1) str_printf(to, "-%d", n);
    HP_TRY(str_status(to));
    HP_TRY(path_look(to->at, &there));
  }
  return HP_OK;
}

static hp_status may_commit(const checkpoint_content *c) {
  return c->may_commit ? c->may_commit(c->ctx) : HP_OK;
}

/* If the name is taken by something that is not known to belong to this run, renames that.
 * *there: is anything left to be replaced? */
static hp_status move_foreign(const char *out_dir, const char *path, const checkpoint_content *c,
                              bool *there) {
  err_report why;
  str to = {0};
  *there = path_exists(path);
  hp_status st = *there ? check_own(path, c) : HP_OK;
  if (!st || st == HP_ERR_OOM) return st;
  err_take(st, &why);
  st = choose_replaced(out_dir, c->step, &to);
  if (!st) st = may_commit(c);
  if (!st && rename(path, to.at))
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot be moved to %s: %s", path, to.at,
                 strerror(errno));
  *there = st != HP_OK;
  if (!st)
    log_warn("%s; it is now %s, as this run writes a checkpoint of that name", why.message, to.at);
  str_free(&to);
  return st;
}

/* Deletes the replaced one; if this fails it costs space, not the save. */
static void remove_replaced(const char *path) {
  if (!dir_remove(path)) return;
  log_warn("%s; what is left of the checkpoint that was replaced stays until a run begins there",
           err_message());
  err_clear();
}

/* Replaces the committed folder by the finished temporary one. */
static hp_status commit_folder(const char *out_dir, const char *temp, const checkpoint_content *c) {
  str path = {0}, old = {0};
  bool there = false;
  hp_status st = checkpoint_path(out_dir, c->step, &path);
  str_printf(&old, "%s/.was-checkpoint-%lld", out_dir, (long long)c->step);
  if (!st) st = str_status(&old);
  if (!st) st = move_foreign(out_dir, path.at, c, &there);
  if (!st) st = may_commit(c);
  bool swapped = !st && there && swap_folders(temp, path.at);
  if (!st && there && !swapped) st = replace_folder(temp, path.at, old.at);
  if (!st && !there && rename(temp, path.at))
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot rename %s to it: %s", path.at, temp,
                 strerror(errno));
  if (!st) st = dir_sync(out_dir);
  if (!st && there) remove_replaced(swapped ? temp : old.at);
  else if (st && swapped && !swap_folders(temp, path.at)) { /* restores the old one */ }
  str_free(&path);
  str_free(&old);
  return st;
}

/* The other processes pass the lists of their files to the process that commits. */
static hp_status leave_sums(const char *temp, const file_record *r) {
  str path = {0};
  uint32_t number[2];
  HP_TRY(random_bytes(number, sizeof number));
  str_printf(&path, "%s/%s%08x%08x", temp, sums_prefix, number[0], number[1]);
  hp_status st = str_status(&path);
  if (!st) st = file_record_save(r, path.at);
  str_free(&path);
  return st;
}

static hp_status take_sums(const char *temp, file_record *r) {
  DIR *d = opendir(temp);
  if (!d) HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", temp, strerror(errno));
  hp_status st = HP_OK;
  str path = {0};
  for (struct dirent *e; !st && !(st = dir_next(d, temp, &e)) && e;) {
    if (strncmp(e->d_name, sums_prefix, sizeof sums_prefix - 1)) continue;
    st = path_join(&path, temp, e->d_name);
    if (!st) st = file_record_merge(r, path.at);
    if (!st && unlink(path.at))
      st =
          err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot remove: %s", path.at, strerror(errno));
  }
  closedir(d);
  str_free(&path);
  return st;
}

/* The work of a single process: all files except tensors, the manifest and the commit. */
static hp_status finish_folder(const char *out_dir, const char *temp, const checkpoint_content *c,
                               file_record *r) {
  str path = {0}, manifest = {0};
  hp_status st = write_files(temp, c);
  if (!st) st = take_sums(temp, r);
  if (!st) st = dir_sync(temp);
  if (!st) st = print_manifest(temp, c, r, &manifest);
  if (!st) st = path_join(&path, temp, MANIFEST_NAME);
  if (!st) st = file_write(path.at, manifest.at, manifest.len);
  if (!st) st = commit_folder(out_dir, temp, c);
  str_free(&path);
  str_free(&manifest);
  return st;
}

static hp_status agree_on_status(const checkpoint_content *c, hp_status mine) {
  return c->agree ? c->agree(c->ctx, mine) : mine;
}

static hp_status begin_folder(const char *temp) {
  HP_TRY(dir_remove(temp));
  return dir_create_new(temp);
}

/* The shards of this process; r: its files. */
static hp_status write_own(const checkpoint_content *c, const char *temp, const file_record *r) {
  if (c->write) HP_TRY(c->write(c->ctx, temp));
  return c->follows && file_record_count(r) ? leave_sums(temp, r) : HP_OK;
}

static hp_status save_together(const char *out_dir, const char *temp, const checkpoint_content *c) {
  file_record *r = NULL;
  bool leads = !c->follows;
  hp_status st = leads ? begin_folder(temp) : HP_OK;
  if (!st) st = file_record_begin(temp, &r);
  st = agree_on_status(c, st);
  if (!st) st = agree_on_status(c, write_own(c, temp, r));
  if (!st) st = agree_on_status(c, leads ? finish_folder(out_dir, temp, c, r) : HP_OK);
  file_record_end(r);
  return st;
}

hp_status checkpoint_save(const char *out_dir, const checkpoint_content *c) {
  str temp = {0};
  str_printf(&temp, "%s/.tmp-checkpoint-%lld-%lld", out_dir, (long long)c->step, (long long)c->run);
  HP_TRY(str_status(&temp));
  hp_status st = save_together(out_dir, temp.at, c);
  if (st && !c->follows) { /* keep the first message */
    err_report why;
    err_take(st, &why);
    if (dir_remove(temp.at)) err_clear();
    st = err_give(&why);
  }
  str_free(&temp);
  return st;
}

/* --- finding ---------------------------------------------------------------------------------- */

static hp_status read_head(checkpoint *c) {
  const tree_node *root = c->manifest.root;
  int64_t format;
  HP_TRY(tree_expect(root, TREE_MAP));
  HP_TRY(tree_need_int(root, "format", &format));
  if (format != FORMAT)
    TREE_FAIL(root, "format %lld; this version reads format %d", (long long)format, FORMAT);
  HP_TRY(tree_need_int(root, "step", &c->step));
  if (c->step < 0 || c->step > steps_max)
    TREE_FAIL(tree_get(root, "step"), "is %lld, expected the number of a step", (long long)c->step);
  return HP_OK;
}

hp_status checkpoint_open(const char *path, checkpoint *out) {
  checkpoint c = {0};
  str own = {0};
  bool there;
  HP_TRY(manifest_find(path, &there));
  if (!there) HP_FAIL(HP_ERR_INPUT, "%s: is not a checkpoint: it has no %s", path, MANIFEST_NAME);
  str_add(&own, path);
  hp_status st = (c.path = str_take(&own)) ? HP_OK : HP_ERR_OOM;
  if (!st) st = manifest_read(path, &c.manifest);
  if (!st) st = read_head(&c);
  if (st) checkpoint_free(&c);
  else *out = c;
  return st;
}

hp_status checkpoint_verify(const char *path, checkpoint *out) {
  checkpoint c;
  HP_TRY(checkpoint_open(path, &c));
  hp_status st = manifest_verify(path, &c.manifest);
  if (st) checkpoint_free(&c);
  else *out = c;
  return st;
}

void checkpoint_free(checkpoint *c) {
  tree_free(&c->manifest);
  mem_free(c->path);
  *c = (checkpoint){0};
}
