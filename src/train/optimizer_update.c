#include "train/optimizer_update.h"

#include <math.h>
#include <string.h>

static hp_tensor state(const optimizer_param *x, param_state s) {
  char name[STATE_NAME];
  param_state_name(s, x->param->name, name);
  return hp_param(x->g, name, HP_F32, param_state_shape(s, x->param->shape));
}

static void set_param(const optimizer_param *x, hp_tensor value) {
  if (x->value) *x->value = value;
  else hp_assign(x->g, x->p, value);
}

static void set_state(const optimizer_param *x, hp_tensor held, hp_tensor value) {
  if (!x->value) hp_assign(x->g, held, value);
}

/* a x + b y */
static hp_tensor blend(hp_graph *g, double a, hp_tensor x, double b, hp_tensor y) {
  return hp_add(g, hp_scale(g, x, a), hp_scale(g, y, b));
}

/* The param with decoupled weight decay: (1 - lr decay) p */
static hp_tensor decayed(const optimizer_param *x) {
  if (x->decay == 0) return x->p;
  hp_tensor lost = hp_scale(x->g, x->number[0], x->decay);
  return hp_mul(x->g, x->p, hp_sub(x->g, hp_const(x->g, HP_F32, 1), lost));
}

static hp_tensor clipped_grad(const optimizer_param *x) { return hp_mul(x->g, x->grad, x->factor); }

void optimizer_update_adamw(const optimizer_param *x) {
  hp_adamw_options a = {x->o->beta1, x->o->beta2, x->o->eps, x->decay};
  hp_tensor m = state(x, STATE_M), v = state(x, STATE_V);
  const hp_tensor *number = x->number;
  if (x->value)
    *x->value =
        hp_adamw_param(x->g, x->p, x->grad, m, v, x->factor, number[0], number[1], number[2], &a);
  else hp_adamw(x->g, x->p, x->grad, m, v, x->factor, number[0], number[1], number[2], &a);
}

void optimizer_update_sgd(const optimizer_param *x) {
  hp_tensor buffer = x->o->momentum != 0 ? state(x, STATE_M) : x->p;
  const double momentum = x->o->momentum;
  if (x->value)
    *x->value =
        hp_sgd_param(x->g, x->p, x->grad, buffer, x->factor, x->number[0], momentum, x->decay);
  else hp_sgd(x->g, x->p, x->grad, buffer, x->factor, x->number[0], momentum, x->decay);
}

/* p -= lr sign(b1 m + (1 - b1) g), m = b2 m + (1 - b2) g */
void optimizer_update_lion(const optimizer_param *x) {
  hp_graph *g = x->g;
  hp_tensor m = state(x, STATE_M), grad = clipped_grad(x);
  hp_tensor mixed = blend(g, x->o->beta1, m, 1 - x->o->beta1, grad);
  hp_tensor step = hp_mul(g, x->number[0], hp_map(g, "sign", mixed, HP_NONE, HP_NONE));
  set_param(x, hp_sub(g, decayed(x), step));
  set_state(x, m, blend(g, x->o->beta2, m, 1 - x->o->beta2, grad));
}

/* --- Adafactor -------------------------------------------------------------------------------- */

bool optimizer_is_factored(const model_param *p) { return model_param_stored(p).rank >= 2; }

/* The running mean of the squares of clipped gradients, which replaces the state; square: that of
 * gradients as they are, or its mean over a dim. */
static hp_tensor update_mean(const optimizer_param *x, param_state s, hp_tensor square) {
  hp_graph *g = x->g;
  hp_tensor held = state(x, s), factor = hp_mul(g, x->factor, x->factor);
  square = hp_add(g, hp_mul(g, square, factor), hp_const(g, HP_F32, 1e-30));
  hp_tensor mean = hp_add(g, hp_mul(g, held, x->number[1]), hp_mul(g, square, x->number[2]));
  set_state(x, held, mean);
  return mean;
}

static hp_tensor rsqrt(hp_graph *g, hp_tensor x) { return hp_map(g, "rsqrt", x, HP_NONE, HP_NONE); }

/* 1 / sqrt of the second moment [..,N,K], which is row col / mean(row): row [..,N] and col [..,K]
 * are the means over the other dim. */
static hp_tensor factored_rsqrt(const optimizer_param *x, hp_tensor square) {
  hp_graph *g = x->g;
  hp_shape rows = x->param->shape, cols = rows;
  int64_t last = rows.rank - 1, before = last - 1;
  hp_tensor row = update_mean(x, STATE_ROW, hp_mean(g, square, &last, 1, false));
  hp_tensor col = update_mean(x, STATE_COL, hp_mean(g, square, &before, 1, false));
  row = rsqrt(g, hp_div(g, row, hp_mean(g, row, &before, 1, true)));
  rows.dim[last] = cols.dim[before] = 1;
  return hp_mul(g, hp_reshape(g, row, rows), hp_reshape(g, rsqrt(g, col), cols));
}

/* The gradient over the root of its second moment; a step whose root mean square is above 1 is
 * scaled down to 1. */
void optimizer_update_adafactor(const optimizer_param *x) {
  hp_graph *g = x->g;
  hp_tensor square = hp_mul(g, x->grad, x->grad), one = hp_const(g, HP_F32, 1);
  hp_tensor scale = optimizer_is_factored(x->param) ? factored_rsqrt(x, square)
                                                    : rsqrt(g, update_mean(x, STATE_V, square));
  hp_tensor step = hp_mul(g, scale, clipped_grad(x));
  double n = (double)model_param_elements(x->param);
  hp_tensor rms = hp_map(g, "sqrt", hp_scale(g, hp_sum_sq(g, step), 1 / n), HP_NONE, HP_NONE);
  hp_tensor rate = hp_div(g, x->number[0], hp_map(g, "max", rms, one, HP_NONE));
  set_param(x, hp_sub(g, decayed(x), hp_mul(g, step, rate)));
}

/* --- Muon ------------------------------------------------------------------------------------- */

bool optimizer_is_of_muon(const model_param *p) {
  return p->shape.rank == 2 && !strstr(p->name, "embed") && !strstr(p->name, "lm_head");
}

/* A product as those of the model are computed. */
static hp_tensor product(const optimizer_param *x, const char *eq, hp_tensor a, hp_tensor b) {
  hp_graph *g = x->g;
  return hp_einsum_to(g, eq, hp_cast(g, a, x->compute), hp_cast(g, b, x->compute), HP_F32);
}

/* About the orthogonal matrix nearest to y [n,k], by steps of a Newton-Schulz iteration:
 * y = a y + (b S + c S S) y with S = y y^T, or, if n > k, the same of the transpose. */
static hp_tensor orthogonalize(const optimizer_param *x, hp_tensor y, bool wide) {
  static const double a = 3.4445, b = -4.7750, c = 2.0315;
  hp_graph *g = x->g;
  hp_tensor norm = hp_map(g, "sqrt", hp_sum_sq(g, y), HP_NONE, HP_NONE);
  y = hp_div(g, y, hp_add(g, norm, hp_const(g, HP_F32, 1e-7)));
  for (int i = 0; i < MUON_STEPS; i++) {
    hp_tensor s = product(x, wide ? "ik,jk->ij" : "ki,kj->ij", y, y);
    hp_tensor poly = blend(g, b / a, s, c / a, product(x, "ij,jk->ik", s, s));
    hp_tensor more = wide ? product(x, "ij,jk->ik", poly, y) : product(x, "ij,jk->ik", y, poly);
    y = hp_scale(g, hp_add(g, y, more), a); /* a y alone would be one more matrix to store */
  }
  return y;
}

/* Nesterov's momentum, made orthogonal; steps of matrices of any shape have about the root mean
 * square that those of AdamW have, 0.2 (Moonlight). */
static void update_matrix(const optimizer_param *x) {
  static const double momentum = 0.95;
  hp_graph *g = x->g;
  int64_t rows = x->param->shape.dim[0], cols = x->param->shape.dim[1];
  hp_tensor held = state(x, STATE_M), grad = clipped_grad(x);
  hp_tensor m = hp_add(g, hp_scale(g, held, momentum), grad);
  set_state(x, held, m);
  hp_tensor ahead = hp_add(g, grad, hp_scale(g, m, momentum));
  hp_tensor step = orthogonalize(x, ahead, rows <= cols);
  hp_tensor rate = hp_scale(g, x->number[0], 0.2 * sqrt((double)(rows > cols ? rows : cols)));
  set_param(x, hp_sub(g, decayed(x), hp_mul(g, step, rate)));
}

void optimizer_update_muon(const optimizer_param *x) {
  if (optimizer_is_of_muon(x->param)) {
    update_matrix(x);
    return;
  }
  optimizer_param adamw = *x;
  adamw.number[2] = hp_const(x->g, HP_F32, 1);
  optimizer_update_adamw(&adamw);
}
