#include "train/optimizer_update.h"

static hp_tensor state(const optimizer_param *x, param_state s) {
  char name[STATE_NAME];
  param_state_name(s, x->param->name, name);
  return hp_param(x->g, name, HP_F32, x->param->shape);
}

void optimizer_update_adamw(const optimizer_param *x) {
  hp_adamw_options a = {x->o->beta1, x->o->beta2, x->o->eps, x->decay};
  hp_adamw(x->g, x->p, x->grad, state(x, STATE_M), state(x, STATE_V), x->factor, x->number[0],
           x->number[1], x->number[2], &a);
}

void optimizer_update_sgd(const optimizer_param *x) {
  hp_tensor buffer = x->o->momentum != 0 ? state(x, STATE_M) : x->p;
  hp_sgd(x->g, x->p, x->grad, buffer, x->factor, x->number[0], x->o->momentum, x->decay);
}
