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
#include "train/step_data.h"
#include "train/step_memory.h"
#include "train/train_data.h"

/* The processes of the job; one prints and writes the run's folder. */
typedef struct {
  int processes;
  bool writes; /* does this process write? */
  int64_t run; /* random number of this run, the same in all processes */
} run_job;

/* output_dir as a folder of checkpoints, locked by process 0 while it runs. */
typedef struct {
  run_lock *lock;
  run_line line; /* the line of the run */
  bool anew;     /* does this start begin the line, at step 0, in place of the folder's? */
  checkpoint_memo memo;
} run_folder;

/* The checkpoint from which a run resumes. */
typedef struct {
  bool found; /* is there one? */
  bool here;  /* is it in output_dir? */
  checkpoint from;
} run_origin;

typedef struct {
  tokenizer *tokenizer;
  train_data sets;
  step_data step;    /* the current step */
  train_batch batch; /* of evaluation */
  int32_t *shifted;  /* its labels shifted left by one, for the graph */
} run_data;

/* The model on its device, and what steps and evaluates it. */
typedef struct {
  hp_device *d;
  hp_limits limits; /* of the machine */
  lm *m;
  double flops_per_token; /* as Transformers counts total_flos */
  step_options options;
  stepper *stepper;
  schedule rate;
  int64_t verified;  /* step after which replicas were last compared, -1 = never */
  lm_scorer *scorer; /* of evaluation, for [scorer_B, scorer_T]; NULL until used */
  int64_t scorer_B, scorer_T;
} run_model;

/* Console output and logs of a running run, by the process that writes. */
typedef struct {
  bool open; /* are its files open? */
  run_files files;
  progress bar;
  bool unheard; /* stdout is closed */
} run_console;

typedef struct {
  int64_t step, steps; /* done, of the run */
  bool resumed;
  double grad_norm, lr, loss; /* of the last step */
  int64_t tokens;             /* of it, padding included */
} run_progress;

/* One of each a step of this process: for the report. */
typedef struct {
  VEC(double) step, seconds, tokens_per_s;
} run_times;

typedef struct {
  int64_t last;           /* step of the newest checkpoint, -1 = none */
  retry failing;          /* saves that failed since; alike in all processes */
  model_files with_model; /* tokenizer and the like, as they were at the start; of the writer */
} run_saves;

/* A run.  A function that needs one or a few parts takes these. */
typedef struct {
  train_config config;   /* as it was given, with what a checkpoint decides; it owns nothing */
  run_settings settings; /* that decide the numbers */
  run_job job;
  run_folder folder;
  run_origin origin;
  run_data data;
  run_model model;
  train_flow flow;
  run_progress at;
  run_log log;
  run_console console;
  run_times times;
  run_saves saves;
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
/* Are the model and the files that come with it in dir, whole as far as can be seen without reading
 * all weights? */
bool trainer_is_exported(const char *dir, const model_files *with);
/* Is there a file of that name in the folder? */
bool trainer_has_file(const char *dir, const char *name);

/* trainer_find.c */
/* The checkpoint to go on from: process 0 looks for it and verifies all of it, the others open what
 * it found. */
hp_status trainer_find_checkpoint(const train_config *c, const run_job *job, run_folder *f,
                                  run_origin *out);
/* The run begins: its line is that of the folder from now on, and what is not of it is set aside,
 * or deleted where the configuration says so.  Call when nothing can be refused any more. */
hp_status trainer_begin_line(const train_config *c, const run_job *job, const run_folder *f);

/* trainer_batch.c */
/* Takes from the checkpoint how many samples make up a step: on another mesh the micro-batch or the
 * accumulation of the configuration gives way. */
hp_status trainer_keep_batch(const checkpoint *from, train_config *c);

/* trainer_resume.c */
/* Continues from it, where there is one; *finished: it is the end of the run, which has told its
 * results. */
hp_status trainer_resume(trainer *t, bool *finished);

/* trainer_verify.c */
/* Compares what replicas hold, unless that has been done since the last step or the configuration
 * says never.  HP_ERR_DEVICE. */
hp_status trainer_verify(const train_config *c, int64_t step, run_model *m);
/* The same where a step has a number that asks for it. */
hp_status trainer_verify_step(const train_config *c, int64_t step, run_model *m);

/* trainer_tell.c: console and files of the log */
hp_status trainer_tell_start(trainer *t);
hp_status trainer_tell_entry(run_console *c, const run_entry *e);
/* T: tokens of a row of the last batch. */
void trainer_tell_progress(run_console *c, const lm *m, int64_t T, const run_progress *at);
/* The log begins to count time, and its files are opened where this process writes them. */
hp_status trainer_open_files(const run_job *job, int64_t step, run_log *log, run_console *c);
/* Prints the metrics of n entries and writes them into all_results.json. */
hp_status trainer_tell_results(run_console *c, const run_entry *e, int n, const char *split);

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
bool trainer_evaluates(const train_config *c);
/* Compiles the largest batch of every evaluation set, when there will be an evaluation. */
hp_status trainer_prepare_evaluation(const train_config *c, const train_data *d, run_model *m);
/* The schedule follows the metric of EVAL_STEP only; the entries of EVAL_AFTER, when the run is
 * over, go into the history but not into the log's files. */
typedef enum { EVAL_START, EVAL_STEP, EVAL_AFTER } eval_when;
hp_status trainer_evaluate(trainer *t, eval_when when, bool *save);

#endif
