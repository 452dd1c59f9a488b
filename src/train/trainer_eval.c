/* Evaluation while training: mean loss of the evaluation sets. */
#include "base/thread.h"
#include "train/trainer_parts.h"

#include <math.h>

static hp_status scorer_for(trainer *t, int64_t B, int64_t T) {
  if (t->scorer && t->scorer_B == B && t->scorer_T == T) return HP_OK;
  lm_scorer_free(t->scorer);
  t->scorer = NULL;
  t->scorer_B = B;
  t->scorer_T = T;
  return lm_scorer_create(t->m, B, T, &t->scorer);
}

bool trainer_evaluates(const trainer *t) { return t->c->is.evaluate_after || t->c->eval_on_start; }

hp_status trainer_prepare_evaluation(trainer *t) {
  if (!trainer_evaluates(t)) return HP_OK;
  for (int64_t i = 0; i < t->data.evals; i++) {
    const sample_set *s = &t->data.eval[i];
    HP_TRY(scorer_for(t, train_data_eval_rows(&t->data, s), s->longest));
  }
  return HP_OK;
}

/* The loss of a batch, as often as it has samples that are not there twice: as Transformers'
 * prediction_step has it of each replica (divided by the labels of all before the shift, times the
 * replicas), and its loop takes it for each sample. */
static hp_status batch_loss(trainer *t, int64_t samples, float *losses, double *out) {
  const train_batch *b = &t->batch;
  int64_t replicas = b->B % t->data.replicas ? 1 : t->data.replicas, each = b->B / replicas;
  double sum = 0;
  HP_TRY(scorer_for(t, b->B, b->T));
  trainer_shift_labels(b, t->shifted);
  HP_TRY(lm_scorer_run(t->scorer, b->ids, t->shifted, losses));
  for (int64_t r = 0; r < replicas; r++) {
    double part = 0;
    int64_t counted = samples - r * each < each ? samples - r * each : each;
    for (int64_t i = r * each * b->T; i < (r + 1) * each * b->T; i++)
      if (t->shifted[i] != LABEL_NONE) part += (double)losses[i];
    if (counted > 0) sum += part * (double)replicas * (double)counted;
  }
  *out = b->labelled ? sum / (double)b->labelled : 0;
  return HP_OK;
}

/* The mean over samples of the losses of their batches, as Transformers gathers them. */
static hp_status set_loss(trainer *t, const sample_set *s, double *loss, int64_t *batches) {
  int64_t n = train_data_eval_batches(&t->data, s), counted = 0;
  float *losses = mem_calloc((size_t)t->batch.most, sizeof *losses);
  HP_TRY_MEM(losses);
  hp_status st = HP_OK;
  double sum = 0;
  for (int64_t i = 0; !st && i < n; i++) {
    double all = 0;
    int64_t left = s->samples - counted;
    train_data_eval_batch(&t->data, s, i, 0, &t->batch);
    if (left > t->batch.B) left = t->batch.B;
    st = batch_loss(t, left, losses, &all);
    counted += left;
    sum += all;
  }
  mem_free(losses);
  *loss = (double)(float)(sum / (double)counted); /* f32, as numpy means it */
  *batches = n;
  return st;
}

hp_status trainer_evaluate(trainer *t, eval_when when, bool *save) {
  double metric = NAN;
  for (int64_t i = 0; i < t->data.evals; i++) {
    const sample_set *s = &t->data.eval[i];
    double start = time_now_s(), loss;
    int64_t batches;
    run_entry e;
    bool best = false;
    HP_TRY(set_loss(t, s, &loss, &batches));
    HP_TRY(run_log_evaluated(&t->log, s->name, loss, time_now_s() - start, s->samples, batches, &e,
                             &best));
    if (when != EVAL_AFTER) HP_TRY(trainer_tell_entry(t, &e));
    if (best && t->c->save_strategy == WHEN_BEST) *save = true;
    metric = loss;
  }
  return when == EVAL_STEP ? schedule_observe(&t->rate, metric) : HP_OK;
}
