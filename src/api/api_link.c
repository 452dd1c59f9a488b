/* hyperparallel.h: compiling pieces of a step, and one program of them. */
#include "api/api_piece.h"
#include "base/milestone.h"
#include "base/thread.h"
#include "rt/device_target.h"
#include "rt/stage_meshes.h"

#include <stdio.h>
#include <string.h>

static hp_status compile_piece(hp_piece *p) {
  device_target t;
  if (is_pipeline(p->d)) return api_pipeline_compile(p);
  HP_TRY(api_compile_begin(p->g, p->d, &p->o, &p->c));
  device_target_init(p->d, 0, &t);
  return compile_lower(&p->c, &t.t);
}

HP_API hp_status hp_piece_compile(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                                  hp_piece **out) {
  API_CALL;
  API_NEED(g);
  API_NEED(d);
  API_NEED(out);
  DEVICE_MESH_HOLD(d);
  hp_piece *p = NULL;
  const char *before = milestone_set_activity("compiling a piece of a step");
  hp_status st = api_piece_create(g, d, o, &p);
  if (!st) st = compile_piece(p);
  milestone_set_activity(before);
  if (st) hp_piece_free(p);
  else *out = p;
  return api_result(__func__, st);
}

/* --- linking ------------------------------------------------------------------------------------
 */

/* Inputs and outputs of each piece for each of its micro-batches. */
static hp_status add_io(const step *s, runs *r) {
  const api_rows *rows = &s->rows;
  bool micros = link_has_micros(&(link_rows){.row = rows->link, .rows = rows->n});
  for (size_t i = 0; i < rows->run.len; i++) {
    const compilation *c = &s->piece[rows->run.at[i].piece]->c;
    char suffix[16];
    snprintf(suffix, sizeof suffix, "@%u", rows->run.at[i].microbatch);
    HP_TRY(runs_add_io(r, c->global, c->shards.of, micros ? suffix : NULL));
  }
  return HP_OK;
}

static bool is_run(const step *s, int piece) {
  for (size_t i = 0; i < s->rows.run.len; i++)
    if (s->rows.run.at[i].piece == (uint32_t)piece) return true;
  return false;
}

static const hp_piece *first_piece(const step *s) { return s->piece[s->rows.link[0].piece]; }

/* The linked program's compilation, to be ended, also after a failure. */
static hp_status begin_link(step *s, compilation *out) {
  compilation **c = mem_calloc((size_t)s->n, sizeof *c);
  *out = (compilation){0};
  HP_TRY_MEM(c);
  for (int i = 0; i < s->n; i++) c[i] = &s->piece[i]->c;
  s->o = first_piece(s)->o;
  s->o.dump_name = NULL;
  hp_status st = compile_link(c, (size_t)s->n, &(link_rows){.row = s->rows.link, .rows = s->rows.n},
                              &s->o, out);
  mem_free(c);
  return st;
}

/* The params of the pieces that are run, on the device. */
static hp_status create_params(const step *s) {
  hp_device *d = s->piece[0]->d;
  const hp_graph **graph = mem_calloc((size_t)s->n, sizeof *graph);
  HP_TRY_MEM(graph);
  for (int i = 0; i < s->n; i++) graph[i] = s->piece[i]->g;
  device_mesh_warn_unused(d, graph, (size_t)s->n);
  mem_free(graph);
  for (int i = 0; i < s->n; i++)
    if (is_run(s, i)) HP_TRY(device_mesh_params(d, s->piece[i]->g));
  return HP_OK;
}

static hp_status link_step(step *s, hp_program *h) {
  compilation linked;
  HP_TRY(create_params(s));
  hp_status st = begin_link(s, &linked);
  if (!st) st = api_compile_devices(&linked, h->r.d, h);
  if (!st) st = add_io(s, &h->r);
  compile_end(&linked);
  return st;
}

static hp_status link_program(step *s, hp_program **out) {
  double start = time_now_s();
  hp_program *h = mem_calloc(1, sizeof *h);
  HP_TRY_MEM(h);
  DEVICE_MESH_HOLD(s->piece[0]->d);
  h->r.d = s->piece[0]->d;
  const char *before = milestone_set_activity("linking a step");
  hp_status st = is_pipeline(h->r.d) ? api_pipeline_link(s, h) : link_step(s, h);
  milestone_set_activity(before);
  h->compile_s = time_now_s() - start;
  if (st) hp_program_free(h);
  else *out = h;
  return st;
}

static void end_step(step *s) { api_rows_free(&s->rows); }

static hp_status read_rows(const char *text, step *s) {
  const program **lowered = mem_calloc((size_t)s->n, sizeof *lowered);
  HP_TRY_MEM(lowered);
  for (int i = 0; i < s->n; i++) lowered[i] = s->piece[i]->c.lowered;
  bool checks = !is_pipeline(s->piece[0]->d); /* a pipeline's rows are checked when it is linked */
  hp_status st = api_rows_read(text, s->action, checks ? lowered : NULL, s->n, &s->rows);
  mem_free(lowered);
  return st;
}

/* The step of the arguments of a call; ended by end_step, also after a failure. */
static hp_status begin_step(const char *call, hp_piece *const *piece, const char *const *action,
                            int n, const char *rows, step *out) {
  *out = (step){.piece = piece, .action = action, .n = n};
  if (n < 1) return api_refuse(call, "n is %d; expected 1 piece or more", n);
  for (int i = 0; i < n; i++) {
    if (!piece[i] || !action[i]) return api_refuse(call, "piece %d or its action is NULL", i);
    if (piece[i]->d != piece[0]->d)
      return api_refuse(call, "piece %d is of another device than piece 0", i);
    for (int k = 0; k < i; k++)
      if (!strcmp(action[k], action[i]))
        return api_refuse(call, "pieces %d and %d are both called \"%s\"", k, i, action[i]);
  }
  return read_rows(rows, out);
}

HP_API hp_status hp_link(hp_piece *const *piece, const char *const *action, int n, const char *rows,
                         hp_program **out) {
  step s;
  API_CALL;
  API_NEED(piece);
  API_NEED(action);
  API_NEED(rows);
  API_NEED(out);
  hp_status st = begin_step(__func__, piece, action, n, rows, &s);
  if (!st && piece[0]->d->plan_only)
    st = api_refuse(__func__, "the device was opened with plan_only; hp_link_plan takes it");
  if (!st) st = link_program(&s, out);
  end_step(&s);
  return api_result(__func__, st);
}

/* How many micro-batches the rows have, in ascending order from 0. */
static hp_status count_micros(const step *s, uint32_t *out) {
  const api_rows *rows = &s->rows;
  *out = 0;
  for (size_t i = 0; i < rows->run.len; i++) {
    const piece_run *run = &rows->run.at[i];
    if (run->microbatch == *out) ++*out;
    else if (!*out || run->microbatch != *out - 1)
      HP_FAIL(HP_ERR_ARG, "rows:%d: micro-batch %u; expected %u: their order is asked for",
              run->line, run->microbatch, *out);
  }
  return HP_OK;
}

static hp_status order_micros(const step *s, int *order) {
  uint32_t n;
  HP_TRY(count_micros(s, &n));
  uint32_t *found = mem_calloc(n, sizeof *found);
  HP_TRY_MEM(found);
  for (uint32_t k = 0; k < n; k++) found[k] = k;
  hp_status st = is_pipeline(s->piece[0]->d) ? api_pipeline_order(s, found) : HP_OK;
  for (uint32_t k = 0; !st && k < n; k++) order[k] = (int)found[k];
  mem_free(found);
  return st;
}

HP_API hp_status hp_link_order(hp_piece *const *piece, const char *const *action, int n,
                               const char *rows, int *order) {
  step s;
  API_CALL;
  API_NEED(piece);
  API_NEED(action);
  API_NEED(rows);
  API_NEED(order);
  hp_status st = begin_step(__func__, piece, action, n, rows, &s);
  if (!st) {
    DEVICE_MESH_HOLD(piece[0]->d);
    st = order_micros(&s, order);
  }
  end_step(&s);
  return api_result(__func__, st);
}

/* The first row's piece, which has a forward, and the others. */
static hp_status plan_and_explain(const step *s, compilation *linked, double start,
                                  const char *what, str *text, hp_program_stats *out) {
  graph_layouts *g = mem_calloc((size_t)s->n, sizeof *g);
  HP_TRY_MEM(g);
  size_t n = 1;
  g[0] = (graph_layouts){first_piece(s)->c.global, &first_piece(s)->c.shards};
  for (int i = 0; i < s->n; i++)
    if (s->piece[i] != first_piece(s) && is_run(s, i))
      g[n++] = (graph_layouts){s->piece[i]->c.global, &s->piece[i]->c.shards};
  const plan_view view = {what, g, n, text};
  hp_status st = api_plan(linked, s->piece[0]->d, start, what ? &view : NULL, out);
  mem_free(g);
  return st;
}

static hp_status plan_rows(step *s, hp_program_stats *out, const char *what, str *text) {
  double start = time_now_s();
  compilation linked;
  DEVICE_MESH_HOLD(s->piece[0]->d);
  if (is_pipeline(s->piece[0]->d)) return api_pipeline_plan(s, out, what, text);
  hp_status st = begin_link(s, &linked);
  if (!st) st = plan_and_explain(s, &linked, start, what, text, out);
  compile_end(&linked);
  return st;
}

HP_API hp_status hp_link_plan(hp_piece *const *piece, const char *const *action, int n,
                              const char *rows, hp_program_stats *out, const char *what,
                              char **text) {
  step s;
  str all = {0};
  API_CALL;
  API_NEED(piece);
  API_NEED(action);
  API_NEED(rows);
  API_NEED(out);
  if (what) API_NEED(text);
  hp_status st = begin_step(__func__, piece, action, n, rows, &s);
  if (!st) st = plan_rows(&s, out, what, &all);
  end_step(&s);
  return what ? api_text(__func__, st, &all, text) : api_result(__func__, st);
}
