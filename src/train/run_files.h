/* The files that a run leaves in its folder, in the form and under the names of LlamaFactory.
 * Whole files are replaced atomically, in several tries where that fails; trainer_log.jsonl grows
 * by whole lines, and lines that cannot be written wait. */
#ifndef TRAIN_RUN_FILES_H
#define TRAIN_RUN_FILES_H

#include "report/append_log.h"
#include "train/run_log.h"
#include "report/tensorboard.h"

typedef struct {
  const run_log *log;
  char *dir;          /* output_dir */
  append_log lines;   /* trainer_log.jsonl */
  tensorboard *board; /* NULL: report_to has no tensorboard */
} run_files;

/* Makes the folder.  A run from step 0 begins a new trainer_log.jsonl; a resumed one keeps the
 * lines up to the step it goes on from (log->step) and drops what a killed run wrote after it.
 * log must outlive out. */
hp_status run_files_open(const run_log *log, run_files *out);
void run_files_close(run_files *f);

/* An entry that was just made: to trainer_log.jsonl and TensorBoard, or to what waits for them.
 * shown: its console line is appended to it. */
hp_status run_files_log(run_files *f, const run_entry *e, str *shown);
/* Writes what waits, in several tries; HP_ERR_IO when it cannot be. */
hp_status run_files_finish(run_files *f);
/* trainer_state.json in dir (a checkpoint's, or the run's). */
hp_status run_files_state(const run_log *log, const char *dir);
/* SPLIT_results.json of n entries; split: "train" or "eval".  That of "train" comes last of a run:
 * by it a run is known as finished. */
hp_status run_files_results(const run_files *f, const run_entry *e, int n, const char *split);
hp_status run_files_all_results(const run_files *f, const run_entry *e, int n);
/* training_loss.png and .svg, training_eval_loss.png and .svg: those that have points.  The names
 * of the files written are appended to shown, a line each. */
hp_status run_files_plots(const run_files *f, str *shown);
/* README.md, the model card. */
hp_status run_files_card(const run_files *f);

/* run_card.c */
void run_card_print(const run_log *r, str *out);

#endif
