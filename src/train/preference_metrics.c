/* Preferences as numbers: the losses of evaluations, and what is reported. */
#include "train/preference.h"

#include <math.h>
#include <stdio.h>

void preference_weights(const preference *p, const bool *good, int64_t n, float *sign, float *gain,
                        float *own) {
  double goods = 0;
  for (int64_t i = 0; i < n; i++) goods += good[i];
  for (int64_t i = 0; i < n; i++) {
    sign[i] = good[i] ? 1 : -1;
    gain[i] = (float)(good[i] ? p->good : p->bad);
    own[i] = good[i] ? (float)(p->ftx * (double)n * (double)n / (goods * goods)) : 0;
  }
}

void preference_find_rest(const int32_t *labels, int64_t T, int32_t beyond[2]) {
  enum { NO_LABEL = -100 };
  int64_t count[2] = {0}, first[2] = {0};
  for (int r = 0; r < 2; r++)
    for (int64_t t = T - 1; t >= 0; t--)
      if (labels[r * T + t] != NO_LABEL) count[r]++, first[r] = t;
  int64_t both = count[0] < count[1] ? count[0] : count[1];
  for (int r = 0; r < 2; r++) beyond[r] = (int32_t)(first[r] + both);
}

/* log(1 + exp(x)) */
static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static double sigmoid(double x) { return x > 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

static double ref_of(const preference_rows *r, int64_t row) {
  return r->ref ? (double)r->ref[row] : 0;
}

/* Log-ratio of a row to the reference, or its log-probability where there is none. */
static double ratio(const preference_rows *r, int64_t row) {
  return (double)r->logps[row] - ref_of(r, row);
}

/* The mean of the rows k, k + 2, ..., and at least 0. */
static double divergence(const preference_rows *r, int k) {
  double sum = 0;
  for (int64_t i = 0; i < r->samples; i++) sum += ratio(r, 2 * i + k);
  sum /= (double)r->samples;
  return sum > 0 ? sum : 0;
}

static double own_loss(const preference *p, const preference_rows *r, int64_t row) {
  double x = (double)r->logps[row];
  return preference_is_mean(p) ? -x : -x / (double)r->counts[row];
}

static double pair_loss(const preference *p, const preference_rows *r, int64_t i) {
  double c = ratio(r, 2 * i), d = ratio(r, 2 * i + 1), x = c - d, loss;
  if (p->loss == PREF_ORPO) {
    double odds = x - (log1p(-exp(c)) - log1p(-exp(d)));
    loss = -c + p->beta * softplus(-odds);
  } else if (p->loss == PREF_SIMPO) {
    loss = softplus(p->margin - p->beta * x);
  } else if (p->exact && p->loss == PREF_HINGE) {
    loss = fmax(0, 1 - p->beta * x);
  } else if (p->exact && p->loss == PREF_IPO) {
    loss = (x - 1 / (2 * p->beta)) * (x - 1 / (2 * p->beta));
  } else if (p->exact && p->loss == PREF_KTO_PAIR) {
    loss = 1 - 0.5 * (sigmoid(p->beta * (c - divergence(r, 1))) +
                      sigmoid(p->beta * (divergence(r, 0) - d)));
  } else {
    loss = (1 - p->smoothing) * softplus(-p->beta * x) + p->smoothing * softplus(p->beta * x);
  }
  return p->ftx > 0 ? loss + p->ftx * own_loss(p, r, 2 * i) : loss;
}

static double judged_loss(const preference *p, const preference_rows *r) {
  double far = divergence(r, 1), sum = 0, own = 0, goods = 0, n = (double)r->samples;
  for (int64_t i = 0; i < r->samples; i++) {
    double x = p->beta * (ratio(r, 2 * i) - far);
    sum += r->good[i] ? p->good * (1 - sigmoid(x)) : p->bad * (1 - sigmoid(-x));
    if (r->good[i]) own += own_loss(p, r, 2 * i);
    goods += r->good[i];
  }
  return sum / n + (goods > 0 ? p->ftx * own / (goods * goods) * n : 0);
}

double preference_loss_of(const preference *p, const preference_rows *r) {
  double sum = 0;
  if (p->kind == PREFER_JUDGED) return judged_loss(p, r);
  for (int64_t i = 0; i < r->samples; i++) {
    if (p->kind == PREFER_PAIR) sum += pair_loss(p, r, i);
    else sum += softplus((double)r->logps[2 * i + 1] - (double)r->logps[2 * i]);
  }
  return sum / (double)r->samples;
}

/* --- what is reported ------------------------------------------------------------------------- */

/* Of pairs, means of a batch; of judged answers, sums over all that were judged so. */
enum {
  REWARD_GOOD,
  REWARD_BAD,
  ACCURACY,
  MARGIN,
  LOGP_GOOD,
  LOGP_BAD,
  LOGIT_GOOD,
  LOGIT_BAD,
  OWN_LOSS,
  ODDS_LOSS
};

static void add_pairs(const preference *p, const preference_rows *r, preference_metrics *m) {
  double n = (double)r->samples;
  for (int64_t i = 0; i < r->samples; i++) {
    int64_t c = 2 * i, d = c + 1;
    double good = p->beta * ratio(r, c), bad = p->beta * ratio(r, d), own = own_loss(p, r, c);
    m->sum[REWARD_GOOD] += good / n;
    m->sum[REWARD_BAD] += bad / n;
    m->sum[ACCURACY] += (good > bad) / n;
    m->sum[MARGIN] += (good - bad) / n;
    m->sum[LOGP_GOOD] += (double)r->logps[c] / n;
    m->sum[LOGP_BAD] += (double)r->logps[d] / n;
    m->sum[LOGIT_GOOD] += (double)r->logits[c] / r->cells / n;
    m->sum[LOGIT_BAD] += (double)r->logits[d] / r->cells / n;
    m->sum[OWN_LOSS] += own / n;
    m->sum[ODDS_LOSS] += (pair_loss(p, r, i) - own) / p->beta / n;
  }
}

/* rewards, logps and logits by judgement; the divergence is added up */
static void add_judged(const preference *p, const preference_rows *r, preference_metrics *m) {
  for (int64_t i = 0; i < r->samples; i++) {
    int bad = !r->good[i];
    m->sum[REWARD_GOOD + bad] += p->beta * ratio(r, 2 * i);
    m->sum[LOGP_GOOD + bad] += (double)r->logps[2 * i];
    m->sum[LOGIT_GOOD + bad] += (double)r->logits[i];
    m->good += r->good[i];
    m->bad += bad;
  }
  m->sum[OWN_LOSS] += divergence(r, 1);
}

static void add_rewards(const preference_rows *r, preference_metrics *m) {
  for (int64_t i = 0; i < r->samples; i++) {
    m->sum[ACCURACY] += r->logps[2 * i] > r->logps[2 * i + 1];
    m->good++;
  }
}

void preference_add(const preference *p, const preference_rows *r, preference_metrics *m) {
  m->batches++;
  if (p->kind == PREFER_PAIR) add_pairs(p, r, m);
  else if (p->kind == PREFER_JUDGED) add_judged(p, r, m);
  else add_rewards(r, m);
}

double preference_accuracy(const preference_metrics *m) { return m->sum[ACCURACY] / m->good; }

static bool pair_metric(const preference *p, const preference_metrics *m, int i, const char **name,
                        double *value) {
  static const char *const names[] = {"rewards/chosen",  "rewards/rejected", "rewards/accuracies",
                                      "rewards/margins", "logps/chosen",     "logps/rejected",
                                      "logits/chosen",   "logits/rejected",  "sft_loss",
                                      "odds_ratio_loss"};
  if (i >= (p->loss == PREF_ORPO ? PREFERENCE_METRICS : OWN_LOSS)) return false;
  *name = names[i];
  *value = (double)(float)(m->sum[i] / m->batches);
  return true;
}

static bool judged_metric(const preference_metrics *m, int i, const char **name, double *value) {
  static const struct {
    const char *name;
    int of;
    bool bad;
  } row[] = {{"rewards/chosen", REWARD_GOOD, false}, {"logps/chosen", LOGP_GOOD, false},
             {"logits/chosen", LOGIT_GOOD, false},   {"rewards/rejected", REWARD_BAD, true},
             {"logps/rejected", LOGP_BAD, true},     {"logits/rejected", LOGIT_BAD, true}};
  enum { ROWS = sizeof row / sizeof *row };
  int n = m->good > 0 ? 0 : 3, last = m->bad > 0 ? ROWS : 3;
  if (n + i < last) {
    *name = row[n + i].name;
    *value = m->sum[row[n + i].of] / (row[n + i].bad ? m->bad : m->good);
    return true;
  }
  i -= last - n;
  bool both = m->good > 0 && m->bad > 0;
  if (i == 0 && both) {
    *name = "rewards/margins";
    *value = m->sum[REWARD_GOOD] / m->good - m->sum[REWARD_BAD] / m->bad;
    return true;
  }
  if (i != both) return false;
  *name = "kl";
  *value = m->sum[OWN_LOSS];
  return true;
}

bool preference_metric(const preference *p, const preference_metrics *m, int i, const char **name,
                       double *value) {
  if (!(m->batches > 0)) return false;
  if (p->kind == PREFER_PAIR) return pair_metric(p, m, i, name, value);
  if (p->kind == PREFER_JUDGED) return judged_metric(m, i, name, value);
  return false;
}
