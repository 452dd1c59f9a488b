#include "train/step.h"

#include "base/log.h"
#include "base/philox.h"
#include "model/lm_eval.h"
#include "model/moe_layer.h"
#include "train/losses.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_MAX_ = 192, CONCAT_MAX = 64 };

typedef struct {
  int64_t B, T;
  bool first, last, scores;
  hp_program *p;
} variant;

struct stepper {
  lm *m;
  step_options o;
  VEC(variant) variants;
  const hp_program *ran;
  uint64_t work_bytes;
  double compile_s;
  int32_t *positions; /* [B,T] of the largest micro-batch so far */
  int64_t positions_B, positions_T;
  int32_t *lengths; /* [positions_B] */
  float *grad_sq;   /* [params] sums of squares of the last step */
};

hp_status stepper_create(lm *m, const step_options *o, stepper **out) {
  stepper *s = mem_calloc(1, sizeof *s);
  HP_TRY_MEM(s);
  *s = (stepper){.m = m, .o = *o, .grad_sq = mem_calloc(m->trained, sizeof *s->grad_sq)};
  if (!s->grad_sq) {
    stepper_free(s);
    return HP_ERR_OOM;
  }
  *out = s;
  return HP_OK;
}

void stepper_free(stepper *s) {
  if (!s) return;
  for (size_t i = 0; i < s->variants.len; i++) hp_program_free(s->variants.at[i].p);
  vec_free(&s->variants);
  mem_free(s->positions);
  mem_free(s->lengths);
  mem_free(s->grad_sq);
  mem_free(s);
}

int stepper_states(const step_options *o) {
  return o->optimizer == STEP_ADAMW ? 2 : o->momentum != 0;
}
const hp_program *stepper_program(const stepper *s) { return s->ran; }
uint64_t stepper_work_bytes(const stepper *s) { return s->work_bytes; }
double stepper_compile_seconds(const stepper *s) { return s->compile_s; }

/* --- the graph -------------------------------------------------------------------------------- */

static hp_tensor scalar(model_build *b, const char *name) {
  return hp_input(b->g, name, HP_F32, (hp_shape){0});
}

/* A tensor of the optimizer for parameter p. */
static hp_tensor state(model_build *b, const char *prefix, const model_param *p) {
  char name[NAME_MAX_];
  snprintf(name, sizeof name, "%s.%s", prefix, p->name);
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

/* Norm of all gradients, and the factor that brings it down to `clip`. */
static hp_tensor clip_factor(const stepper *s, model_build *b, const hp_tensor *grad) {
  size_t n = s->m->trained;
  hp_tensor *sq = mem_calloc(n, sizeof *sq);
  if (!sq) {
    b->failed = true;
    return HP_NONE;
  }
  for (size_t i = 0; i < n; i++) {
    hp_at(b->g, s->m->params.at[i].name);
    sq[i] = hp_sum_sq(b->g, grad[i]);
  }
  hp_at(b->g, "clip");
  hp_tensor all = gather_scalars(b, sq, n);
  mem_free(sq);
  hp_output(b->g, "grad_sq", all);
  hp_tensor norm =
      hp_map(b->g, "sqrt", hp_sum(b->g, all, (int64_t[]){0}, 1, false), HP_NONE, HP_NONE);
  hp_output(b->g, "grad_norm", norm);
  hp_tensor one = hp_const(b->g, HP_F32, 1);
  if (s->o.clip <= 0) return one;
  hp_tensor below = hp_add(b->g, norm, hp_const(b->g, HP_F32, 1e-6));
  return hp_map(b->g, "min", one, hp_div(b->g, hp_const(b->g, HP_F32, s->o.clip), below), HP_NONE);
}

/* A gradient lies as the optimizer's state of its param: it is reduced to the part that is used. */
static hp_tensor mark_grad(model_build *b, const model_param *p, hp_tensor grad) {
  char name[NAME_MAX_];
  snprintf(name, sizeof name, "grad.%s", p->name);
  hp_at(b->g, p->name);
  return hp_annotate(b->g, name, grad);
}

static void update(const stepper *s, model_build *b, const hp_tensor *wrt, hp_tensor *grad) {
  for (size_t i = 0; i < s->m->trained; i++) grad[i] = mark_grad(b, &s->m->params.at[i], grad[i]);
  hp_update_phase(b->g);
  hp_block(b->g, 0);
  hp_tensor factor = clip_factor(s, b, grad), lr = scalar(b, "lr");
  hp_tensor rate = HP_NONE, root = HP_NONE;
  if (s->o.optimizer == STEP_ADAMW) {
    rate = scalar(b, "lr_over_bc1");
    root = scalar(b, "sqrt_bc2");
  }
  for (size_t i = 0; i < s->m->trained; i++) {
    const model_param *p = &s->m->params.at[i];
    double decay = p->kind == PARAM_NORM || p->kind == PARAM_BIAS ? 0 : s->o.decay;
    hp_at(b->g, p->name);
    if (s->o.optimizer == STEP_ADAMW) {
      hp_adamw_options a = {s->o.beta1, s->o.beta2, s->o.eps, decay};
      hp_adamw(b->g, wrt[i], grad[i], state(b, "m", p), state(b, "v", p), factor, lr, rate, root,
               &a);
    } else {
      hp_tensor buffer = s->o.momentum != 0 ? state(b, "m", p) : wrt[i];
      hp_sgd(b->g, wrt[i], grad[i], buffer, factor, lr, s->o.momentum, decay);
    }
  }
}

static bool drops(const stepper *s) { return s->o.dropout && model_config_drops(&s->m->c); }

/* Parts into which a micro-batch is cut.  Masks of dropout are drawn for the whole. */
static int64_t parts_of(const stepper *s, const variant *v) {
  int64_t n = s->o.interleave > 1 && !drops(s) ? s->o.interleave : 1;
  return v->B % n ? 1 : n;
}

/* Every n-th row of x [B,T], from row i on: so each part has its share of every device's rows. */
static hp_tensor rows_of(model_build *b, hp_tensor x, int64_t i, int64_t n) {
  hp_shape s = hp_shape_of(b->g, x);
  int64_t B = s.dim[0] / n, T = s.dim[1];
  if (n == 1) return x;
  x = hp_slice(b->g, hp_reshape(b->g, x, (hp_shape){3, {B, n, T}}), 1, i, i + 1);
  return hp_reshape(b->g, x, (hp_shape){2, {B, T}});
}

static bool balances(const stepper *s) { return s->m->c.moe.balance > 0; }

/* 1 for tokens that are no padding, [B,T]. */
static hp_tensor counted_tokens(model_build *b, const variant *v) {
  hp_tensor lengths = hp_input(b->g, "lengths", HP_I32, (hp_shape){1, {v->B}});
  lengths = hp_reshape(b->g, lengths, (hp_shape){2, {v->B, 1}});
  return hp_cast(b->g, hp_map(b->g, "gt", lengths, b->positions, HP_NONE), HP_F32);
}

/* Sum of the losses of all tokens.  Parts of the micro-batch share nothing but the params: what one
 * says to other devices can hide behind the computation of another. */
static hp_tensor sum_losses(const stepper *s, model_build *b, const variant *v) {
  hp_tensor labels = hp_input(b->g, "labels", HP_I32, (hp_shape){2, {v->B, v->T}});
  hp_tensor counted = balances(s) ? counted_tokens(b, v) : HP_NONE;
  hp_tensor ids = b->ids, positions = b->positions, all = HP_NONE;
  int64_t n = parts_of(s, v);
  b->B = v->B / n;
  for (int64_t i = 0; i < n; i++) {
    hp_at(b->g, "batch");
    b->ids = rows_of(b, ids, i, n);
    b->positions = rows_of(b, positions, i, n);
    b->counted = counted ? rows_of(b, counted, i, n) : HP_NONE;
    hp_tensor wanted = rows_of(b, labels, i, n);
    hp_tensor logits = lm_head(b, s->m->c.family->hidden(b));
    hp_at(b->g, "loss");
    hp_tensor sum = losses[s->o.stage].sum(b->g, logits, wanted);
    all = all ? hp_add(b->g, all, sum) : sum;
  }
  return all;
}

/* Gradients of the weighted loss; added to those of earlier micro-batches, in their place: the last
 * sum has no use after the step, but this way it needs no memory of its own. */
static hp_status build_backward(const stepper *s, model_build *b, const variant *v, hp_tensor *wrt,
                                hp_tensor *grad) {
  size_t n = s->m->trained;
  if (drops(s)) b->dropout_seed = hp_input(b->g, "dropout_seed", HP_I64, (hp_shape){0});
  hp_tensor loss = hp_mul(b->g, sum_losses(s, b, v), scalar(b, "weight"));
  hp_tensor balance = moe_balance(b);
  if (balance) loss = hp_add(b->g, loss, balance);
  hp_output(b->g, "loss", loss);
  for (size_t i = 0; i < n; i++) wrt[i] = build_find_param(b, s->m->params.at[i].name);
  HP_TRY(hp_grad(b->g, loss, wrt, (int)n, grad));
  for (size_t i = 0; i < n && !(v->first && v->last); i++) {
    const model_param *p = &s->m->params.at[i];
    hp_at(b->g, p->name);
    hp_tensor held = state(b, "g", p);
    if (!v->first) grad[i] = hp_add(b->g, held, grad[i]);
    hp_assign(b->g, held, grad[i]);
  }
  return HP_OK;
}

/* The graph of a variant; ended by lm_graph_end, also after a failure of it. */
static hp_status build(const stepper *s, const variant *v, model_build *b) {
  size_t n = s->m->trained;
  hp_tensor *wrt = mem_calloc(n, sizeof *wrt), *grad = mem_calloc(n, sizeof *grad);
  hp_status st = wrt && grad ? HP_OK : HP_ERR_OOM;
  if (!st) st = build_backward(s, b, v, wrt, grad);
  if (!st && v->last) update(s, b, wrt, grad);
  if (!st) st = hp_graph_status(b->g);
  if (!st && b->failed) st = HP_ERR_OOM;
  mem_free(wrt);
  mem_free(grad);
  return st;
}

static void tell_remat(void) {
  log_info("recompute: auto: activations are recomputed, to stay under memory_limit");
}

/* What was asked for and cannot be done for this micro-batch. */
static void tell_whole(const stepper *s, const variant *v) {
  if (s->o.interleave <= 1 || parts_of(s, v) > 1) return;
  log_warn("interleave: %lld is ignored: %s", (long long)s->o.interleave,
           drops(s) ? "masks of dropout are drawn for the whole micro-batch"
                    : "it does not divide the sequences of the micro-batch");
}

static hp_status compile(stepper *s, variant *v) {
  model_build b;
  hp_compile_options o = s->o.compile;
  tell_whole(s, v);
  HP_TRY(lm_graph_begin(s->m, v->B, v->T, 0, v->T, &b));
  hp_status st = build(s, v, &b);
  if (!st) st = lm_make_buffers(s->m, &b, v->T);
  bool made = !st; /* the tables hold what they should */
  if (!st) st = hp_compile(b.g, s->m->d, &o, &v->p);
  if (made && st == HP_ERR_OOM && s->o.remat_auto && !o.remat) {
    err_clear();
    s->o.compile.remat = o.remat = true;
    st = hp_compile(b.g, s->m->d, &o, &v->p);
    if (!st) tell_remat();
  }
  lm_graph_end(&b);
  HP_TRY(st);
  hp_program_stats stats;
  HP_TRY(hp_program_stats_get(v->p, &stats));
  s->compile_s += stats.compile_s;
  if (stats.memory.work_bytes > s->work_bytes) s->work_bytes = stats.memory.work_bytes;
  return HP_OK;
}

/* The graph of a variant that is planned, and what it is compiled with; ended as by build(). */
static hp_status begin_plan(const stepper *s, const variant *v, model_build *b,
                            hp_compile_options *co) {
  if (v->scores) {
    *co = (hp_compile_options){.reserve_bytes = s->o.compile.reserve_bytes};
    HP_TRY(lm_score_begin(s->m, v->B, v->T, b));
    return b->failed ? HP_ERR_OOM : hp_graph_status(b->g);
  }
  *co = s->o.compile;
  HP_TRY(lm_graph_begin(s->m, v->B, v->T, 0, v->T, b));
  return build(s, v, b);
}

/* Plans a variant without running it; recompute: auto recomputes when the memory limit needs it,
 * which is told as compile() tells it. */
static hp_status plan(lm *m, const step_options *o, const variant *v, hp_device *d, bool tell,
                      hp_program_stats *out, const char *what, char **text) {
  stepper s = {.m = m, .o = *o};
  model_build b = {.g = NULL};
  hp_compile_options co;
  if (tell && !v->scores) tell_whole(&s, v);
  hp_status st = begin_plan(&s, v, &b, &co);
  bool built = !st;
  if (built) st = hp_plan(b.g, d, &co, out);
  if (built && st == HP_ERR_OOM && o->remat_auto && !co.remat && !v->scores) {
    err_clear();
    co.remat = true;
    st = hp_plan(b.g, d, &co, out);
    if (!st && tell) tell_remat();
  }
  if (!st && text) st = hp_plan_explain(b.g, d, &co, what, text);
  lm_graph_end(&b);
  return st;
}

static variant variant_of(const step_micro *b) {
  return (variant){.B = b->B, .T = b->T, .first = b->first, .last = b->last, .scores = b->scores};
}

hp_status stepper_plan(lm *m, const step_options *o, const step_micro *b, hp_device *d,
                       hp_program_stats *out, const char *what, char **text) {
  variant v = variant_of(b);
  return plan(m, o, &v, d, !o->quiet, out, what, text);
}

/* The plan of one micro-batch, with room for what the others keep. */
static hp_status check_one(lm *m, const step_options *o, const step_micro *b, uint64_t reserve,
                           hp_device *d, hp_program_stats *out) {
  variant v = variant_of(b);
  step_options with = *o;
  with.compile.reserve_bytes = reserve;
  *out = (hp_program_stats){0};
  return plan(m, &with, &v, d, false, out, NULL, NULL);
}

/* state: room for n numbers. */
static hp_status check_all(lm *m, const step_options *o, const step_micro *b, int n, hp_device *d,
                           uint64_t *state) {
  hp_program_stats s;
  uint64_t states = 0, most = 0;
  int worst = -1;
  for (int i = 0; i < n; i++) {
    hp_status st = check_one(m, o, &b[i], 0, d, &s);
    if (st && st != HP_ERR_OOM) return st;
    err_clear();
    state[i] = s.memory.state_bytes;
    if (state[i] > states) states = state[i];
  }
  for (int i = 0; i < n; i++) {
    hp_status st = check_one(m, o, &b[i], states - state[i], d, &s);
    if (st && st != HP_ERR_OOM) return st;
    err_clear();
    if (st && s.memory.work_bytes > most) most = s.memory.work_bytes, worst = i;
  }
  return worst < 0 ? HP_OK : check_one(m, o, &b[worst], states - state[worst], d, &s);
}

hp_status stepper_check(lm *m, const step_options *o, const step_micro *b, int n, hp_device *d) {
  uint64_t *state = mem_calloc((size_t)n, sizeof *state);
  HP_TRY_MEM(state);
  hp_status st = check_all(m, o, b, n, d, state);
  mem_free(state);
  return st;
}

static hp_status find_variant(stepper *s, const step_micro *b, hp_program **out) {
  for (size_t i = 0; i < s->variants.len; i++) {
    variant *v = &s->variants.at[i];
    if (v->B == b->B && v->T == b->T && v->first == b->first && v->last == b->last) {
      *out = v->p;
      return HP_OK;
    }
  }
  variant v = variant_of(b);
  if (!vec_reserve(&s->variants, 1)) return HP_ERR_OOM;
  hp_status st = compile(s, &v);
  if (st) {
    hp_program_free(v.p);
    return st;
  }
  s->variants.at[s->variants.len++] = v;
  *out = v.p;
  return HP_OK;
}

hp_status stepper_prepare(stepper *s, const step_micro *b) {
  hp_program *p;
  return find_variant(s, b, &p);
}

/* --- running ---------------------------------------------------------------------------------- */

static hp_status make_positions(stepper *s, int64_t B, int64_t T) {
  if (s->positions && s->positions_B >= B && s->positions_T == T) return HP_OK;
  int32_t *p = mem_realloc(s->positions, (size_t)(B * T), sizeof *p);
  HP_TRY_MEM(p);
  s->positions = p;
  int32_t *lengths = mem_realloc(s->lengths, (size_t)B, sizeof *lengths);
  HP_TRY_MEM(lengths);
  s->lengths = lengths;
  s->positions_B = B;
  s->positions_T = T;
  for (int64_t i = 0; i < B * T; i++) p[i] = (int32_t)(i % T);
  return HP_OK;
}

/* Of the masks of a micro-batch: the same whenever it is run, another for every one. */
static int64_t dropout_seed(const stepper *s, const step_micro *b, const step_update *u) {
  philox_block x = philox_get(s->o.seed, (uint64_t)u->t, (uint64_t)b->number);
  return (int64_t)((uint64_t)x.at[0] << 32 | x.at[1]);
}

static hp_status check_finite(const stepper *s, const step_micro *b, float loss, float norm) {
  if (!isfinite(loss)) HP_FAIL(HP_ERR_NUMERIC, "the loss is %g", (double)loss);
  if (!b->last || isfinite(norm)) return HP_OK;
  for (size_t i = 0; i < s->m->trained; i++)
    if (!isfinite(s->grad_sq[i]))
      HP_FAIL(HP_ERR_NUMERIC, "the gradient of \"%s\" is not finite (sum of squares %g)",
              s->m->params.at[i].name, (double)s->grad_sq[i]);
  HP_FAIL(HP_ERR_NUMERIC, "the norm of all gradients is %g", (double)norm);
}

hp_status stepper_run(stepper *s, const step_micro *b, const step_update *u, step_result *out) {
  hp_program *p;
  HP_TRY(find_variant(s, b, &p));
  HP_TRY(make_positions(s, b->B, b->T));
  size_t bytes = (size_t)(b->B * b->T) * sizeof(int32_t);
  float weight = (float)b->weight, loss = 0, norm = 0, lr = (float)u->lr;
  double bc1 = 1 - pow(s->o.beta1, (double)u->t), bc2 = 1 - pow(s->o.beta2, (double)u->t);
  float rate = (float)(u->lr / bc1), root = (float)sqrt(bc2);
  hp_io io[13] = {{"ids", (void *)(uintptr_t)b->ids, bytes},
                  {"positions", s->positions, bytes},
                  {"labels", (void *)(uintptr_t)b->labels, bytes},
                  {"weight", &weight, sizeof weight},
                  {"loss", &loss, sizeof loss}};
  int n = 5;
  int64_t seed = dropout_seed(s, b, u);
  if (drops(s)) io[n++] = (hp_io){"dropout_seed", &seed, sizeof seed};
  for (int64_t i = 0; i < b->B; i++) s->lengths[i] = b->lengths ? b->lengths[i] : (int32_t)b->T;
  if (balances(s)) io[n++] = (hp_io){"lengths", s->lengths, (size_t)b->B * sizeof *s->lengths};
  if (b->last) {
    io[n++] = (hp_io){"grad_norm", &norm, sizeof norm};
    io[n++] = (hp_io){"grad_sq", s->grad_sq, s->m->trained * sizeof *s->grad_sq};
    io[n++] = (hp_io){"lr", &lr, sizeof lr};
    if (s->o.optimizer == STEP_ADAMW) {
      io[n++] = (hp_io){"lr_over_bc1", &rate, sizeof rate};
      io[n++] = (hp_io){"sqrt_bc2", &root, sizeof root};
    }
  }
  HP_TRY(hp_run(p, io, n));
  s->ran = p;
  HP_TRY(check_finite(s, b, loss, norm));
  out->loss = (double)loss;
  if (b->last) out->grad_norm = (double)norm;
  return HP_OK;
}
