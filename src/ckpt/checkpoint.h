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
/* Creates OUT if it does not exist, and takes OUT/run.lock; HP_ERR_INPUT names the process that
 * holds it. */
hp_status run_lock_take(const char *out_dir, run_lock **out);
/* Called before something is written: is OUT/run.lock still the locked file?  If it is gone,
 * with or without its folder, it is locked again; HP_ERR_INPUT names another process that has
 * taken it meanwhile.  If that process has ended and removed its lock, only OUT/run.line shows
 * it. */
hp_status run_lock_keep(run_lock *l);
void run_lock_free(run_lock *l);
/* Removes the file, unless it belongs to another run by now, and the empty ones of the folders
 * that were created for it.  Safe in a signal handler. */
void run_lock_remove(run_lock *l);
/* OUT/checkpoint-STEP; replaces path. */
hp_status checkpoint_path(const char *out_dir, int64_t step, str *path);
/* Removes what dead runs left: folders .tmp-* and .old-*, and temporary files, with a message.
 * Restores the name of .was-* if the new one never got it.  Links are removed, not followed.
 * What cannot be removed is reported and stays; only a .was-* that cannot get its name is a
 * failure.  Call it with the lock held, before anything is written. */
hp_status checkpoint_clean(const char *out_dir);
/* The same with several tries if the folder cannot be read; then HP_ERR_DEVICE. */
hp_status checkpoint_clean_patiently(const char *out_dir);

/* --- saving ----------------------------------------------------------------------------------- */

typedef struct {
  const char *name; /* file in the checkpoint, e.g. "trainer_state.json" */
  const char *bytes;
  size_t len;
} checkpoint_text;

typedef struct {
  /* Writes the tensors into the folder: all of them, or this process's shards.  Only files
   * written by file_writer, with `dir` spelt as given, belong to the checkpoint. */
  hp_status (*write)(void *ctx, const char *dir);
  const checkpoint_text *text;
  size_t n_text;
  int64_t step;
  const char *state;    /* JSON object for the manifest: the state for a resume */
  const run_line *line; /* of the checkpoint; NULL: none */
  /* In a job of several processes all save at once: `agree` waits for the others and returns a
   * failure on all if one has failed.  All but one follow: they only write tensors.  `run` names
   * the temporary folder: a number that is the same in all processes, and another in the next
   * run. */
  hp_status (*agree)(void *ctx, hp_status mine); /* NULL: one process */
  bool follows;
  int64_t run;
  /* Called by the process that commits, just before each rename in OUT: a failure, such as
   * another run having taken OUT meanwhile, ends the save.  NULL: no check. */
  hp_status (*may_commit)(void *ctx);
  void *ctx; /* of write, agree and may_commit */
} checkpoint_content;

/* Writes and commits OUT/checkpoint-STEP, replacing one of this run.  Anything else with that
 * name is renamed to OUT/replaced-checkpoint-STEP, with a message.  A failure leaves the folder
 * as it was. */
hp_status checkpoint_save(const char *out_dir, const checkpoint_content *c);
/* --- finding ---------------------------------------------------------------------------------- */

typedef struct {
  char *path;
  int64_t step;
  tree manifest; /* tree_free */
} checkpoint;

/* Reads the manifest of a checkpoint; HP_ERR_INPUT says what is wrong with it, any other failure
 * that it could not be read. */
hp_status checkpoint_open(const char *path, checkpoint *out);
/* The same, and every file must have the size and hash that it names. */
hp_status checkpoint_verify(const char *path, checkpoint *out);
/* The same with several tries if it cannot be read; then HP_ERR_DEVICE. */
hp_status checkpoint_verify_patiently(const char *path, checkpoint *out);
void checkpoint_free(checkpoint *c);
/* The result of reading a verified checkpoint: a failure of the machine (HP_ERR_IO) is reported
 * as HP_ERR_DEVICE, after which a supervised job is restarted. */
hp_status checkpoint_unread(hp_status st);

/* --- keeping ---------------------------------------------------------------------------------- */

/* What is known about the checkpoints of a folder, so that none is read twice: if the inodes,
 * sizes and times of a folder's files are unchanged, so is its state.  Zeroed = nothing yet. */
typedef struct {
  int64_t step;
  hash128 stamp;
  bool good;
} checkpoint_known;
typedef struct {
  VEC(checkpoint_known) known;
} checkpoint_memo;
void checkpoint_memo_free(checkpoint_memo *m);
/* The checkpoint of that step has just been written and is valid. */
void checkpoint_memo_good(checkpoint_memo *m, const char *out_dir, int64_t step);

/* The newest that belongs to the line and verifies; line NULL: any line.  *found false if there
 * is none; `skipped` gets a line for each that is damaged or whose step differs from its name.
 * If one cannot be read, it is tried several times, then HP_ERR_DEVICE names it, because an
 * older one in its place would lose the steps since.  The same holds for a folder that cannot be
 * listed. */
hp_status checkpoint_newest(const char *out_dir, const run_line *line, checkpoint_memo *memo,
                            checkpoint *out, bool *found, str *skipped);

typedef struct {
  const run_line *line; /* only its checkpoints are counted and deleted */
  int64_t keep;         /* save_total_limit; 0 = keep all */
  int64_t saved;        /* step of the latest save, which stays */
  int64_t best;         /* step of the best one, which stays; -1: none */
  checkpoint_memo *memo;
} checkpoint_limit;
/* With a single one, one damaged file would lose the run. */
enum { CHECKPOINTS_LEAST = 2 };
/* Deletes the oldest of the line, so that `keep` valid ones are left, at least
 * CHECKPOINTS_LEAST.  A damaged one does not count and is reported once; it stays until `keep`
 * newer ones verify, and for good if its line cannot be read.  Checkpoints older than the kept
 * ones are not read. */
hp_status checkpoint_prune(const char *out_dir, const checkpoint_limit *limit);

/* Moves checkpoints of other lines into OUT/abandoned-LINE, from which no run resumes by itself,
 * with a message.  Damaged ones whose line cannot be read stay. */
hp_status checkpoint_set_aside(const char *out_dir, const run_line *line);
/* Deletes all that are not of the line, for a new run; reports their number. */
hp_status checkpoint_forget(const char *out_dir, const run_line *line);

#endif
