/* hyperparallel.h: pieces and programs of a device that is a pipeline. */
#include "api/api_pipeline.h"

#include "api/api_stage_pieces.h"
#include "base/thread.h"
#include "ops/ops.h"
#include "pass/stage_unused.h"
#include "prog/actions.h"
#include "prog/ahead.h"
#include "rt/device_target.h"
#include "rt/explain_pipeline.h"
#include "rt/stage_meshes.h"
#include "shard/layout_text.h"

#include <stdio.h>
#include <string.h>

/* --- layouts of what crosses -------------------------------------------------------------------
 *
 * A mesh takes a value in the layout that the other has it in, where that is known: forwards come
 * from a mesh that was compiled before.  A gradient that comes back is cut as the inputs of the
 * graph are that have its first dims. */

typedef struct {
  hp_device *d;
  map of; /* name -> index */
  VEC(layout) known;
} crossing_layouts;

static bool declared(const void *model, const char *name, const ir_value *type, layout *out) {
  const crossing_layouts *x = model;
  uint32_t i;
  if (!map_get(&x->of, name, strlen(name), &i)) return device_mesh_declared(x->d, name, type, out);
  *out = x->known.at[i];
  return true;
}

/* The value of an input or output of that name; 0: there is none. */
static val find_value(const hp_graph *g, op_id op, const char *name) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (n->op == op && !strcmp(attr_str(g, n, "name"), name))
      return op == OP_INPUT ? n->out0 : graph_in(g, n)[0];
  }
  return 0;
}

static layout layout_of(const hp_piece *p, op_id op, const char *name) {
  val v = find_value(p->c.global, op, name);
  if (v && p->c.shards.of) return p->c.shards.of[v];
  return (layout){.rank = graph_value(p->c.global, v)->rank};
}

/* The axes of the same names on another mesh, as far as they divide the dims. */
static void translate(const mesh *from, const layout *l, const mesh *to, const ir_value *type,
                      layout *out) {
  str text = {0};
  layout_print_on(from, l, &text);
  bool fits = !text.failed && !layout_parse_on(text.at, to, out);
  str_free(&text);
  if (!fits) {
    err_clear();
    *out = (layout){.rank = type->rank};
  }
  memset(out->shard_size, 0, sizeof out->shard_size);
  for (int d = 0; d < type->rank; d++)
    while (type->dim[d] % layout_shard_count(to, out, d)) layout_cut(out, d, 1);
}

static layout guess(const hp_graph *g, const device_mesh *dm, const ir_value *type) {
  layout l, best = {.rank = type->rank};
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (n->op != OP_INPUT) continue;
    const ir_value *x = graph_value(g, n->out0);
    if (!x->rank || x->rank > type->rank || memcmp(x->dim, type->dim, x->rank * sizeof *x->dim))
      continue;
    if (!device_mesh_declared(dm, attr_str(g, n, "name"), x, &l)) continue;
    l.rank = type->rank;
    translate(&dm->m, &l, &dm->m, type, &best);
    break;
  }
  return best;
}

static hp_status add_layout(const hp_piece *p, const stage_crossing *x, crossing_layouts *to) {
  const hp_piece *sender = p->part[x->from], *taker = p->part[x->to];
  const ir_value *type = graph_value(taker->g, find_value(taker->g, OP_INPUT, x->name));
  layout l;
  if (x->from < x->to && sender) {
    layout given = layout_of(sender, OP_OUTPUT, x->name);
    translate(&sender->d->m, &given, &taker->d->m, type, &l);
  } else {
    l = guess(taker->g, taker->d, type);
  }
  HP_TRY(map_set(&to->of, x->name, strlen(x->name), (uint32_t)to->known.len));
  return vec_push(&to->known, l) ? HP_OK : HP_ERR_OOM;
}

/* --- pieces ----------------------------------------------------------------------------------- */

static hp_status compile_part(const hp_piece *p, int on) {
  hp_piece *part = p->part[on];
  device_target t;
  crossing_layouts x = {.d = part->d};
  hp_status st = HP_OK;
  for (size_t i = 0; !st && part->d->n > 1 && i < p->crossing.len; i++)
    if (p->crossing.at[i].to == on) st = add_layout(p, &p->crossing.at[i], &x);
  if (!st) st = api_compile_begin_with(part->g, part->d, &part->o, declared, &x, &part->c);
  map_free(&x.of);
  vec_free(&x.known);
  HP_TRY(st);
  device_target_init(part->d, 0, &t);
  return compile_lower(&part->c, &t.t);
}

static hp_status compile_parts(hp_piece *p, hp_graph **cut) {
  char name[80];
  for (int i = 0; i < p->d->meshes; i++) {
    hp_compile_options o = p->o;
    if (!cut[i]->nodes.len) continue;
    snprintf(name, sizeof name, "%.60s%smesh%d", o.dump_name ? o.dump_name : "",
             o.dump_name ? "." : "", i);
    o.dump_name = name;
    HP_TRY(api_piece_create(cut[i], p->d->stage_mesh[i], &o, &p->part[i]));
    HP_TRY(compile_part(p, i));
  }
  return HP_OK;
}

static stage_placement placement_of(const hp_device *d) {
  return (stage_placement){d->stages, d->meshes, d->mesh_of};
}

enum { NODE_NAME = 128 };

/* "einsum at layers.7 of stage 1"; returns text. */
static const char *name_node(const hp_graph *g, const ir_node *n, char text[NODE_NAME]) {
  const char *at = graph_str(g, n->loc);
  snprintf(text, NODE_NAME, "%s%s%.80s of stage %u", op_table[n->op].name, *at ? " at " : "", at,
           n->stage);
  return text;
}

/* Stages go forward: each comes after those that it reads. */
static hp_status check_edges(const hp_piece *p) {
  char text[NODE_NAME];
  for (size_t i = 0; i < p->edge.len; i++) {
    const stage_edge *e = &p->edge.at[i];
    if (e->from > e->to)
      HP_FAIL(HP_ERR_ARG,
              "%s reads what stage %u makes; in the forward a stage reads values of lower stages, "
              "see hp_stage",
              name_node(p->g, graph_node(p->g, e->node), text), e->from);
  }
  return HP_OK;
}

/* On one device a module that nothing reads is left out; a stage of its own would be idle. */
static hp_status check_used(const hp_graph *cut) {
  char text[NODE_NAME];
  uint32_t node;
  HP_TRY(stage_unused_find(cut, &node));
  if (node == cut->nodes.len) return HP_OK;
  HP_FAIL(
      HP_ERR_ARG,
      "nothing reads what its stage makes: %s; expected that an output or another stage depends "
      "on it",
      name_node(cut, graph_node(cut, node), text));
}

hp_status api_pipeline_compile(hp_piece *p) {
  const size_t meshes = (size_t)p->d->meshes;
  const stage_placement at = placement_of(p->d);
  hp_graph **cut = mem_calloc(meshes, sizeof *cut);
  p->part = mem_calloc(meshes, sizeof(hp_piece *));
  hp_status st = cut && p->part ? stage_cut(p->g, &at, cut, &p->crossing, &p->edge) : HP_ERR_OOM;
  if (!st) st = check_edges(p);
  for (size_t i = 0; !st && i < meshes; i++) st = check_used(cut[i]);
  if (!st) st = compile_parts(p, cut);
  for (size_t i = 0; cut && i < meshes; i++) graph_free(cut[i]);
  mem_free(cut);
  return st;
}

/* --- the step --------------------------------------------------------------------------------- */

/* What is planned of a step, and the tables of the planner. */
typedef struct {
  const step *s;
  hp_device *d;
  pipeline_step in;
  const program **lowered;
  const mesh **mesh;
  uint32_t *piece_of;
  VEC(pipeline_crossing) crossing;
  VEC(pipe_edge) edge;
  VEC(transfer_row) row;
  pipeline_plan plan;
  uint64_t *bytes; /* [2][meshes] of a device: planned, and of named tensors */
  uint32_t next;   /* micro-batches of the next step behind the update */
} pipeline_link;

/* The actions of a piece on all meshes, in *out. */
static hp_status find_actions(const hp_piece *p, uint8_t *out) {
  for (int i = 0; i < p->d->meshes; i++) {
    uint8_t has = 0;
    if (p->part[i]) HP_TRY(program_all_actions(p->part[i]->c.lowered, &has));
    *out |= has;
  }
  return HP_OK;
}

static bool has_update(const pipeline_link *l) { return l->in.update != PROG_NONE; }

/* Behind the update come the micro-batches of the next step, which are those of this one with
 * numbers that go on. */
static hp_status read_next(pipeline_link *l, size_t i) {
  const piece_run *run = &l->s->rows.run.at[i];
  uint32_t expected = l->in.micros + l->next;
  if (!l->in.micros)
    HP_FAIL(HP_ERR_ARG, "rows:%d: \"%s\" behind the update; on a pipeline forwards come before it",
            run->line, l->s->action[run->piece]);
  if (run->microbatch != expected || l->next == l->in.micros)
    HP_FAIL(HP_ERR_ARG,
            "rows:%d: micro-batch %u behind the update; expected %u: the %u of the next step in "
            "order, each once",
            run->line, run->microbatch, expected, l->in.micros);
  if (run->piece != l->piece_of[l->next])
    HP_FAIL(HP_ERR_ARG,
            "rows:%d: \"%s\" for micro-batch %u of the next step; expected \"%s\", as in this one",
            run->line, l->s->action[run->piece], run->microbatch,
            l->s->action[l->piece_of[l->next]]);
  l->next++;
  l->in.next = true;
  return HP_OK;
}

static hp_status read_run(pipeline_link *l, size_t i) {
  const piece_run *run = &l->s->rows.run.at[i];
  uint8_t actions = 0;
  if (has_update(l)) return read_next(l, i);
  HP_TRY(find_actions(l->s->piece[run->piece], &actions));
  bool updates = actions & ACTION_UPDATE, is_micro = actions & (uint8_t)~ACTION_UPDATE || !actions;
  if (updates) {
    l->in.update = run->piece;
    l->in.update_micro = run->microbatch;
  }
  if (!is_micro) return HP_OK;
  if (run->microbatch != l->in.micros)
    HP_FAIL(HP_ERR_ARG, "rows:%d: micro-batch %u; expected %u: on a pipeline they are in order",
            run->line, run->microbatch, l->in.micros);
  l->piece_of[l->in.micros++] = run->piece;
  return HP_OK;
}

static hp_status read_runs(pipeline_link *l) {
  const api_rows *rows = &l->s->rows;
  for (size_t i = 0; i < rows->n; i++)
    if (rows->link[i].actions != ACTION_ALL)
      HP_FAIL(HP_ERR_ARG, "row %zu: on a pipeline a row is of all actions of its piece", i + 1);
  for (size_t i = 0; i < rows->run.len; i++) HP_TRY(read_run(l, i));
  if (!l->in.micros)
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "an update without a forward: on a pipeline a step ends with its update (update: end)");
  if (l->next && hp_device_memory_limit(l->d))
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "rows: the device has a memory limit, under which nothing of the next step runs ahead; "
            "leave out the rows behind the update");
  if (l->next && job_device_must_offload(l->d->member[0]->job))
    HP_FAIL(
        HP_ERR_UNSUPPORTED,
        "rows: tensors leave the device (offload), so that nothing of the next step runs ahead; "
        "leave out the rows behind the update");
  if (l->next && l->next < l->in.micros)
    HP_FAIL(HP_ERR_ARG, "rows: %u of the next step's %u micro-batches; expected all or none",
            l->next, l->in.micros);
  return HP_OK;
}

static hp_status add_crossings(pipeline_link *l, uint32_t k) {
  const hp_piece *p = l->s->piece[k];
  for (size_t i = 0; i < p->crossing.len; i++) {
    const stage_crossing *x = &p->crossing.at[i];
    const hp_piece *from = p->part[x->from], *to = p->part[x->to];
    pipeline_crossing c = {.piece = k, .from = x->from, .to = x->to, .name = x->name};
    if (x->is_param) c.param = attr_str(p->g, graph_def(p->g, x->value), "name");
    transfer_row row = {.type = *graph_value(from->g, find_value(from->g, OP_OUTPUT, x->name)),
                        .from = &from->d->m,
                        .to = &to->d->m,
                        .given = layout_of(from, OP_OUTPUT, x->name),
                        .taken = layout_of(to, OP_INPUT, x->name)};
    if (!vec_push(&l->crossing, c) || !vec_push(&l->row, row)) return HP_ERR_OOM;
  }
  return HP_OK;
}

static hp_status add_edges(pipeline_link *l, const hp_piece *p) {
  for (size_t i = 0; i < p->edge.len; i++)
    if (!vec_push(&l->edge, ((pipe_edge){p->edge.at[i].from, p->edge.at[i].to}))) return HP_ERR_OOM;
  return HP_OK;
}

static bool is_used(const pipeline_link *l, uint32_t piece) {
  for (uint32_t i = 0; i < l->in.micros; i++)
    if (l->piece_of[i] == piece) return true;
  return l->in.update == piece;
}

static hp_status list_pieces(pipeline_link *l) {
  const size_t meshes = (size_t)l->d->meshes, pieces = (size_t)l->s->n;
  for (uint32_t k = 0; k < pieces; k++) {
    const hp_piece *p = l->s->piece[k];
    for (size_t m = 0; m < meshes; m++)
      if (p->part[m] && is_used(l, k)) l->lowered[k * meshes + m] = p->part[m]->c.lowered;
    if (is_used(l, k)) HP_TRY(add_crossings(l, k));
    if (is_used(l, k)) HP_TRY(add_edges(l, p));
  }
  for (size_t m = 0; m < meshes; m++) l->mesh[m] = &l->d->stage_mesh[m]->m;
  return HP_OK;
}

/* Those of process 0. */
static hp_status agree(void *context, double *costs, size_t n) {
  const hp_device *d = context;
  char wants[COMM_MAX];
  memset(wants, 1, sizeof wants);
  return device_mesh_send(d, 0, wants, costs, n * sizeof *costs);
}

/* together: all processes make the call, and use the costs of one.  Ended by end_link, also after a
 * failure. */
static hp_status begin_link(const step *s, bool together, pipeline_link *l) {
  hp_device *d = s->piece[0]->d;
  const size_t meshes = (size_t)d->meshes, pieces = (size_t)s->n;
  *l = (pipeline_link){.s = s, .d = d};
  l->lowered = mem_calloc(pieces * meshes, sizeof *l->lowered);
  l->mesh = mem_calloc(meshes, sizeof *l->mesh);
  l->piece_of = mem_calloc(s->rows.run.len + 1, sizeof *l->piece_of);
  l->bytes = mem_calloc(meshes, 2 * sizeof *l->bytes);
  HP_TRY_MEM(l->lowered && l->mesh && l->piece_of && l->bytes);
  l->in.update = PROG_NONE;
  HP_TRY(read_runs(l));
  HP_TRY(list_pieces(l));
  pipeline_step in = {.schedule = d->pipeline,
                      .place = placement_of(d),
                      .mesh = l->mesh,
                      .cluster = &d->costs,
                      .pieces = pieces,
                      .lowered = l->lowered,
                      .crossing = l->crossing.at,
                      .crossings = l->crossing.len,
                      .edge = l->edge.at,
                      .edges = l->edge.len,
                      .piece_of = l->piece_of,
                      .micros = l->in.micros,
                      .update = l->in.update,
                      .update_micro = l->in.update_micro,
                      .next = l->in.next,
                      .agree = together && d->own < d->n ? agree : NULL,
                      .context = d};
  l->in = in;
  return HP_OK;
}

static void end_link(pipeline_link *l) {
  pipeline_plan_free(&l->plan);
  vec_free(&l->crossing);
  vec_free(&l->edge);
  vec_free(&l->row);
  mem_free(l->lowered);
  mem_free(l->mesh);
  mem_free(l->piece_of);
  mem_free(l->bytes);
}

enum { IO_NAME = 256 };

/* --- the program of a mesh -------------------------------------------------------------------- */

/* The compilation of a mesh's program, to be ended, also after a failure, with the options of the
 * first row's piece. */
static hp_status link_mesh(const pipeline_link *l, int on, compilation *out) {
  const mesh_rows *m = &l->plan.mesh[on];
  const size_t pieces = (size_t)l->s->n;
  const link_rows rows = {.row = m->row.at,
                          .rows = m->row.len,
                          .transfer = m->transfer.at,
                          .transfers = m->transfer.len,
                          .micros = l->plan.ahead.rows ? l->in.micros : 0,
                          .update = l->in.update,
                          .ahead = l->plan.runs_ahead};
  compilation nothing = {0}, **c = mem_calloc(pieces, sizeof *c);
  *out = (compilation){0};
  HP_TRY_MEM(c);
  for (size_t k = 0; k < pieces; k++) {
    hp_piece *p = l->s->piece[k]->part[on];
    c[k] = p ? &p->c : &nothing;
  }
  const hp_piece *first = l->s->piece[m->row.at[0].piece]->part[on];
  hp_status st = compile_link(c, pieces, &rows, &first->o, out);
  mem_free(c);
  return st;
}

/* A tensor is on one mesh, where it was declared or first used; tables are on all. */
static hp_status check_stage(hp_device *d, const hp_piece *p, int on, const char *name) {
  int stage = stage_meshes_find(d, name);
  if (stage >= 0 && d->mesh_of[stage] != on)
    HP_FAIL(HP_ERR_ARG, "param \"%s\" is on stage %d (hp_device_stage), and mesh %d uses it", name,
            stage, on);
  if (stage != STAGE_UNKNOWN) return HP_OK;
  int first = 0;
  while (d->mesh_of[first] != on) first++;
  for (int i = 0; i < d->meshes; i++) {
    uint32_t index;
    const hp_piece *other = i == on ? NULL : p->part[i];
    bool there = map_get(&d->stage_mesh[i]->state_of, name, strlen(name), &index);
    for (uint32_t k = 0; other && !there && k < other->g->nodes.len; k++) {
      const ir_node *n = graph_node(other->g, k);
      there = n->op == OP_PARAM && !strcmp(attr_str(other->g, n, "name"), name);
    }
    if (i != on && there) return stage_meshes_rule(d, name, STAGE_ALL);
  }
  return stage_meshes_rule(d, name, first);
}

static hp_status create_params(const pipeline_link *l, int on) {
  for (uint32_t k = 0; k < (uint32_t)l->s->n; k++) {
    const hp_piece *p = l->s->piece[k], *part = p->part[on];
    if (!part || !is_used(l, k)) continue;
    for (uint32_t i = 0; i < part->g->nodes.len; i++) {
      const ir_node *n = graph_node(part->g, i);
      if (n->op == OP_PARAM) HP_TRY(check_stage(l->d, p, on, attr_str(part->g, n, "name")));
    }
    HP_TRY(device_mesh_params(part->d, part->g));
  }
  return HP_OK;
}

/* Inputs and outputs of the pieces that the mesh has, for each of their micro-batches. */
static hp_status add_io(const pipeline_link *l, int on, runs *r) {
  const api_rows *rows = &l->s->rows;
  bool micros = l->in.micros > 1;
  for (size_t i = 0; i < rows->run.len; i++) {
    const piece_run *run = &rows->run.at[i];
    const hp_piece *part = l->s->piece[run->piece]->part[on];
    char suffix[16];
    snprintf(suffix, sizeof suffix, "@%u", run->microbatch);
    if (part) HP_TRY(runs_add_io(r, part->c.global, part->c.shards.of, micros ? suffix : NULL));
  }
  return HP_OK;
}

static bool is_crossing(const hp_piece *p, int on, const char *io) {
  for (size_t i = 0; i < p->crossing.len; i++) {
    const stage_crossing *x = &p->crossing.at[i];
    if ((x->from == on || x->to == on) && !strcmp(x->name, io)) return true;
  }
  return false;
}

/* Names and types of what the mesh reads and writes, from its graphs, which all processes have. */
static hp_status name_io(const pipeline_link *l, int on, const piece_run *run, pipeline_runs *r) {
  const hp_piece *p = l->s->piece[run->piece], *part = p->part[on];
  char full[IO_NAME];
  for (uint32_t i = 0; part && i < part->g->nodes.len; i++) {
    const ir_node *n = graph_node(part->g, i);
    if (n->op != OP_INPUT && n->op != OP_OUTPUT) continue;
    const char *io = attr_str(part->g, n, "name");
    if (is_crossing(p, on, io) || (l->in.next && ahead_param(io))) continue;
    val v = n->op == OP_INPUT ? n->out0 : graph_in(part->g, n)[0];
    if (l->in.micros > 1) snprintf(full, sizeof full, "%s@%u", io, run->microbatch);
    else snprintf(full, sizeof full, "%s", io);
    bool gives = n->op == OP_OUTPUT && run->microbatch < l->in.micros;
    HP_TRY(pipeline_runs_name(r, on, full, graph_value(part->g, v), gives));
  }
  return HP_OK;
}

static hp_status name_mesh(const pipeline_link *l, int on, pipeline_runs *r) {
  const api_rows *rows = &l->s->rows;
  for (size_t i = 0; i < rows->run.len; i++) HP_TRY(name_io(l, on, &rows->run.at[i], r));
  return HP_OK;
}

static hp_status load_mesh(const pipeline_link *l, int on, pipeline_program *p) {
  compilation linked;
  double start = time_now_s();
  hp_program *h = mem_calloc(1, sizeof *h);
  HP_TRY_MEM(h);
  p->part[on] = h;
  h->r.d = l->d->stage_mesh[on];
  hp_status st = link_mesh(l, on, &linked);
  if (!st) st = api_compile_devices(&linked, h->r.d, h);
  for (int i = 0; !st && i < h->r.d->own; i++)
    st = exec_set_transfers(h->r.e[i], p->row, l->row.len);
  if (!st) st = add_io(l, on, &h->r);
  compile_end(&linked);
  h->compile_s = time_now_s() - start;
  return st ? st : pipeline_runs_add(p->runs, on, &h->r);
}

/* By the names of all meshes. */
static hp_status warn_unused(const pipeline_link *l) {
  const hp_graph **graph = mem_calloc((size_t)l->s->n, sizeof *graph);
  HP_TRY_MEM(graph);
  for (int i = 0; i < l->s->n; i++) graph[i] = l->s->piece[i]->g;
  device_mesh_warn_unused(l->d, graph, (size_t)l->s->n);
  mem_free(graph);
  return HP_OK;
}

static hp_status load_meshes(pipeline_link *l, hp_program *h) {
  pipeline_program *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  h->pipeline = p;
  p->d = l->d;
  p->part = mem_calloc((size_t)l->d->meshes, sizeof(hp_program *));
  p->row = mem_calloc(l->row.len + 1, sizeof *p->row);
  HP_TRY_MEM(p->part && p->row);
  if (l->row.len) memcpy(p->row, l->row.at, l->row.len * sizeof *p->row);
  HP_TRY(pipeline_runs_create(l->d, &p->runs));
  HP_TRY(warn_unused(l));
  for (int i = 0; i < l->d->meshes; i++) {
    bool runs_here = l->plan.mesh[i].row.len && l->d->stage_mesh[i]->own;
    HP_TRY(create_params(l, i));
    HP_TRY(name_mesh(l, i, p->runs));
    if (runs_here) HP_TRY(load_mesh(l, i, p));
  }
  p->plan = l->plan;
  l->plan = (pipeline_plan){0};
  return HP_OK;
}

hp_status api_pipeline_link(const step *s, hp_program *h) {
  pipeline_link l = {.s = s};
  stage_pieces by_stage;
  hp_status st = stage_pieces_begin(s, &by_stage);
  if (!st) st = begin_link(&by_stage.s, true, &l);
  if (!st) st = pipeline_plan_make(&l.in, &l.plan);
  if (!st) st = load_meshes(&l, h);
  end_link(&l);
  stage_pieces_end(&by_stage);
  return st;
}

void api_pipeline_free(pipeline_program *p) {
  if (!p) return;
  for (int i = 0; p->part && i < p->d->meshes; i++) api_unload(p->part[i]);
  pipeline_runs_free(p->runs);
  pipeline_plan_free(&p->plan);
  mem_free(p->part);
  mem_free(p->row);
  mem_free(p);
}

/* --- numbers and texts ------------------------------------------------------------------------ */

hp_program *api_pipeline_part(const pipeline_program *p, int k) {
  for (int i = 0; i < p->d->meshes; i++)
    if (p->part[i] && !k--) return p->part[i];
  return NULL;
}

static double larger(double a, double b) { return a > b ? a : b; }

/* Adds the numbers of a mesh's device to those of the others. */
static void add_stats(const hp_program_stats *s, bool first, hp_program_stats *sum) {
  bool fuller = first || s->memory.planned_bytes > sum->memory.planned_bytes;
  uint64_t model[HP_MEMORY_CLASSES];
  for (int i = 0; i < HP_MEMORY_CLASSES; i++) model[i] = sum->memory.model[i] + s->memory.model[i];
  sum->instructions += s->instructions;
  sum->kernels += s->kernels;
  sum->host_updates += s->host_updates;
  sum->flops = larger(sum->flops, s->flops);
  sum->bytes = larger(sum->bytes, s->bytes);
  sum->received = larger(sum->received, s->received);
  sum->run_s = larger(sum->run_s, s->run_s);
  sum->exposed_copy_s = larger(sum->exposed_copy_s, s->exposed_copy_s);
  sum->comm_s = larger(sum->comm_s, s->comm_s);
  sum->can_overlap_s = larger(sum->can_overlap_s, s->can_overlap_s);
  sum->overlapped_s = larger(sum->overlapped_s, s->overlapped_s);
  if (fuller) sum->memory = s->memory;
  memcpy(sum->memory.model, model, sizeof model);
}

hp_status api_pipeline_stats(const pipeline_program *p, hp_program_stats *out) {
  hp_program_stats one, sum = {0};
  hp_program *part;
  for (int k = 0; (part = api_pipeline_part(p, k)); k++) {
    HP_TRY(api_mesh_stats(part, &one));
    add_stats(&one, !k, &sum);
  }
  sum.predicted_s = pipeline_plan_seconds(&p->plan);
  sum.ahead = (int)p->plan.ahead.micros;
  sum.memory.devices = p->d->n;
  *out = sum;
  return HP_OK;
}

/* Graphs of a mesh, whose layouts are told. */
static hp_status explain_mesh(const pipeline_link *l, int on, const char *what, str *text) {
  compilation linked;
  const size_t pieces = (size_t)l->s->n;
  graph_layouts *g = mem_calloc(pieces, sizeof *g);
  HP_TRY_MEM(g);
  size_t n = 0;
  for (uint32_t k = 0; k < pieces; k++) {
    const hp_piece *part = l->s->piece[k]->part[on];
    if (part && is_used(l, k)) g[n++] = (graph_layouts){part->c.global, &part->c.shards};
  }
  hp_status st = link_mesh(l, on, &linked);
  if (!st) st = api_plan_explain(&linked, l->d->stage_mesh[on], &(plan_view){what, g, n, text});
  compile_end(&linked);
  mem_free(g);
  return st;
}

static hp_status tell_pipeline(const pipeline_link *l, const char *what, str *text) {
  pipeline_told told = {.schedule = l->d->pipeline,
                        .planned_bytes = l->bytes,
                        .state_bytes = l->bytes + l->d->meshes};
  hp_status st = HP_OK;
  for (int i = 0; !st && i < l->d->meshes; i++)
    st = pipeline_state_bytes(&l->in, i, &l->bytes[l->d->meshes + i]);
  if (!st) st = pipeline_blocks_find(&l->in, &told.blocks);
  if (!st) st = explain_pipeline(&l->plan, &told, what, text);
  vec_free(&told.blocks);
  return st;
}

/* Text of all meshes, under a line for each; JSON and pictures of the one with the fullest device,
 * whose numbers the summary has. */
static hp_status explain_meshes(const pipeline_link *l, int fullest, const char *what, str *text) {
  if (!strncmp(what, "pipeline", 8)) return tell_pipeline(l, what, text);
  if (strchr(what, '.')) return explain_mesh(l, fullest, what, text);
  for (int i = 0, told = 0; i < l->d->meshes; i++) {
    if (!l->plan.mesh[i].row.len) continue;
    str_printf(text, "%smesh %d\n", told++ ? "\n" : "", i);
    HP_TRY(explain_mesh(l, i, what, text));
  }
  return HP_OK;
}

static hp_status plan_mesh(const pipeline_link *l, int on, double start, hp_program_stats *out) {
  compilation linked;
  *out = (hp_program_stats){0};
  hp_status st = link_mesh(l, on, &linked);
  if (!st) st = api_plan(&linked, l->d->stage_mesh[on], start, NULL, out);
  compile_end(&linked);
  return st;
}

/* If the memory limit is too small for some meshes: sum->memory and the failure are those of the
 * mesh that needs most. */
static hp_status plan_meshes(const pipeline_link *l, double start, int *fullest,
                             hp_program_stats *sum) {
  uint64_t most = 0;
  err_report why = {0};
  hp_status st = HP_OK;
  for (int i = 0, planned = 0; i < l->d->meshes; i++) {
    hp_program_stats one;
    if (!l->plan.mesh[i].row.len) continue;
    hp_status own = plan_mesh(l, i, start, &one);
    if (own && own != HP_ERR_OOM) return own;
    l->bytes[i] = one.memory.planned_bytes;
    bool fuller = one.memory.planned_bytes > most || (own && !st);
    if (fuller) most = one.memory.planned_bytes, *fullest = i;
    if (!own && !st) add_stats(&one, !planned++, sum);
    if (own && fuller) err_take(own, &why), sum->memory = one.memory;
    else if (own) err_clear();
    if (own) st = own;
  }
  return st ? err_give(&why) : HP_OK;
}

hp_status api_pipeline_plan(const step *s, hp_program_stats *out, const char *what, str *text) {
  pipeline_link l = {.s = s};
  stage_pieces by_stage;
  hp_program_stats sum = {0};
  double start = time_now_s();
  int fullest = 0;
  hp_status st = stage_pieces_begin(s, &by_stage);
  if (!st) st = begin_link(&by_stage.s, false, &l);
  if (!st) st = pipeline_plan_make(&l.in, &l.plan);
  bool alone = what && !strcmp(what, "pipeline.costs.json"); /* of stages, without a memory plan */
  if (!st && !alone) st = plan_meshes(&l, start, &fullest, &sum);
  if (!st && what) st = explain_meshes(&l, fullest, what, text);
  if (st == HP_ERR_OOM) out->memory = sum.memory;
  if (!st) {
    sum.predicted_s = pipeline_plan_seconds(&l.plan);
    sum.ahead = (int)l.plan.ahead.micros;
    sum.memory.devices = l.d->n;
    sum.compile_s = time_now_s() - start;
    *out = sum;
  }
  end_link(&l);
  stage_pieces_end(&by_stage);
  return st;
}

hp_status api_pipeline_order(const step *s, uint32_t *order) {
  pipeline_link l = {.s = s};
  stage_pieces by_stage;
  hp_status st = stage_pieces_begin(s, &by_stage);
  if (!st) st = begin_link(&by_stage.s, true, &l);
  if (!st) st = pipeline_plan_order(&l.in, order);
  end_link(&l);
  stage_pieces_end(&by_stage);
  return st;
}

/* --- one graph -------------------------------------------------------------------------------- */

/* A step of one piece, to be ended, also after a failure. */
static hp_status begin_alone(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                             hp_piece **piece, step *s) {
  static const char *const action = "graph";
  *piece = NULL;
  *s = (step){.piece = piece, .action = &action, .n = 1};
  HP_TRY(api_piece_create(g, d, o, piece));
  HP_TRY(api_pipeline_compile(*piece));
  return api_rows_read("* graph 0", s->action, NULL, 1, &s->rows);
}

static void end_alone(hp_piece *piece, step *s) {
  api_rows_free(&s->rows);
  hp_piece_free(piece);
}

hp_status api_pipeline_program(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                               hp_program *h) {
  hp_piece *piece;
  step s;
  hp_status st = begin_alone(g, d, o, &piece, &s);
  if (!st) st = api_pipeline_link(&s, h);
  end_alone(piece, &s);
  return st;
}

hp_status api_pipeline_plan_graph(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                                  hp_program_stats *out, const char *what, str *text) {
  hp_piece *piece;
  step s;
  hp_status st = begin_alone(g, d, o, &piece, &s);
  if (!st) st = api_pipeline_plan(&s, out, what, text);
  end_alone(piece, &s);
  return st;
}
