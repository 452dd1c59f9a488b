/* Log-probabilities of all samples by the reference model, once before training. */
#include "base/log.h"
#include "base/milestone.h"
#include "base/thread.h"
#include "model/lm_adapter.h"
#include "train/losses.h"
#include "train/trainer.h"
#include "train/trainer_state.h"

#include <stdlib.h>
#include <string.h>

/* Rows of few lengths, so that few programs are compiled; seconds between lines of the log. */
enum { WIDTHS = 4, TELL_S = 30 };

typedef struct {
  const preference *p;
  sample_set *set;
  lm *m;
  int32_t pad;
  int64_t batch;  /* rows that are scored at once */
  int64_t *order; /* rows by length */
  int32_t *ids, *labels, *span;
  float *logps; /* of a batch */
  int64_t scored, rows;
  double start_s, told_s;
} scoring;

static int64_t row_length(const sample_set *s, int64_t row) {
  return s->start[row + 1] - s->start[row];
}

static int by_length(const void *a, const void *b, void *set) {
  const int64_t *x = a, *y = b;
  int64_t n = row_length(set, *x), m = row_length(set, *y);
  return n != m ? (n > m) - (n < m) : (*x > *y) - (*x < *y);
}

/* The labels of a row, shifted; padding has none. */
static void fill_row(const scoring *s, int64_t row, int64_t T, int64_t at) {
  const sample_set *set = s->set;
  int64_t n = row_length(set, row), from = set->start[row];
  int32_t *ids = s->ids + at * T, *labels = s->labels + at * T;
  for (int64_t t = 0; t < T; t++) {
    ids[t] = t < n ? set->ids[from + t] : s->pad;
    labels[t] = t + 1 < n ? set->labels[from + t + 1] : LABEL_NONE;
    s->span[(at * T + t) * 2] = 0;
    s->span[(at * T + t) * 2 + 1] = (int32_t)(t < n ? t : n - 1);
  }
}

/* Now and then, how far it is; rows of long samples come last, so there is no estimate of the end.
 */
static void tell_scored(scoring *s, int64_t rows) {
  double now = time_now_s();
  s->scored += rows;
  if (now - s->told_s < TELL_S) return;
  s->told_s = now;
  log_info("scored %lld of %lld answers by the reference model, in %.0f s", (long long)s->scored,
           (long long)s->rows, now - s->start_s);
}

/* Rows order[first..last), none longer than T; the last batch is filled up with its last row. */
static hp_status score_rows(scoring *s, int64_t first, int64_t last, int64_t T) {
  lm_scorer *scorer = NULL;
  lm_losses *of = preference_is_mean(s->p) ? preference_mean_logps : preference_logps;
  if (first == last) return HP_OK;
  HP_TRY(lm_scorer_create(s->m, s->batch, T, of, s->batch, 0, &scorer));
  hp_status st = HP_OK;
  for (int64_t at = first; at < last && !st; at += s->batch) {
    milestone_count_work();
    for (int64_t i = 0; i < s->batch; i++)
      fill_row(s, s->order[at + i < last ? at + i : last - 1], T, i);
    lm_batch b = {.ids = s->ids, .labels = s->labels, .span = s->span};
    st = lm_scorer_run(scorer, &b, s->logps);
    for (int64_t i = 0; i < s->batch && at + i < last && !st; i++)
      s->set->ref[s->order[at + i]] = s->logps[i];
    tell_scored(s, last - at < s->batch ? last - at : s->batch);
  }
  lm_scorer_free(scorer);
  return st;
}

static hp_status score_widths(scoring *s, int64_t rows) {
  hp_status st = HP_OK;
  for (int64_t k = 1, first = 0; k <= WIDTHS && !st; k++) {
    int64_t T = s->set->longest * k / WIDTHS, last = first;
    while (last < rows && row_length(s->set, s->order[last]) <= T) last++;
    st = score_rows(s, first, last, T);
    first = last;
  }
  return st;
}

static hp_status score_set(const preference *p, lm *m, int32_t pad, int64_t batch,
                           sample_set *set) {
  int64_t rows = set->samples * set->each;
  if (!rows) return HP_OK;
  size_t n = (size_t)(batch * set->longest);
  scoring s = {.p = p,
               .set = set,
               .m = m,
               .pad = pad,
               .batch = batch,
               .rows = rows,
               .start_s = time_now_s(),
               .told_s = time_now_s(),
               .order = mem_calloc((size_t)rows, sizeof *s.order),
               .ids = mem_calloc(n, sizeof *s.ids),
               .labels = mem_calloc(n, sizeof *s.labels),
               .span = mem_calloc(n, 2 * sizeof *s.span),
               .logps = mem_calloc((size_t)batch, sizeof *s.logps)};
  set->ref = mem_calloc((size_t)rows, sizeof *set->ref);
  hp_status st = s.order && s.ids && s.labels && s.span && s.logps && set->ref ? HP_OK : HP_ERR_OOM;
  if (!st) {
    for (int64_t i = 0; i < rows; i++) s.order[i] = i;
    qsort_r(s.order, (size_t)rows, sizeof *s.order, by_length, set);
    st = score_widths(&s, rows);
  }
  mem_free(s.order);
  mem_free(s.ids);
  mem_free(s.labels);
  mem_free(s.span);
  mem_free(s.logps);
  return st;
}

static hp_status score_all(const train_config *c, const preference *p, lm *m, train_data *d) {
  int64_t batch = c->is.batch.rows * 2, samples = d->train.samples;
  double start_s = time_now_s();
  for (int64_t i = 0; i < d->evals; i++) samples += d->eval[i].samples;
  log_info("scoring %lld samples by the reference model, once before training", (long long)samples);
  HP_TRY(score_set(p, m, d->pad, batch, &d->train));
  for (int64_t i = 0; i < d->evals; i++) HP_TRY(score_set(p, m, d->pad, batch, &d->eval[i]));
  log_info("scored %lld samples by the reference model in %.2f s", (long long)samples,
           time_now_s() - start_s);
  return HP_OK;
}

/* Tokenizers are compared where the reference model brings one. */
static hp_status check_tokenizer(const train_config *c) {
  tokenizer *own = NULL, *other = NULL;
  if (!tokenizer_is_in(c->ref_model)) return HP_OK;
  hp_status st = tokenizer_load(c->model_name_or_path, &own);
  if (!st) st = tokenizer_load(c->ref_model, &other);
  int32_t id = st ? -1 : tokenizer_find_difference(own, other);
  if (id >= 0)
    st = tree_error(train_config_at(c, KEY_ref_model), __FILE__, __LINE__,
                    "token %d is \"%s\" for %s, and \"%s\" for the model that is trained; "
                    "expected models of one tokenizer",
                    id, tokenizer_token(other, id, NULL), c->ref_model,
                    tokenizer_token(own, id, NULL));
  tokenizer_free(own);
  tokenizer_free(other);
  return st;
}

/* The reference model of the key ref_model, on a device of its own while it is needed. */
static hp_status score_by_other(const train_config *c, const preference *p, const lm *trained,
                                train_data *d) {
  train_config of = *c;
  hp_device *device = NULL;
  lm *m = NULL;
  of.model_name_or_path = c->ref_model;
  of.finetuning_type = TUNING_FULL;
  hp_status st = check_tokenizer(c);
  if (!st) st = trainer_open_model(&of, false, &device, &m);
  if (!st && m->c.vocab != trained->c.vocab)
    st = tree_error(train_config_at(c, KEY_ref_model), __FILE__, __LINE__,
                    "%s has a vocabulary of %lld, the model that is trained one of %lld; expected "
                    "models of one tokenizer",
                    c->ref_model, (long long)m->c.vocab, (long long)trained->c.vocab);
  if (!st) lm_share_rope(m, d->train.longest);
  if (!st) lm_set_spans(m);
  if (!st && c->ref_model_adapters) st = lm_open_adapter_list(m, c->ref_model_adapters, false);
  if (!st) st = lm_load(m, c->ref_model);
  if (!st) st = score_all(c, p, m, d);
  lm_free(m);
  hp_device_close(device);
  return st;
}

hp_status trainer_score_references(const train_config *c, const preference *p, lm *m,
                                   train_data *d) {
  if (!preference_has_reference(p)) return HP_OK;
  const char *before = milestone_set_activity("scoring samples by the reference model");
  hp_status st;
  if (c->ref_model) {
    st = score_by_other(c, p, m, d);
  } else { /* an adapter is left out: what it starts from is the reference */
    adapter *kept = m->adapter;
    m->adapter = NULL;
    st = score_all(c, p, m, d);
    m->adapter = kept;
  }
  milestone_set_activity(before);
  return st;
}
