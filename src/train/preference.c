/* The graphs of preferences. */
#include "train/preference.h"

#include "model/lm.h"

enum { NO_LABEL = -100 };

bool preference_has_reference(const preference *p) {
  bool alone = p->loss == PREF_ORPO || p->loss == PREF_SIMPO;
  return p->kind == PREFER_JUDGED || (p->kind == PREFER_PAIR && !alone);
}

bool preference_is_mean(const preference *p) {
  return p->kind == PREFER_PAIR &&
         (p->loss == PREF_IPO || p->loss == PREF_ORPO || p->loss == PREF_SIMPO);
}

bool preference_weighs_length(const preference *p) {
  return p->kind == PREFER_PAIR && p->rest != 1;
}

/* --- what the losses are made of -------------------------------------------------------------- */

static hp_tensor unary(model_build *b, const char *op, hp_tensor x) {
  return hp_map(b->g, op, x, HP_NONE, HP_NONE);
}

static hp_tensor number(model_build *b, double x) { return hp_const(b->g, HP_F32, x); }

static hp_tensor over_row(model_build *b, hp_tensor x) {
  return hp_sum(b->g, x, (int64_t[]){1}, 1, false);
}

/* -log sigmoid(x) */
static hp_tensor minus_log_sigmoid(model_build *b, hp_tensor x) {
  return unary(b, "softplus", unary(b, "neg", x));
}

/* Column k of x [R], as [R/2,2]. */
static hp_tensor column(model_build *b, hp_tensor x, int64_t k) {
  int64_t n = hp_shape_of(b->g, x).dim[0] / 2;
  x = hp_reshape(b->g, x, (hp_shape){2, {n, 2}});
  return hp_reshape(b->g, hp_slice(b->g, x, 1, k, k + 1), (hp_shape){1, {n}});
}

static hp_tensor input_rows(model_build *b, const char *name, int64_t n) {
  return hp_input(b->g, name, HP_F32, (hp_shape){1, {n}});
}

/* The sum of a token's logits, [R,T]: the hidden state times the sum of the words' rows. */
static hp_tensor sum_logits(model_build *b, hp_tensor hidden) {
  const model_family *f = b->c->family;
  hp_tensor w = b->c->tied ? lm_tied_head(b) : build_find_param(b, f->head_name);
  hp_tensor sum = hp_cast(b->g, hp_sum(b->g, w, (int64_t[]){0}, 1, false), HP_F32);
  return hp_einsum_to(b->g, "rtc,c->rt", hp_cast(b->g, hidden, HP_F32), sum, HP_F32);
}

/* A forward pass over ids: log-probabilities of the rows' labels, [rows]. */
typedef struct {
  hp_tensor logps, counts;
  hp_tensor logits; /* sums of all logits of a row */
} rows_forward;

hp_tensor preference_logps(model_build *b, hp_tensor hidden, hp_tensor labels) {
  hp_tensor each = hp_cross_entropy(b->g, lm_head(b, hidden), labels, NO_LABEL);
  hp_at(b->g, "loss");
  return unary(b, "neg", over_row(b, each));
}

static hp_tensor count_labels(model_build *b, hp_tensor labels) {
  hp_tensor none = hp_const(b->g, HP_I32, NO_LABEL);
  return over_row(b, hp_cast(b->g, hp_map(b->g, "ne", labels, none, HP_NONE), HP_F32));
}

hp_tensor preference_mean_logps(model_build *b, hp_tensor hidden, hp_tensor labels) {
  hp_tensor sum = preference_logps(b, hidden, labels);
  return hp_div(b->g, sum, count_labels(b, labels));
}

/* The same with tokens that weigh less beyond the length of the other answer. */
static hp_tensor weighed_logps(const preference *p, model_build *b, hp_tensor hidden,
                               hp_tensor labels) {
  hp_tensor beyond = hp_input(b->g, "beyond", HP_I32, (hp_shape){1, {b->B}});
  hp_tensor each = hp_cross_entropy(b->g, lm_head(b, hidden), labels, NO_LABEL);
  hp_at(b->g, "loss");
  beyond = hp_reshape(b->g, beyond, (hp_shape){2, {b->B, 1}});
  hp_tensor inside = hp_cast(b->g, hp_map(b->g, "gt", beyond, b->positions, HP_NONE), HP_F32);
  hp_tensor weight = hp_add(b->g, hp_scale(b->g, inside, 1 - p->rest), number(b, p->rest));
  return unary(b, "neg", over_row(b, hp_mul(b->g, each, weight)));
}

static rows_forward forward(const preference *p, model_build *b, hp_tensor labels, bool logits) {
  rows_forward f = {0};
  hp_tensor hidden = b->c->family->hidden(b);
  f.logps = preference_weighs_length(p) ? weighed_logps(p, b, hidden, labels)
                                        : preference_logps(b, hidden, labels);
  f.counts = count_labels(b, labels);
  if (!logits) return f;
  hp_tensor width = hp_input(b->g, "width", HP_I32, (hp_shape){0});
  hp_tensor inside = hp_cast(b->g, hp_map(b->g, "gt", width, b->positions, HP_NONE), HP_F32);
  f.logits = over_row(b, hp_mul(b->g, sum_logits(b, hidden), inside));
  return f;
}

/* --- stage dpo -------------------------------------------------------------------------------- */

/* log(p / (1 - p)) of p = exp(x) */
static hp_tensor minus_log_rest(model_build *b, hp_tensor x) {
  return unary(b, "log1p", unary(b, "neg", unary(b, "exp", x)));
}

static hp_tensor mean_above_zero(model_build *b, hp_tensor x) {
  double n = (double)hp_shape_of(b->g, x).dim[0];
  hp_tensor mean = hp_scale(b->g, hp_sum(b->g, x, (int64_t[]){0}, 1, false), 1 / n);
  return hp_map(b->g, "max", mean, number(b, 0), HP_NONE);
}

/* The losses of the papers; by log-ratios of the chosen and the rejected answers. */
static hp_tensor exact_losses(const preference *p, model_build *b, hp_tensor chosen,
                              hp_tensor rejected) {
  hp_tensor x = hp_sub(b->g, chosen, rejected), one = number(b, 1);
  if (p->loss == PREF_HINGE) return unary(b, "relu", hp_sub(b->g, one, hp_scale(b->g, x, p->beta)));
  if (p->loss == PREF_IPO) return unary(b, "square", hp_sub(b->g, x, number(b, 1 / (2 * p->beta))));
  /* kto_pair: each answer against the divergence of the others */
  hp_tensor far_chosen = mean_above_zero(b, chosen), far_rejected = mean_above_zero(b, rejected);
  hp_tensor good = hp_scale(b->g, hp_sub(b->g, chosen, far_rejected), p->beta);
  hp_tensor bad = hp_scale(b->g, hp_sub(b->g, far_chosen, rejected), p->beta);
  hp_tensor both = hp_add(b->g, unary(b, "sigmoid", good), unary(b, "sigmoid", bad));
  return hp_sub(b->g, one, hp_scale(b->g, both, 0.5));
}

static hp_tensor compared_losses(const preference *p, model_build *b, hp_tensor chosen,
                                 hp_tensor rejected) {
  hp_tensor ref = input_rows(b, "ref", b->B);
  chosen = hp_sub(b->g, chosen, column(b, ref, 0));
  rejected = hp_sub(b->g, rejected, column(b, ref, 1));
  if (p->exact && p->loss != PREF_SIGMOID) return exact_losses(p, b, chosen, rejected);
  hp_tensor x = hp_scale(b->g, hp_sub(b->g, chosen, rejected), p->beta);
  hp_tensor loss = minus_log_sigmoid(b, x);
  if (p->smoothing == 0) return loss;
  return hp_add(b->g, hp_scale(b->g, loss, 1 - p->smoothing),
                hp_scale(b->g, minus_log_sigmoid(b, unary(b, "neg", x)), p->smoothing));
}

static hp_tensor pair_losses(const preference *p, model_build *b, hp_tensor labels) {
  rows_forward f = forward(p, b, labels, true);
  hp_tensor mean = hp_div(b->g, f.logps, f.counts);
  hp_tensor logps = preference_is_mean(p) ? mean : f.logps;
  hp_output(b->g, "logps", logps);
  hp_output(b->g, "logits", f.logits);
  hp_tensor chosen = column(b, logps, 0), rejected = column(b, logps, 1), loss;
  hp_tensor ratio = hp_sub(b->g, chosen, rejected);
  if (p->loss == PREF_ORPO) {
    hp_tensor odds = hp_sub(b->g, minus_log_rest(b, chosen), minus_log_rest(b, rejected));
    hp_tensor far = minus_log_sigmoid(b, hp_sub(b->g, ratio, odds));
    loss = hp_sub(b->g, hp_scale(b->g, far, p->beta), chosen);
  } else if (p->loss == PREF_SIMPO) {
    loss = minus_log_sigmoid(b, hp_sub(b->g, hp_scale(b->g, ratio, p->beta), number(b, p->margin)));
  } else {
    loss = compared_losses(p, b, chosen, rejected);
  }
  if (p->ftx > 0) loss = hp_sub(b->g, loss, hp_scale(b->g, column(b, mean, 0), p->ftx));
  return hp_sum(b->g, loss, (int64_t[]){0}, 1, false);
}

/* --- stage kto -------------------------------------------------------------------------------- */

/* Every second row of the span [R,T,2]. */
static hp_tensor span_rows(model_build *b, hp_tensor span, int64_t k) {
  if (!span) return HP_NONE;
  hp_shape s = hp_shape_of(b->g, span);
  int64_t T = s.dim[1];
  span = hp_reshape(b->g, span, (hp_shape){2, {s.dim[0], 2 * T}});
  span = build_rows(b, span, k, 2);
  return hp_reshape(b->g, span, (hp_shape){3, {s.dim[0] / 2, T, 2}});
}

/* The answers and those of other prompts are two forward passes: the latter have no gradient. */
static hp_tensor judged_losses(const preference *p, model_build *b, hp_tensor labels) {
  hp_tensor ids = b->ids, positions = b->positions, span = b->span,
            ref = input_rows(b, "ref", b->B);
  int64_t n = b->B / 2;
  rows_forward f[2];
  b->B = n;
  for (int64_t k = 0; k < 2; k++) {
    b->ids = build_rows(b, ids, k, 2);
    b->span = span_rows(b, span, k);
    b->positions = build_rows(b, positions, k, 2);
    f[k] = forward(p, b, build_rows(b, labels, k, 2), k == 0);
  }
  b->B = 2 * n;
  hp_tensor both[2];
  for (int k = 0; k < 2; k++) both[k] = hp_reshape(b->g, f[k].logps, (hp_shape){2, {n, 1}});
  hp_output(b->g, "logps", hp_reshape(b->g, hp_concat(b->g, both, 2, 1), (hp_shape){1, {2 * n}}));
  hp_output(b->g, "logits", f[0].logits);
  hp_tensor far = mean_above_zero(b, hp_sub(b->g, f[1].logps, column(b, ref, 1)));
  far = unary(b, "stop_gradient", far);
  hp_tensor ratio = hp_sub(b->g, f[0].logps, column(b, ref, 0));
  hp_tensor sign = hp_scale(b->g, input_rows(b, "sign", n), p->beta);
  hp_tensor worth = unary(b, "sigmoid", hp_mul(b->g, sign, hp_sub(b->g, ratio, far)));
  hp_tensor loss = hp_mul(b->g, hp_sub(b->g, number(b, 1), worth), input_rows(b, "gain", n));
  hp_tensor own = hp_mul(b->g, hp_div(b->g, f[0].logps, f[0].counts), input_rows(b, "own", n));
  return hp_sum(b->g, hp_sub(b->g, loss, own), (int64_t[]){0}, 1, false);
}

/* --- stage rm --------------------------------------------------------------------------------- */

/* The reward of a row is that of its last token. */
static hp_tensor reward_losses(model_build *b) {
  hp_tensor values = build_value_head(b, b->c->family->hidden(b));
  hp_tensor lengths = hp_input(b->g, "lengths", HP_I32, (hp_shape){1, {b->B}});
  hp_at(b->g, "loss");
  lengths = hp_reshape(b->g, lengths, (hp_shape){2, {b->B, 1}});
  hp_tensor last = hp_sub(b->g, lengths, hp_const(b->g, HP_I32, 1));
  hp_tensor is = hp_cast(b->g, hp_map(b->g, "eq", last, b->positions, HP_NONE), HP_F32);
  hp_tensor reward = over_row(b, hp_mul(b->g, values, is));
  hp_output(b->g, "logps", reward);
  hp_tensor more = hp_sub(b->g, column(b, reward, 0), column(b, reward, 1));
  return hp_sum(b->g, minus_log_sigmoid(b, more), (int64_t[]){0}, 1, false);
}

hp_tensor preference_losses(const preference *p, model_build *b, hp_tensor labels) {
  if (p->kind == PREFER_REWARD) return reward_losses(b);
  return p->kind == PREFER_JUDGED ? judged_losses(p, b, labels) : pair_losses(p, b, labels);
}

/* --- evaluations ------------------------------------------------------------------------------ */

hp_tensor preference_scores(model_build *b, hp_tensor hidden, hp_tensor labels) {
  hp_shape one = {3, {b->B, b->T, 1}};
  hp_tensor x[2];
  x[0] = hp_cross_entropy(b->g, lm_head(b, hidden), labels, NO_LABEL);
  x[1] = sum_logits(b, hidden);
  for (int i = 0; i < 2; i++) x[i] = hp_reshape(b->g, x[i], one);
  return hp_concat(b->g, x, 2, 2);
}

hp_tensor preference_rewards(model_build *b, hp_tensor hidden, hp_tensor labels) {
  (void)labels;
  return build_value_head(b, hidden);
}
