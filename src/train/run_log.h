/* The history of a run, and the texts made from it: trainer_log.jsonl, trainer_state.json, the
 * results files, the lines on the console.  Names, order and form are those of Transformers and
 * LlamaFactory; numbers are written as in Python. */
#ifndef TRAIN_RUN_LOG_H
#define TRAIN_RUN_LOG_H

#include "base/tree.h"
#include "base/vec.h"
#include "metric/similarity.h"
#include "report/run_entry.h"
#include "train/preference.h"
#include "train/train_flow.h"

typedef struct {
  VEC(run_entry) entry; /* log_history; each ends with "step" */
  arena names;          /* of keys that are not literals */
  const train_config *config;
  const train_flow *flow;
  const sampler *order;
  /* the state of the run, as in trainer_state.json */
  int64_t step;
  double epoch, total_flos;
  int64_t tokens_seen;
  double best_metric; /* NAN: none yet */
  int64_t best_step;  /* 0: none */
  bool best_saved;    /* does a checkpoint of best_step exist? */
  /* sums of the losses since the last log (in f32, as in torch) and over the full run */
  float loss_sum;
  preference_metrics preferences; /* since the last log */
  double loss_total;
  int64_t logged_step;  /* of the last log of the loss */
  int64_t counted_from; /* step at which loss_total began */
  double start_s;       /* time_now_s() when training began or was resumed */
  int64_t tokens_at_start;
} run_log;

/* A new run; the three arguments must outlive it. */
void run_log_create(const train_config *c, const train_flow *f, const sampler *order, run_log *out);
void run_log_free(run_log *r);

/* After each step: its loss and counts.  `flops`: 6 x tokens x parameters without input
 * embeddings. */
void run_log_step(run_log *r, int64_t step, double epoch, float loss, double flops, int64_t tokens);
/* The entry of a log: mean loss since the last log, norm (NAN: not measured), learning rate. */
hp_status run_log_logged(run_log *r, double grad_norm, double lr, run_entry *out);
/* What an evaluation measured. */
typedef struct {
  double loss, seconds;
  int64_t samples, batches;
  preference_metrics preferences;
  double found; /* the share of tokens that the model finds (compute_accuracy) */
  bool answers; /* were answers generated (predict_with_generate)? Then there is no loss, but: */
  double similarity[SIMILARITIES];
} run_evaluation;
/* The entry of an evaluation; name "" or that of a separate eval_dataset.  *best: it is the best
 * loss so far (and metric_for_best_model is set). */
hp_status run_log_evaluated(run_log *r, const char *name, const run_evaluation *x, run_entry *out,
                            bool *best);
/* What do_predict measured; it is not part of the history. */
hp_status run_log_predicted(run_log *r, const run_evaluation *x, run_entry *out);
/* The last entry: the run's mean loss and speed. */
hp_status run_log_finished(run_log *r, run_entry *out);

/* A checkpoint of the current step exists. */
void run_log_saved(run_log *r);

/* --- texts ------------------------------------------------------------------------------------ */

/* A line of trainer_log.jsonl for the latest entry; now: time_now_s(). */
void run_log_print_line(const run_log *r, const run_entry *e, double now, str *out);
/* "{'loss': '6.395', 'grad_norm': '1.6', ...}" */
void run_log_print_console(const run_entry *e, str *out);
/* trainer_state.json */
void run_log_print_state(const run_log *r, str *out);
/* Restores the state from a trainer_state.json, to resume. */
hp_status run_log_parse_state(run_log *r, const tree_node *state);
/* The sums that trainer_state.json does not contain, as one line for a checkpoint, and back
 * (after run_log_parse_state): without them the first logged loss after a resume and the run's
 * mean loss would count from the resume on, as in Transformers. */
void run_log_print_sums(const run_log *r, str *out);
hp_status run_log_parse_sums(run_log *r, const char *text);
/* "***** train metrics *****" and its table; the split is "train", "eval" or "predict". */
void run_log_print_metrics(const run_entry *e, const char *split, str *out);
/* train_results.json, ...: the n entries merged (of a repeated key the last value), without
 * "step", plus other keys that the file already has. */
void run_log_print_results(const run_entry *e, int n, const tree_node *before, str *out);
/* The entry of an evaluation for eval_results.json, with the perplexity. */
hp_status run_log_eval_results(run_log *r, const run_entry *e, run_entry *out);

#endif
