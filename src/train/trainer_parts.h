/* The state of a run, shared by the files trainer*.c. */
#ifndef TRAIN_TRAINER_PARTS_H
#define TRAIN_TRAINER_PARTS_H

#include "ckpt/model_files.h"
#include "model/lm_eval.h"
#include "ckpt/checkpoint.h"
#include "report/progress.h"
#include "base/retry.h"
#include "train/run_files.h"
#include "train/run_log.h"
#include "train/settings.h"
#include "train/step.h"
#include "train/train_data.h"

typedef struct {
  const train_config *c; /* own */
  train_config own;      /* as it was given, with what a checkpoint decides; it owns nothing */
  checkpoint from;       /* that the run goes on from */
  bool found;            /* is there one? */
  run_settings settings; /* that decide the numbers */
  hp_device *d;
  lm *m;
  tokenizer *t;
  model_files with_model; /* tokenizer and the like, as they were at the start; of the writer */
  train_data data;
  train_flow flow;
  schedule rate;
  step_options so;
  stepper *stepper;
  int processes; /* of the job */
  bool writes;   /* is this the one that prints, and writes the run's folder? */
  int64_t run;   /* a number of this run, the same in all of them */
  run_lock *lock;
  run_line line;        /* that the run goes on in; of process 0 */
  bool anew;            /* does this start begin it, at step 0, in place of what the folder has? */
  checkpoint_memo memo; /* the checkpoints of its folder */
  run_log log;
  run_files files;
  bool files_open;
  progress bar;
  train_batch batch;
  int32_t *shifted;  /* labels moved one to the left, for the graph */
  lm_scorer *scorer; /* of evaluation; NULL until used */
  int64_t scorer_B, scorer_T;
  int64_t step, steps;    /* done, of the run */
  int64_t last_saved;     /* step of the newest checkpoint, -1 = none */
  retry unsaved;          /* saves that failed since; alike in all processes */
  int64_t verified;       /* step after which replicas were compared last, -1 = never */
  double flops_per_token; /* as Transformers counts total_flos */
  double grad_norm, lr, last_loss;
  int64_t step_tokens; /* of the last step, padding included */
  hp_limits limits;    /* of the machine */
  /* one a step of this process: for the report */
  VEC(double) steps_done, step_seconds, tokens_per_s;
  bool resumed;
  bool saved_here; /* does the checkpoint that it was resumed from lie in output_dir? */
  bool unheard;    /* nobody reads stdout any more */
} trainer;

/* trainer_save.c */
/* After a step: writes OUT/checkpoint-STEP and prunes, when it is asked for or an earlier save has
 * failed and is due again.  A failed one is told, and fails only after max_failed_saves in a row.
 * Of several processes each writes its parts of the tensors, and all come to the same result. */
hp_status trainer_save(trainer *t, bool asked);
/* The checkpoint after a signal, when little time is left: tries several times, then fails. */
hp_status trainer_save_now(trainer *t);
/* The checkpoint at the end of a run: waits and tries as often as max_failed_saves allows; from a
 * signal on as trainer_save_now does. */
hp_status trainer_save_last(trainer *t);
/* Model, tokenizer and configuration into OUT, as Transformers exports them, in several tries; the
 * other processes give their parts to the one that writes. */
hp_status trainer_export(trainer *t);
/* At the end of a run: deletes what a process that was ended between two steps of a save has left,
 * as a checkpoint beyond save_total_limit, or a file that it still held when this run began. */
void trainer_tidy(trainer *t);
/* Are they there, whole as far as can be seen without reading all weights? */
bool trainer_is_exported(const trainer *t);
/* Is there a file of that name in the folder? */
bool trainer_has_file(const char *dir, const char *name);

/* trainer_find.c */
/* The checkpoint to go on from: process 0 looks for it and verifies all of it, the others open what
 * it found. */
hp_status trainer_find_checkpoint(trainer *t, checkpoint *c, bool *found);
/* The run begins: its line is that of the folder from now on, and what is not of it is set aside,
 * or deleted where the configuration says so.  Call when nothing can be refused any more. */
hp_status trainer_begin_line(trainer *t);

/* trainer_batch.c */
/* Takes from the checkpoint how many samples make up a step: on another mesh the micro-batch or the
 * accumulation of `own` gives way. */
hp_status trainer_keep_batch(trainer *t);
/* Labels of b moved one to the left, row by row: position t is to predict token t + 1. */
void trainer_shift_labels(const train_batch *b, int32_t *out);

/* trainer_resume.c */
/* Continues from it, where there is one; *finished: it is the end of the run, which has told its
 * results. */
hp_status trainer_resume(trainer *t, bool *finished);

/* trainer_verify.c */
/* Compares what replicas hold, unless that has been done since the last step or the configuration
 * says never.  HP_ERR_DEVICE. */
hp_status trainer_verify(trainer *t);
/* The same where a step has a number that asks for it. */
hp_status trainer_verify_step(trainer *t);

/* trainer_tell.c: console and files of the log */
hp_status trainer_tell_start(trainer *t);
hp_status trainer_tell_entry(trainer *t, const run_entry *e);
void trainer_tell_progress(trainer *t);
/* Opens the files of the log, where this process writes them. */
hp_status trainer_open_files(trainer *t);
/* Prints the metrics of n entries and writes them into all_results.json. */
hp_status trainer_tell_results(trainer *t, const run_entry *e, int n, const char *split);

/* trainer_end.c */
hp_status trainer_end(trainer *t);
/* Of a run that only evaluates (do_train: false): its results and their files, nothing else. */
hp_status trainer_end_evaluation(trainer *t);

/* trainer_report.c: report.html, and a word when it cannot be written */
void trainer_report(const trainer *t, const char *status, bool finished);
/* After a failure to write what a run can do without: tells it. */
void trainer_go_without(const char *what);

/* trainer_eval.c */
/* Are there evaluations, where there are sets for them? */
bool trainer_evaluates(const trainer *t);
/* Compiles the largest batch of every evaluation set, when there will be an evaluation. */
hp_status trainer_prepare_evaluation(trainer *t);
/* The schedule follows the metric of EVAL_STEP only; the entries of EVAL_AFTER, when the run is
 * over, go into the history but not into the log's files. */
typedef enum { EVAL_START, EVAL_STEP, EVAL_AFTER } eval_when;
hp_status trainer_evaluate(trainer *t, eval_when when, bool *save);

#endif
