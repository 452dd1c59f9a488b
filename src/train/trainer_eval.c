/* Evaluation while training: mean loss of the evaluation sets, or the similarity of answers. */
#include "base/log.h"
#include "base/thread.h"
#include "train/losses.h"
#include "train/signals.h"
#include "train/trainer_state.h"

#include <math.h>

static hp_status scorer_for(run_model *m, int64_t B, int64_t T, uint64_t reserve_bytes) {
  if (m->scorer && m->scorer_B == B && m->scorer_T == T) return HP_OK;
  lm_scorer_free(m->scorer);
  m->scorer = NULL;
  m->scorer_B = B;
  m->scorer_T = T;
  const step_options *o = &m->options;
  return lm_scorer_create(m->m, B, T, losses_of_evaluation(o), B * T * losses_each(o),
                          reserve_bytes, &m->scorer);
}

bool trainer_evaluates(const train_config *c) { return c->is.evaluate_after || c->eval_on_start; }

hp_status trainer_prepare_evaluation(const train_config *c, const train_data *d,
                                     uint64_t reserve_bytes, run_model *m) {
  if (!trainer_evaluates(c) || c->predict_with_generate) return HP_OK;
  for (int64_t i = 0; i < d->evals; i++) {
    const sample_set *s = &d->eval[i];
    HP_TRY(scorer_for(m, train_data_eval_rows(d, s), s->longest, reserve_bytes));
  }
  return HP_OK;
}

/* Labels by which losses are divided: all before the shift, with label smoothing those after it. */
static double divisor(const run_data *d, const run_model *m) {
  const train_batch *b = &d->batch;
  int64_t n = 0;
  if (!(m->m->label_smoothing > 0)) return (double)b->labelled;
  for (int64_t i = 0; i < b->B * b->T; i++) n += d->shifted[i] != LABEL_NONE;
  return (double)n;
}

/* The loss of a batch, as often as it has samples that are not there twice: as Transformers'
 * prediction_step has it of each replica (divided by the labels of all before the shift, times the
 * replicas), and its loop takes it for each sample. */
static double token_loss(const run_data *d, const run_model *m, int64_t samples,
                         const float *each_loss) {
  const train_batch *b = &d->batch;
  int64_t stride = losses_each(&m->options);
  int64_t replicas = b->B % d->sets.replicas ? 1 : d->sets.replicas, each = b->B / replicas;
  double sum = 0;
  for (int64_t r = 0; r < replicas; r++) {
    double part = 0;
    int64_t counted = samples - r * each < each ? samples - r * each : each;
    for (int64_t i = r * each * b->T; i < (r + 1) * each * b->T; i++)
      if (d->shifted[i] != LABEL_NONE) part += (double)each_loss[i * stride];
    if (counted > 0) sum += part * (double)replicas * (double)counted;
  }
  double n = divisor(d, m);
  return n > 0 ? sum / n : 0;
}

/* The share of its learned tokens that a sample's model finds, over the samples. */
static double found_tokens(const run_data *d, int64_t samples, const float *of) {
  const train_batch *b = &d->batch;
  double sum = 0;
  for (int64_t r = 0; r < samples; r++) {
    double found = 0, n = 0;
    for (int64_t i = r * b->T; i < (r + 1) * b->T; i++) {
      if (d->shifted[i] == LABEL_NONE) continue;
      found += (double)of[2 * i + 1];
      n++;
    }
    sum += n > 0 ? found / n : 0;
  }
  return sum;
}

/* The weight of a token's log-probability in that of its answer. */
static float weight_at(const run_data *d, const preference *p, int64_t row, int64_t t) {
  return preference_weighs_length(p) && t >= d->answers.beyond[row] ? (float)p->rest : 1;
}

/* Log-probabilities, logits and learned tokens of the rows of a batch; of a reward model their
 * rewards. */
static void sum_rows(const run_data *d, const run_model *m, const float *of) {
  const train_batch *b = &d->batch;
  const step_answers *a = &d->answers;
  const preference *p = &m->options.preference;
  int64_t each = losses_each(&m->options);
  for (int64_t r = 0; preference_weighs_length(p) && r + 1 < b->B; r += 2)
    preference_find_rest(d->shifted + r * b->T, b->T, a->beyond + r);
  for (int64_t r = 0; r < b->B; r++) {
    double sum = 0, logits = 0;
    a->counts[r] = 0;
    for (int64_t t = 0; t < b->T; t++) {
      const float *x = of + (r * b->T + t) * each;
      bool counts = d->shifted[r * b->T + t] != LABEL_NONE;
      if (each == 1) sum += t == b->lengths[r] - 1 ? (double)*x : 0;
      else if (counts) sum -= (double)(weight_at(d, p, r, t) * *x);
      if (each > 1 && t < b->width) logits += (double)x[1];
      a->counts[r] += counts;
    }
    a->logps[r] = (float)(preference_is_mean(p) ? sum / (double)a->counts[r] : sum);
    if (p->kind != PREFER_JUDGED) a->logits[r] = (float)logits;
    else if (r % 2 == 0) a->logits[r / 2] = (float)logits;
  }
}

/* The loss of a batch of preferences, for each of `samples` samples. */
static void answers_loss(const run_data *d, const run_model *m, int64_t samples, const float *of,
                         preference_metrics *metrics, double *out) {
  const train_batch *b = &d->batch;
  const preference *p = &m->options.preference;
  const step_answers *a = &d->answers;
  sum_rows(d, m, of);
  preference_rows r = {.samples = samples,
                       .logps = a->logps,
                       .logits = a->logits,
                       .ref = preference_has_reference(p) ? b->ref : NULL,
                       .good = b->good,
                       .counts = a->counts,
                       .cells = (double)b->T * (double)m->m->c.vocab};
  preference_add(p, &r, metrics);
  *out = preference_loss_of(p, &r) * (double)samples;
}

static hp_status batch_loss(run_data *d, run_model *m, int64_t samples, float *each_loss,
                            preference_metrics *metrics, double *found, double *out) {
  const train_batch *b = &d->batch;
  HP_TRY(scorer_for(m, b->B, b->T, 0));
  step_data_shift(b, d->shifted);
  lm_batch batch = {b->ids, d->shifted, b->position, b->span};
  HP_TRY(lm_scorer_run(m->scorer, &batch, each_loss));
  if (m->options.preference.kind) answers_loss(d, m, samples, each_loss, metrics, out);
  else *out = token_loss(d, m, samples, each_loss);
  if (m->options.accuracy) *found += found_tokens(d, samples, each_loss);
  return HP_OK;
}

/* How often the samples of a batch count that do: once, and in stage sft so often that all batches
 * count the same, for Seq2SeqTrainer leaves out nothing that it gathers. */
static double weight_of(const run_data *d, const run_model *m, int64_t samples) {
  return m->options.stage == STAGE_sft ? (double)d->sets.eval_batch / (double)samples : 1;
}

/* Has a signal come to one of the processes?  NULL: the evaluation goes on to its end. */
static hp_status ask_stop(bool *stopped) {
  int64_t signal = 0;
  if (stopped) HP_TRY(hp_world_max(signals_taken(), &signal));
  if (signal) *stopped = true;
  return HP_OK;
}

/* The mean over samples of the losses of their batches, as Transformers gathers them. */
static hp_status set_loss(run_data *d, run_model *m, const sample_set *s, run_evaluation *out,
                          bool *stopped) {
  int64_t n = train_data_eval_batches(&d->sets, s), counted = 0;
  float *each_loss =
      mem_calloc((size_t)(d->batch.most * losses_each(&m->options)), sizeof *each_loss);
  HP_TRY_MEM(each_loss);
  hp_status st = HP_OK;
  double sum = 0, weights = 0;
  for (int64_t i = 0; !st && i < n && !(stopped && *stopped); i++) {
    double all = 0;
    int64_t left = m->options.stage == STAGE_sft ? INT64_MAX : s->samples - counted;
    train_data_eval_batch(&d->sets, s, i, 0, &d->batch);
    int64_t samples = d->batch.B / (s->each > 1 ? s->each : 1);
    if (left > samples) left = samples;
    st = batch_loss(d, m, left, each_loss, &out->preferences, &out->found, &all);
    counted += left;
    sum += weight_of(d, m, left) * all;
    weights += weight_of(d, m, left) * (double)left;
    if (!st) st = ask_stop(stopped);
  }
  mem_free(each_loss);
  out->loss = (double)(float)(sum / weights); /* f32, as numpy means it */
  out->found /= (double)counted;
  out->samples = s->samples;
  out->batches = n;
  return st;
}

/* A loss during training is always found: a resume, the best model and the learning rate are to be
 * those of a run that no signal came to. */
static hp_status evaluate_set(trainer *t, const sample_set *s, eval_when when, run_evaluation *x,
                              bool *stopped) {
  predictions p = {0};
  if (!t->config.predict_with_generate)
    return set_loss(&t->data, &t->model, s, x, when == EVAL_AFTER ? stopped : NULL);
  hp_status st = trainer_answer(t, s, &p, x, stopped);
  predictions_free(&p);
  return st;
}

/* The number of the evaluation that is due among those of the run. */
static int64_t evaluation_now(const trainer *t, eval_when when) {
  if (when == EVAL_START) return 0;
  int64_t n = train_flow_evaluations(&t->flow, &t->data.sets.order, t->at.step);
  return when == EVAL_STEP ? n - 1 : n;
}

hp_status trainer_evaluate(trainer *t, eval_when when, bool *save, bool *stopped) {
  double metric = NAN;
  train_data_order_evaluation(&t->data.sets, evaluation_now(t, when));
  HP_TRY(stepper_settle(t->model.stepper));
  for (int64_t i = 0; i < t->data.sets.evals; i++) {
    const sample_set *s = &t->data.sets.eval[i];
    double start = time_now_s();
    run_evaluation x = {.loss = 0};
    run_entry e;
    bool best = false;
    bool ended = false;
    HP_TRY(evaluate_set(t, s, when, &x, &ended));
    if (ended) {
      if (when != EVAL_AFTER && t->console.open)
        log_info("the evaluation after step %lld is left out: a signal ended it",
                 (long long)t->at.step);
      *stopped = true;
      return HP_OK;
    }
    x.seconds = time_now_s() - start;
    HP_TRY(run_log_evaluated(&t->log, s->name, &x, &e, &best));
    if (when != EVAL_AFTER) HP_TRY(trainer_tell_entry(&t->console, &e));
    if (best && t->config.save_strategy == WHEN_BEST) *save = true;
    metric = x.loss;
  }
  return when == EVAL_STEP ? schedule_observe(&t->model.rate, metric) : HP_OK;
}
