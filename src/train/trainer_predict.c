/* Answers of the model to evaluation sets: predict_with_generate, do_predict. */
#include "base/log.h"
#include "base/milestone.h"
#include "base/round.h"
#include "base/thread.h"
#include "serve/session.h"
#include "train/memory_limit.h"
#include "train/signals.h"
#include "train/train_generation.h"
#include "train/trainer_state.h"

#include <math.h>

/* --- memory ----------------------------------------------------------------------------------- */

/* Samples of the largest batch, with room for the longest answer to the longest prompt. */
static session_options options_of(const train_config *c, const train_data *d, const sample_set *s,
                                  int64_t *longest) {
  *longest = 1;
  for (int64_t i = 0; i < s->samples; i++) {
    int64_t n = sample_set_prompt(s, i);
    if (n > *longest) *longest = n;
  }
  int64_t rows = d->eval_batch < s->samples ? d->eval_batch : s->samples;
  return (session_options){.sequences = rows, .tokens = *longest + c->max_new_tokens};
}

/* The failure of a plan, with the keys that it depends on. */
static hp_status fail_plan(const train_config *c, const session_options *o, int64_t longest,
                           hp_status st) {
  err_report why;
  err_take(st, &why);
  HP_FAIL(
      st,
      "to generate answers to %lld prompts at a time (per_device_eval_batch_size), of up to %lld "
      "tokens, with max_new_tokens %lld: %s",
      (long long)o->sequences, (long long)longest, (long long)c->max_new_tokens, why.message);
}

/* Bytes of a device for the set that needs most. */
static hp_status plan_sets(const train_config *c, const train_data *d, lm *m, uint64_t *bytes) {
  *bytes = 0;
  for (int64_t i = 0; i < d->evals; i++) {
    hp_memory memory;
    int64_t longest;
    session_options o = options_of(c, d, &d->eval[i], &longest);
    hp_status st = session_plan(m, &o, longest, &memory);
    if (st) return fail_plan(c, &o, longest, st);
    if (memory.planned_bytes > *bytes) *bytes = memory.planned_bytes;
  }
  return HP_OK;
}

hp_status trainer_prepare_predictions(const train_config *c, const train_data *d, run_model *m) {
  uint64_t bytes;
  return c->predict_with_generate ? plan_sets(c, d, m->m, &bytes) : HP_OK;
}

hp_status trainer_share_predictions(train_config *c, const train_data *d, run_model *m) {
  uint64_t resident;
  HP_TRY(plan_sets(c, d, m->m, &resident));
  c->is.memory_limit = memory_limit_resolve(c->is.memory_limit, resident);
  hp_device_set_memory_limit(m->d, c->is.memory_limit);
  return HP_OK;
}

/* --- generating ------------------------------------------------------------------------------- */

typedef struct {
  trainer *t;
  generation g;
  predictions *out;
  progress bar;
} predicting;

static bool is_undisturbed(void *ctx) {
  (void)ctx;
  return !signals_taken();
}

/* n samples from `first` on, side by side. */
static hp_status answer_batch(predicting *x, int64_t first, int64_t n, int64_t *tokens) {
  const sample_set *s = x->out->set;
  lm_tokens *prompt = mem_calloc((size_t)n, sizeof *prompt);
  generation_result *r = mem_calloc((size_t)n, sizeof *r);
  hp_status st = prompt && r ? HP_OK : HP_ERR_OOM;
  for (int64_t i = 0; i < n && !st; i++)
    prompt[i] = (lm_tokens){s->ids + s->start[first + i], sample_set_prompt(s, first + i)};
  if (!st) st = generate_many(x->t->model.m, NULL, prompt, n, &x->g, r);
  *tokens = 0;
  for (int64_t i = 0; i < n && !st; i++) {
    x->out->answer[first + i] = r[i].ids;
    *tokens += (int64_t)r[i].ids.len;
    r[i].ids = (token_ids){0};
    generation_result_free(&r[i]);
  }
  mem_free(prompt);
  mem_free(r);
  return st;
}

static hp_status answer_all(predicting *x, bool *stopped) {
  int64_t batch = x->t->data.sets.eval_batch, tokens, signal = 0;
  for (int64_t first = 0; first < x->out->samples && !signal; first += batch) {
    int64_t left = x->out->samples - first, n = left < batch ? left : batch;
    HP_TRY(answer_batch(x, first, n, &tokens));
    if (x->t->console.open) progress_step(&x->bar, first / batch + 1, NAN, tokens, 0);
    milestone_count_work();
    HP_TRY(hp_world_max(signals_taken(), &signal));
  }
  *stopped = signal != 0;
  return HP_OK;
}

/* One process ends its texts at a signal; several agree on it after each batch. */
static hp_status answer_set(trainer *t, const sample_set *s, predictions *out, bool *stopped) {
  predicting x = {.t = t, .out = out};
  int64_t longest;
  HP_TRY(train_generation_of(&t->config, t->data.tokenizer, t->data.sets.eos, &x.g));
  session_options o = options_of(&t->config, &t->data.sets, s, &longest);
  if (t->job.processes == 1) x.g.goes_on = is_undisturbed;
  progress_clear(&t->console.bar);
  if (t->console.open)
    log_info("generating answers to %lld samples, %lld at a time, of at most %lld tokens",
             (long long)out->samples, (long long)o.sequences, (long long)x.g.max_new_tokens);
  x.bar = progress_create(div_up(out->samples, t->data.sets.eval_batch), 0, 0,
                          t->config.disable_tqdm == 1);
  HP_TRY(session_create(t->model.m, &o, &x.g.session));
  const char *before = milestone_set_activity("generating answers");
  hp_status st = answer_all(&x, stopped);
  milestone_set_activity(before);
  session_free(x.g.session);
  if (t->console.open) progress_clear(&x.bar);
  return st;
}

/* --- scores and files ------------------------------------------------------------------------- */

static void warn_of_chinese(const similarity *s, run_console *c) {
  if (!s->chinese || c->chinese || !c->open) return;
  c->chinese = true;
  log_warn("ROUGE compares Chinese texts character by character, LlamaFactory's by the words of "
           "jieba's dictionary: the figures differ (those of BLEU do not)");
}

static hp_status score(const predictions *p, const run_data *d, run_console *c, run_evaluation *x) {
  similarity s = {0};
  hp_status st = predictions_score(p, d->tokenizer, &s);
  for (int i = 0; i < SIMILARITIES; i++) x->similarity[i] = similarity_mean(&s, i);
  if (!st) warn_of_chinese(&s, c);
  similarity_free(&s);
  return st;
}

hp_status trainer_answer(trainer *t, const sample_set *s, predictions *out, run_evaluation *x,
                         bool *stopped) {
  const train_data *d = &t->data.sets;
  double start = time_now_s();
  x->answers = true;
  x->batches = train_data_eval_batches(d, s);
  x->samples = d->drop_last ? x->batches * d->eval_batch : s->samples;
  HP_TRY(predictions_create(s, x->samples, out));
  HP_TRY(answer_set(t, s, out, stopped));
  if (!*stopped) HP_TRY(score(out, &t->data, &t->console, x));
  x->seconds = time_now_s() - start;
  return HP_OK;
}

static hp_status write_predictions(const trainer *t, const predictions *p) {
  const predictions_form form = {.skip_special = t->config.skip_special_tokens,
                                 .batch = t->config.per_device_eval_batch_size,
                                 .pad = t->data.sets.pad};
  str lines = {0};
  hp_status st = predictions_print(p, t->data.tokenizer, &form, &lines);
  if (!st) st = run_files_predictions(&t->console.files, &lines);
  str_free(&lines);
  return st;
}

static hp_status tell_predictions(trainer *t, const predictions *p, const run_evaluation *x) {
  run_entry e;
  HP_TRY(run_log_predicted(&t->log, x, &e));
  HP_TRY(trainer_tell_results(&t->console, &e, 1, "predict"));
  if (!t->job.writes) return HP_OK;
  HP_TRY(write_predictions(t, p));
  return run_files_results(&t->console.files, &e, 1, "predict");
}

hp_status trainer_predict(trainer *t, bool *stopped) {
  predictions p = {0};
  run_evaluation x = {0};
  HP_TRY(stepper_settle(t->model.stepper));
  hp_status st = trainer_answer(t, &t->data.sets.eval[0], &p, &x, stopped);
  if (!st && !*stopped) st = tell_predictions(t, &p, &x);
  predictions_free(&p);
  return st;
}
