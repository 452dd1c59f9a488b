/* Checkpoints of a run: committed or invisible, verified before use.
 *
 *   OUT/run.line                 the line of the run that goes on here: run_line.h
 *   OUT/run.lock                 locked while a run writes here; a dead process holds none.  Gone
 *                                when the run ends, and with it folders that it left empty
 *   OUT/.tmp-checkpoint-N-RUN/   being written
 *   OUT/.was-checkpoint-N/       the one that is being replaced, on file systems that cannot swap
 *                                two
 *   OUT/checkpoint-N/            committed: its files and MANIFEST.json with their sizes and hashes
 *   OUT/abandoned-LINE/          checkpoints of a branch that was given up; nothing deletes them
 *   OUT/replaced-checkpoint-N/   what had that name and was none of the run's; nothing deletes it
 *
 * Order of a save: every file written, fsynced and read back, by all processes, the folder fsynced,
 * the manifest written last and fsynced, the folder renamed, OUT fsynced; only then are older ones
 * deleted.  So at any instant of any death each visible folder is whole, and a damaged one is found
 * by its hashes, which are those of the bytes in memory from which the files were written. */
#ifndef CKPT_CHECKPOINT_H
#define CKPT_CHECKPOINT_H

#include "base/hash.h"
#include "base/str.h"
#include "base/tree.h"
#include "ckpt/run_line.h"

/* --- lock ------------------------------------------------------------------------------------- */

typedef struct run_lock run_lock;
/* Makes OUT where it is not there, and takes OUT/run.lock; HP_ERR_INPUT names the process that
 * holds it. */
hp_status run_lock_take(const char *out_dir, run_lock **out);
/* Before something is written: is OUT/run.lock still the file that is locked?  Where it is gone,
 * with its folder or without, it is taken again; HP_ERR_INPUT names the process that has taken it
 * meanwhile.  One that has ended since has removed its lock: only OUT/run.line tells of it. */
hp_status run_lock_keep(run_lock *l);
void run_lock_free(run_lock *l);
/* Removes the file, unless it is another run's by now, and of the folders that were made for it
 * those that are empty.  A signal handler may call it. */
void run_lock_remove(run_lock *l);
/* OUT/checkpoint-STEP; replaces path. */
hp_status checkpoint_path(const char *out_dir, int64_t step, str *path);
/* Removes what dead runs left: folders .tmp-* and .old-*, and temporary files, which it tells.
 * Gives .was-* its name back where the new one never came.  Links are removed, not followed.  What
 * cannot be removed is told and stays; only a .was-* that cannot have its name is a failure.  Call
 * with the lock held, before anything is written. */
hp_status checkpoint_clean(const char *out_dir);
/* The same in several tries where the folder cannot be read; then HP_ERR_DEVICE. */
hp_status checkpoint_clean_patiently(const char *out_dir);

/* --- saving ----------------------------------------------------------------------------------- */

typedef struct {
  const char *name; /* file in the checkpoint, e.g. "trainer_state.json" */
  const char *bytes;
  size_t len;
} checkpoint_text;

typedef struct {
  /* Writes the tensors into the folder: all of them, or what this process has of them.  Only files
   * that it writes by file_writer, to `dir` as it is spelled, are of the checkpoint. */
  hp_status (*write)(void *ctx, const char *dir);
  const checkpoint_text *text;
  size_t n_text;
  int64_t step;
  const char *state;    /* JSON object that goes into the manifest: what a resume needs */
  const run_line *line; /* that it belongs to; NULL: of none */
  /* A run of several processes saves in all of them at once: `agree` waits for the others and
   * returns a failure in each when one has failed.  All but one follow: they write tensors only.
   * `run` names the temporary folder: one number in all of them, another in the next run. */
  hp_status (*agree)(void *ctx, hp_status mine); /* NULL: one process */
  bool follows;
  int64_t run;
  /* Asked by the process that commits, just before each rename in OUT: a failure, e.g. as another
   * run has taken OUT meanwhile, ends the save.  NULL: nothing to ask. */
  hp_status (*may_commit)(void *ctx);
  void *ctx; /* of write, agree and may_commit */
} checkpoint_content;

/* Writes and commits OUT/checkpoint-STEP, in place of one of this run that is there.  Anything else
 * of that name becomes OUT/replaced-checkpoint-STEP, which is told.  On failure nothing is left
 * behind but what was there before. */
hp_status checkpoint_save(const char *out_dir, const checkpoint_content *c);
/* --- finding ---------------------------------------------------------------------------------- */

typedef struct {
  char *path;
  int64_t step;
  tree manifest; /* tree_free */
} checkpoint;

/* Reads the manifest of one, which must be whole; HP_ERR_INPUT says what is wrong with it, any
 * other failure that it could not be read. */
hp_status checkpoint_open(const char *path, checkpoint *out);
/* The same, and every file must have the size and hash that it names. */
hp_status checkpoint_verify(const char *path, checkpoint *out);
/* The same, in several tries where it cannot be read; then HP_ERR_DEVICE. */
hp_status checkpoint_verify_patiently(const char *path, checkpoint *out);
void checkpoint_free(checkpoint *c);
/* What became of reading one that was verified: a failure of the machine (HP_ERR_IO) is told as one
 * (HP_ERR_DEVICE), after which a supervised job is begun again. */
hp_status checkpoint_unread(hp_status st);

/* --- keeping ---------------------------------------------------------------------------------- */

/* What is known of the checkpoints of a folder, so that none is read twice: a folder whose files
 * have the inodes, sizes and times that they had is as good as it was.  Zeroed = nothing yet. */
typedef struct {
  int64_t step;
  hash128 stamp;
  bool good;
} checkpoint_known;
typedef struct {
  VEC(checkpoint_known) known;
} checkpoint_memo;
void checkpoint_memo_free(checkpoint_memo *m);
/* The checkpoint of that step has just been written and is known to be good. */
void checkpoint_memo_good(checkpoint_memo *m, const char *out_dir, int64_t step);

/* The newest that belongs to the line and verifies; line NULL: any will do.  *found false when
 * there is none; `skipped` gets one line for each that is damaged, or has another step than its
 * name.  One that cannot be read is no damaged one: it is tried several times, then HP_ERR_DEVICE
 * names it, for an older one in its place would cost what was done since.  So is a folder that
 * cannot be listed. */
hp_status checkpoint_newest(const char *out_dir, const run_line *line, checkpoint_memo *memo,
                            checkpoint *out, bool *found, str *skipped);

typedef struct {
  const run_line *line; /* only its checkpoints are counted, and deleted */
  int64_t keep;         /* save_total_limit; 0 = all stay */
  int64_t saved;        /* step of the one that was just saved: it stays */
  int64_t best;         /* the same of the best one; -1: none */
  checkpoint_memo *memo;
} checkpoint_limit;
/* With less than two, one damaged file could cost the run. */
enum { CHECKPOINTS_LEAST = 2 };
/* Deletes the oldest of the line, so that `keep` that verify are left, at least CHECKPOINTS_LEAST.
 * A damaged one does not count and is told once; it stays until `keep` newer ones verify, and for
 * good when not even its manifest, and so its line, can be read.  What is older than those that are
 * kept is not read. */
hp_status checkpoint_prune(const char *out_dir, const checkpoint_limit *limit);

/* Moves those of other lines into OUT/abandoned-LINE, from where none is resumed by itself, and
 * tells it.  Damaged ones whose line cannot be read stay. */
hp_status checkpoint_set_aside(const char *out_dir, const run_line *line);
/* Deletes all that are not of the line, for a run that begins anew; tells how many. */
hp_status checkpoint_forget(const char *out_dir, const run_line *line);

#endif
