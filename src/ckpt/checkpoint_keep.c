/* The checkpoints of a run's folder: the newest valid one, the oldest ones to delete, and those
 * of an abandoned branch. */
#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/vec.h"
#include "ckpt/manifest.h"
#include "ckpt/checkpoint.h"
#include "base/retry.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The step of the folder with this name, else -1: "checkpoint-007" is not one of ours. */
static int64_t step_of(const char *name) {
  static const char prefix[] = "checkpoint-";
  const char *digits = name + sizeof prefix - 1;
  int64_t n;
  if (strncmp(name, prefix, sizeof prefix - 1) || !str_to_i64(digits, &n) || n < 0) return -1;
  bool plain = *digits == '0' ? !digits[1] : *digits > '0' && *digits <= '9';
  return plain ? n : -1;
}

static int compare_newest_first(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

typedef VEC(int64_t) steps_list;

/* Steps of the committed folders, newest first; none if the folder does not exist. */
static hp_status list_steps(const char *out_dir, steps_list *out) {
  DIR *d = opendir(out_dir);
  if (!d) {
    if (errno == ENOENT) return HP_OK;
    HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", out_dir, strerror(errno));
  }
  hp_status st = HP_OK;
  for (struct dirent *e; !st && !(st = dir_next(d, out_dir, &e)) && e;) {
    int64_t n = step_of(e->d_name);
    if (n >= 0 && !vec_push(out, n)) st = HP_ERR_OOM;
  }
  closedir(d);
  if (!st && out->len) qsort(out->at, out->len, sizeof *out->at, compare_newest_first);
  return st;
}

/* Renamed first: a half-deleted folder must not look like a checkpoint. */
static hp_status delete_step(const char *out_dir, int64_t step) {
  str path = {0}, gone = {0};
  hp_status st = checkpoint_path(out_dir, step, &path);
  str_printf(&gone, "%s/.old-checkpoint-%lld", out_dir, (long long)step);
  if (!st) st = str_status(&gone);
  if (!st && rename(path.at, gone.at))
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot rename it before deleting: %s", path.at,
                 strerror(errno));
  if (!st) st = dir_remove(gone.at);
  str_free(&path);
  str_free(&gone);
  return st;
}

/* --- what is known ---------------------------------------------------------------------------- */

void checkpoint_memo_free(checkpoint_memo *m) { vec_free(&m->known); }

static void add_stamp(const char *dir, const char *name, str *text) {
  struct stat s;
  str path = {0};
  str_printf(text, "%s: ", name);
  if (path_join(&path, dir, name) || stat(path.at, &s)) str_add(text, "none");
  else file_print_stamp(&s, text);
  str_add_char(text, '\n');
  str_free(&path);
}

/* Changes whenever a file named in the manifest does, or the manifest itself; c is NULL if it
 * cannot be read. */
static hp_status find_stamp(const char *dir, const checkpoint *c, hash128 *out) {
  str text = {0};
  const tree_node *files = c ? tree_get(c->manifest.root, "files") : NULL;
  add_stamp(dir, MANIFEST_NAME, &text);
  for (uint32_t i = 0; files && files->kind == TREE_MAP && i < files->len; i++)
    add_stamp(dir, files->child[i]->key, &text);
  hp_status st = str_status(&text);
  if (!st) *out = hash_bytes128(text.at, text.len);
  str_free(&text);
  return st;
}

static const checkpoint_known *find_known(const checkpoint_memo *m, int64_t step, hash128 stamp) {
  for (size_t i = 0; m && i < m->known.len; i++) {
    const checkpoint_known *k = &m->known.at[i];
    if (k->step == step && k->stamp.lo == stamp.lo && k->stamp.hi == stamp.hi) return k;
  }
  return NULL;
}

/* Records a verified checkpoint.  Without memory for it, the checkpoint is verified again later. */
static void add_known(checkpoint_memo *m, int64_t step, hash128 stamp, bool good) {
  if (!m) return;
  checkpoint_known now = {step, stamp, good};
  for (size_t i = 0; i < m->known.len; i++)
    if (m->known.at[i].step == step) {
      m->known.at[i] = now;
      return;
    }
  if (!vec_push(&m->known, now)) err_clear();
}

void checkpoint_memo_good(checkpoint_memo *m, const char *out_dir, int64_t step) {
  str path = {0};
  checkpoint c;
  hash128 stamp;
  hp_status st = checkpoint_path(out_dir, step, &path);
  if (!st && !(st = checkpoint_open(path.at, &c))) {
    st = find_stamp(path.at, &c, &stamp);
    if (!st) add_known(m, step, stamp, true);
    checkpoint_free(&c);
  }
  if (st) err_clear();
  str_free(&path);
}

/* --- one of them ------------------------------------------------------------------------------ */

typedef enum { DAMAGED, UNREADABLE, OTHER_LINE, OF_LINE } kind;

/* One checkpoint of the folder: its manifest and line, where they can be read. */
typedef struct {
  const char *out_dir;
  int64_t step;
  kind kind;
  str path;
  checkpoint c;
  run_line line;
  err_report why; /* damaged or unreadable; "": neither, or already reported */
} folder;

static bool is_open(const folder *f) { return f->kind == OTHER_LINE || f->kind == OF_LINE; }

static void folder_free(folder *f) {
  str_free(&f->path);
  if (!is_open(f)) return;
  checkpoint_free(&f->c);
  run_line_free(&f->line);
}

/* Reads its manifest.  Faults of it are in out->why, not failures of this function. */
static hp_status folder_open(const char *out_dir, int64_t step, const run_line *line, folder *out) {
  folder f = {.out_dir = out_dir, .step = step};
  HP_TRY(checkpoint_path(out_dir, step, &f.path));
  hp_status st = checkpoint_open(f.path.at, &f.c);
  if (!st && f.c.step != step)
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: holds step %lld, which its name is not; give it its name back", f.path.at,
                 (long long)f.c.step);
  if (!st) st = run_line_parse(f.c.manifest.root, &f.line);
  if (st && f.c.manifest.root) checkpoint_free(&f.c);
  if (st == HP_ERR_OOM) {
    str_free(&f.path);
    return st;
  }
  if (st) err_take(st, &f.why);
  if (st) f.kind = st == HP_ERR_INPUT ? DAMAGED : UNREADABLE;
  else f.kind = !line || run_line_has(line, f.line.id, step) ? OF_LINE : OTHER_LINE;
  *out = f;
  return HP_OK;
}

/* UNKNOWN: it could not be read, so its contents are unknown. */
typedef enum { GOOD, BAD, BAD_BEFORE, UNKNOWN } verdict;

/* Does it verify?  If not, f->why says why.  Only results of successful reads are remembered. */
static hp_status folder_verify(folder *f, checkpoint_memo *memo, verdict *out) {
  checkpoint c;
  hash128 stamp;
  *out = UNKNOWN;
  if (f->kind == UNREADABLE) return HP_OK;
  HP_TRY(find_stamp(f->path.at, is_open(f) ? &f->c : NULL, &stamp));
  const checkpoint_known *k = find_known(memo, f->step, stamp);
  if (k) *out = k->good ? GOOD : BAD_BEFORE;
  if (k) return HP_OK;
  hp_status st = is_open(f) ? checkpoint_verify(f->path.at, &c) : HP_ERR_INPUT;
  if (st == HP_ERR_OOM) return st;
  if (!st) checkpoint_free(&c);
  else if (is_open(f)) err_take(st, &f->why);
  if (!st) *out = GOOD;
  else if (st == HP_ERR_INPUT) *out = BAD;
  if (*out != UNKNOWN) add_known(memo, f->step, stamp, !st);
  return HP_OK;
}

/* --- the newest ------------------------------------------------------------------------------- */

/* After the last try: a failure of the machine, after which a supervised job is restarted. */
static hp_status cannot_read(hp_status st) {
  err_report why;
  err_take(st, &why);
  HP_FAIL(HP_ERR_DEVICE,
          "%s; whether that checkpoint is good cannot be known, and no older one is taken in its "
          "place; see to the disk or the file server, then run this again",
          why.message);
}

hp_status checkpoint_unread(hp_status st) {
  err_report why;
  if (st != HP_ERR_IO) return st;
  err_take(st, &why);
  HP_FAIL(HP_ERR_DEVICE,
          "input/output failure: %s; the checkpoint was found, and then could not be read; see to "
          "the disk or the file server, then run this again",
          why.message);
}

hp_status checkpoint_verify_patiently(const char *path, checkpoint *out) {
  retry r = {0};
  hp_status st;
  double began;
  do {
    began = time_now_s();
    st = checkpoint_verify(path, out);
  } while (st == HP_ERR_IO && retry_again(&r, st, began));
  return st == HP_ERR_IO ? cannot_read(st) : st;
}

/* Opens it, and verifies one of the line, with several tries if it cannot be read. */
static hp_status check_candidate(const char *out_dir, int64_t step, const run_line *line,
                                 checkpoint_memo *memo, folder *f, verdict *v) {
  retry r = {0};
  for (;;) {
    double began = time_now_s();
    *v = BAD_BEFORE;
    HP_TRY(folder_open(out_dir, step, line, f));
    hp_status st = f->kind == OTHER_LINE ? HP_OK : folder_verify(f, memo, v);
    if (!st && *v != UNKNOWN) return HP_OK;
    bool unread = !st;
    folder_free(f);
    if (!unread) return st;
    st = err_give(&f->why);
    if (!retry_again(&r, st, began)) return cannot_read(st);
  }
}

/* A folder that cannot be listed is not empty: the run would start again at step 0. */
static hp_status cannot_list(hp_status st) {
  err_report why;
  err_take(st, &why);
  HP_FAIL(HP_ERR_DEVICE,
          "%s; which checkpoints it holds cannot be known; see to the disk or the file server, "
          "then run this again",
          why.message);
}

static hp_status list_patiently(const char *out_dir, steps_list *all) {
  retry r = {0};
  hp_status st;
  double began;
  do {
    began = time_now_s();
    all->len = 0;
    st = list_steps(out_dir, all);
  } while (st == HP_ERR_IO && retry_again(&r, st, began));
  return st == HP_ERR_IO ? cannot_list(st) : st;
}

hp_status checkpoint_clean_patiently(const char *out_dir) {
  retry r = {0};
  hp_status st;
  double began;
  do {
    began = time_now_s();
    st = checkpoint_clean(out_dir);
  } while (st == HP_ERR_IO && retry_again(&r, st, began));
  return st == HP_ERR_IO ? cannot_list(st) : st;
}

hp_status checkpoint_newest(const char *out_dir, const run_line *line, checkpoint_memo *memo,
                            checkpoint *out, bool *found, str *skipped) {
  steps_list all = {0};
  *found = false;
  hp_status st = list_patiently(out_dir, &all);
  for (size_t i = 0; !st && !*found && i < all.len; i++) {
    folder f;
    verdict v;
    st = check_candidate(out_dir, all.at[i], line, memo, &f, &v);
    if (st) break;
    *found = v == GOOD;
    if (*found) {
      *out = f.c;
      f.c = (checkpoint){0};
    } else if (*f.why.message) {
      str_printf(skipped, "%s\n", f.why.message);
    }
    folder_free(&f);
  }
  vec_free(&all);
  return st;
}

/* --- pruning ---------------------------------------------------------------------------------- */

/* Counts one that is not the saved one, or deletes it when there are enough newer ones. */
static hp_status keep_or_delete(folder *f, const checkpoint_limit *limit, int64_t keep,
                                int64_t *kept) {
  verdict v;
  if (f->kind == OTHER_LINE) return HP_OK;
  if (f->kind == OF_LINE && *kept >= keep)
    return f->step == limit->best ? HP_OK : delete_step(f->out_dir, f->step);
  HP_TRY(folder_verify(f, limit->memo, &v));
  *kept += v == GOOD;
  if (v == GOOD || v == BAD_BEFORE) return HP_OK;
  if (is_open(f))
    log_warn("%s; it is not counted as one of the %lld that are kept, and stays until there are so "
             "many newer ones that verify",
             f->why.message, (long long)keep);
  else
    log_warn("%s; it is not counted as one of the %lld that are kept, and it is not deleted",
             f->why.message, (long long)keep);
  return HP_OK;
}

hp_status checkpoint_prune(const char *out_dir, const checkpoint_limit *limit) {
  steps_list all = {0};
  int64_t keep = limit->keep < CHECKPOINTS_LEAST ? CHECKPOINTS_LEAST : limit->keep;
  int64_t kept = 1; /* the saved one */
  if (limit->keep <= 0) return HP_OK;
  hp_status st = list_steps(out_dir, &all);
  for (size_t i = 0; !st && i < all.len; i++) {
    folder f;
    if (all.at[i] == limit->saved) continue;
    st = folder_open(out_dir, all.at[i], limit->line, &f);
    if (st) break;
    st = keep_or_delete(&f, limit, keep, &kept);
    folder_free(&f);
  }
  vec_free(&all);
  return st;
}

/* --- other lines ------------------------------------------------------------------------------ */

/* OUT/abandoned-LINE, with a number appended if it has a checkpoint of this step already. */
static hp_status choose_aside(const folder *f, str *dir, str *to) {
  enum { DIGITS = 12 };
  for (int n = 1;; n++) {
    str_clear(dir);
    str_printf(dir, "%s/abandoned-%.*s", f->out_dir, DIGITS, f->line.id);
    if (n > 1) str_printf(dir, "-%d", n);
    HP_TRY(str_status(dir));
    HP_TRY(checkpoint_path(dir->at, f->step, to));
    if (!path_exists(to->at)) return HP_OK;
  }
}

/* A link to a checkpoint elsewhere must still work from another folder. */
static bool move_folder(const char *from, const char *to) {
  struct stat s;
  if (lstat(from, &s) || !S_ISLNK(s.st_mode)) return !rename(from, to);
  char target[PATH_MAX];
  return realpath(from, target) && !symlink(target, to) && !unlink(from);
}

static hp_status move_aside(const folder *f, str *moved) {
  str dir = {0}, to = {0};
  hp_status st = choose_aside(f, &dir, &to);
  if (!st) st = dir_create(dir.at);
  if (!st && !move_folder(f->path.at, to.at))
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot be moved to %s: %s", f->path.at, to.at,
                 strerror(errno));
  if (!st) st = dir_sync(dir.at);
  if (!st) st = dir_sync(f->out_dir);
  if (!st) str_printf(moved, "\n  %s is now %s", f->path.at, to.at);
  str_free(&dir);
  str_free(&to);
  return st;
}

hp_status checkpoint_set_aside(const char *out_dir, const run_line *line) {
  steps_list all = {0};
  str moved = {0};
  hp_status st = list_patiently(out_dir, &all);
  for (size_t i = 0; !st && i < all.len; i++) {
    folder f;
    st = folder_open(out_dir, all.at[i], line, &f);
    if (st) break;
    if (f.kind == OTHER_LINE) st = move_aside(&f, &moved);
    folder_free(&f);
  }
  if (moved.len)
    log_info("set aside, because they belong to another line than this run; nothing continues "
             "from them unless resume_from_checkpoint names one:%s",
             moved.at);
  str_free(&moved);
  vec_free(&all);
  return st;
}

hp_status checkpoint_forget(const char *out_dir, const run_line *line) {
  steps_list all = {0};
  int64_t deleted = 0;
  hp_status st = list_patiently(out_dir, &all);
  for (size_t i = 0; !st && i < all.len; i++) {
    folder f;
    st = folder_open(out_dir, all.at[i], line, &f);
    if (st) break;
    if (f.kind != OF_LINE) {
      st = delete_step(out_dir, all.at[i]);
      deleted++;
    }
    folder_free(&f);
  }
  if (!st && deleted)
    log_info("%s: overwrite_output_dir: %lld checkpoints of an earlier run are deleted", out_dir,
             (long long)deleted);
  vec_free(&all);
  return st;
}
