#include "train/step_graph.h"

#include "base/log.h"
#include "model/lm_eval.h"
#include "model/moe_layer.h"
#include "train/losses.h"

#include <stdio.h>
#include <string.h>

enum { NAME_MAX_ = 192, CONCAT_MAX = 64 };

typedef struct {
  const lm *m;
  const step_options *o;
} step_graph;

bool step_draws(const lm *m, const step_options *o) {
  bool head = m->value_head && m->c.dropout.value_head > 0;
  bool drops = head || model_config_drops(&m->c) || adapter_drops(m->adapter);
  return (o->dropout && drops) || o->noise > 0;
}

/* The losses of preferences are of whole answers, without that of the router. */
bool step_balances(const lm *m, const step_options *o) {
  return m->c.moe.balance > 0 && !o->preference.kind;
}

static hp_tensor scalar(model_build *b, const char *name) {
  return hp_input(b->g, name, HP_F32, (hp_shape){0});
}

/* The sum of the gradients of p. */
static hp_tensor grad_sum(model_build *b, const model_param *p) {
  char name[STATE_NAME];
  param_state_name(STATE_GRAD, p->name, name);
  return hp_param(b->g, name, HP_F32, p->shape);
}

/* What follows is of the head, on its stage; returns the sum of the gradients of a tied one, which
 * has the name that an untied head would have. */
static hp_tensor start_head(const step_graph *s, model_build *b) {
  char name[STATE_NAME];
  const model_param *p = lm_tied_param(s->m);
  const char *head = s->m->c.family->head_name;
  hp_at(b->g, head);
  hp_stage(b->g, s->m->stages ? s->m->stages - 1 : 0);
  param_state_name(STATE_GRAD, head, name);
  return hp_param(b->g, name, HP_F32, p->shape);
}

/* Scalars x[0..n) as one vector [n], joined a few at a time; x is overwritten. */
static hp_tensor gather_scalars(model_build *b, hp_tensor *x, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] = hp_reshape(b->g, x[i], (hp_shape){1, {1}});
  while (n > 1) {
    size_t joined = 0;
    for (size_t i = 0; i < n; i += CONCAT_MAX)
      x[joined++] = hp_concat(b->g, x + i, (int)(n - i < CONCAT_MAX ? n - i : CONCAT_MAX), 0);
    n = joined;
  }
  return x[0];
}

/* What follows is of that param, on its stage. */
static void start_param(model_build *b, const model_param *p) {
  hp_at(b->g, p->name);
  hp_stage(b->g, p->stage);
}

/* Norm of all gradients, and the factor that brings it down to `clip`. */
static hp_tensor clip_factor(const step_graph *s, model_build *b, const hp_tensor *grad) {
  size_t n = s->m->trained;
  hp_tensor *sq = mem_calloc(n, sizeof *sq);
  if (!sq) {
    b->failed = true;
    return HP_NONE;
  }
  for (size_t i = 0; i < n; i++) {
    start_param(b, &s->m->params.at[i]);
    sq[i] = hp_sum_sq(b->g, grad[i]);
  }
  hp_at(b->g, "clip");
  hp_stage(b->g, 0); /* in the order of the params, on one stage: the same sum in any pipeline */
  hp_tensor all = gather_scalars(b, sq, n);
  mem_free(sq);
  hp_output(b->g, "grad_sq", all);
  hp_tensor norm =
      hp_map(b->g, "sqrt", hp_sum(b->g, all, (int64_t[]){0}, 1, false), HP_NONE, HP_NONE);
  hp_output(b->g, "grad_norm", norm);
  hp_tensor one = hp_const(b->g, HP_F32, 1);
  if (s->o->clip <= 0) return one;
  hp_tensor below = hp_add(b->g, norm, hp_const(b->g, HP_F32, 1e-6));
  return hp_map(b->g, "min", one, hp_div(b->g, hp_const(b->g, HP_F32, s->o->clip), below), HP_NONE);
}

/* A gradient has the layout of its param's optimizer state: each device reduces what it updates. */
static hp_tensor annotate_grad(model_build *b, const model_param *p, hp_tensor grad) {
  char name[NAME_MAX_];
  snprintf(name, sizeof name, "grad.%s", p->name);
  start_param(b, p);
  return hp_annotate(b->g, name, grad);
}

/* Norms and biases have no weight decay; but with LoRA+ LlamaFactory spares only layer norms, which
 * are those with a bias. */
static double decay_of(const step_graph *s, const model_param *p, bool plus) {
  double decay = s->o->optimizer.decay;
  const char *end = strrchr(p->name, '.');
  char bias[sizeof p->name + 8];
  if (optimizers[s->o->optimizer.kind].decays_all) return decay;
  if (p->kind != PARAM_NORM) return p->kind == PARAM_BIAS ? 0 : decay;
  snprintf(bias, sizeof bias, "%.*s.bias", (int)(end ? end - p->name : 0), p->name);
  return plus && !lm_find(s->m, bias) ? decay : 0;
}

/* The new value of a param, in its own layout. */
static void put_ahead(model_build *b, const model_param *p, hp_tensor value) {
  char name[NAME_MAX_];
  snprintf(name, sizeof name, "ahead.%s", p->name);
  hp_output(b->g, name, hp_annotate(b->g, p->name, value));
}

/* The numbers of the optimizer, inputs of the graph. */
static void add_numbers(const step_graph *s, model_build *b, hp_tensor *number) {
  const optimizer *by = &optimizers[s->o->optimizer.kind];
  for (int k = 0; k < OPTIMIZER_NUMBERS && by->number[k]; k++) number[k] = scalar(b, by->number[k]);
}

/* ahead: gives the new values and assigns nothing. */
static void apply(const step_graph *s, model_build *b, const hp_tensor *wrt, const hp_tensor *grad,
                  const hp_tensor *number, hp_tensor factor, bool ahead) {
  const optimizer *by = &optimizers[s->o->optimizer.kind];
  double ratio = s->m->adapter ? s->m->adapter->o.b_rate : 0; /* LoRA+ */
  hp_tensor fast[OPTIMIZER_NUMBERS] = {0};
  for (int k = 0; k < OPTIMIZER_NUMBERS && by->number[k]; k++)
    fast[k] = ratio > 0 && k < by->rates ? hp_scale(b->g, number[k], ratio) : number[k];
  for (size_t i = 0; i < s->m->trained; i++) {
    const model_param *p = &s->m->params.at[i];
    bool is_fast = p->kind == PARAM_LORA_B || p->shape.rank == 1;
    optimizer_param x = {.g = b->g,
                         .o = &s->o->optimizer,
                         .param = p,
                         .decay = decay_of(s, p, ratio > 0),
                         .compute = s->m->compute,
                         .p = wrt[i],
                         .grad = grad[i],
                         .factor = factor};
    hp_tensor value = HP_NONE;
    memcpy(x.number, is_fast ? fast : number, OPTIMIZER_NUMBERS * sizeof *number);
    if (ahead) x.value = &value;
    start_param(b, p);
    by->update(&x);
    if (ahead) put_ahead(b, p, value);
  }
}

/* The parts that v has of the update. */
static void update(const step_graph *s, model_build *b, const step_place *v, const hp_tensor *wrt,
                   hp_tensor *grad) {
  for (size_t i = 0; i < s->m->trained; i++)
    grad[i] = annotate_grad(b, &s->m->params.at[i], grad[i]);
  hp_update_phase(b->g);
  hp_tensor number[OPTIMIZER_NUMBERS] = {0};
  if (v->part != STEP_NORM) add_numbers(s, b, number);
  hp_block(b->g, 1); /* loops of different blocks are not fused: these run before the norm */
  if (v->ahead) apply(s, b, wrt, grad, number, scalar(b, "ahead_clip"), true);
  hp_block(b->g, 0);
  hp_tensor factor = v->part == STEP_APPLY ? scalar(b, "clip") : clip_factor(s, b, grad);
  if (v->ahead) hp_output(b->g, "clip_factor", factor);
  if (v->part == STEP_NORM) hp_output(b->g, "next_clip", factor);
  else apply(s, b, wrt, grad, number, factor, false);
}

static bool draws(const step_graph *s) { return step_draws(s->m, s->o); }

/* Parts into which a micro-batch is cut.  Random numbers are drawn for the whole.  Parts with fewer
 * sequences than replicas would be padded: two halves of one sequence a replica take twice as long
 * as the whole. */
static int64_t parts_of(const step_graph *s, const step_place *v) {
  bool parts = s->o->interleave > 1 && !draws(s) && !s->o->preference.kind;
  int64_t n = parts ? s->o->interleave : 1, replicas = s->o->replicas ? s->o->replicas : 1;
  int64_t of_one = (v->B + replicas - 1) / replicas;
  return v->B % n || of_one % n ? 1 : n;
}

/* 1 for tokens that are no padding, [B,T]. */
static hp_tensor counted_tokens(model_build *b, const step_place *v) {
  hp_tensor lengths = hp_input(b->g, "lengths", HP_I32, (hp_shape){1, {v->B}});
  lengths = hp_reshape(b->g, lengths, (hp_shape){2, {v->B, 1}});
  return hp_cast(b->g, hp_map(b->g, "gt", lengths, b->positions, HP_NONE), HP_F32);
}

/* Sum of the losses of all tokens.  Parts of the micro-batch share nothing but the params: the
 * collectives of one can overlap with the computation of another. */
static hp_tensor sum_losses(const step_graph *s, model_build *b, const step_place *v) {
  hp_tensor labels = hp_input(b->g, "labels", HP_I32, (hp_shape){2, {v->B, v->T}});
  if (s->o->preference.kind) return preference_losses(&s->o->preference, b, labels);
  hp_tensor counted = step_balances(s->m, s->o) ? counted_tokens(b, v) : HP_NONE;
  hp_tensor ids = b->ids, positions = b->positions, all = HP_NONE;
  int64_t n = parts_of(s, v);
  b->B = v->B / n;
  for (int64_t i = 0; i < n; i++) {
    hp_at(b->g, "batch");
    b->ids = build_rows(b, ids, i, n);
    b->positions = build_rows(b, positions, i, n);
    b->counted = counted ? build_rows(b, counted, i, n) : HP_NONE;
    hp_tensor wanted = build_rows(b, labels, i, n);
    hp_tensor each = losses[s->o->stage].each(b, s->m->c.family->hidden(b), wanted);
    hp_tensor sum = hp_sum(b->g, each, (int64_t[]){0, 1}, 2, false);
    all = all ? hp_add(b->g, all, sum) : sum;
  }
  return all;
}

static void store_grad(model_build *b, const step_place *v, hp_tensor held, hp_tensor *grad) {
  if (v->part == STEP_NEXT) *grad = hp_add(b->g, held, *grad);
  hp_assign(b->g, held, *grad);
}

/* Gradients of the weighted loss, and behind those of the params that of a head with a sum of its
 * own; with several micro-batches they are added to those of earlier ones, in place. */
static hp_status build_backward(const step_graph *s, model_build *b, const step_place *v,
                                hp_tensor *wrt, hp_tensor *grad) {
  size_t n = s->m->trained;
  hp_tensor seed = draws(s) ? hp_input(b->g, "dropout_seed", HP_I64, (hp_shape){0}) : HP_NONE;
  b->dropout_seed = s->o->dropout ? seed : HP_NONE;
  b->noise_seed = s->o->noise > 0 ? seed : HP_NONE;
  b->noise = s->o->noise;
  b->head_apart = v->head_sum;
  hp_tensor loss = hp_mul(b->g, sum_losses(s, b, v), scalar(b, "weight"));
  hp_tensor balance = step_balances(s->m, s->o) ? moe_balance(b) : HP_NONE;
  if (balance) loss = hp_add(b->g, loss, balance);
  hp_output(b->g, "loss", loss);
  for (size_t i = 0; i < n; i++) wrt[i] = build_find_param(b, s->m->params.at[i].name);
  if (v->head_sum) wrt[n] = lm_tied_head(b);
  HP_TRY(hp_grad(b->g, loss, wrt, (int)n + v->head_sum, grad));
  if (v->head_sum) store_grad(b, v, start_head(s, b), &grad[n]);
  for (size_t i = 0; i < n && v->part != STEP_ALONE; i++) {
    const model_param *p = &s->m->params.at[i];
    start_param(b, p);
    store_grad(b, v, grad_sum(b, p), &grad[i]);
  }
  return HP_OK;
}

/* The gradient of a tied embedding: rows, that of the lookup, and that of the head, in place where
 * both are on one stage. */
static hp_tensor join_sums(const step_graph *s, model_build *b, hp_tensor rows) {
  hp_tensor head = start_head(s, b);
  start_param(b, lm_tied_param(s->m));
  hp_tensor both = hp_add(b->g, head, rows);
  if (s->m->stages <= 1) hp_assign(b->g, rows, both);
  return both;
}

/* The params, and the sums of their gradients. */
static void add_params(const step_graph *s, model_build *b, const step_place *v, hp_tensor *wrt,
                       hp_tensor *grad) {
  hp_update_phase(b->g);
  for (size_t i = 0; i < s->m->trained; i++) {
    const model_param *p = &s->m->params.at[i];
    hp_stage(b->g, p->stage);
    if (v->part != STEP_NORM) wrt[i] = hp_param(b->g, p->name, p->dtype, p->shape);
    grad[i] = grad_sum(b, p);
    if (v->head_sum && p == lm_tied_param(s->m)) grad[i] = join_sums(s, b, grad[i]);
  }
}

static hp_status build(const step_graph *s, const step_place *v, model_build *b) {
  size_t n = s->m->trained + 1; /* and a tied head */
  hp_tensor *wrt = mem_calloc(n, sizeof *wrt), *grad = mem_calloc(n, sizeof *grad);
  hp_status st = wrt && grad ? HP_OK : HP_ERR_OOM;
  bool is_micro = step_part_is_micro(v->part);
  if (!st && !is_micro) add_params(s, b, v, wrt, grad);
  else if (!st) st = build_backward(s, b, v, wrt, grad);
  if (!st && (v->part == STEP_ALONE || !is_micro)) update(s, b, v, wrt, grad);
  if (!st) st = hp_graph_status(b->g);
  if (!st && b->failed) st = HP_ERR_OOM;
  mem_free(wrt);
  mem_free(grad);
  return st;
}

static hp_status begin(const lm *m, const step_place *v, model_build *b) {
  if (step_part_is_micro(v->part)) return lm_graph_begin(m, v->B, v->T, NULL, v->T, b);
  *b = (model_build){.c = &m->c};
  return hp_graph_create(&b->g);
}

hp_status step_graph_begin(const lm *m, const step_options *o, const step_place *v,
                           model_build *b) {
  step_graph s = {m, o};
  HP_TRY(begin(m, v, b));
  return build(&s, v, b);
}

bool step_graph_tell(const lm *m, const step_options *o, const step_place *v) {
  step_graph s = {m, o};
  if (!step_part_is_micro(v->part) || o->interleave <= 1 || parts_of(&s, v) > 1) return false;
  log_warn("interleave: %lld is ignored: %s", (long long)o->interleave,
           draws(&s) ? "random numbers are drawn for the full micro-batch"
           : o->preference.kind
               ? "the answers to a prompt are compared"
               : "it does not divide the sequences that a replica has of a micro-batch");
  return true;
}
