/* Checkpoints of a run: committed or invisible, verified before use.
 *
 *   OUT/run.lock                 flock while a run writes here; a dead process holds none.  Gone
 *                                when the run ends, and with it folders that it left empty
 *   OUT/.tmp-checkpoint-N-PID/   being written
 *   OUT/checkpoint-N/            committed: its files and MANIFEST.json with their sizes and hashes
 *
 * Order of a save: every file written and fsynced, the folder fsynced, the manifest written last
 * and fsynced, the folder renamed, OUT fsynced; only then are older ones deleted.  So at any
 * instant of any death each visible folder is whole, and a damaged one is found by its hashes. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "base/safetensors.h"
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
/* Removes .tmp-* folders that dead runs left; call with the lock held. */
hp_status checkpoint_clean(const char *out_dir);

/* --- saving ----------------------------------------------------------------------------------- */

typedef struct {
  const char *name; /* file in the checkpoint, e.g. "trainer_state.json" */
  const char *bytes;
  size_t len;
} checkpoint_text;

/* A safetensors file whose data is written tensor by tensor by `write` (see weights_options). */
typedef struct {
  const char
      *name; /* "optimizer.safetensors"; "model.safetensors" is sharded as transformers does */
  const st_tensor *tensor;
  size_t n;
  hp_status (*write)(void *ctx, size_t i, st_writer *out);
  void *ctx;
} checkpoint_tensors;

typedef struct {
  const checkpoint_tensors *tensors;
  size_t n_tensors;
  const checkpoint_text *text;
  size_t n_text;
  const char *const *copy; /* paths of files that are copied as they are (tokenizer, ...) */
  size_t n_copy;
  int64_t step;
  const char *state; /* JSON object that goes into the manifest: what a resume needs */
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

/* Checks one: manifest there and whole, every file of the size and hash it names.  HP_ERR_INPUT
 * names the file and what is wrong with it. */
hp_status checkpoint_verify(const char *path, checkpoint *out);
/* The newest that verifies.  *found false when there is none; `skipped` gets one line for each that
 * does not verify. */
hp_status checkpoint_newest(const char *out_dir, checkpoint *out, bool *found, str *skipped);
void checkpoint_free(checkpoint *c);

#endif
