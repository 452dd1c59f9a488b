#include "train/trainer.h"

#include "base/log.h"
#include "base/milestone.h"
#include "base/random.h"
#include "base/thread.h"
#include "ckpt/manifest.h"
#include "train/agree.h"
#include "train/shared_folder.h"
#include "train/signals.h"
#include "train/train_mesh.h"
#include "train/trainer_parts.h"

#include <string.h>

/* --- setting up ------------------------------------------------------------------------------- */

static hp_status open_data(trainer *t) {
  const train_config *c = t->c;
  pool *threads;
  HP_TRY(tokenizer_load(c->model_name_or_path, &t->t));
  if (t->writes && c->is.train) HP_TRY(model_files_read(c->model_name_or_path, &t->with_model));
  HP_TRY(pool_create((int)c->threads, false, &threads));
  milestone_set_activity("reading and tokenizing the data");
  hp_status st = train_data_open(c, t->t, c->model_name_or_path, threads, &t->data);
  pool_free(threads);
  HP_TRY(st);
  t->steps = c->is.train ? t->data.order.steps : 0;
  int64_t most = train_data_largest(&t->data);
  t->batch.most = most;
  t->batch.ids = mem_calloc((size_t)most, sizeof *t->batch.ids);
  t->batch.labels = mem_calloc((size_t)most, sizeof *t->batch.labels);
  t->batch.lengths = mem_calloc((size_t)most, sizeof *t->batch.lengths);
  t->shifted = mem_calloc((size_t)most, sizeof *t->shifted);
  bool made = t->batch.ids && t->batch.labels && t->batch.lengths && t->shifted;
  return made ? HP_OK : HP_ERR_OOM;
}

/* Micro-batches of the longest step. */
static int64_t micros_of(const trainer *t) {
  const sampler *s = &t->data.order;
  return s->spec.accumulation < s->micro_per_epoch ? s->spec.accumulation : s->micro_per_epoch;
}

/* Micro-batch i of such a step, as large as they get. */
static step_micro largest_micro(const trainer *t, int64_t i, int64_t micros) {
  return (step_micro){.B = train_data_rows(&t->data),
                      .T = t->data.train.longest,
                      .first = i == 0,
                      .last = i + 1 == micros};
}

/* A memory limit that is too small is refused with the least that does for the steps and all
 * evaluations, before any is taken. */
static hp_status check_limit(trainer *t) {
  enum { KINDS = 3 }; /* of micro-batches: those between the first and the last are alike */
  if (!t->c->is.memory_limit || !t->steps) return HP_OK;
  int64_t micros = micros_of(t), evals = trainer_evaluates(t) ? t->data.evals : 0;
  step_micro *at = mem_calloc((size_t)evals + KINDS, sizeof *at);
  HP_TRY_MEM(at);
  int n = 0;
  for (int64_t i = 0; i < micros; i++)
    if (i < 2 || i + 1 == micros) at[n++] = largest_micro(t, i, micros);
  for (int64_t i = 0; i < evals; i++)
    at[n++] = (step_micro){.B = train_data_eval_rows(&t->data, &t->data.eval[i]),
                           .T = t->data.eval[i].longest,
                           .scores = true};
  step_options o = trainer_step_options(t->c);
  hp_status st = stepper_check(t->m, &o, at, n, t->d);
  mem_free(at);
  return st;
}

/* All batches, of whatever length, look up their positions in the same tables. */
static int64_t longest_of(const trainer *t) {
  int64_t most = t->steps ? t->data.train.longest : 0;
  for (int64_t i = 0; i < t->data.evals; i++)
    if (t->data.eval[i].longest > most) most = t->data.eval[i].longest;
  return most;
}

/* What the configuration says of experts, into the model's; refuses what is not built of theirs. */
static hp_status decide_experts(const train_config *c, lm *m) {
  moe_config *moe = &m->c.moe;
  if (moe->noise != 0)
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s: router_jitter_noise %g is not built; write 0 to train without noise", m->path,
            moe->noise);
  if (!(c->moe_aux_loss_coef > 0)) return HP_OK;
  if (m->c.family->balances) moe->balance = c->moe_aux_loss_coef;
  else log_warn("moe_aux_loss_coef is ignored: model_type %s has no such loss", m->c.model_type);
  return HP_OK;
}

hp_status trainer_open_model(const train_config *c, bool plan, hp_device **d, lm **m) {
  lm_options o = {.compute = c->is.compute, .weights = HP_F32};
  HP_TRY(train_mesh_open(c, plan, d));
  HP_TRY(lm_create(c->model_name_or_path, plan ? NULL : *d, &o, m));
  HP_TRY(decide_experts(c, *m));
  return train_mesh_apply(c, *m, *d);
}

static hp_status open_model(trainer *t) {
  const train_config *c = t->c;
  HP_TRY(trainer_open_model(c, false, &t->d, &t->m));
  HP_TRY(train_config_check_model(c, t->m->c.max_length));
  HP_TRY(train_data_check_vocab(&t->data, t->m->c.vocab));
  lm_share_rope(t->m, longest_of(t));
  HP_TRY(check_limit(t));
  return c->train_from_scratch ? lm_init(t->m, (uint64_t)c->seed)
                               : lm_load(t->m, c->model_name_or_path);
}

step_options trainer_step_options(const train_config *c) {
  return (step_options){.optimizer = c->optim == OPTIM_SGD ? STEP_SGD : STEP_ADAMW,
                        .beta1 = c->adam_beta1,
                        .beta2 = c->adam_beta2,
                        .eps = c->adam_epsilon,
                        .decay = c->weight_decay,
                        .clip = c->max_grad_norm,
                        .compile = {.remat = c->is.recompute == RECOMPUTE_FULL,
                                    .serial = !c->parallel.overlap,
                                    .prefetch = c->parallel.prefetch},
                        .remat_auto = c->is.recompute == RECOMPUTE_AUTO,
                        .dropout = true,
                        .interleave = c->parallel.interleave,
                        .seed = (uint64_t)c->seed};
}

/* As Transformers counts total_flos: of all parameters but the embeddings. */
static double flops_per_token(const lm *m) {
  double n = 0;
  for (size_t i = 0; i < m->trained; i++)
    if (m->params.at[i].kind != PARAM_EMBEDDING)
      n += (double)model_param_elements(&m->params.at[i]);
  return 6 * n;
}

static hp_status open_training(trainer *t) {
  const train_config *c = t->c;
  int64_t warmup = schedule_warmup_steps(c->is.warmup, t->steps);
  HP_TRY(schedule_create(c->is.schedule, c->learning_rate, warmup, t->steps, c->is.schedule_arg,
                         c->is.schedule_args, &t->rate));
  t->so = trainer_step_options(c);
  HP_TRY(settings_list(c, &t->data, t->steps, &t->settings));
  t->flow = train_flow_create(c, t->steps);
  run_log_create(c, &t->flow, &t->data.order, &t->log);
  t->flops_per_token = flops_per_token(t->m);
  return stepper_create(t->m, &t->so, &t->stepper);
}

/* --- the loop --------------------------------------------------------------------------------- */

/* Labels that count in the micro-batches of a step; leaves the last one in t->batch. */
static int64_t labels_of(trainer *t, const sampler_step *s) {
  int64_t n = 0;
  for (int64_t i = 0; i < s->micros; i++) {
    train_data_batch(&t->data, s->epoch, s->micro + i, 0, &t->batch);
    n += t->batch.labelled;
  }
  return n;
}

/* A failed step: says which. */
static hp_status failed_step(const trainer *t, hp_status st) {
  err_report why;
  err_take(st, &why);
  HP_FAIL(st, "step %lld of %lld: %s", (long long)t->step + 1, (long long)t->steps, why.message);
}

static hp_status train_step(trainer *t, const sampler_step *s) {
  int64_t labels = labels_of(t, s), tokens = 0;
  int64_t padded = 0, texts = 0; /* as the log counts them: with the padding of replicas, without */
  step_update u = {.lr = schedule_lr(&t->rate, t->step), .t = t->step + 1};
  double start = time_now_s();
  float loss = 0;
  for (int64_t i = 0; i < s->micros; i++) {
    if (s->micros > 1) train_data_batch(&t->data, s->epoch, s->micro + i, 0, &t->batch);
    trainer_shift_labels(&t->batch, t->shifted);
    step_micro b = {.B = t->batch.B,
                    .T = t->batch.T,
                    .ids = t->batch.ids,
                    .labels = t->shifted,
                    .lengths = t->batch.lengths,
                    .weight = labels ? 1.0 / (double)labels : 0,
                    .number = i,
                    .first = i == 0,
                    .last = i + 1 == s->micros};
    step_result r = {0};
    hp_status st = stepper_run(t->stepper, &b, &u, &r);
    if (st) return failed_step(t, st);
    loss += (float)r.loss;
    t->grad_norm = r.grad_norm;
    tokens += t->batch.B * t->batch.T;
    padded += t->batch.padded;
    texts += t->batch.tokens;
  }
  t->lr = u.lr;
  t->last_loss = (double)loss;
  t->step_tokens = tokens;
  milestone_set_step(++t->step);
  double seconds = time_now_s() - start;
  if (!vec_push(&t->steps_done, (double)t->step) || !vec_push(&t->step_seconds, seconds) ||
      !vec_push(&t->tokens_per_s, (double)tokens / seconds))
    return HP_ERR_OOM;
  run_log_step(&t->log, t->step, s->epoch_after, loss, t->flops_per_token * (double)padded,
               t->c->is.count == COUNT_NON_PADDING ? texts : padded);
  return HP_OK;
}

/* What follows a step: log, evaluate, save, as Transformers orders them. */
static hp_status after_step(trainer *t, const sampler_step *s, bool *stop) {
  bool epoch_ends = t->step == t->steps || sampler_find(&t->data.order, t->step).epoch != s->epoch;
  train_actions a = train_flow_after(&t->flow, t->step, s, epoch_ends);
  run_entry e;
  HP_TRY(trainer_verify_step(t));
  if (a.log) {
    HP_TRY(run_log_logged(&t->log, t->grad_norm, t->lr, &e));
    HP_TRY(trainer_tell_entry(t, &e));
  }
  if (a.evaluate && t->data.evals) HP_TRY(trainer_evaluate(t, EVAL_STEP, &a.save));
  HP_TRY(trainer_save(t, a.save));
  *stop = a.stop;
  return HP_OK;
}

static hp_status loop(trainer *t, bool *stopped) {
  bool stop = false;
  int64_t signal;
  *stopped = false;
  for (bool first = true; t->step < t->steps && !stop; first = false) {
    sampler_step s = sampler_find(&t->data.order, t->step);
    HP_TRY(train_step(t, &s));
    if (first && t->processes == 1) signals_note();
    HP_TRY(after_step(t, &s, &stop));
    trainer_tell_progress(t);
    HP_TRY(hp_world_most(signals_taken(), &signal));
    if (signal && t->step < t->steps) {
      log_info("%s: writing a checkpoint at step %lld, then ending", signals_name((int)signal),
               (long long)t->step);
      if (t->last_saved != t->step) HP_TRY(trainer_save_now(t));
      *stopped = true;
      return HP_OK;
    }
  }
  /* a run always ends with a checkpoint, so that a finished run is known as such */
  return t->last_saved == t->step ? HP_OK : trainer_save_last(t);
}

static void trainer_close(trainer *t) {
  if (t->files_open) run_files_close(&t->files);
  run_log_free(&t->log);
  lm_scorer_free(t->scorer);
  stepper_free(t->stepper);
  schedule_free(&t->rate);
  lm_free(t->m);
  hp_device_close(t->d);
  train_data_free(&t->data);
  tokenizer_free(t->t);
  model_files_free(&t->with_model);
  run_line_free(&t->line);
  checkpoint_memo_free(&t->memo);
  run_lock_free(t->lock);
  if (t->found) checkpoint_free(&t->from);
  settings_free(&t->settings);
  mem_free(t->batch.ids);
  mem_free(t->batch.labels);
  mem_free(t->batch.lengths);
  mem_free(t->shifted);
  vec_free(&t->steps_done);
  vec_free(&t->step_seconds);
  vec_free(&t->tokens_per_s);
}

/* Compiles what the run needs most memory for: what cannot be done is refused before it has written
 * anything.  The last micro-batch comes first, for it brings all states of the optimizer along. */
static hp_status prepare(trainer *t) {
  int64_t micros = t->step == t->steps ? 0 : micros_of(t);
  for (int64_t i = micros; i-- > 0;) {
    step_micro b = largest_micro(t, i, micros);
    HP_TRY(stepper_prepare(t->stepper, &b));
  }
  return trainer_prepare_evaluation(t);
}

/* A run that is over: its model is there, or is written again. */
static hp_status finish_again(trainer *t) {
  int64_t missing;
  HP_TRY(hp_world_most(t->writes && !trainer_is_exported(t), &missing));
  if (!missing) {
    log_info("%s: this run is finished (step %lld); nothing to do", t->c->output_dir,
             (long long)t->step);
    return HP_OK;
  }
  log_info("%s: this run is finished (step %lld), but its model is missing or damaged; writing it "
           "again from the checkpoint",
           t->c->output_dir, (long long)t->step);
  return trainer_export(t);
}

/* Everything from an open run to its last file. */
static hp_status train(trainer *t) {
  bool finished = false, stopped = false, save;
  if (!t->c->is.train) return trainer_end_evaluation(t);
  milestone_set_activity("reading the checkpoint to go on from");
  HP_TRY(trainer_resume(t, &finished));
  if (finished) return finish_again(t);
  HP_TRY(prepare(t));
  milestone_set_activity("beginning the run in output_dir");
  HP_TRY(trainer_begin_line(t));
  HP_TRY(trainer_verify(t));
  HP_TRY(trainer_tell_start(t));
  if (t->c->eval_on_start && t->data.evals && t->step == 0)
    HP_TRY(trainer_evaluate(t, EVAL_START, &save));
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
static hp_status draw_run(trainer *t) {
  enum { HIGHEST = 1 };
  uint64_t drawn = 0;
  hp_status st = t->writes ? random_bytes(&drawn, sizeof drawn) : HP_OK;
  HP_TRY(hp_world_most((int64_t)(drawn >> HIGHEST), &t->run));
  return st;
}

/* The folder is that of one process.  Several end together: a signal is noted from the start, for
 * one that ended at once would take the others with it. */
static hp_status take_folder(trainer *t) {
  int rank;
  HP_TRY(hp_world(&rank, &t->processes));
  t->writes = rank == 0;
  HP_TRY(draw_run(t));
  if (t->writes) HP_TRY(manifest_check_target(t->c->output_dir));
  if (t->writes) HP_TRY(run_lock_take(t->c->output_dir, &t->lock));
  if (t->writes) signals_leave_by(leave, t->lock);
  if (t->processes > 1) signals_note();
  else signals_end();
  if (t->writes) HP_TRY(checkpoint_clean_patiently(t->c->output_dir));
  return t->c->is.train ? shared_folder_check(t->c->output_dir) : HP_OK;
}

hp_status trainer_run(const train_config *c) {
  trainer t = {.own = *c, .last_saved = -1, .verified = -1};
  t.c = &t.own;
  train_config_tell(c);
  hp_status st = agree_config(c);
  if (!st) st = take_folder(&t);
  milestone_set_activity("looking for a checkpoint to go on from");
  if (!st && c->is.train) st = trainer_find_checkpoint(&t, &t.from, &t.found);
  if (!st && t.found) st = checkpoint_unread(agree_checkpoint(&t.from));
  if (!st && t.found) st = trainer_keep_batch(&t);
  if (!st) st = open_data(&t);
  milestone_set_activity("hashing samples and the model's files");
  if (!st) st = agree_data(c, &t.data);
  if (!st) st = agree_model(c, !t.found && !c->train_from_scratch);
  milestone_set_activity("opening the model");
  if (!st) st = open_model(&t);
  if (!st) st = open_training(&t);
  if (!st) st = train(&t);
  signals_release();
  trainer_close(&t);
  return st;
}
