/* The files that a run writes into its folder, with the form and names of LlamaFactory.  Files
 * are replaced atomically, with several tries on failure; trainer_log.jsonl grows by complete
 * lines, and lines that cannot be written wait. */
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

/* Makes the folder.  A run from step 0 begins a new trainer_log.jsonl; a resumed run keeps the
 * lines up to its first step (log->step) and removes later ones of a killed run.  log must
 * outlive out. */
hp_status run_files_open(const run_log *log, run_files *out);
void run_files_close(run_files *f);

/* Writes the latest entry to trainer_log.jsonl and TensorBoard, or queues it.  Appends its
 * console line to `shown`. */
hp_status run_files_log(run_files *f, const run_entry *e, str *shown);
/* Writes what is queued, with several tries; HP_ERR_IO if it fails. */
hp_status run_files_finish(run_files *f);
/* trainer_state.json in dir (a checkpoint's, or the run's). */
hp_status run_files_state(const run_log *log, const char *dir);
/* SPLIT_results.json of n entries; split: "train" or "eval".  That of "train" is the last file
 * of a run: it marks the run as finished. */
hp_status run_files_results(const run_files *f, const run_entry *e, int n, const char *split);
hp_status run_files_all_results(const run_files *f, const run_entry *e, int n);
/* training_loss.png and .svg, training_eval_loss.png and .svg, if they have points.  Appends the
 * names of the files to `shown`, one per line. */
hp_status run_files_plots(const run_files *f, str *shown);
/* README.md, the model card. */
#define PREDICTIONS_FILE "generated_predictions.jsonl"
hp_status run_files_predictions(const run_files *f, const str *lines);
hp_status run_files_card(const run_files *f);

/* run_card.c */
void run_card_print(const run_log *r, str *out);

#endif
