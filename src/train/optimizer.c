#include "train/optimizer.h"

#include "train/optimizer_update.h"

#include <math.h>
#include <string.h>

/* --- numbers of an update --------------------------------------------------------------------- */

static void set_adamw(const optimizer_options *o, double lr, double t, float number[]) {
  number[0] = (float)lr;
  number[1] = (float)(lr / (1 - pow(o->beta1, t)));
  number[2] = (float)sqrt(1 - pow(o->beta2, t));
}

static void set_rate(const optimizer_options *o, double lr, double t, float number[]) {
  (void)o, (void)t;
  number[0] = (float)lr;
}

static void set_adafactor(const optimizer_options *o, double lr, double t, float number[]) {
  double share = pow(t, -0.8);
  (void)o;
  number[0] = (float)lr;
  number[1] = (float)(1 - share);
  number[2] = (float)share;
}

/* The AdamW of LlamaFactory's Muon has eps next to the root of the moment as it is. */
static void set_muon(const optimizer_options *o, double lr, double t, float number[]) {
  number[0] = (float)lr;
  number[1] = (float)(lr * sqrt(1 - pow(o->beta2, t)) / (1 - pow(o->beta1, t)));
}

/* --- states ----------------------------------------------------------------------------------- */

static int two_moments(const optimizer_options *o, const model_param *p, param_state out[]) {
  (void)o, (void)p;
  out[0] = STATE_M;
  out[1] = STATE_V;
  return 2;
}

static int one_moment(const optimizer_options *o, const model_param *p, param_state out[]) {
  (void)o, (void)p;
  out[0] = STATE_M;
  return 1;
}

static int momentum_if_any(const optimizer_options *o, const model_param *p, param_state out[]) {
  return o->momentum != 0 ? one_moment(o, p, out) : 0;
}

static int second_moment_in_factors(const optimizer_options *o, const model_param *p,
                                    param_state out[]) {
  bool factored = optimizer_is_factored(p);
  (void)o;
  out[0] = factored ? STATE_ROW : STATE_V;
  out[1] = STATE_COL;
  return factored ? 2 : 1;
}

static int momentum_or_moments(const optimizer_options *o, const model_param *p,
                               param_state out[]) {
  return optimizer_is_of_muon(p) ? one_moment(o, p, out) : two_moments(o, p, out);
}

/* --- the table -------------------------------------------------------------------------------- */

const optimizer optimizers[] = {
    [OPTIMIZER_ADAMW] = {.name = "adamw",
                         .number = {"lr", "lr_over_bc1", "sqrt_bc2"},
                         .rates = 2,
                         .betas = true,
                         .eps = true,
                         .set = set_adamw,
                         .states = two_moments,
                         .update = optimizer_update_adamw},
    [OPTIMIZER_SGD] = {.name = "sgd",
                       .number = {"lr"},
                       .rates = 1,
                       .set = set_rate,
                       .states = momentum_if_any,
                       .update = optimizer_update_sgd},
    [OPTIMIZER_ADAFACTOR] = {.name = "adafactor",
                             .number = {"lr", "beta2", "one_minus_beta2"},
                             .rates = 1,
                             .set = set_adafactor,
                             .states = second_moment_in_factors,
                             .update = optimizer_update_adafactor},
    [OPTIMIZER_LION] = {.name = "lion",
                        .number = {"lr"},
                        .rates = 1,
                        .betas = true,
                        .set = set_rate,
                        .states = one_moment,
                        .update = optimizer_update_lion},
    [OPTIMIZER_MUON] = {.name = "muon",
                        .number = {"lr", "lr_of_adamw"},
                        .rates = 2,
                        .betas = true,
                        .eps = true,
                        .decays_all = true,
                        .set = set_muon,
                        .states = momentum_or_moments,
                        .update = optimizer_update_muon},
};

int64_t optimizer_state_size(const optimizer_options *o, const model_param *p) {
  param_state state[OPTIMIZER_STATES];
  int n = optimizers[o->kind].states(o, p, state);
  int64_t sum = 0;
  for (int i = 0; i < n; i++) {
    hp_shape shape = param_state_shape(state[i], p->shape);
    int64_t size = 1;
    for (int d = 0; d < shape.rank; d++) size *= shape.dim[d];
    sum += size;
  }
  return sum;
}

int optimizer_find(const char *name) {
  for (int i = 0; i < OPTIMIZERS; i++)
    if (!strcmp(optimizers[i].name, name)) return i;
  return -1;
}
