/* The files that a run leaves in its folder, in the form and under the names of LlamaFactory.
 * Whole files are replaced atomically; trainer_log.jsonl grows by one whole line a write. */
#ifndef TRAIN_RUN_FILES_H
#define TRAIN_RUN_FILES_H

#include "train/run_log.h"
#include "train/tensorboard.h"

typedef struct {
  const run_log *log;
  char *dir; /* output_dir */
  int lines; /* trainer_log.jsonl, open to append; -1: not */
  char *lines_path;
  tensorboard *board; /* NULL: report_to has no tensorboard */
} run_files;

/* Makes the folder.  A run from step 0 begins a new trainer_log.jsonl; a resumed one keeps the
 * lines up to the step it goes on from (log->step) and drops what a killed run wrote after it.
 * log must outlive out. */
hp_status run_files_open(const run_log *log, run_files *out);
void run_files_close(run_files *f);

/* An entry that was just made: to trainer_log.jsonl and TensorBoard.  shown: its console line is
 * appended to it. */
hp_status run_files_log(run_files *f, const run_entry *e, str *shown);
/* trainer_state.json in dir (a checkpoint's, or the run's). */
hp_status run_files_state(const run_log *log, const char *dir);
/* SPLIT_results.json and all_results.json of n entries; split: "train" or "eval". */
hp_status run_files_results(const run_files *f, const run_entry *e, int n, const char *split);
/* training_loss.png and .svg, training_eval_loss.png and .svg: those that have points.  The names
 * of the files written are appended to shown, a line each. */
hp_status run_files_plots(const run_files *f, str *shown);
/* README.md, the model card. */
hp_status run_files_card(const run_files *f);

/* run_card.c */
void run_card_print(const run_log *r, str *out);

#endif
