/* Evaluation while training: mean loss of the evaluation sets. */
#include "base/thread.h"
#include "train/losses.h"
#include "train/trainer_state.h"

#include <math.h>

static hp_status scorer_for(run_model *m, int64_t B, int64_t T) {
  if (m->scorer && m->scorer_B == B && m->scorer_T == T) return HP_OK;
  lm_scorer_free(m->scorer);
  m->scorer = NULL;
  m->scorer_B = B;
  m->scorer_T = T;
  return lm_scorer_create(m->m, B, T, losses[m->options.stage].each, &m->scorer);
}

bool trainer_evaluates(const train_config *c) { return c->is.evaluate_after || c->eval_on_start; }

hp_status trainer_prepare_evaluation(const train_config *c, const train_data *d, run_model *m) {
  if (!trainer_evaluates(c)) return HP_OK;
  for (int64_t i = 0; i < d->evals; i++) {
    const sample_set *s = &d->eval[i];
    HP_TRY(scorer_for(m, train_data_eval_rows(d, s), s->longest));
  }
  return HP_OK;
}

/* The loss of a batch, as often as it has samples that are not there twice: as Transformers'
 * prediction_step has it of each replica (divided by the labels of all before the shift, times the
 * replicas), and its loop takes it for each sample. */
static hp_status batch_loss(run_data *d, run_model *m, int64_t samples, float *each_loss,
                            double *out) {
  const train_batch *b = &d->batch;
  int64_t replicas = b->B % d->sets.replicas ? 1 : d->sets.replicas, each = b->B / replicas;
  double sum = 0;
  HP_TRY(scorer_for(m, b->B, b->T));
  step_data_shift(b, d->shifted);
  lm_batch batch = {b->ids, d->shifted, b->position, b->span};
  HP_TRY(lm_scorer_run(m->scorer, &batch, each_loss));
  for (int64_t r = 0; r < replicas; r++) {
    double part = 0;
    int64_t counted = samples - r * each < each ? samples - r * each : each;
    for (int64_t i = r * each * b->T; i < (r + 1) * each * b->T; i++)
      if (d->shifted[i] != LABEL_NONE) part += (double)each_loss[i];
    if (counted > 0) sum += part * (double)replicas * (double)counted;
  }
  *out = b->labelled ? sum / (double)b->labelled : 0;
  return HP_OK;
}

/* The mean over samples of the losses of their batches, as Transformers gathers them. */
static hp_status set_loss(run_data *d, run_model *m, const sample_set *s, double *loss,
                          int64_t *batches) {
  int64_t n = train_data_eval_batches(&d->sets, s), counted = 0;
  float *each_loss = mem_calloc((size_t)d->batch.most, sizeof *each_loss);
  HP_TRY_MEM(each_loss);
  hp_status st = HP_OK;
  double sum = 0;
  for (int64_t i = 0; !st && i < n; i++) {
    double all = 0;
    int64_t left = s->samples - counted;
    train_data_eval_batch(&d->sets, s, i, 0, &d->batch);
    if (left > d->batch.B) left = d->batch.B;
    st = batch_loss(d, m, left, each_loss, &all);
    counted += left;
    sum += all;
  }
  mem_free(each_loss);
  *loss = (double)(float)(sum / (double)counted); /* f32, as numpy means it */
  *batches = n;
  return st;
}

hp_status trainer_evaluate(trainer *t, eval_when when, bool *save) {
  double metric = NAN;
  HP_TRY(stepper_settle(t->model.stepper));
  for (int64_t i = 0; i < t->data.sets.evals; i++) {
    const sample_set *s = &t->data.sets.eval[i];
    double start = time_now_s(), loss;
    int64_t batches;
    run_entry e;
    bool best = false;
    HP_TRY(set_loss(&t->data, &t->model, s, &loss, &batches));
    HP_TRY(run_log_evaluated(&t->log, s->name, loss, time_now_s() - start, s->samples, batches, &e,
                             &best));
    if (when != EVAL_AFTER) HP_TRY(trainer_tell_entry(&t->console, &e));
    if (best && t->config.save_strategy == WHEN_BEST) *save = true;
    metric = loss;
  }
  return when == EVAL_STEP ? schedule_observe(&t->model.rate, metric) : HP_OK;
}
