/* Checkpoints of a run and the exported model. */
#include "base/dtype.h"
#include "base/json.h"
#include "base/log.h"
#include "base/milestone.h"
#include "base/thread.h"
#include "ckpt/weights.h"
#include "model/adapter_files.h"
#include "train/signals.h"
#include "train/trainer_tensors.h"

#include <string.h>

/* A run that waits for its last save sees so often whether it is asked to end. */
#define LOOK_S 0.2

/* --- texts ------------------------------------------------------------------------------------ */

/* config.json as it was read, with the dtype of what is saved. */
static hp_status print_config(const lm *m, hp_dtype type, str *out) {
  model_config_print(m->c.source.root, type, out);
  return str_status(out);
}

static const char *config_name(const lm *m) { return m->adapter ? ADAPTER_CONFIG : "config.json"; }

/* The configuration of what is saved: of the model, or of the adapter. */
static hp_status print_own_config(const trainer *t, hp_dtype type, str *out) {
  const lm *m = t->model.m;
  if (!m->adapter) return print_config(m, type, out);
  bool transposed = m->linears.len && m->linears.at[0].transposed;
  return adapter_print_config(m->adapter, t->config.model_name_or_path, transposed, out);
}

/* What a resume needs besides tensors and history; what must not have changed comes first.  tuning:
 * of engines, as the device tells them. */
static hp_status print_state(const trainer *t, const char *tuning, str *out) {
  const sampler_spec *s = &t->data.sets.order.spec;
  json_writer w = {.out = out};
  str rate = {0}, sums = {0};
  schedule_print_state(&t->model.rate, &rate);
  run_log_print_sums(&t->log, &sums);
  json_open_map(&w);
  json_put_key(&w, "samples"), json_put_int(&w, s->samples);
  json_put_key(&w, "epoch_samples"), json_put_int(&w, s->epoch_samples);
  json_put_key(&w, "global_batch_size"), json_put_int(&w, s->batch * s->accumulation);
  json_put_key(&w, "replicas"), json_put_int(&w, t->config.is.batch.replicas);
  json_put_key(&w, "per_device_train_batch_size"), json_put_int(&w, t->config.is.batch.per_device);
  json_put_key(&w, "gradient_accumulation_steps"), json_put_int(&w, s->accumulation);
  if (t->config.is.by_length)
    json_put_key(&w, "length_group"), json_put_int(&w, t->config.is.batch.length_group);
  settings_print(&t->settings, &w);
  json_put_key(&w, "optimizer"),
      json_put_string(&w, optimizers[t->model.options.optimizer.kind].name);
  json_put_key(&w, "optimizer_saved"), json_put_bool(&w, !t->config.save_only_model);
  json_put_key(&w, "engine"), json_put_string(&w, hp_device_engine(t->model.d));
  json_put_key(&w, "engine_picks"), json_put_string(&w, tuning);
  json_put_key(&w, "schedule"), json_put_string(&w, rate.at ? rate.at : "");
  json_put_key(&w, "loss_sums"), json_put_string(&w, sums.at ? sums.at : "");
  json_close(&w);
  hp_status st = rate.failed || sums.failed ? HP_ERR_OOM : str_status(out);
  str_free(&rate);
  str_free(&sums);
  return st;
}

/* --- the folder ------------------------------------------------------------------------------- */

/* A failure of one is a failure of all. */
static hp_status agree(hp_status mine) {
  bool all;
  if (hp_world_agree(mine == HP_OK, &all) || mine) return mine ? mine : HP_ERR_COMM;
  if (!all) HP_FAIL(HP_ERR_COMM, "another process could not write its shards");
  return HP_OK;
}

/* Nobody has begun another run there while its lock was lost. */
static hp_status check_line(const char *out, const run_line *line) {
  run_line l = {0};
  bool there = false;
  if (run_line_load(out, &l, &there)) err_clear(); /* damaged: it says nothing of another run */
  bool other = there && strcmp(l.id, line->id) != 0;
  run_line_free(&l);
  if (other)
    HP_FAIL(HP_ERR_INPUT,
            "%s: another run has begun there while this one went on; it ends, and writes nothing "
            "more: choose another output_dir",
            out);
  return there ? HP_OK : run_line_save(out, line);
}

static hp_status keep(const char *out, const run_folder *f) {
  HP_TRY(run_lock_keep(f->lock));
  hp_status st = check_line(out, &f->line);
  if (st != HP_ERR_IO) return st;
  err_clear(); /* what is to be written fails for the same reason, and is tried again */
  return HP_OK;
}

/* The folder is this run's, or it ends: somebody may have deleted it, and begun another run there.
 */
static hp_status keep_folder(const trainer *t) {
  return agree(t->job.writes ? keep(t->config.output_dir, &t->folder) : HP_OK);
}

/* --- saving ----------------------------------------------------------------------------------- */

static hp_status save_tensors(void *context, const char *dir) {
  trainer *t = context;
  trainer_tensors model, states;
  HP_TRY(trainer_tensors_model(&t->config, &t->job, &t->model, TENSORS_ALL, &model));
  hp_status st = trainer_tensors_save(&model, dir);
  trainer_tensors_free(&model);
  if (st || t->config.save_only_model) return st;
  HP_TRY(trainer_tensors_states(&t->config, &t->job, &t->model, &states));
  st = trainer_tensors_save(&states, dir);
  trainer_tensors_free(&states);
  return st;
}

/* What cannot be deleted costs space, not the run. */
static void prune(const train_config *c, run_folder *f, const run_log *log, int64_t step) {
  checkpoint_limit limit = {.line = &f->line,
                            .keep = c->save_total_limit == TRAIN_NONE ? 0 : c->save_total_limit,
                            .saved = step,
                            .best = log->best_saved ? log->best_step : -1,
                            .memo = &f->memo};
  if (!checkpoint_prune(c->output_dir, &limit)) return;
  log_warn("%s; older checkpoints stay", err_message());
  err_clear();
}

/* A save takes long, and its process may be stopped meanwhile: a second look, so that only a stop
 * in the middle of the rename itself puts a checkpoint into another run's folder. */
static hp_status may_commit(void *context) {
  const trainer *t = context;
  return keep(t->config.output_dir, &t->folder);
}

static hp_status agree_save(void *context, hp_status mine) {
  (void)context;
  return agree(mine);
}

/* The texts of a checkpoint: config.json, trainer_state.json, and the manifest's state. */
enum { CONFIG, HISTORY, STATE, TEXTS };
static hp_status print_texts(trainer *t, str text[TEXTS]) {
  char *tuning;
  HP_TRY(print_own_config(t, HP_F32, &text[CONFIG]));
  run_log_print_state(&t->log, &text[HISTORY]);
  HP_TRY(str_status(&text[HISTORY]));
  HP_TRY(hp_device_tuning(t->model.d, &tuning));
  hp_status st = print_state(t, tuning, &text[STATE]);
  hp_free(tuning);
  return st;
}

static hp_status save(trainer *t, str text[TEXTS]) {
  enum { OWN = 2 };
  checkpoint_text texts[OWN + MODEL_FILES_MAX];
  const model_files *with = &t->saves.with_model;
  HP_TRY(agree(print_texts(t, text)));
  texts[0] = (checkpoint_text){config_name(t->model.m), text[CONFIG].at, text[CONFIG].len};
  texts[1] = (checkpoint_text){"trainer_state.json", text[HISTORY].at, text[HISTORY].len};
  for (size_t i = 0; i < with->n; i++)
    texts[OWN + i] = (checkpoint_text){with->file[i].name, with->file[i].bytes, with->file[i].len};
  checkpoint_content c = {.write = save_tensors,
                          .ctx = t,
                          .text = texts,
                          .n_text = OWN + with->n,
                          .step = t->at.step,
                          .state = text[STATE].at,
                          .line = &t->folder.line,
                          .agree = t->job.processes > 1 ? agree_save : NULL,
                          .follows = !t->job.writes,
                          .run = t->job.run,
                          .may_commit = may_commit};
  return checkpoint_save(t->config.output_dir, &c);
}

/* What a try that failed could not remove either takes space from the next one. */
static void clean_up(const trainer *t) {
  if (t->job.writes && t->saves.failing.failed && checkpoint_clean(t->config.output_dir))
    err_clear();
}

/* One try: OUT/checkpoint-STEP is there and older ones are pruned, or nothing has changed. */
static hp_status write_checkpoint(trainer *t) {
  str text[TEXTS] = {{0}};
  clean_up(t);
  bool best_before = t->log.best_saved;
  run_log_saved(&t->log); /* what the checkpoint says of itself */
  const char *before = milestone_set_activity("writing a checkpoint");
  hp_status st = save(t, text);
  milestone_set_activity(before);
  for (int i = 0; i < TEXTS; i++) str_free(&text[i]);
  if (st) {
    t->log.best_saved = best_before;
    return st;
  }
  t->saves.last = t->at.step;
  milestone_set_saved(t->at.step);
  log_debug("checkpoint-%lld written", (long long)t->at.step);
  if (t->job.writes) {
    checkpoint_memo_good(&t->folder.memo, t->config.output_dir, t->at.step);
    prune(&t->config, &t->folder, &t->log, t->at.step);
  }
  return HP_OK;
}

/* --- saves that fail -------------------------------------------------------------------------- */

/* A try failed: where the folder is another run's by now, the run ends instead of trying again.
 * The message of the try stays otherwise. */
static hp_status keep_after_failure(const trainer *t, hp_status st) {
  err_report why;
  err_take(st, &why);
  HP_TRY(keep_folder(t));
  (void)err_give(&why);
  return HP_OK;
}

static void tell_saved_again(run_saves *s, int64_t step) {
  if (s->failing.failed)
    log_info("checkpoint-%lld is written, after %lld tries that failed", (long long)step,
             (long long)s->failing.failed);
  s->failing = (retry){0};
}

/* Also of a process that is quiet otherwise, where the failure is its own. */
static void tell_failed(const trainer *t, hp_status st, const char *meanwhile) {
  str newest = {0};
  if (t->saves.last >= 0) str_printf(&newest, "checkpoint-%lld", (long long)t->saves.last);
  bool own = st != HP_ERR_COMM && !t->job.writes;
  log_line(own ? LOG_QUIET : LOG_WARN,
           "%scheckpoint-%lld could not be written: %s; %s, the next try is in %.3g s, the newest "
           "checkpoint is %s (failure %lld in a row, max_failed_saves: %lld)",
           own ? "warning: " : "", (long long)t->at.step, err_message(), meanwhile,
           t->saves.failing.pause_s, newest.len ? newest.at : "none yet",
           (long long)t->saves.failing.failed, (long long)t->config.max_failed_saves);
  str_free(&newest);
}

/* All processes fail together, so each counts for itself.  meanwhile: what the run does until the
 * next try. */
static hp_status count_failure(trainer *t, hp_status st, double began, const char *meanwhile) {
  int64_t most = t->config.max_failed_saves;
  double now = time_now_s();
  HP_TRY(keep_after_failure(t, st));
  retry_failed(&t->saves.failing, now, now - began);
  if (most && t->saves.failing.failed >= most) {
    err_report why;
    err_take(st, &why);
    HP_FAIL(st,
            "checkpoint-%lld could not be written: %s; the run ends, as after every "
            "max_failed_saves: %lld failures in a row; older checkpoints are as they were",
            (long long)t->at.step, why.message, (long long)most);
  }
  tell_failed(t, st, meanwhile);
  err_clear();
  return HP_OK;
}

/* What is saved is complete, and the same on all replicas. */
static hp_status settle(trainer *t) {
  HP_TRY(stepper_settle(t->model.stepper));
  return trainer_verify(&t->config, t->at.step, &t->model);
}

hp_status trainer_save(trainer *t, bool asked) {
  bool due = asked;
  if (t->saves.failing.failed) { /* the clock of one decides for all */
    due = retry_is_due(&t->saves.failing, time_now_s());
    HP_TRY(hp_world_broadcast(&due, sizeof due));
  }
  if (!due) return HP_OK;
  HP_TRY(settle(t));
  HP_TRY(keep_folder(t));
  double began = time_now_s();
  hp_status st = write_checkpoint(t);
  if (st) return count_failure(t, st, began, "training continues");
  tell_saved_again(&t->saves, t->at.step);
  return HP_OK;
}

/* Tries as often as what must be there before a process is killed, or at the end of a run. */
static hp_status insist(trainer *t, hp_status (*once)(trainer *t)) {
  retry r = {0};
  hp_status st;
  double began;
  do {
    began = time_now_s();
    st = once(t);
    if (st) HP_TRY(keep_after_failure(t, st));
  } while (retry_again(&r, st, began));
  return st;
}

hp_status trainer_save_now(trainer *t) {
  HP_TRY(settle(t));
  HP_TRY(keep_folder(t));
  HP_TRY(insist(t, write_checkpoint));
  tell_saved_again(&t->saves, t->at.step);
  return HP_OK;
}

/* Until the next try is due, or one of the processes is asked to end. */
static hp_status wait_for_try(const run_job *job, const retry *failing, bool *asked) {
  enum { NOTHING, DUE, ASKED };
  int64_t what = NOTHING;
  while (what == NOTHING) {
    double now = time_now_s(), look = now + LOOK_S;
    milestone_count_work();
    time_sleep_until(look < failing->next_s ? look : failing->next_s);
    bool due = job->writes && retry_is_due(failing, time_now_s());
    HP_TRY(hp_world_max(signals_taken() ? ASKED : due ? DUE : NOTHING, &what));
  }
  *asked = what == ASKED;
  return HP_OK;
}

hp_status trainer_save_last(trainer *t) {
  bool asked = false;
  HP_TRY(settle(t));
  if (t->saves.failing.failed) HP_TRY(wait_for_try(&t->job, &t->saves.failing, &asked));
  while (!asked) {
    double began = time_now_s();
    HP_TRY(keep_folder(t));
    hp_status st = write_checkpoint(t);
    if (!st) {
      tell_saved_again(&t->saves, t->at.step);
      return HP_OK;
    }
    HP_TRY(count_failure(t, st, began, "the run is done and waits"));
    HP_TRY(wait_for_try(&t->job, &t->saves.failing, &asked));
  }
  log_info("told to stop: trying the checkpoint %d more times", (int)RETRY_LAST_TRIES);
  return trainer_save_now(t);
}

/* --- export ----------------------------------------------------------------------------------- */

static hp_status export_config(const trainer *t, hp_dtype type, const char *dir) {
  str text = {0}, to = {0};
  hp_status st = print_own_config(t, type, &text);
  if (!st) st = path_join(&to, dir, config_name(t->model.m));
  if (!st) st = file_write(to.at, text.at, text.len);
  str_free(&text);
  str_free(&to);
  return st;
}

static hp_status export_value_head(const trainer *t) {
  trainer_tensors head = {0};
  if (!t->model.m->value_head) return HP_OK;
  HP_TRY(trainer_tensors_model(&t->config, &t->job, &t->model, TENSORS_OF_VALUE_HEAD, &head));
  hp_status st = trainer_tensors_export(&head, t->config.output_dir);
  trainer_tensors_free(&head);
  return st;
}

static hp_status export_once(trainer *t) {
  trainer_tensors model = {0};
  hp_status st =
      agree(trainer_tensors_model(&t->config, &t->job, &t->model, TENSORS_OF_MODEL, &model));
  hp_dtype type = st ? HP_F32 : trainer_tensors_cast(&model, t->model.m, t->config.export_dtype);
  if (!st) st = trainer_tensors_export(&model, t->config.output_dir);
  trainer_tensors_free(&model);
  if (!st) st = export_value_head(t);
  if (!st && t->config.pissa_convert) st = trainer_convert_adapter(t);
  if (!st && t->job.writes) st = model_files_write(&t->saves.with_model, t->config.output_dir);
  if (!st && t->job.writes) st = export_config(t, type, t->config.output_dir);
  if (!st && type != HP_F32)
    log_info("model written as %s%s; checkpoints keep f32", dtype_name(type),
             t->config.export_dtype == EXPORT_AUTO ? ", as the model that it started from" : "");
  return agree(st);
}

hp_status trainer_export(trainer *t) {
  HP_TRY(keep_folder(t));
  const char *before = milestone_set_activity("writing the model");
  hp_status st = insist(t, export_once);
  milestone_set_activity(before);
  return st;
}

void trainer_tidy(trainer *t) {
  if (!t->job.writes) return;
  prune(&t->config, &t->folder, &t->log, t->at.step);
  if (!checkpoint_clean(t->config.output_dir)) return;
  log_warn("%s; what an ended process left there stays", err_message());
  err_clear();
}

bool trainer_has_file(const char *dir, const char *name) {
  str path = {0};
  bool there = !path_join(&path, dir, name) && file_exists(path.at);
  str_free(&path);
  return there;
}

bool trainer_is_exported(const char *dir, const lm *m, const model_files *with) {
  weights *w;
  str path = {0};
  bool whole = trainer_has_file(dir, config_name(m));
  for (size_t i = 0; whole && i < with->n; i++) whole = trainer_has_file(dir, with->file[i].name);
  if (whole) whole = !path_join(&path, dir, m->adapter ? ADAPTER_WEIGHTS : "");
  if (whole && (whole = !weights_open(path.at, &w))) weights_free(w);
  str_free(&path);
  err_clear();
  return whole;
}
