/* Which checkpoint a run goes on from, and in which line. */
#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"
#include "train/trainer_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Where a checkpoint lies: OUT/checkpoint-STEP, the folder that the configuration names, or the one
 * that run.line names. */
typedef enum { HERE, NAMED, AWAY, PLACES } place;

/* --- the line --------------------------------------------------------------------------------- */

/* All tries of a supervised job have one name, and no other job has it. */
static void read_job(char job[RUN_LINE_JOB + 1]) {
  const char *text = getenv("HYPER_JOB");
  snprintf(job, RUN_LINE_JOB + 1, "%s", text ? text : "");
}

/* Was the line of the folder begun by an earlier try of this job? */
static bool is_own(const run_line *l) {
  char job[RUN_LINE_JOB + 1];
  read_job(job);
  return *job && !strcmp(job, l->job);
}

/* Goes the run on from the newest, whichever job has begun it? */
static bool takes_newest(const train_config *c) {
  return c->is.resume == RESUME_IF_ANY || c->is.resume == RESUME_NEWEST;
}

/* run.line is damaged.  A job whose restart may not do again what its configuration says would
 * delete, or give up, the checkpoints of its own earlier tries. */
static hp_status go_without_line(const train_config *c) {
  char job[RUN_LINE_JOB + 1];
  err_report why;
  err_take(HP_ERR_INPUT, &why);
  read_job(job);
  if (*job && !takes_newest(c))
    HP_FAIL(HP_ERR_INPUT,
            "%s; it says whether the checkpoints in %s are of an earlier try of this job, which "
            "must go on from them, or of another run; restore it from a copy, or go on from the "
            "newest with resume_from_checkpoint: true, or remove it, and the job does what its "
            "configuration says%s",
            why.message, c->output_dir,
            c->is.resume == RESUME_NEVER ? ": overwrite_output_dir: true deletes them" : "");
  log_warn("%s; %s", why.message,
           takes_newest(c) ? "going on in the line of the newest checkpoint"
                           : "a new line begins, as the configuration says");
  return HP_OK;
}

static hp_status load_line(const train_config *c, run_line *line, bool *there) {
  retry r = {0};
  hp_status st;
  double began;
  do {
    began = time_now_s();
    st = run_line_load(c->output_dir, line, there);
  } while (st == HP_ERR_IO && retry_again(&r, st, began));
  if (st == HP_ERR_INPUT) return go_without_line(c);
  if (st != HP_ERR_IO) return st;
  err_report why;
  err_take(st, &why);
  HP_FAIL(HP_ERR_DEVICE,
          "%s; which checkpoints are of this run cannot be known without it; see to the disk or "
          "the file server, then run this again",
          why.message);
}

/* Is path OUT/checkpoint-STEP, however it is written? */
static bool is_here(const char *out, const char *path, int64_t step) {
  struct stat a, b;
  str dir = {0}, name = {0};
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  size_t base = n;
  while (base && path[base - 1] != '/') base--;
  str_add_n(&dir, path, base);
  str_add(&dir, ".");
  str_printf(&name, "checkpoint-%lld", (long long)step);
  bool here = !dir.failed && !name.failed && name.len == n - base &&
              !memcmp(name.at, path + base, name.len) && !stat(dir.at, &a) && !stat(out, &b) &&
              a.st_dev == b.st_dev && a.st_ino == b.st_ino;
  str_free(&dir);
  str_free(&name);
  return here;
}

/* The user names a checkpoint: from there a new line begins. */
static hp_status branch(const train_config *c, run_line *line, checkpoint *out, place *where) {
  run_line of = {0};
  const char *path = c->is.resume_path;
  HP_TRY(checkpoint_verify_patiently(path, out));
  hp_status st = run_line_parse(out->manifest.root, &of);
  bool here = is_here(c->output_dir, path, out->step);
  *where = here ? HERE : NAMED;
  run_line_free(line);
  if (!st) st = run_line_branch(&of, out->step, path, here, line);
  run_line_free(&of);
  if (st) checkpoint_free(out);
  return st;
}

/* The line has no checkpoint here, from where it began or later, that verifies: back to the one
 * that it began from. */
static hp_status return_to_start(const char *dir, const run_line *line, checkpoint *out,
                                 bool *found) {
  const char *from = line->from;
  hp_status st = *from == '/' ? checkpoint_verify_patiently(from, out) : HP_ERR_INPUT;
  *found = !st;
  if (!st || st != HP_ERR_INPUT) return st;
  err_report why;
  err_take(st, &why);
  HP_FAIL(
      HP_ERR_INPUT,
      "%s: this run was begun from %s, which cannot be used any more%s%s, and has no checkpoint "
      "of its own that verifies; name another with resume_from_checkpoint, or begin anew with "
      "overwrite_output_dir: true",
      dir, from, *why.message ? ": " : "", why.message);
}

/* Is a checkpoint of that step here older than the one elsewhere that the line began from?  It is
 * of a line from which that one came. */
static bool is_before_start(const run_line *l, int64_t step) {
  return l->from && *l->from == '/' && l->parents.len && step < l->parents.at[0].step;
}

/* No checkpoint of the line verifies. */
static hp_status find_none(const train_config *c, run_line *line, bool damaged, checkpoint *out,
                           place *where, bool *found) {
  *where = AWAY;
  if (line->from) return return_to_start(c->output_dir, line, out, found);
  if (c->is.resume == RESUME_NEWEST)
    HP_FAIL(HP_ERR_INPUT,
            "%s: resume_from_checkpoint: true, but there is no checkpoint that verifies; leave the "
            "key out to begin at step 0",
            c->output_dir);
  if (damaged) log_warn("%s: no checkpoint verifies; beginning at step 0", c->output_dir);
  return *line->id ? HP_OK : run_line_create(line);
}

/* Goes on in the line of the folder; a folder without run.line has that of its newest. */
static hp_status go_on(const train_config *c, run_folder *f, bool there, checkpoint *out,
                       place *where, bool *found) {
  str skipped = {0};
  *where = HERE;
  hp_status st =
      checkpoint_newest(c->output_dir, there ? &f->line : NULL, &f->memo, out, found, &skipped);
  if (skipped.len) log_warn("checkpoints that do not verify are passed over:\n%s", skipped.at);
  bool damaged = skipped.len;
  str_free(&skipped);
  if (!st && !*found) return find_none(c, &f->line, damaged, out, where, found);
  if (!st && there && is_before_start(&f->line, out->step)) {
    checkpoint_free(out);
    *where = AWAY;
    return return_to_start(c->output_dir, &f->line, out, found);
  }
  return st || there ? st : run_line_parse(out->manifest.root, &f->line);
}

static hp_status find_checkpoint(const train_config *c, run_folder *f, checkpoint *out,
                                 place *where, bool *found) {
  bool there;
  *found = false;
  HP_TRY(load_line(c, &f->line, &there));
  bool own = there && is_own(&f->line);
  if (own || takes_newest(c)) {
    HP_TRY(go_on(c, f, there, out, where, found));
  } else if (c->is.resume == RESUME_FROM) {
    HP_TRY(branch(c, &f->line, out, where));
    *found = true;
  } else {
    run_line_free(&f->line);
    HP_TRY(run_line_create(&f->line));
    f->anew = true;
  }
  read_job(f->line.job);
  return HP_OK;
}

/* The results of a run that goes on are not those of its end. */
static hp_status forget_results(const char *out) {
  str path = {0};
  hp_status st = path_join(&path, out, "train_results.json");
  if (!st) st = dir_remove(path.at);
  str_free(&path);
  return st;
}

hp_status trainer_begin_line(const train_config *c, const run_job *job, const run_folder *f) {
  const char *out = c->output_dir;
  if (!job->writes) return HP_OK;
  HP_TRY(run_line_save(out, &f->line));
  HP_TRY(forget_results(out));
  /* a restart of the job deletes nothing: what is here may be of its earlier tries */
  if (f->anew) return checkpoint_forget(out, &f->line);
  return checkpoint_set_aside(out, &f->line);
}

/* --- together --------------------------------------------------------------------------------- */

/* The folder of a checkpoint that process 0 has found. */
static hp_status path_of(const train_config *c, place where, int64_t step, str *path) {
  run_line l = {0};
  bool there;
  if (where == HERE) return checkpoint_path(c->output_dir, step, path);
  if (where == AWAY) HP_TRY(run_line_load(c->output_dir, &l, &there));
  const char *from = where == NAMED ? c->is.resume_path : l.from;
  str_add(path, from ? from : "");
  run_line_free(&l);
  return str_status(path);
}

static hp_status open_told(const train_config *c, place where, int64_t step, checkpoint *out) {
  str path = {0};
  hp_status st = path_of(c, where, step, &path);
  if (!st && !dir_exists(path.at))
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: process 0 has found a checkpoint there, this one has not; it must be one "
                 "folder, on a file system that all machines see",
                 path.at);
  if (!st) st = checkpoint_unread(checkpoint_open(path.at, out));
  str_free(&path);
  return st;
}

hp_status trainer_find_checkpoint(const train_config *c, const run_job *job, run_folder *f,
                                  run_origin *out) {
  enum { NONE = -1, FAILED = -2 };
  int64_t all = NONE;
  hp_status st = HP_OK;
  place where = HERE;
  checkpoint *from = &out->from;
  bool found = false;
  out->found = false;
  if (job->writes) {
    st = find_checkpoint(c, f, from, &where, &found);
    all = st ? FAILED : found ? PLACES * from->step + (int64_t)where : NONE;
  }
  hp_status met = hp_world_broadcast(&all, sizeof all);
  if (met && found) checkpoint_free(from);
  if (st || met) return st ? st : met;
  if (all == FAILED) HP_FAIL(HP_ERR_COMM, "process 0 has no checkpoint to go on from");
  if (all == NONE) return HP_OK;
  out->here = all % PLACES == HERE;
  if (!job->writes) HP_TRY(open_told(c, (place)(all % PLACES), all / PLACES, from));
  out->found = true;
  return HP_OK;
}
