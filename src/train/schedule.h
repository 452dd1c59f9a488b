/* Learning-rate schedules of Transformers 5 (get_scheduler), digit for digit.
 *
 * lr(step) is computed in double, operation by operation in the order of the Python source, so that
 * a logged rate equals the one of Transformers to the last digit.  Step s (from 0) of training runs
 * with schedule_lr(s, step s).  All kinds but two are functions of the step alone; the two that
 * follow a metric (reduce_lr_on_plateau, greedy) keep a state, which goes into a checkpoint. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "base/str.h"
#include "base/vec.h"

#define SCHEDULE_KINDS(X)                                                                          \
  X(LINEAR, "linear")                                                                              \
  X(COSINE, "cosine")                                                                              \
  X(COSINE_WITH_RESTARTS, "cosine_with_restarts")                                                  \
  X(POLYNOMIAL, "polynomial")                                                                      \
  X(CONSTANT, "constant")                                                                          \
  X(CONSTANT_WITH_WARMUP, "constant_with_warmup")                                                  \
  X(INVERSE_SQRT, "inverse_sqrt")                                                                  \
  X(REDUCE_LR_ON_PLATEAU, "reduce_lr_on_plateau")                                                  \
  X(COSINE_WITH_MIN_LR, "cosine_with_min_lr")                                                      \
  X(COSINE_WARMUP_WITH_MIN_LR, "cosine_warmup_with_min_lr")                                        \
  X(WARMUP_STABLE_DECAY, "warmup_stable_decay")                                                    \
  X(GREEDY, "greedy")

typedef enum {
#define X(id, name) SCHEDULE_##id,
  SCHEDULE_KINDS(X)
#undef X
      SCHEDULE_COUNT
} schedule_kind;

/* One entry of lr_scheduler_kwargs: a number (true and false are 1 and 0), or a text. */
typedef struct {
  const char *key;
  const char *text; /* NULL: a number */
  double number;
} schedule_arg;

typedef enum { CURVE_LINEAR, CURVE_COSINE, CURVE_ONE_MINUS_SQRT } schedule_curve;

typedef struct {
  schedule_kind kind;
  double lr; /* the peak: learning_rate */
  int64_t warmup, total;
  /* lr_scheduler_kwargs; NAN = not given, where this has a meaning */
  double num_cycles, lr_end, power, timescale, min_lr, min_lr_rate, warmup_lr_rate;
  double num_decay_steps, num_stable_steps, min_lr_ratio;
  schedule_curve warmup_type, decay_type;
  bool maximize, absolute; /* mode: max, threshold_mode: abs */
  double factor, patience, threshold, cooldown, rest, max_lr, eps;
  double smooth, window_size, reset_start;
  /* state of the kinds that follow a metric */
  double now, best, sum;
  int64_t good, bad, cooling, resting, until_reset;
  VEC(double) window;
} schedule;

const char *schedule_name(schedule_kind k);
/* The kind with this name, or SCHEDULE_COUNT. */
schedule_kind schedule_find(const char *name);
/* Does the kind follow a metric of the evaluations? */
bool schedule_follows_metric(schedule_kind k);

/* Checks the arguments and sets s up for `total` steps with `warmup` steps of warm-up (those that
 * use one).  HP_ERR_ARG names the argument that is unknown, missing, of the wrong type or out of
 * range.  The caller frees with schedule_free. */
hp_status schedule_create(schedule_kind kind, double lr, int64_t warmup, int64_t total,
                          const schedule_arg *arg, size_t n, schedule *s);
void schedule_free(schedule *s);
/* The learning rate of step `step` (0 = the first); for a kind that follows a metric, the
 * current rate. */
double schedule_lr(const schedule *s, int64_t step);
/* Passes the metric of an evaluation; no effect for kinds that are functions of the step. */
hp_status schedule_observe(schedule *s, double metric);
/* The state as one line of text, and back; every kind has one (for most only the name).
 * HP_ERR_INPUT if the text is not a state of this kind. */
void schedule_print_state(const schedule *s, str *out);
hp_status schedule_parse_state(schedule *s, const char *text);

/* Steps of warm-up, as Transformers rounds them: `given` >= 1 is a number of steps, below 1 a share
 * of all steps, rounded up. */
int64_t schedule_warmup_steps(double given, int64_t total);

#endif
