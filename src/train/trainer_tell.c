/* What a run tells: console, progress, and the files beside the model. */
#include "base/escape.h"
#include "base/log.h"
#include "base/thread.h"
#include "train/trainer_parts.h"

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

static void tell_facts(const trainer *t) {
  const train_config *c = t->c;
  log_info("model        %s (%s), %.1f M parameters", c->model_name_or_path, t->m->c.model_type,
           model_config_params(&t->m->c) * 1e-6);
  log_info("device       %s, %s products%s", hp_device_describe(t->d),
           c->is.compute == HP_BF16 ? "bf16" : "f32",
           t->so.compile.remat ? ", activations recomputed" : "");
  log_info("data         %lld samples of up to %lld tokens%s", (long long)t->data.train.samples,
           (long long)t->data.train.longest, t->data.packed ? ", packed" : "");
  if (model_config_drops(&t->m->c))
    log_info("dropout      %g of embeddings, %g of attention weights, %g of residuals",
             t->m->c.dropout.embedding, t->m->c.dropout.attention, t->m->c.dropout.residual);
  tell_batch(&c->is.batch);
  log_info("steps        %lld, %s schedule, learning rate %g", (long long)t->steps,
           schedule_name(c->is.schedule), c->learning_rate);
}

hp_status trainer_open_files(trainer *t) {
  t->log.step = t->step;
  t->log.start_s = time_now_s();
  if (!t->writes) return HP_OK;
  HP_TRY(run_files_open(&t->log, &t->files));
  t->files_open = true;
  return HP_OK;
}

hp_status trainer_tell_start(trainer *t) {
  HP_TRY(trainer_open_files(t));
  if (!t->writes) return HP_OK;
  tell_facts(t);
  HP_TRY(hp_device_measure(t->d, &t->limits));
  double peak = t->c->is.compute == HP_BF16 ? t->limits.bf16_flops : t->limits.flops;
  t->bar = progress_create(t->steps, t->step, peak, t->c->disable_tqdm == 1);
  if (t->resumed) return HP_OK;
  str example = {0};
  hp_status st = train_data_print_example(&t->data, t->t, &example);
  if (!st && example.len) example.at[example.len - 1] = 0; /* log_info ends the line */
  if (!st && example.len) log_info("%s\n", example.at);
  str_free(&example);
  return st;
}

/* To stdout.  When nobody reads it any more, the run goes on, and says so once. */
static void put(trainer *t, const char *text, bool line) {
  escape_print(text, stdout);
  if (line) fputc('\n', stdout);
  errno = 0;
  if (!fflush(stdout) || errno != EPIPE || t->unheard) return;
  t->unheard = true;
  log_warn("standard output is closed: the run goes on, its figures are in %s/trainer_log.jsonl",
           t->c->output_dir);
}

hp_status trainer_tell_entry(trainer *t, const run_entry *e) {
  str line = {0};
  if (!t->writes) return HP_OK;
  hp_status st = run_files_log(&t->files, e, &line);
  progress_clear(&t->bar);
  if (!st && line.len) put(t, line.at, line.at[line.len - 1] != '\n');
  str_free(&line);
  return st;
}

void trainer_tell_progress(trainer *t) {
  if (!t->writes) return;
  double flops = 3 * lm_flops_per_token(t->m, t->batch.T) * (double)t->step_tokens;
  progress_step(&t->bar, t->step, t->last_loss, t->step_tokens, flops);
}

hp_status trainer_tell_results(trainer *t, const run_entry *e, int n, const char *split) {
  str text = {0};
  if (!t->writes) return HP_OK;
  for (int i = 0; i < n; i++) run_log_print_metrics(&e[i], split, &text);
  hp_status st = str_status(&text);
  if (!st) {
    put(t, text.at, false);
    st = run_files_all_results(&t->files, e, n);
  }
  str_free(&text);
  return st;
}
