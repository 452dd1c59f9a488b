/* Checkpoints of a run: committed or invisible, verified before use.
 *
 *   OUT/run.lock                 locked while a run writes here; a dead process holds none.  Gone
 *                                when the run ends, and with it folders that it left empty
 *   OUT/.tmp-checkpoint-N-RUN/   being written
 *   OUT/checkpoint-N/            committed: its files and MANIFEST.json with their sizes and hashes
 *
 * Order of a save: every file written, fsynced and read back, by all processes, the folder fsynced,
 * the manifest written last and fsynced, the folder renamed, OUT fsynced; only then are older ones
 * deleted.  So at any instant of any death each visible folder is whole, and a damaged one is found
 * by its hashes, which are those of the bytes in memory from which the files were written. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "base/str.h"
#include "base/tree.h"

/* --- lock ------------------------------------------------------------------------------------- */

typedef struct run_lock run_lock;
/* Makes OUT where it is not there, and takes OUT/run.lock; HP_ERR_IO names the process that holds
 * it. */
hp_status run_lock_take(const char *out_dir, run_lock **out);
void run_lock_free(run_lock *l);
/* Removes the file, and of the folders that were made for it those that are empty.  A signal
 * handler may call it. */
void run_lock_remove(run_lock *l);
/* OUT/checkpoint-STEP; replaces path. */
hp_status checkpoint_path(const char *out_dir, int64_t step, str *path);
/* Removes what dead runs left: folders .tmp-* and .old-*, and temporary files, which it tells.
 * Links are removed, not followed.  Call with the lock held, before anything is written. */
hp_status checkpoint_clean(const char *out_dir);

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
  const char *const *copy; /* paths of files that are copied as they are (tokenizer, ...) */
  size_t n_copy;
  int64_t step;
  const char *state; /* JSON object that goes into the manifest: what a resume needs */
  /* A run of several processes saves in all of them at once: `agree` waits for the others and
   * returns a failure in each when one has failed.  All but one follow: they write tensors only.
   * `run` names the temporary folder: one number in all of them, another in the next run. */
  hp_status (*agree)(void *ctx, hp_status mine); /* NULL: one process */
  bool follows;
  int64_t run;
  void *ctx; /* of write and agree */
} checkpoint_content;

/* Writes and commits OUT/checkpoint-STEP, in place of one that is there.  On failure nothing is
 * left behind but what was there before. */
hp_status checkpoint_save(const char *out_dir, const checkpoint_content *c);
/* Deletes the oldest committed checkpoints so that `keep` are left (0 = all stay); never the one of
 * `spare`. */
hp_status checkpoint_prune(const char *out_dir, int64_t keep, int64_t spare);

/* Deletes all committed checkpoints, for a run that begins anew; tells how many. */
hp_status checkpoint_forget(const char *out_dir);

/* --- finding ---------------------------------------------------------------------------------- */

typedef struct {
  char path[1024];
  int64_t step;
  tree manifest; /* tree_free */
} checkpoint;

/* Reads the manifest of one, which must be whole; HP_ERR_INPUT says what is wrong with it. */
hp_status checkpoint_open(const char *path, checkpoint *out);
/* The same, and every file must have the size and hash that it names. */
hp_status checkpoint_verify(const char *path, checkpoint *out);
/* The newest that verifies.  *found false when there is none; `skipped` gets one line for each that
 * does not verify. */
hp_status checkpoint_newest(const char *out_dir, checkpoint *out, bool *found, str *skipped);
void checkpoint_free(checkpoint *c);

#endif
