/* The end of a run: its results, the evaluation after it, its report. */
#include "base/log.h"
#include "train/signals.h"
#include "train/trainer_state.h"

static void tell_plots(const run_files *f) {
  str names = {0};
  if (run_files_plots(f, &names)) trainer_go_without("a figure");
  if (names.len) log_info("figures:\n%s", names.at);
  str_free(&names);
}

/* The evaluation after training: as in LlamaFactory its results have files, and the log no line. */
static hp_status tell_evaluation(trainer *t, bool *stopped) {
  bool save = false;
  size_t before = t->log.entry.len;
  HP_TRY(trainer_evaluate(t, EVAL_AFTER, &save, stopped));
  if (*stopped) return HP_OK;
  int n = (int)(t->log.entry.len - before);
  run_entry *e = mem_calloc((size_t)n, sizeof *e);
  HP_TRY_MEM(e);
  hp_status st = HP_OK;
  for (int i = 0; i < n && !st; i++)
    st = run_log_eval_results(&t->log, &t->log.entry.at[before + (size_t)i], &e[i]);
  if (!st) st = trainer_tell_results(&t->console, e, n, "eval");
  if (!st && t->job.writes) st = run_files_results(&t->console.files, e, n, "eval");
  mem_free(e);
  return st;
}

/* The evaluation and the predictions that the configuration asks for. */
static hp_status evaluate_after(trainer *t, bool *stopped) {
  const train_config *c = &t->config;
  if (c->is.evaluate_after && t->data.sets.evals) HP_TRY(tell_evaluation(t, stopped));
  if (c->do_predict && !*stopped) HP_TRY(trainer_predict(t, stopped));
  int64_t signal;
  if (!*stopped) return HP_OK;
  HP_TRY(hp_world_max(signals_taken(), &signal));
  if (t->console.open)
    log_info("%s: stopped before the evaluation was over; run it again to complete it",
             signals_name((int)signal));
  return HP_OK;
}

hp_status trainer_end_evaluation(trainer *t) {
  bool stopped = false;
  HP_TRY(trainer_prepare_predictions(&t->config, &t->data.sets, &t->model));
  HP_TRY(trainer_open_files(&t->job, t->at.step, &t->log, &t->console));
  if (t->job.processes == 1) signals_note(); /* several note them from their start */
  return evaluate_after(t, &stopped);
}

hp_status trainer_end(trainer *t) {
  run_entry e;
  bool stopped = false;
  progress_clear(&t->console.bar);
  HP_TRY(run_log_finished(&t->log, &e));
  HP_TRY(trainer_tell_entry(&t->console, &e));
  HP_TRY(trainer_tell_results(&t->console, &e, 1, "train"));
  if (t->job.writes) HP_TRY(run_files_state(&t->log, t->config.output_dir));
  if (t->job.writes) HP_TRY(run_files_finish(&t->console.files));
  if (t->job.writes && t->config.plot_loss) tell_plots(&t->console.files);
  HP_TRY(evaluate_after(t, &stopped));
  if (stopped) return HP_OK;
  err_report failed = {.code = HP_OK};
  if (t->job.writes && run_files_card(&t->console.files)) trainer_go_without("README.md");
  hp_status st = t->job.writes ? run_files_results(&t->console.files, &e, 1, "train") : HP_OK;
  if (st) err_take(st, &failed); /* the other processes are at the report */
  trainer_report(t, "finished", true);
  if (failed.code) return err_give(&failed);
  if (t->job.writes) log_info("done: %s", t->config.output_dir);
  return HP_OK;
}
