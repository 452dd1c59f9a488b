/* What a run tells: console, progress, and the files next to the model. */
#include "base/escape.h"
#include "base/log.h"
#include "base/thread.h"
#include "train/trainer_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void tell_batch(const train_batching *b) {
  log_info("batch        %lld samples in a step: per_device_train_batch_size %lld x %lld "
           "data-parallel replica%s x gradient_accumulation_steps %lld%s",
           (long long)b->global, (long long)b->per_device, (long long)b->replicas,
           b->replicas == 1 ? "" : "s", (long long)b->accumulation,
           b->rows % b->replicas ? ", padded" : "");
}

/* Of a run that does not train all of the model. */
static void tell_trained(const lm *m) {
  double n = 0, all = 0;
  for (size_t i = 0; i < m->params.len; i++) {
    double each = (double)model_param_elements(&m->params.at[i]);
    all += each;
    if (i < m->trained) n += each;
  }
  if (m->has_only)
    log_info("trained      %.3g M parameters, %.2g %% of them; the others are frozen", n * 1e-6,
             100 * n / all);
  if (m->adapter)
    log_info("adapter      %s of rank %lld for %zu linear layers",
             m->adapter->o.dora ? "DoRA" : "LoRA", (long long)m->adapter->o.rank,
             m->adapter->modules.len);
}

static void tell_facts(const train_config *c, const run_data *d, const run_model *m,
                       int64_t steps) {
  log_info("model        %s (%s), %.1f M parameters", c->model_name_or_path, m->m->c.model_type,
           model_config_params(&m->m->c) * 1e-6);
  tell_trained(m->m);
  log_info("device       %s, %s products%s", hp_device_describe(m->d),
           c->is.compute == HP_BF16 ? "bf16" : "f32",
           m->options.compile.remat ? ", activations recomputed" : "");
  log_info("data         %lld samples of up to %lld tokens%s", (long long)d->sets.train.samples,
           (long long)d->sets.train.longest, d->sets.packed ? ", packed" : "");
  if (model_config_drops(&m->m->c))
    log_info("dropout      %g of embeddings, %g of attention weights, %g of residuals",
             m->m->c.dropout.embedding, m->m->c.dropout.attention, m->m->c.dropout.residual);
  tell_batch(&c->is.batch);
  log_info("steps        %lld, %s schedule, learning rate %g", (long long)steps,
           schedule_name(c->is.schedule), c->learning_rate);
}

hp_status trainer_open_files(const run_job *job, int64_t step, run_log *log, run_console *c) {
  log->step = step;
  log->start_s = time_now_s();
  if (!job->writes) return HP_OK;
  HP_TRY(run_files_open(log, &c->files));
  c->open = true;
  return HP_OK;
}

hp_status trainer_tell_start(trainer *t) {
  HP_TRY(trainer_open_files(&t->job, t->at.step, &t->log, &t->console));
  if (!t->job.writes) return HP_OK;
  tell_facts(&t->config, &t->data, &t->model, t->at.steps);
  HP_TRY(hp_device_measure(t->model.d, &t->model.limits));
  double peak =
      t->config.is.compute == HP_BF16 ? t->model.limits.bf16_flops : t->model.limits.flops;
  t->console.bar = progress_create(t->at.steps, t->at.step, peak, t->config.disable_tqdm == 1);
  if (t->at.resumed) return HP_OK;
  str example = {0};
  hp_status st = train_data_print_example(&t->data.sets, t->data.tokenizer, &example);
  if (!st && example.len) example.at[example.len - 1] = 0; /* log_info ends the line */
  if (!st && example.len) log_info("%s\n", example.at);
  str_free(&example);
  return st;
}

/* To stdout.  When nobody reads it any more, the run goes on, and says so once. */
static void put(run_console *c, const char *text, bool line) {
  escape_print(text, stdout);
  if (line) fputc('\n', stdout);
  errno = 0;
  if (!fflush(stdout) || errno != EPIPE || c->unheard) return;
  c->unheard = true;
  log_warn("standard output is closed: the run continues, its figures are in %s/trainer_log.jsonl",
           c->files.dir);
}

hp_status trainer_tell_entry(run_console *c, const run_entry *e) {
  str line = {0};
  if (!c->open) return HP_OK;
  hp_status st = run_files_log(&c->files, e, &line);
  progress_clear(&c->bar);
  if (!st && line.len) put(c, line.at, line.at[line.len - 1] != '\n');
  str_free(&line);
  return st;
}

void trainer_tell_progress(run_console *c, const lm *m, int64_t T, const run_progress *at) {
  if (!c->open) return;
  double flops = 3 * lm_flops_per_token(m, T) * (double)at->tokens;
  progress_step(&c->bar, at->step, at->loss, at->tokens, flops);
}

hp_status trainer_tell_results(run_console *c, const run_entry *e, int n, const char *split) {
  str text = {0};
  if (!c->open) return HP_OK;
  for (int i = 0; i < n; i++) run_log_print_metrics(&e[i], split, &text);
  hp_status st = str_status(&text);
  if (!st) {
    put(c, text.at, false);
    st = run_files_all_results(&c->files, e, n);
  }
  str_free(&text);
  return st;
}
