/* Losses of preferences: stages dpo, kto and rm, as LlamaFactory 0.9.5 with trl 0.24 computes them.
 *
 * A sample has two rows of tokens: the chosen and the rejected answer (dpo, rm), or an answer that
 * was judged and one of another prompt (kto), by which the divergence from the reference model is
 * estimated.  What an answer is worth is its log-probability, compared with that of the reference,
 * which is computed once, before training. */
#ifndef TRAIN_PREFERENCE_H
#define TRAIN_PREFERENCE_H

#include "model/family.h"

typedef enum { PREFER_NOTHING, PREFER_PAIR, PREFER_JUDGED, PREFER_REWARD } preference_kind;
typedef enum {
  PREF_SIGMOID,
  PREF_HINGE,
  PREF_IPO,
  PREF_KTO_PAIR,
  PREF_ORPO,
  PREF_SIMPO
} preference_loss;

typedef struct {
  preference_kind kind;
  preference_loss loss;
  bool exact; /* hinge, ipo and kto_pair as their papers have them; else as trl 0.24 has them, which
                 is by the sigmoid */
  double beta, smoothing; /* pref_beta, dpo_label_smoothing */
  double margin;          /* simpo_gamma */
  double ftx;             /* weight of the chosen answer's own loss */
  double rest; /* ld_alpha: weight of the tokens by which an answer is longer than the other; 1: as
                  all others */
  double good, bad; /* kto_chosen_weight, kto_rejected_weight */
} preference;

/* Is the loss compared with a reference model's? */
bool preference_has_reference(const preference *p);
/* Is the log-probability of an answer the mean over its tokens, not the sum? */
bool preference_is_mean(const preference *p);

/* Do tokens of a pair weigh less beyond the length of the other answer? */
bool preference_weighs_length(const preference *p);
/* Of a pair, rows of labels [2,T] (shifted): where in each row these tokens begin, beyond[2]. */
void preference_find_rest(const int32_t *labels, int64_t T, int32_t beyond[2]);

/* --- graphs ----------------------------------------------------------------------------------- */

/* The sum of the losses of the samples of b, whose rows R are those of ids and labels [R,T]
 * (shifted; LABEL_NONE: not counted).  Inputs: "ref" f32[R], log-probabilities by the reference;
 * for stage kto "sign", "gain" and "own" f32[R/2] of the samples (preference_weights); for rm
 * "lengths" i32[R]; if length is weighed "beyond" i32[R] (preference_find_rest).  Outputs: "logps"
 * f32[R], of rm the rewards; and "logits" f32[R], of kto [R/2], sums of all logits of a row up to
 * the input "width" i32[]. */
hp_tensor preference_losses(const preference *p, model_build *b, hp_tensor labels);

/* For evaluations, from hidden states [R,T,C] and labels [R,T], of each token: the negative
 * log-likelihood of its label, and the sum of its logits, [R,T,2]; its reward [R,T]. */
hp_tensor preference_scores(model_build *b, hp_tensor hidden, hp_tensor labels);
/* Log-probabilities of the rows' labels, [R]: sums, or means over the labels. */
hp_tensor preference_logps(model_build *b, hp_tensor hidden, hp_tensor labels);
hp_tensor preference_mean_logps(model_build *b, hp_tensor hidden, hp_tensor labels);
hp_tensor preference_rewards(model_build *b, hp_tensor hidden, hp_tensor labels);

/* --- numbers ---------------------------------------------------------------------------------- */

/* Stage kto: of sample i whether it is good (+1, -1), the weight of its loss, and the weight of its
 * own log-likelihood, in a batch of n. */
void preference_weights(const preference *p, const bool *good, int64_t n, float *sign, float *gain,
                        float *own);

/* The rows of a batch, as a program gave them; counts: tokens that are learned of each row. */
typedef struct {
  int64_t samples;
  const float *logps, *logits; /* of rows; logits: of each token and word, summed */
  const float *ref;            /* NULL: none */
  const bool *good;            /* stage kto */
  const int64_t *counts;       /* of rows */
  double cells;                /* logits of a row */
} preference_rows;

/* The mean loss of the samples. */
double preference_loss_of(const preference *p, const preference_rows *r);

enum { PREFERENCE_METRICS = 10 };
/* Sums of what is reported, over batches. */
typedef struct {
  double sum[PREFERENCE_METRICS];
  double batches, good, bad; /* and samples that were judged so */
} preference_metrics;
void preference_add(const preference *p, const preference_rows *r, preference_metrics *m);
/* The share of pairs whose chosen answer has the higher reward; stage rm. */
double preference_accuracy(const preference_metrics *m);
/* The i-th metric as LlamaFactory names and averages it; false: there are no more. */
bool preference_metric(const preference *p, const preference_metrics *m, int i, const char **name,
                       double *value);

#endif
