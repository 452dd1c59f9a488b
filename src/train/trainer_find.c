/* Which checkpoint a run goes on from. */
#include "base/io.h"
#include "base/log.h"
#include "train/trainer_parts.h"

#include <stdlib.h>
#include <string.h>

/* A run that was killed and begun again by its supervisor goes on from what it wrote itself,
 * wherever it had begun. */
static bool was_begun_before(void) {
  const char *again = getenv("HYPER_RESTARTED");
  return again && *again == '1';
}

static hp_status find_checkpoint(trainer *t, checkpoint *c, bool *found) {
  str skipped = {0};
  *found = false;
  if (was_begun_before()) {
    HP_TRY(checkpoint_newest(t->c->output_dir, c, found, &skipped));
    str_free(&skipped);
    if (*found) return HP_OK;
  }
  if (t->c->is.resume == RESUME_NEVER) return HP_OK;
  if (t->c->is.resume == RESUME_FROM) {
    HP_TRY(checkpoint_verify(t->c->is.resume_path, c));
    *found = true;
    return HP_OK;
  }
  hp_status st = checkpoint_newest(t->c->output_dir, c, found, &skipped);
  if (skipped.len) log_warn("checkpoints that do not verify are passed over:\n%s", skipped.at);
  str_free(&skipped);
  if (!st && !*found && t->c->is.resume == RESUME_NEWEST)
    HP_FAIL(HP_ERR_INPUT,
            "%s: resume_from_checkpoint: true, but there is no checkpoint that verifies; leave the "
            "key out to begin at step 0",
            t->c->output_dir);
  if (!st && !*found && t->c->is.resume == RESUME_IF_ANY && skipped.len)
    log_warn("%s: no checkpoint verifies; beginning at step 0", t->c->output_dir);
  return st;
}

/* What process 0 tells of a checkpoint: its step, and whether the configuration names it. */
static int64_t told_of(const trainer *t, const checkpoint *c) {
  return 2 * c->step + (t->c->is.resume == RESUME_FROM && !strcmp(c->path, t->c->is.resume_path));
}

static hp_status open_told(const trainer *t, int64_t told, checkpoint *c) {
  str path = {0};
  int64_t step = told / 2;
  bool elsewhere = told % 2;
  hp_status st = elsewhere ? HP_OK : checkpoint_path(t->c->output_dir, step, &path);
  const char *dir = elsewhere ? t->c->is.resume_path : path.at;
  if (!st && !dir_exists(dir))
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: process 0 has found a checkpoint there, this one has not; it must be one "
                 "folder, on a file system that all machines see",
                 dir);
  if (!st) st = checkpoint_open(dir, c);
  str_free(&path);
  return st;
}

hp_status trainer_find_checkpoint(trainer *t, checkpoint *c, bool *found) {
  enum { NONE = -1, FAILED = -2 };
  int64_t mine = INT64_MIN, all;
  hp_status st = HP_OK;
  *found = false;
  if (t->writes) {
    st = find_checkpoint(t, c, found);
    mine = st ? FAILED : *found ? told_of(t, c) : NONE;
  }
  hp_status met = hp_world_most(mine, &all);
  if (met && *found) checkpoint_free(c);
  if (st || met || t->writes) return st ? st : met;
  if (all == FAILED) HP_FAIL(HP_ERR_COMM, "process 0 has no checkpoint to go on from");
  *found = all != NONE;
  return *found ? open_told(t, all, c) : HP_OK;
}
