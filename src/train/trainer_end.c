/* The end of a run: its results, the evaluation after it, its report. */
#include "base/log.h"
#include "train/trainer_parts.h"

static void tell_plots(trainer *t) {
  str names = {0};
  if (run_files_plots(&t->files, &names)) trainer_go_without("a figure");
  if (names.len) log_info("figures:\n%s", names.at);
  str_free(&names);
}

/* The evaluation after training: as in LlamaFactory its results have files, and the log no line. */
static hp_status tell_evaluation(trainer *t) {
  bool save = false;
  size_t before = t->log.entry.len;
  HP_TRY(trainer_evaluate(t, EVAL_AFTER, &save));
  int n = (int)(t->log.entry.len - before);
  run_entry *e = mem_calloc((size_t)n, sizeof *e);
  HP_TRY_MEM(e);
  hp_status st = HP_OK;
  for (int i = 0; i < n && !st; i++)
    st = run_log_eval_results(&t->log, &t->log.entry.at[before + (size_t)i], &e[i]);
  if (!st) st = trainer_tell_results(t, e, n, "eval");
  if (!st && t->writes) st = run_files_results(&t->files, e, n, "eval");
  mem_free(e);
  return st;
}

hp_status trainer_end_evaluation(trainer *t) {
  HP_TRY(trainer_open_files(t));
  return tell_evaluation(t);
}

hp_status trainer_end(trainer *t) {
  run_entry e;
  progress_clear(&t->bar);
  HP_TRY(run_log_finished(&t->log, &e));
  HP_TRY(trainer_tell_entry(t, &e));
  HP_TRY(trainer_tell_results(t, &e, 1, "train"));
  if (t->writes) HP_TRY(run_files_state(&t->log, t->c->output_dir));
  if (t->writes) HP_TRY(run_files_finish(&t->files));
  if (t->writes && t->c->plot_loss) tell_plots(t);
  if (t->c->is.evaluate_after && t->data.evals) HP_TRY(tell_evaluation(t));
  if (!t->writes) return HP_OK;
  if (run_files_card(&t->files)) trainer_go_without("README.md");
  HP_TRY(run_files_results(&t->files, &e, 1, "train"));
  trainer_report(t, "finished", true);
  log_info("done: %s", t->c->output_dir);
  return HP_OK;
}
