#include "train/trainer.h"

#include "base/log.h"
#include "base/milestone.h"
#include "base/random.h"
#include "base/thread.h"
#include "ckpt/manifest.h"
#include "train/agree.h"
#include "train/chat_files.h"
#include "train/losses.h"
#include "train/memory_limit.h"
#include "train/run_work.h"
#include "train/shared_folder.h"
#include "train/signals.h"
#include "train/train_cut.h"
#include "train/train_mesh.h"
#include "train/train_optimizer.h"
#include "train/train_pipeline.h"
#include "train/train_preference.h"
#include "train/train_recompute.h"
#include "train/train_tuning.h"
#include "train/trainer_state.h"

#include <stdio.h>
#include <string.h>

/* --- setting up ------------------------------------------------------------------------------- */

/* with: unless NULL, the files that come with the model are read before the data. */
static hp_status open_data(const train_config *c, model_files *with, run_data *d) {
  pool *threads;
  HP_TRY(tokenizer_load(c->model_name_or_path, &d->tokenizer));
  if (with) HP_TRY(model_files_read(c->model_name_or_path, with));
  if (with && c->template) HP_TRY(chat_files_complete(c->template, d->tokenizer, with));
  HP_TRY(pool_create((int)c->threads, false, &threads));
  milestone_set_activity("reading and tokenizing the data");
  hp_status st = train_data_open(c, d->tokenizer, c->model_name_or_path, threads, &d->sets);
  pool_free(threads);
  HP_TRY(st);
  HP_TRY(train_data_check_judgements(&d->sets));
  int64_t most = train_data_largest(&d->sets);
  d->shifted = mem_calloc((size_t)most, sizeof *d->shifted);
  HP_TRY_MEM(d->shifted);
  if (losses[c->stage].preference) HP_TRY(step_answers_create(most, &d->answers));
  return train_batch_create(&d->sets, most, &d->batch);
}

/* Micro-batches of the longest step. */
static int64_t micros_of(const sampler *s) {
  return s->spec.accumulation < s->micro_per_epoch ? s->spec.accumulation : s->micro_per_epoch;
}

/* Those of the step that ends an epoch, where they are fewer and do not end the run before; else 0.
 */
static int64_t short_micros_of(const sampler *s) {
  int64_t left = s->micro_per_epoch % s->spec.accumulation;
  return s->micro_per_epoch > s->spec.accumulation && s->steps >= s->steps_per_epoch ? left : 0;
}

/* Plans the work under the limit of the configuration; one that is a share becomes bytes.  One that
 * is too small for the steps and evaluations of a run is refused with the least that does. */
static hp_status plan_work(train_config *c, const step_work *all, bool trains, run_model *m) {
  step_options o = trainer_step_options(c);
  step_planner *p;
  step_memory memory;
  HP_TRY(step_planner_create(m->m, &o, all, m->d, false, &p));
  hp_status st = step_memory_share(p, &c->is.memory_limit);
  if (!st && trains) st = step_memory_plan(p, &memory, NULL, NULL);
  step_planner_free(p);
  if (st || !trains) return st;
  m->fits = !memory.moves;
  m->evaluation_first = memory.moves && !all->at[memory.largest].micros;
  m->steps_reserve = memory.reserve;
  return HP_OK;
}

/* Layers of a pipeline, unless they are cut by hand. */
static hp_status cut_layers(const train_config *c, train_data *d, run_model *m, int64_t steps) {
  run_work w;
  step_planner *p = NULL;
  if (c->is.place.cut || !steps) return HP_OK;
  step_options o = trainer_step_options(c);
  const char *before = milestone_set_activity("cutting the layers of the pipeline");
  hp_status st = run_work_find(d, true, false, &w);
  step_work all = {w.programs.at, (int64_t)w.programs.len};
  if (!st) st = step_planner_create(m->m, &o, &all, m->d, false, &p);
  if (!st) st = train_cut_by_time(p, &c->is.place);
  step_planner_free(p);
  run_work_free(&w);
  milestone_set_activity(before);
  return st;
}

/* Before anything is loaded.  A run without steps only evaluates. */
static hp_status check_limit(train_config *c, train_data *d, run_model *m, int64_t steps) {
  run_work w;
  bool share = memory_limit_is_share(c->is.memory_limit);
  if (!c->is.memory_limit || (!steps && !share)) return HP_OK;
  const char *before = milestone_set_activity("planning steps and evaluations");
  bool scores = (!steps || trainer_evaluates(c)) && !c->predict_with_generate;
  hp_status st = run_work_find(d, steps, scores, &w);
  step_work all = {w.programs.at, (int64_t)w.programs.len};
  if (!st && !all.n && c->predict_with_generate) st = trainer_share_predictions(c, d, m);
  else if (!st && !all.n) c->is.memory_limit = 0; /* nothing runs */
  else if (!st) st = plan_work(c, &all, steps, m);
  run_work_free(&w);
  milestone_set_activity(before);
  return st;
}

/* All batches, of whatever length, look up their positions in the same tables. */
static int64_t longest_of(const train_data *d, int64_t steps) {
  int64_t most = steps ? d->train.longest : 0;
  for (int64_t i = 0; i < d->evals; i++)
    if (d->eval[i].longest > most) most = d->eval[i].longest;
  return most;
}

/* The data may leave steps of fewer micro-batches than the configuration says. */
static hp_status check_schedule(const train_config *c, const hp_device *d, const sampler *s) {
  const int64_t micros = micros_of(s), fewer = short_micros_of(s);
  char which[160];
  snprintf(which, sizeof which, "an epoch has %lld micro-batches: ", (long long)s->micro_per_epoch);
  HP_TRY(train_mesh_check_microbatches(c, d, micros, which));
  if (!fewer) return HP_OK;
  snprintf(which, sizeof which,
           "the last step of an epoch of %lld micro-batches has the remaining %lld of "
           "gradient_accumulation_steps %lld: ",
           (long long)s->micro_per_epoch, (long long)fewer, (long long)s->spec.accumulation);
  return train_mesh_check_microbatches(c, d, fewer, which);
}

static hp_status open_model(train_config *c, train_data *d, int64_t steps, run_model *m) {
  HP_TRY(trainer_open_model(c, false, &m->d, &m->m));
  if (steps) HP_TRY(check_schedule(c, m->d, &d->order));
  HP_TRY(train_config_check_model(c, m->m->c.max_length));
  HP_TRY(train_data_check_vocab(d, m->m->c.vocab));
  lm_share_rope(m->m, longest_of(d, steps));
  if (train_data_has_spans(d)) lm_set_spans(m->m);
  HP_TRY(cut_layers(c, d, m, steps));
  HP_TRY(check_limit(c, d, m, steps));
  HP_TRY(c->train_from_scratch ? lm_init(m->m, (uint64_t)c->seed)
                               : lm_load(m->m, c->model_name_or_path));
  if (!c->train_from_scratch)
    HP_TRY(lm_fill_value_head(m->m, c->model_name_or_path, (uint64_t)c->seed));
  preference of = train_preference_of(c);
  return trainer_score_references(c, &of, m->m, d);
}

/* Sums of gradients that outlive a step take host memory, which a limit of it may not have. */
static step_update_when update_of(const train_config *c) {
  step_update_when when = (step_update_when)c->parallel.update;
  if (when == UPDATE_AUTO && placement_meshes(&c->is.place) > 1) return UPDATE_AT_END;
  return when == UPDATE_AUTO && c->is.tiers.host_limit ? UPDATE_AT_END : when;
}

step_options trainer_step_options(const train_config *c) {
  step_options o = {.stage = c->stage,
                    .preference = train_preference_of(c),
                    .accuracy = c->compute_accuracy,
                    .optimizer = train_optimizer_of(c),
                    .clip = c->max_grad_norm,
                    .compile = {.serial = !c->parallel.overlap,
                                .prefetch = c->parallel.prefetch,
                                .dispatch = (hp_dispatch)c->parallel.dispatch,
                                .host_update = (hp_host_update)c->parallel.host_update},
                    .remat_auto = c->is.recompute == RECOMPUTE_AUTO,
                    .update = update_of(c),
                    .ahead = c->is.post_validation,
                    .limited = c->is.memory_limit != 0,
                    /* as trl, which leaves out all dropout */
                    .dropout = losses[c->stage].preference != PREFER_PAIR &&
                               losses[c->stage].preference != PREFER_JUDGED,
                    .noise = c->neftune_noise_alpha > 0 ? c->neftune_noise_alpha : 0,
                    .interleave = c->parallel.interleave,
                    /* the same graph on every mesh, where bits are not to depend on it */
                    .replicas = c->is.no_partial_sums ? 1 : c->is.batch.replicas,
                    .seed = (uint64_t)c->seed};
  train_recompute_set(c, &o.compile);
  return o;
}

/* As Transformers counts total_flos: of all parameters but the embeddings, frozen or not. */
static double flops_per_token(const lm *m) {
  double n = 0;
  for (size_t i = 0; i < m->params.len; i++)
    if (m->params.at[i].kind != PARAM_EMBEDDING && m->params.at[i].kind < PARAM_FIXED)
      n += (double)model_param_elements(&m->params.at[i]);
  return 6 * n;
}

static hp_status open_training(trainer *t) {
  const train_config *c = &t->config;
  int64_t warmup = schedule_warmup_steps(c->is.warmup, t->at.steps);
  HP_TRY(schedule_create(c->is.schedule, c->learning_rate, warmup, t->at.steps, c->is.schedule_arg,
                         c->is.schedule_args, &t->model.rate));
  t->model.options = trainer_step_options(c);
  if (t->model.fits) t->model.options.limited = false; /* there is nothing to choose */
  HP_TRY(settings_list(c, &t->data.sets, t->at.steps, &t->settings));
  t->flow = train_flow_create(c, t->at.steps);
  run_log_create(c, &t->flow, &t->data.sets.order, &t->log);
  t->model.flops_per_token = flops_per_token(t->model.m);
  const train_data *d = &t->data.sets;
  HP_TRY(step_data_create(micros_of(&d->order), train_data_rows(d) * d->train.longest, d,
                          &t->model.options.preference, &t->data.step));
  t->data.step.smooths = c->label_smoothing_factor > 0;
  HP_TRY(stepper_create(t->model.m, &t->model.options, &t->model.stepper));
  const bool looks_ahead = stepper_looks_ahead(t->model.stepper);
  train_pipeline_tell(c, looks_ahead);
  if (!looks_ahead) return HP_OK;
  HP_TRY(step_data_create(micros_of(&d->order), train_data_rows(d) * d->train.longest, d,
                          &t->model.options.preference, &t->data.next));
  t->data.next.smooths = t->data.step.smooths;
  return HP_OK;
}

/* --- the loop --------------------------------------------------------------------------------- */

/* A failed step: says which. */
static hp_status failed_step(const run_progress *at, hp_status st) {
  err_report why;
  err_take(st, &why);
  HP_FAIL(st, "step %lld of %lld: %s", (long long)at->step + 1, (long long)at->steps, why.message);
}

/* The samples of the step at hand, which may have been drawn with the one before. */
static void draw_step(trainer *t, const sampler_step *s) {
  run_data *d = &t->data;
  if (d->next_step && d->next_step == t->at.step) {
    step_data drawn = d->next;
    d->next = d->step;
    d->step = drawn;
  } else {
    step_data_draw(&d->step, &d->sets, s);
  }
  d->next_step = 0;
}

static step_update update_at(const trainer *t, int64_t step) {
  return (step_update){.lr = schedule_lr(&t->model.rate, step), .t = step + 1};
}

/* The step after this one, if the run has it as far as is known; false: it does not matter. */
static bool draw_next(trainer *t, step_following *out) {
  const int64_t step = t->at.step + 1;
  if (!stepper_looks_ahead(t->model.stepper) || step == t->at.steps) return false;
  const sampler_step s = sampler_find(&t->data.sets.order, step);
  step_data_draw(&t->data.next, &t->data.sets, &s);
  t->data.next_step = step;
  *out = (step_following){t->data.next.micro, t->data.next.n, update_at(t, step)};
  return true;
}

static hp_status train_step(trainer *t, const sampler_step *s) {
  step_following next;
  step_result r;
  double start = time_now_s();
  draw_step(t, s);
  const bool follows = draw_next(t, &next);
  const step_update u = update_at(t, t->at.step);
  step_data *d = &t->data.step;
  hp_status st = stepper_run(t->model.stepper, d->micro, d->n, &u, follows ? &next : NULL, &r);
  if (st) return failed_step(&t->at, st);
  t->at.grad_norm = r.grad_norm;
  t->at.lr = u.lr;
  t->at.loss = r.loss;
  t->at.tokens = d->tokens;
  step_data_measure(d, t->model.m->c.vocab, &t->log.preferences);
  milestone_set_step(++t->at.step);
  double seconds = time_now_s() - start;
  if (!vec_push(&t->times.step, (double)t->at.step) || !vec_push(&t->times.seconds, seconds) ||
      !vec_push(&t->times.tokens_per_s, (double)d->tokens / seconds))
    return HP_ERR_OOM;
  run_log_step(&t->log, t->at.step, s->epoch_after, (float)r.loss,
               t->model.flops_per_token * (double)d->padded,
               t->config.is.count == COUNT_NON_PADDING ? d->texts : d->padded);
  return HP_OK;
}

/* What follows a step: log, evaluate, save, as Transformers orders them. */
static hp_status after_step(trainer *t, const sampler_step *s, bool *stop) {
  bool epoch_ends =
      t->at.step == t->at.steps || sampler_find(&t->data.sets.order, t->at.step).epoch != s->epoch;
  train_actions a = train_flow_after(&t->flow, t->at.step, s, epoch_ends);
  run_entry e;
  HP_TRY(trainer_verify_step(&t->config, t->at.step, &t->model));
  if (a.log) {
    HP_TRY(run_log_logged(&t->log, t->at.grad_norm, t->at.lr, &e));
    HP_TRY(trainer_tell_entry(&t->console, &e));
  }
  bool stopped = false; /* by a signal, which the loop takes */
  if (a.evaluate && t->data.sets.evals) HP_TRY(trainer_evaluate(t, EVAL_STEP, &a.save, &stopped));
  HP_TRY(trainer_save(t, a.save));
  *stop = a.stop;
  return HP_OK;
}

static hp_status loop(trainer *t, bool *stopped) {
  bool stop = false;
  int64_t signal;
  *stopped = false;
  for (bool first = true; t->at.step < t->at.steps && !stop; first = false) {
    sampler_step s = sampler_find(&t->data.sets.order, t->at.step);
    HP_TRY(train_step(t, &s));
    if (first && t->job.processes == 1) signals_note();
    HP_TRY(after_step(t, &s, &stop));
    trainer_tell_progress(&t->console, t->model.m, t->data.step.micro[s.micros - 1].T, &t->at);
    HP_TRY(hp_world_max(signals_taken(), &signal));
    if (signal && t->at.step < t->at.steps) {
      log_info("%s: writing a checkpoint at step %lld, then ending", signals_name((int)signal),
               (long long)t->at.step);
      if (t->saves.last != t->at.step) HP_TRY(trainer_save_now(t));
      *stopped = true;
      return HP_OK;
    }
  }
  /* a run always ends with a checkpoint, so that a finished run is known as such */
  return t->saves.last == t->at.step ? HP_OK : trainer_save_last(t);
}

static void close_model(run_model *m) {
  lm_scorer_free(m->scorer);
  stepper_free(m->stepper);
  schedule_free(&m->rate);
  lm_free(m->m);
  hp_device_close(m->d);
}

static void close_data(run_data *d) {
  train_data_free(&d->sets);
  tokenizer_free(d->tokenizer);
  train_batch_free(&d->batch);
  mem_free(d->shifted);
  step_answers_free(&d->answers);
  step_data_free(&d->step);
  step_data_free(&d->next);
}

static void trainer_close(trainer *t) {
  if (t->console.open) run_files_close(&t->console.files);
  run_log_free(&t->log);
  close_model(&t->model);
  close_data(&t->data);
  model_files_free(&t->saves.with_model);
  run_line_free(&t->folder.line);
  checkpoint_memo_free(&t->folder.memo);
  run_lock_free(t->folder.lock);
  if (t->origin.found) checkpoint_free(&t->origin.from);
  settings_free(&t->settings);
  vec_free(&t->times.step);
  vec_free(&t->times.seconds);
  vec_free(&t->times.tokens_per_s);
}

/* Compiles what the run needs most memory for: what cannot be done is refused before it has written
 * anything. */
static hp_status prepare(trainer *t) {
  step_micro *at = t->data.step.micro;
  const train_data *d = &t->data.sets;
  int64_t micros = t->at.step == t->at.steps ? 0 : micros_of(&d->order);
  for (int64_t i = 0; i < micros; i++)
    at[i] = (step_micro){.B = train_data_rows(d), .T = d->train.longest};
  if (t->model.evaluation_first)
    HP_TRY(
        trainer_prepare_evaluation(&t->config, &t->data.sets, t->model.steps_reserve, &t->model));
  int64_t fewer = micros ? short_micros_of(&d->order) : 0;
  if (micros) HP_TRY(stepper_prepare(t->model.stepper, at, micros));
  if (fewer) HP_TRY(stepper_prepare(t->model.stepper, at, fewer));
  HP_TRY(trainer_prepare_predictions(&t->config, &t->data.sets, &t->model));
  return trainer_prepare_evaluation(&t->config, &t->data.sets, 0, &t->model);
}

/* A run that is over: its model is there, or is written again. */
static hp_status finish_again(trainer *t) {
  bool there =
      t->job.writes && trainer_is_exported(t->config.output_dir, t->model.m, &t->saves.with_model);
  HP_TRY(hp_world_broadcast(&there, sizeof there));
  if (there) {
    log_info("%s: this run is finished (step %lld); nothing to do", t->config.output_dir,
             (long long)t->at.step);
    if (t->job.writes && t->config.do_predict &&
        !trainer_has_file(t->config.output_dir, PREDICTIONS_FILE))
      log_warn("%s has no " PREDICTIONS_FILE
               ": generate it by a run with do_train: false, with the "
               "model of this one and an output_dir of its own",
               t->config.output_dir);
    return HP_OK;
  }
  log_info("%s: this run is finished (step %lld), but its model is missing or damaged; writing it "
           "again from the checkpoint",
           t->config.output_dir, (long long)t->at.step);
  return trainer_export(t);
}

/* Everything from an open run to its last file. */
static hp_status train(trainer *t) {
  bool finished = false, stopped = false, save;
  if (!t->config.is.train) return trainer_end_evaluation(t);
  milestone_set_activity("reading the checkpoint to go on from");
  HP_TRY(trainer_resume(t, &finished));
  if (finished) return finish_again(t);
  HP_TRY(prepare(t));
  milestone_set_activity("beginning the run in output_dir");
  HP_TRY(trainer_begin_line(&t->config, &t->job, &t->folder));
  HP_TRY(trainer_verify(&t->config, t->at.step, &t->model));
  HP_TRY(trainer_tell_start(t));
  if (t->config.eval_on_start && t->data.sets.evals && t->at.step == 0)
    HP_TRY(trainer_evaluate(t, EVAL_START, &save, &stopped));
  milestone_set_activity(NULL);
  HP_TRY(loop(t, &stopped));
  if (stopped) {
    trainer_report(t, "stopped by a signal; run it again to continue", false);
    return HP_OK;
  }
  HP_TRY(trainer_export(t));
  trainer_tidy(t);
  return trainer_end(t);
}

static void leave(void *lock) { run_lock_remove(lock); }

/* A number that no other run has, not even an earlier try of this one: what a process of that one
 * still writes on another machine is not taken for ours. */
static hp_status draw_run(run_job *job) {
  enum { HIGHEST = 1 };
  uint64_t drawn = 0;
  hp_status st = job->writes ? random_bytes(&drawn, sizeof drawn) : HP_OK;
  job->run = (int64_t)(drawn >> HIGHEST);
  HP_TRY(hp_world_broadcast(&job->run, sizeof job->run));
  return st;
}

/* The folder is that of one process.  Several end together: a signal is noted from the start, for
 * one that ended at once would take the others with it. */
static hp_status take_folder(const train_config *c, run_job *job, run_folder *f) {
  int rank;
  HP_TRY(hp_world(&rank, &job->processes));
  job->writes = rank == 0;
  HP_TRY(draw_run(job));
  if (job->writes) HP_TRY(manifest_check_target(c->output_dir));
  if (job->writes) HP_TRY(run_lock_take(c->output_dir, &f->lock));
  if (job->writes) signals_leave_by(leave, f->lock);
  if (job->processes > 1) signals_note();
  else signals_end();
  if (job->writes) HP_TRY(checkpoint_clean_patiently(c->output_dir));
  return c->is.train ? shared_folder_check(c->output_dir) : HP_OK;
}

/* A signal that comes when a process of several has done its work does not make it a failed one. */
static void release_signals(const run_job *job) {
  if (job->processes > 1) signals_leave_by(NULL, NULL);
  else signals_release();
}

hp_status trainer_run(const train_config *c) {
  trainer t = {.config = *c, .saves = {.last = -1}, .model = {.verified = -1}};
  bool trains = c->is.train;
  train_config_tell(c);
  hp_status st = agree_config(c);
  if (!st) st = take_folder(c, &t.job, &t.folder);
  milestone_set_activity("looking for a checkpoint to go on from");
  if (!st && trains) st = trainer_find_checkpoint(c, &t.job, &t.folder, &t.origin);
  if (!st && t.origin.found) st = checkpoint_unread(agree_checkpoint(&t.origin.from));
  if (!st && t.origin.found) st = trainer_keep_batch(&t.origin.from, &t.config);
  model_files *with = t.job.writes && trains ? &t.saves.with_model : NULL;
  if (!st) st = open_data(&t.config, with, &t.data);
  if (!st && trains) t.at.steps = t.data.sets.order.steps;
  milestone_set_activity("hashing samples and the model's files");
  if (!st) st = agree_data(c, &t.data.sets);
  bool loads = !t.origin.found || c->finetuning_type == TUNING_LORA;
  if (!st) st = agree_model(c, loads && !c->train_from_scratch);
  milestone_set_activity("opening the model");
  if (!st) st = open_model(&t.config, &t.data.sets, t.at.steps, &t.model);
  if (!st) st = open_training(&t);
  if (!st) st = train(&t);
  release_signals(&t.job);
  trainer_close(&t);
  return st;
}
