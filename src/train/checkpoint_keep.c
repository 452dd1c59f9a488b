/* The checkpoints of a run's folder: which there are, the newest, the oldest. */
#include "base/io.h"
#include "base/log.h"
#include "base/vec.h"
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The step whose folder has this name, else -1: "checkpoint-007" is somebody else's. */
static int64_t step_of(const char *name) {
  static const char prefix[] = "checkpoint-";
  const char *digits = name + sizeof prefix - 1;
  int64_t n;
  if (strncmp(name, prefix, sizeof prefix - 1) || !str_to_i64(digits, &n) || n < 0) return -1;
  bool plain = *digits == '0' ? !digits[1] : *digits > '0' && *digits <= '9';
  return plain ? n : -1;
}

static int newest_first(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

typedef VEC(int64_t) steps_list;

/* Steps of the committed folders, newest first.  A folder that is not there holds none. */
static hp_status list_steps(const char *out_dir, steps_list *out) {
  DIR *d = opendir(out_dir);
  if (!d) {
    if (errno == ENOENT) return HP_OK;
    HP_FAIL(HP_ERR_IO, "%s: cannot open the folder: %s", out_dir, strerror(errno));
  }
  hp_status st = HP_OK;
  for (struct dirent *e; !st && (e = readdir(d));) {
    int64_t n = step_of(e->d_name);
    if (n >= 0 && !vec_push(out, n)) st = HP_ERR_OOM;
  }
  closedir(d);
  if (!st && out->len) qsort(out->at, out->len, sizeof *out->at, newest_first);
  return st;
}

/* Out of sight first: a half-deleted folder must not look like a checkpoint. */
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

hp_status checkpoint_prune(const char *out_dir, int64_t keep, int64_t spare) {
  steps_list all = {0};
  if (keep <= 0) return HP_OK;
  hp_status st = list_steps(out_dir, &all);
  for (size_t i = (size_t)keep; !st && i < all.len; i++)
    if (all.at[i] != spare) st = delete_step(out_dir, all.at[i]);
  vec_free(&all);
  return st;
}

hp_status checkpoint_forget(const char *out_dir) {
  steps_list all = {0};
  hp_status st = list_steps(out_dir, &all);
  for (size_t i = 0; !st && i < all.len; i++) st = delete_step(out_dir, all.at[i]);
  if (!st && all.len)
    log_info("%s: overwrite_output_dir: %zu checkpoints of an earlier run are deleted", out_dir,
             all.len);
  vec_free(&all);
  return st;
}

hp_status checkpoint_newest(const char *out_dir, checkpoint *out, bool *found, str *skipped) {
  steps_list all = {0};
  str path = {0};
  *found = false;
  hp_status st = list_steps(out_dir, &all);
  for (size_t i = 0; !st && !*found && i < all.len; i++) {
    st = checkpoint_path(out_dir, all.at[i], &path);
    if (st) break;
    if (!checkpoint_verify(path.at, out)) {
      *found = true;
    } else {
      str_printf(skipped, "%s\n", err_message());
      err_clear();
    }
  }
  vec_free(&all);
  str_free(&path);
  return st;
}
