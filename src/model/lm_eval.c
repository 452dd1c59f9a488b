#include "model/lm_eval.h"

#include "base/log.h"
#include "model/moe_layer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IGNORE = -100 };

hp_status lm_check_length(lm *m, int64_t tokens) {
  if (tokens <= m->c.max_length) return HP_OK;
  if (!m->c.rope.theta)
    HP_FAIL(HP_ERR_ARG, "%lld tokens in all: %s has learned positions for %lld only",
            (long long)tokens, m->path, (long long)m->c.max_length);
  if (!m->told_length)
    log_warn("%lld tokens in all are beyond the model's max_position_embeddings %lld",
             (long long)tokens, (long long)m->c.max_length);
  m->told_length = true;
  return HP_OK;
}

hp_status lm_check_tokens(lm *m, const lm_tokens *t) {
  if (t->n < 1) HP_FAIL(HP_ERR_ARG, "the sequence is empty; at least one token is needed");
  for (int64_t i = 0; i < t->n; i++)
    if (t->ids[i] < 0 || t->ids[i] >= m->c.vocab)
      HP_FAIL(HP_ERR_ARG, "token id %d at place %lld is not in 0..%lld, the vocabulary of %s",
              t->ids[i], (long long)i, (long long)m->c.vocab - 1, m->path);
  return lm_check_length(m, t->n);
}

static int32_t *make_positions(int64_t B, int64_t T) {
  int32_t *p = mem_calloc((size_t)(B * T), sizeof *p);
  for (int64_t i = 0; p && i < B * T; i++) p[i] = (int32_t)(i % T);
  return p;
}

/* Ends a graph: its first failure, or the program. */
static hp_status compile_graph(lm *m, model_build *b, int64_t length, uint64_t reserve_bytes,
                               hp_program **out) {
  hp_compile_options o = {.reserve_bytes = reserve_bytes};
  HP_TRY(hp_graph_status(b->g));
  if (b->failed) return HP_ERR_OOM;
  HP_TRY(lm_make_buffers(m, b, length));
  return hp_compile(b->g, m->d, &o, out);
}

/* The same graph, planned. */
static hp_status plan_graph(lm *m, model_build *b, hp_program_stats *out) {
  HP_TRY(hp_graph_status(b->g));
  return b->failed ? HP_ERR_OOM : hp_plan(b->g, m->d, NULL, out);
}

static hp_status begin_logits(lm *m, int64_t n, model_build *b) {
  HP_TRY(lm_graph_begin(m, 1, n, NULL, n, b));
  hp_output(b->g, "logits", lm_head(b, m->c.family->hidden(b)));
  return HP_OK;
}

hp_status lm_logits_plan(lm *m, int64_t n, hp_program_stats *out) {
  model_build b;
  HP_TRY(begin_logits(m, n, &b));
  hp_status st = plan_graph(m, &b, out);
  lm_graph_end(&b);
  return st;
}

hp_status lm_logits(lm *m, const lm_tokens *t, float *logits) {
  model_build b;
  hp_program *p = NULL;
  HP_TRY(lm_check_tokens(m, t));
  HP_TRY(begin_logits(m, t->n, &b));
  hp_status st = compile_graph(m, &b, t->n, 0, &p);
  lm_graph_end(&b);
  HP_TRY(st);
  int32_t *positions = make_positions(1, t->n);
  size_t ids = (size_t)t->n * sizeof *positions;
  hp_io io[] = {{"ids", t->ids, ids},
                {"positions", positions, ids},
                {"logits", logits, (size_t)(t->n * m->c.vocab) * sizeof *logits}};
  st = positions ? hp_run(p, io, 3) : HP_ERR_OOM;
  mem_free(positions);
  hp_program_free(p);
  return st;
}

/* (1 - e) x each + e x the mean loss over all words, where e is the label smoothing.  `each` is
 * log-sum-exp less the label's logit, so only the mean of the logits is missing: the product of the
 * hidden state and the mean row of the head, without the logits themselves. */
static hp_tensor add_smoothing(model_build *b, hp_tensor hidden, hp_tensor labels, hp_tensor each) {
  const model_family *f = b->c->family;
  hp_tensor w = b->c->tied ? lm_tied_head(b) : build_find_param(b, f->head_name);
  hp_tensor x = hp_cast(b->g, hp_cast(b->g, hidden, b->compute), HP_F32);
  hp_tensor none = hp_const(b->g, HP_I32, IGNORE), zero = hp_const(b->g, HP_I32, 0);
  hp_tensor counts = hp_cast(b->g, hp_map(b->g, "ne", labels, none, HP_NONE), HP_F32);
  hp_tensor words = hp_map(b->g, "max", labels, zero, HP_NONE);
  hp_tensor row = hp_cast(b->g, hp_embedding(b->g, w, words, -1), HP_F32);
  hp_tensor mean = hp_scale(b->g, hp_sum(b->g, hp_cast(b->g, w, HP_F32), (int64_t[]){0}, 1, false),
                            1.0 / (double)b->c->vocab);
  hp_tensor more = hp_sum(b->g, hp_mul(b->g, x, hp_sub(b->g, row, mean)), (int64_t[]){2}, 1, false);
  return hp_add(b->g, each, hp_mul(b->g, counts, hp_scale(b->g, more, b->label_smoothing)));
}

hp_tensor lm_token_losses(model_build *b, hp_tensor hidden, hp_tensor labels) {
  hp_tensor logits = lm_head(b, hidden);
  hp_at(b->g, "loss");
  hp_tensor each = hp_cross_entropy(b->g, logits, labels, IGNORE);
  return b->label_smoothing > 0 ? add_smoothing(b, hidden, labels, each) : each;
}

hp_tensor lm_token_accuracies(model_build *b, hp_tensor hidden, hp_tensor labels) {
  hp_shape one = {3, {b->B, b->T, 1}};
  hp_tensor x[2], best = hp_argmax(b->g, lm_head(b, hidden));
  x[0] = hp_reshape(b->g, lm_token_losses(b, hidden, labels), one);
  hp_tensor found = hp_map(b->g, "eq", best, labels, HP_NONE);
  x[1] = hp_reshape(b->g, hp_cast(b->g, found, HP_F32), one);
  return hp_concat(b->g, x, 2, 2);
}

/* Losses [B,T] of labels i32 [B,T] that are shifted already. */
static hp_tensor build_losses(const lm *m, model_build *b, lm_losses *of) {
  hp_tensor labels = hp_input(b->g, "labels", HP_I32, (hp_shape){2, {b->B, b->T}});
  return of(b, m->c.family->hidden(b), labels);
}

/* The program, or with `plan` its memory. */
static hp_status build_grads(lm *m, int64_t T, hp_program **out, hp_program_stats *plan) {
  model_build b;
  HP_TRY(lm_graph_begin(m, 1, T, NULL, T, &b));
  if (m->c.moe.balance > 0)
    b.counted = hp_broadcast(b.g, hp_const(b.g, HP_F32, 1), (hp_shape){2, {1, T}});
  hp_tensor losses = build_losses(m, &b, lm_token_losses);
  hp_tensor loss =
      hp_scale(b.g, hp_sum(b.g, losses, (int64_t[]){0, 1}, 2, false), 1.0 / (double)(T - 1));
  hp_tensor balance = moe_balance(&b);
  if (balance) loss = hp_add(b.g, loss, balance);
  hp_output(b.g, "loss", loss);
  size_t n = m->trained;
  hp_tensor *wrt = mem_calloc(n, sizeof *wrt), *grad = mem_calloc(n, sizeof *grad);
  hp_status st = wrt && grad ? HP_OK : HP_ERR_OOM;
  for (size_t i = 0; !st && i < n; i++) wrt[i] = build_find_param(&b, m->params.at[i].name);
  if (!st) st = hp_grad(b.g, loss, wrt, (int)n, grad);
  for (size_t i = 0; !st && i < n; i++) {
    char name[192];
    snprintf(name, sizeof name, "grad.%s", m->params.at[i].name);
    hp_output(b.g, name, hp_cast(b.g, grad[i], HP_F32));
  }
  if (!st) st = plan ? plan_graph(m, &b, plan) : compile_graph(m, &b, T, 0, out);
  mem_free(wrt);
  mem_free(grad);
  lm_graph_end(&b);
  return st;
}

/* Runs the program with its inputs and one output per parameter. */
static hp_status run_grads(const lm *m, hp_program *p, const lm_tokens *t, lm_gradients *g) {
  size_t n = m->trained, ids = (size_t)t->n * sizeof(int32_t);
  int32_t *positions = make_positions(1, t->n), *labels = mem_calloc((size_t)t->n, sizeof *labels);
  hp_io *io = mem_calloc(n + 4, sizeof *io);
  char(*name)[192] = mem_calloc(n, sizeof *name);
  hp_status st = positions && labels && io && name ? HP_OK : HP_ERR_OOM;
  for (int64_t i = 0; !st && i < t->n; i++) labels[i] = i + 1 < t->n ? t->ids[i + 1] : IGNORE;
  if (!st) {
    io[0] = (hp_io){"ids", t->ids, ids};
    io[1] = (hp_io){"positions", positions, ids};
    io[2] = (hp_io){"labels", labels, ids};
    io[3] = (hp_io){"loss", &g->loss, sizeof g->loss};
    for (size_t i = 0; i < n; i++) {
      snprintf(name[i], sizeof name[i], "grad.%s", m->params.at[i].name);
      io[4 + i] =
          (hp_io){name[i], g->grad[i], model_param_elements(&m->params.at[i]) * sizeof(float)};
    }
    st = hp_run(p, io, (int)n + 4);
  }
  mem_free(positions);
  mem_free(labels);
  mem_free(io);
  mem_free(name);
  return st;
}

static hp_status check_finite(const lm *m, const lm_gradients *g) {
  if (!isfinite(g->loss))
    HP_FAIL(HP_ERR_NUMERIC, "%s: the loss is not finite (%g); are its weights damaged?", m->path,
            (double)g->loss);
  for (size_t i = 0; i < m->trained; i++)
    for (size_t k = 0; k < model_param_elements(&m->params.at[i]); k++)
      if (!isfinite(g->grad[i][k]))
        HP_FAIL(HP_ERR_NUMERIC, "%s: element %zu of the gradient of \"%s\" is %g", m->path, k,
                m->params.at[i].name, (double)g->grad[i][k]);
  return HP_OK;
}

hp_status lm_grads(lm *m, const lm_tokens *t, lm_gradients *out) {
  hp_program *p;
  HP_TRY(lm_check_tokens(m, t));
  if (t->n < 2) HP_FAIL(HP_ERR_ARG, "one token has no next token to predict; give at least two");
  HP_TRY(build_grads(m, t->n, &p, NULL));
  lm_gradients g = {.grad = mem_calloc(m->trained, sizeof *g.grad)};
  hp_status st = g.grad ? HP_OK : HP_ERR_OOM;
  for (size_t i = 0; !st && i < m->trained; i++) {
    g.grad[i] = mem_calloc(model_param_elements(&m->params.at[i]), sizeof(float));
    if (!g.grad[i]) st = HP_ERR_OOM;
  }
  if (!st) st = run_grads(m, p, t, &g);
  if (!st) st = check_finite(m, &g);
  hp_program_free(p);
  if (st) lm_gradients_free(m, &g);
  else *out = g;
  return st;
}

hp_status lm_grads_plan(lm *m, int64_t n, hp_program_stats *out) {
  return build_grads(m, n, NULL, out);
}

void lm_gradients_free(const lm *m, lm_gradients *g) {
  for (size_t i = 0; g->grad && i < m->trained; i++) mem_free(g->grad[i]);
  mem_free(g->grad);
  *g = (lm_gradients){0};
}

/* --- scoring --------------------------------------------------------------------------------- */

struct lm_scorer {
  lm *m;
  hp_program *p;
  int64_t B, T, n;
  int32_t *positions;
};

hp_status lm_score_begin(const lm *m, int64_t B, int64_t T, lm_losses *of, model_build *b) {
  HP_TRY(lm_graph_begin(m, B, T, NULL, T, b));
  hp_tensor losses = build_losses(m, b, of);
  hp_output(b->g, "losses", losses);
  return HP_OK;
}

hp_status lm_scorer_plan(lm *m, int64_t B, int64_t T, lm_losses *of, hp_program_stats *out) {
  model_build b;
  HP_TRY(lm_score_begin(m, B, T, of, &b));
  hp_status st = plan_graph(m, &b, out);
  lm_graph_end(&b);
  return st;
}

hp_status lm_scorer_create(lm *m, int64_t B, int64_t T, lm_losses *of, int64_t n,
                           uint64_t reserve_bytes, lm_scorer **out) {
  model_build b;
  lm_scorer *s = mem_calloc(1, sizeof *s);
  HP_TRY_MEM(s);
  *s = (lm_scorer){.m = m, .B = B, .T = T, .n = n, .positions = make_positions(B, T)};
  hp_status st = s->positions ? lm_score_begin(m, B, T, of, &b) : HP_ERR_OOM;
  if (!st) {
    st = compile_graph(m, &b, T, reserve_bytes, &s->p);
    lm_graph_end(&b);
  }
  if (st) lm_scorer_free(s);
  else *out = s;
  return st;
}

void lm_scorer_free(lm_scorer *s) {
  if (!s) return;
  hp_program_free(s->p);
  mem_free(s->positions);
  mem_free(s);
}

hp_status lm_scorer_run(lm_scorer *s, const lm_batch *b, float *loss) {
  size_t bytes = (size_t)(s->B * s->T) * sizeof *b->ids;
  const int32_t *positions = b->positions ? b->positions : s->positions;
  hp_io io[] = {{"ids", (void *)(uintptr_t)b->ids, bytes},
                {"positions", (void *)(uintptr_t)positions, bytes},
                {"labels", (void *)(uintptr_t)b->labels, bytes},
                {"losses", loss, (size_t)s->n * sizeof *loss},
                {"span", (void *)(uintptr_t)b->span, bytes * 2}};
  return hp_run(s->p, io, s->m->spans ? 5 : 4);
}
