/* The state of a run, shared by the files trainer*.c. */
#ifndef TRAIN_TRAINER_STATE_H
#define TRAIN_TRAINER_STATE_H

#include "ckpt/model_files.h"
#include "model/lm_eval.h"
#include "ckpt/checkpoint.h"
#include "report/progress.h"
#include "base/retry.h"
#include "train/predictions.h"
#include "train/run_files.h"
#include "train/run_log.h"
#include "train/settings.h"
#include "train/step.h"
#include "train/step_data.h"
#include "train/step_memory.h"
#include "train/train_data.h"

/* The processes of the job.  One of them prints and writes the files. */
typedef struct {
  int processes;
  bool writes; /* does this process write? */
  int64_t run; /* random number of this run, the same in all processes */
} run_job;

/* The folder of checkpoints, output_dir, which process 0 locks during the run. */
typedef struct {
  run_lock *lock;
  run_line line; /* of this run: ckpt/run_line.h */
  bool anew;     /* does the run start a new line at step 0, instead of resuming the folder's? */
  checkpoint_memo memo;
} run_folder;

/* The checkpoint from which a run resumes. */
typedef struct {
  bool found; /* false: the run starts at step 0 */
  bool here;  /* is it in output_dir? */
  checkpoint from;
} run_origin;

typedef struct {
  tokenizer *tokenizer;
  train_data sets;
  step_data step;       /* the current step, */
  step_data next;       /* and the one after it, */
  int64_t next_step;    /* which is this one; 0: it is not drawn */
  train_batch batch;    /* the current batch of an evaluation */
  int32_t *shifted;     /* its labels, shifted left by one for the graph */
  step_answers answers; /* of preferences: what its rows give */
} run_data;

/* The model on its device, with its training step and its evaluation. */
typedef struct {
  hp_device *d;
  hp_limits limits; /* of the machine */
  lm *m;
  double flops_per_token; /* as Transformers counts total_flos */
  step_options options;
  bool fits; /* no plan recomputes or offloads anything, though there is a memory limit */
  bool evaluation_first;  /* it needs more than steps do, so that tensors live where it has them */
  uint64_t steps_reserve; /* then: bytes of what steps alone keep on the device */
  stepper *stepper;
  schedule rate;
  int64_t verified;  /* step after which replicas were last compared, -1 = never */
  lm_scorer *scorer; /* evaluates batches [scorer_B, scorer_T]; NULL before the first */
  int64_t scorer_B, scorer_T;
} run_model;

/* Console output and log files of the run, in the process that writes. */
typedef struct {
  bool open; /* are its files open? */
  run_files files;
  progress bar;
  bool unheard; /* stdout is closed */
  bool chinese; /* was it said how Chinese texts are compared? */
} run_console;

typedef struct {
  int64_t step, steps; /* steps done; steps of the run */
  bool resumed;
  double grad_norm, lr, loss; /* of the last step */
  int64_t tokens;             /* of the last step, padding included */
} run_progress;

/* For the report: one entry per step of this process. */
typedef struct {
  VEC(double) step, seconds, tokens_per_s;
} run_times;

typedef struct {
  int64_t last;  /* step of the newest checkpoint, -1 = none */
  retry failing; /* saves that failed since then; the same in all processes */
  model_files
      with_model; /* tokenizer and other files, read at the start; in the process that writes */
} run_saves;

/* A run.  Functions that need only some of its structs take those. */
typedef struct {
  train_config config;   /* the user's, except for values that a checkpoint decides; owns nothing */
  run_settings settings; /* the settings that change results */
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

/* trainer_reference.c */
/* Fills in the log-probabilities of all samples of d by the reference model, where the loss p is
 * compared with one: that of ref_model, or m as it is, without its adapter. */
hp_status trainer_score_references(const train_config *c, const preference *p, lm *m,
                                   train_data *d);

/* trainer_save.c */
/* After a step: if `asked`, or if it is time to repeat a failed save, writes OUT/checkpoint-STEP
 * and deletes old checkpoints.  A failed save is only a warning, until max_failed_saves have failed
 * in a row.  Each process writes its shards, and all processes return the same status. */
hp_status trainer_save(trainer *t, bool asked);
/* The checkpoint after a signal, which leaves little time: fails after a few tries. */
hp_status trainer_save_now(trainer *t);
/* The checkpoint at the end of a run: up to max_failed_saves tries with pauses; after a signal,
 * like trainer_save_now. */
hp_status trainer_save_last(trainer *t);
/* Writes model, tokenizer and configuration to OUT in the layout of Transformers, in several tries.
 * The other processes send their shards to the one that writes. */
hp_status trainer_export(trainer *t);
/* trainer_convert.c: what training has made of an adapter that began with singular vectors, as a
 * plain adapter of twice the rank in OUT/pissa_converted: A with its first value below it, B with
 * the negative one beside it.  Part of trainer_export. */
hp_status trainer_convert_adapter(trainer *t);
/* At the end of a run: deletes the remains of saves that were interrupted, such as temporary files
 * and checkpoints beyond save_total_limit. */
void trainer_tidy(trainer *t);
/* Does dir hold a complete export of m: its configuration, the files of `with`, and weights that
 * can be opened? The weights themselves are not read. */
bool trainer_is_exported(const char *dir, const lm *m, const model_files *with);
/* Does the folder contain a file of that name? */
bool trainer_has_file(const char *dir, const char *name);

/* trainer_find.c */
/* Finds the checkpoint to resume: process 0 searches and verifies it, the others open it. */
hp_status trainer_find_checkpoint(const train_config *c, const run_job *job, run_folder *f,
                                  run_origin *out);
/* Makes the line of this run the line of the folder: checkpoints of other lines are moved aside, or
 * deleted if the configuration says so (overwrite_output_dir).  Call it after all checks, because
 * it changes the folder. */
hp_status trainer_begin_line(const train_config *c, const run_job *job, const run_folder *f);

/* trainer_batch.c */
/* Keeps the global batch size of the checkpoint.  On another mesh it changes the micro-batch size
 * or the gradient accumulation of the configuration accordingly. */
hp_status trainer_keep_batch(const checkpoint *from, train_config *c);

/* trainer_resume.c */
/* Resumes from the checkpoint, if there is one.  *finished: the checkpoint is of the last step; its
 * results have been printed, and nothing is left to do. */
hp_status trainer_resume(trainer *t, bool *finished);

/* trainer_verify.c */
/* Compares the replicas of all params, unless that was done after this step or
 * verify_replicas_steps is 0.  HP_ERR_DEVICE if they differ. */
hp_status trainer_verify(const train_config *c, int64_t step, run_model *m);
/* The same, only after every verify_replicas_steps-th step. */
hp_status trainer_verify_step(const train_config *c, int64_t step, run_model *m);

/* trainer_tell.c: console and files of the log */
hp_status trainer_tell_start(trainer *t);
hp_status trainer_tell_entry(run_console *c, const run_entry *e);
/* Updates the progress bar.  T: tokens per row of the last batch. */
void trainer_tell_progress(run_console *c, const lm *m, int64_t T, const run_progress *at);
/* Starts the clock of the log, and opens its files in the process that writes. */
hp_status trainer_open_files(const run_job *job, int64_t step, run_log *log, run_console *c);
/* Prints the metrics of n entries and writes them into all_results.json. */
hp_status trainer_tell_results(run_console *c, const run_entry *e, int n, const char *split);

/* trainer_end.c */
hp_status trainer_end(trainer *t);
/* The end of a run without training (do_train: false): only evaluates and writes the results. */
hp_status trainer_end_evaluation(trainer *t);

/* trainer_report.c: writes report.html, or warns that it cannot; every process calls it, for a
 * pipeline's measured rows are of all */
void trainer_report(const trainer *t, const char *status, bool finished);
/* Warns that the optional file `what` could not be written, and clears the failure. */
void trainer_go_without(const char *what);

/* trainer_eval.c */
/* Does the configuration ask for evaluations, if there are evaluation sets? */
bool trainer_evaluates(const train_config *c);
/* Compiles the program of the largest evaluation batch of each set, if there will be evaluations.
 * reserve_bytes: of the memory limit, for what is loaded later. */
hp_status trainer_prepare_evaluation(const train_config *c, const train_data *d,
                                     uint64_t reserve_bytes, run_model *m);
/* Only EVAL_STEP feeds the learning-rate schedule.  EVAL_AFTER is the evaluation at the end of the
 * run: its entries go to log_history, not to the log files. */
typedef enum { EVAL_START, EVAL_STEP, EVAL_AFTER } eval_when;
/* *save is set if the model is to be saved for being the best, *stopped if a signal ended the
 * generation of answers: then nothing is told; both are left alone otherwise. */
hp_status trainer_evaluate(trainer *t, eval_when when, bool *save, bool *stopped);

/* trainer_predict.c */
/* Checks that there is memory to generate answers, if the run will: HP_ERR_OOM. */
hp_status trainer_prepare_predictions(const train_config *c, const train_data *d, run_model *m);
/* The memory limit of a run that generates answers and nothing else, a share until then. */
hp_status trainer_share_predictions(train_config *c, const train_data *d, run_model *m);
/* Generates the answers of an evaluation set, and scores them, unless a signal stops it.  Free *out
 * (zeroed before) with predictions_free, also after a failure. */
hp_status trainer_answer(trainer *t, const sample_set *s, predictions *out, run_evaluation *x,
                         bool *stopped);
/* do_predict: generated_predictions.jsonl and predict_results.json, unless a signal stops it. */
hp_status trainer_predict(trainer *t, bool *stopped);

#endif
