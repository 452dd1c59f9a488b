#include "compile/pipeline_rows.h"

#include "compile/pipeline_ahead.h"
#include "compile/pipeline_check.h"
#include "prog/actions.h"
#include "sched/pipe_check.h"
#include "sched/pipe_generate.h"
#include "sched/pipe_order.h"
#include "sim/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where a crossing is made, in the program of its mesh. */
typedef struct {
  uint32_t inst; /* the last that writes it */
  uint16_t stage;
  uint8_t action;
  bool once;       /* a param, which is sent before any row, */
  bool of_update;  /* or by the update, as it is */
  uint32_t reader; /* of the update: the first that reads it on the other mesh */
  uint64_t bytes;  /* of a shard */
} origin;

typedef struct {
  const pipeline_step *s;
  pipeline_plan *out;
  uint8_t **action; /* [pieces][meshes] of each instruction */
  origin *made;     /* [crossings] */
  uint32_t *number; /* [crossings][2] 1 + its transfer on the mesh that sends, and that receives */
  uint32_t *row_of; /* [stages][micros][2] the row of F, and that of B */
  double *f_s, *b_s, *w_s; /* [stages][micros] seconds of F, B and W */
  double *guess_s;         /* [stages] and to update the params that rows ahead read, beforehand */
  bool *can;               /* [stages] may rows run ahead? */
  bool split;              /* there are rows of W */
} planner;

static size_t cell(const planner *p, uint32_t piece, uint32_t on) {
  return (size_t)piece * (size_t)p->s->place.meshes + on;
}
static const program *lowered(const planner *p, uint32_t piece, uint32_t on) {
  return p->s->lowered[cell(p, piece, on)];
}
static uint16_t mesh_of(const planner *p, uint32_t stage) { return p->s->place.mesh_of[stage]; }

/* --- what the pieces do ----------------------------------------------------------------------- */

static hp_status find_actions(planner *p) {
  for (uint32_t k = 0; k < p->s->pieces; k++)
    for (uint32_t m = 0; m < (uint32_t)p->s->place.meshes; m++) {
      const program *q = lowered(p, k, m);
      if (!q) continue;
      uint8_t *action = mem_calloc(q->insts.len + 1, 1);
      p->action[cell(p, k, m)] = action;
      HP_TRY_MEM(action);
      HP_TRY(program_actions(q, action));
    }
  return HP_OK;
}

static uint32_t find_buffer(const program *p, uint8_t flag, const char *name) {
  for (uint32_t b = 0; b < p->buffers.len; b++)
    if (p->buffers.at[b].flags & flag && !strcmp(program_str(p, p->buffers.at[b].name), name))
      return b;
  return PROG_NONE;
}

/* The first instruction that reads the buffer, or the last that writes it. */
static uint32_t find_user(const program *p, uint32_t buffer, bool writes) {
  uint32_t found = PROG_NONE, root = p->buffers.at[buffer].root;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    int first = writes ? n->n_in : 0, end = writes ? n->n_in + n->n_out : n->n_in;
    for (int k = first; k < end; k++)
      if (program_arg(p, n, k)->root == root) found = i;
    if (found != PROG_NONE && !writes) return found;
  }
  return found;
}

static hp_status find_made(planner *p, size_t c) {
  const pipeline_crossing *x = &p->s->crossing[c];
  const program *from = lowered(p, x->piece, x->from), *to = lowered(p, x->piece, x->to);
  uint32_t out = from ? find_buffer(from, BUFFER_OUTPUT, x->name) : PROG_NONE;
  uint32_t in = to ? find_buffer(to, BUFFER_INPUT, x->name) : PROG_NONE;
  if (out == PROG_NONE || in == PROG_NONE)
    HP_FAIL(HP_ERR_INTERNAL, "\"%s\" does not cross", x->name);
  origin *m = &p->made[c];
  *m = (origin){.inst = find_user(from, out, true),
                .reader = find_user(to, in, false),
                .bytes = from->buffers.at[out].bytes};
  if (m->inst == PROG_NONE) HP_FAIL(HP_ERR_INTERNAL, "nothing writes \"%s\"", x->name);
  m->stage = program_inst(from, m->inst)->stage;
  m->action = p->action[cell(p, x->piece, x->from)][m->inst];
  bool copied = x->param && link_copies_state(from, m->inst);
  m->once = copied && m->action == ACTION_FORWARD;
  m->of_update = copied && m->action == ACTION_UPDATE;
  return HP_OK;
}

/* --- costs ------------------------------------------------------------------------------------ */

static double *cost_of(const planner *p, uint8_t action, uint32_t stage, uint32_t micro) {
  const size_t at = (size_t)stage * p->s->micros + micro;
  return action == ACTION_FORWARD    ? &p->f_s[at]
         : action == ACTION_BACKWARD ? &p->b_s[at]
         : action == ACTION_WEIGHTS  ? &p->w_s[at]
                                     : &p->out->update_s[stage];
}

static void add_costs(planner *p, uint32_t piece, uint32_t micro) {
  for (uint32_t m = 0; m < (uint32_t)p->s->place.meshes; m++) {
    const program *q = lowered(p, piece, m);
    const uint8_t *action = p->action[cell(p, piece, m)];
    for (size_t i = 0; q && i < q->insts.len; i++) {
      const prog_inst *n = program_inst(q, i);
      *cost_of(p, action[i], n->stage, micro) += cost_inst(p->s->cluster, p->s->mesh[m], q, n);
    }
  }
}

static hp_status find_edges(planner *p) {
  const pipeline_step *s = p->s;
  if (s->edges) memcpy(p->out->edge, s->edge, s->edges * sizeof *s->edge);
  p->out->edges = (uint32_t)s->edges;
  return pipe_graph_reduce((uint32_t)s->place.stages, p->out->edge, &p->out->edges);
}

/* Of the activations that cross along an edge. */
static void add_transfer_costs(planner *p) {
  for (size_t c = 0; c < p->s->crossings; c++) {
    const pipeline_crossing *x = &p->s->crossing[c];
    const origin *m = &p->made[c];
    if (x->piece != p->s->piece_of[0] || m->action != ACTION_FORWARD || m->once) continue;
    double seconds = cluster_transfer_s(p->s->cluster, mesh_rank(p->s->mesh[x->from], 0),
                                        mesh_rank(p->s->mesh[x->to], 0), (double)m->bytes);
    for (uint32_t i = 0; i < p->out->edges; i++) {
      const pipe_edge *e = &p->out->edge[i];
      if (e->from == m->stage && mesh_of(p, e->to) == x->to) p->out->transfer_s[i] += seconds;
    }
  }
}

/* A row takes some time, so that a row which needs it begins later. */
static void set_least(const planner *p, double *seconds) {
  const double least = 1e-9;
  for (size_t i = 0; i < (size_t)p->s->place.stages * p->s->micros; i++)
    if (seconds[i] < least) seconds[i] = least;
}

static void set_mean(const planner *p, const double *seconds, double *mean) {
  const uint32_t micros = p->s->micros;
  for (size_t i = 0; i < (size_t)p->s->place.stages * micros; i++)
    mean[i / micros] += seconds[i] / micros;
}

static void find_costs(planner *p) {
  const uint32_t update = p->s->update, last = p->s->micros - 1;
  for (uint32_t i = 0; i < p->s->micros; i++) add_costs(p, p->s->piece_of[i], i);
  if (update != PROG_NONE && update != p->s->piece_of[last]) add_costs(p, update, last);
  add_transfer_costs(p);
  set_least(p, p->f_s);
  set_least(p, p->b_s);
  set_least(p, p->w_s);
  for (int s = 0; s < p->s->place.stages; s++) p->out->update_s[s] -= p->guess_s[s];
}

static hp_status agree_on_costs(const planner *p) {
  const pipeline_step *s = p->s;
  const size_t stages = (size_t)s->place.stages, cells = stages * s->micros;
  const struct {
    double *costs;
    size_t n;
  } each[] = {{p->f_s, cells},      {p->b_s, cells},
              {p->w_s, cells},      {p->out->update_s, stages},
              {p->guess_s, stages}, {p->out->transfer_s, p->out->edges}};
  for (size_t i = 0; s->agree && i < sizeof each / sizeof *each; i++)
    if (each[i].n) HP_TRY(s->agree(s->context, each[i].costs, each[i].n));
  set_mean(p, p->f_s, p->out->forward_s);
  set_mean(p, p->b_s, p->out->backward_s);
  set_mean(p, p->w_s, p->out->weights_s);
  return HP_OK;
}

/* --- the schedule ----------------------------------------------------------------------------- */

/* One micro-batch goes through the stages and back. */
static hp_status stage_by_stage(const stage_placement *at, pipe_rows *out) {
  str text = {0};
  str_add(&text, "placement");
  for (int s = 0; s < at->stages; s++) str_printf(&text, " %u", at->mesh_of[s]);
  str_add_char(&text, '\n');
  for (int s = 0; s < at->stages; s++) str_printf(&text, "%d F 0\n", s);
  for (int s = at->stages; s-- > 0;) str_printf(&text, "%d B 0\n", s);
  hp_status st = str_status(&text);
  if (!st) st = pipe_rows_parse(text.at, "pipeline", (pipe_shape){(uint32_t)at->stages, 1}, out);
  str_free(&text);
  return st;
}

static hp_status make_rows(const pipeline_step *s, const pipe_request *q, pipe_rows *out) {
  const bool rows = pipe_is_rows(s->schedule), trains = s->update != PROG_NONE;
  if (s->micros == 1 && !(rows && trains)) return stage_by_stage(&s->place, out);
  if (rows)
    return pipe_rows_parse(s->schedule, "pipeline", (pipe_shape){q->stages, q->microbatches}, out);
  return pipe_generate(s->schedule, q, out);
}

static pipe_costs costs_of(const planner *p) {
  return (pipe_costs){.forward_s = p->f_s,
                      .backward_s = p->b_s,
                      .weights_s = p->w_s,
                      .micros = p->s->micros,
                      .update_s = p->out->update_s,
                      .edge = p->out->edge,
                      .edges = p->out->edges,
                      .transfer_s = p->out->transfer_s};
}

static pipe_request request_of(const pipeline_step *s, const pipe_costs *costs) {
  return (pipe_request){.stages = (uint32_t)s->place.stages,
                        .devices = (uint32_t)s->place.meshes,
                        .microbatches = s->micros,
                        .costs = costs};
}

static hp_status find_ahead(const planner *p, const pipe_costs *costs, const pipe_rows *rows,
                            const char *source, pipe_ahead *out) {
  const pipe_ahead_request ahead = {p->can, p->guess_s};
  return p->s->next ? pipe_ahead_find(rows, source, costs, &ahead, out) : HP_OK;
}

/* With rows of the next step another schedule of the same name may be better: one on whose devices
 * the spans are short, whenever they end. */
static hp_status try_steady(const planner *p, pipe_request q, const char *source, pipe_rows *rows,
                            pipe_ahead *ahead) {
  pipe_rows other = {0};
  pipe_ahead gains = {0};
  q.steady = true;
  if (!p->s->next || !p->can[0] || pipe_is_rows(p->s->schedule)) return HP_OK;
  hp_status st = make_rows(p->s, &q, &other);
  if (!st) st = find_ahead(p, q.costs, &other, source, &gains);
  if (!st && gains.micros && gains.step_s < ahead->step_s) {
    pipe_rows before = *rows;
    pipe_ahead had = *ahead;
    *rows = other;
    *ahead = gains;
    other = before;
    gains = had;
  }
  pipe_rows_free(&other);
  pipe_ahead_free(&gains);
  return st;
}

static hp_status make_schedule(planner *p) {
  const pipeline_step *s = p->s;
  pipeline_plan *out = p->out;
  pipe_costs costs = costs_of(p);
  pipe_request q = request_of(s, &costs);
  HP_TRY(make_rows(s, &q, &out->rows));
  char file[PIPE_FILE_NAME];
  const char *source = pipe_rows_source(s->schedule, file);
  HP_TRY(pipe_check(&out->rows, source, &costs, (pipe_limits){0}));
  HP_TRY(find_ahead(p, &costs, &out->rows, source, &out->ahead));
  HP_TRY(try_steady(p, q, source, &out->rows, &out->ahead));
  for (uint32_t i = 0; s->next && i < pipe_rows_count(&out->rows); i++)
    if (pipe_ahead_has(&out->rows, &out->ahead, i)) out->runs_ahead[out->rows.row[i].stage] = true;
  return pipe_simulate(&out->rows, source, &costs, PIPE_ONE_STREAM, &out->times);
}

/* A param that rows read; all micro-batches have the one that the first has got. */
static bool is_param_of_rows(const planner *p, size_t c) {
  return p->made[c].once && p->s->crossing[c].piece == p->s->piece_of[0];
}

/* What the update reads, as the sum of a tied head's gradients. */
static bool is_of_update(const planner *p, size_t c) {
  const pipeline_crossing *x = &p->s->crossing[c];
  const uint32_t reader = p->made[c].reader;
  const uint8_t *action = p->action[cell(p, x->piece, x->to)];
  return !p->made[c].once && reader != PROG_NONE && action[reader] == ACTION_UPDATE;
}

/* What a mesh gets once a step comes one after the other. */
static double sum_transfers_s(const planner *p, uint16_t to,
                              bool (*is)(const planner *p, size_t c)) {
  double sum = 0;
  for (size_t c = 0; c < p->s->crossings; c++) {
    const pipeline_crossing *x = &p->s->crossing[c];
    if (x->to != to || !is(p, c)) continue;
    sum += cluster_transfer_s(p->s->cluster, mesh_rank(p->s->mesh[x->from], 0),
                              mesh_rank(p->s->mesh[to], 0), (double)p->made[c].bytes);
  }
  return sum;
}

/* The end of the rows of all meshes that send to the update of this one. */
static double gradients_end_s(const planner *p, uint16_t to) {
  double end = 0;
  for (size_t c = 0; c < p->s->crossings; c++) {
    const pipeline_crossing *x = &p->s->crossing[c];
    const double own = p->out->times.device[x->from].end_s;
    if (x->to == to && is_of_update(p, c) && own > end) end = own;
  }
  return end;
}

/* How much longer rows wait for params, and updates for gradients, that cross once a step. */
static void find_once(planner *p) {
  const pipe_times *t = &p->out->times;
  double params_s = 0, gradients_s = 0;
  for (uint16_t m = 0; p->s->update != PROG_NONE && m < p->out->meshes; m++) {
    const double rows = sum_transfers_s(p, m, is_param_of_rows) - t->device[m].begin_s;
    const double update = gradients_end_s(p, m) + sum_transfers_s(p, m, is_of_update) - t->step_s;
    if (rows > params_s) params_s = rows;
    if (update > gradients_s) gradients_s = update;
  }
  p->out->once_s = params_s + gradients_s;
}

/* Gradients are added up in the order of micro-batches, as on one device. */
static hp_status check_order(const planner *p, const uint32_t *last, const pipe_row *row) {
  char name[PIPE_ROW_NAME], other[PIPE_ROW_NAME], file[PIPE_FILE_NAME];
  uint32_t before = last[row->stage];
  if (before == PROG_NONE || p->out->rows.row[before].microbatch < row->microbatch) return HP_OK;
  HP_FAIL(HP_ERR_INPUT,
          "%s: %s comes after %s; gradients are added in the order of micro-batches, so that no "
          "schedule changes a bit",
          pipe_rows_source(p->s->schedule, file), pipe_row_name(row, name),
          pipe_row_name(&p->out->rows.row[before], other));
}

/* The norm of all gradients comes before any update. */
static hp_status refuse_update(const planner *p, const pipe_row *row) {
  char name[PIPE_ROW_NAME], file[PIPE_FILE_NAME];
  HP_FAIL(HP_ERR_UNSUPPORTED,
          "%s: %s: leave rows of U out; each stage is updated after its last row",
          pipe_rows_source(p->s->schedule, file), pipe_row_name(row, name));
}

static hp_status check_rows(planner *p) {
  const pipe_rows *rows = &p->out->rows;
  size_t stages = rows->stages;
  uint32_t *last = mem_calloc(2 * stages, sizeof *last); /* of B, and of W */
  HP_TRY_MEM(last);
  memset(last, 0xff, 2 * stages * sizeof *last);
  hp_status st = HP_OK;
  for (uint32_t i = 0; !st && i < pipe_rows_count(rows); i++) {
    const pipe_row *row = &rows->row[i];
    size_t at = ((size_t)row->stage * p->s->micros + row->microbatch) * 2;
    if (row->actions & PIPE_U) st = refuse_update(p, row);
    if (row->actions & PIPE_F) p->row_of[at] = i;
    if (!st && row->actions & PIPE_B) {
      p->row_of[at + 1] = i;
      st = check_order(p, last, row);
      last[row->stage] = i;
    }
    if (!st && row->actions & PIPE_W) {
      st = check_order(p, last + stages, row);
      last[stages + row->stage] = i;
      p->split |= !(row->actions & PIPE_B);
    }
  }
  mem_free(last);
  return st;
}

/* --- the order of rows and transfers ---------------------------------------------------------- */

typedef struct {
  double at_s;
  bool is_row;
  uint32_t row;      /* index in pipe_rows.row; of a transfer, that which makes the value */
  uint32_t crossing; /* of a transfer */
  uint32_t micro;
  uint8_t ahead;
} event;
typedef VEC(event) events;

/* Is there no earlier crossing of the same param between the same meshes in a micro-batch? */
static bool is_first(const planner *p, uint32_t micro, uint32_t crossing) {
  const pipeline_crossing *x = &p->s->crossing[crossing];
  for (uint32_t i = 0; i < micro; i++)
    if (p->s->piece_of[i] == x->piece) return false;
  for (uint32_t c = 0; c < p->s->crossings; c++) {
    const pipeline_crossing *y = &p->s->crossing[c];
    bool same = p->made[c].once && y->from == x->from && y->to == x->to;
    for (uint32_t i = 0; same && i < micro; i++)
      if (p->s->piece_of[i] == y->piece && !strcmp(x->param, y->param)) return false;
  }
  return true;
}

/* What is made by then is sent before the next row begins. */
static int by_time(const void *a, const void *b) {
  const event *x = a, *y = b;
  if (x->at_s != y->at_s) return x->at_s < y->at_s ? -1 : 1;
  if (x->is_row != y->is_row) return x->is_row ? 1 : -1;
  if (x->row != y->row) return x->row < y->row ? -1 : 1;
  if (x->micro != y->micro) return x->micro < y->micro ? -1 : 1;
  return x->crossing < y->crossing ? -1 : x->crossing > y->crossing;
}

static bool is_ahead(const planner *p, uint32_t row) {
  return p->s->next && pipe_ahead_has(&p->out->rows, &p->out->ahead, row);
}

/* The event, and what is done for the next step at that time of its own. */
static hp_status add_event(const planner *p, event e, double ahead_s, events *out) {
  bool ahead = e.ahead;
  if (!vec_push(out, e)) return HP_ERR_OOM;
  e.ahead = AHEAD_NEXT;
  e.micro += p->s->micros;
  e.at_s = ahead_s;
  return !ahead || vec_push(out, e) ? HP_OK : HP_ERR_OOM;
}

/* With rows that run ahead, times are those of a step between others. */
static double start_of(const planner *p, uint32_t row) {
  return p->out->ahead.micros ? p->out->ahead.start_s[row] : p->out->times.start_s[row];
}

static double end_of(const planner *p, uint32_t row) {
  return p->out->ahead.micros ? p->out->ahead.end_s[row] : p->out->times.end_s[row];
}

/* By so much what is done for the next step is put off in the order of events: behind all rows of
 * this one, which may still read what the same rows made in the same memory. */
static double next_delay(const planner *p) {
  const pipe_ahead *a = &p->out->ahead;
  double first = INFINITY, last = 0;
  for (uint32_t i = 0; a->micros && i < pipe_rows_count(&p->out->rows); i++) {
    if (a->end_s[i] > last) last = a->end_s[i];
    if (is_ahead(p, i) && a->next_start_s[i] < first) first = a->next_start_s[i];
  }
  return first < last ? last - first : 0;
}

static hp_status list_transfers(const planner *p, uint32_t micro, double delay, events *out) {
  for (uint32_t c = 0; c < p->s->crossings; c++) {
    const origin *m = &p->made[c];
    if (p->s->crossing[c].piece != p->s->piece_of[micro] || m->action == ACTION_UPDATE) continue;
    size_t at = ((size_t)m->stage * p->s->micros + micro) * 2;
    uint32_t row = p->row_of[at + (m->action != ACTION_FORWARD)];
    event e = {.at_s = end_of(p, row), .row = row, .crossing = c, .micro = micro};
    if (m->once) e.at_s = 0;
    if (m->once && !is_first(p, micro, c)) continue;
    double ahead_s = 0;
    if (!m->once && m->action == ACTION_FORWARD && is_ahead(p, row)) {
      e.ahead = AHEAD_AGAIN;
      ahead_s = p->out->ahead.next_end_s[row] + delay;
    }
    HP_TRY(add_event(p, e, ahead_s, out));
  }
  return HP_OK;
}

static hp_status list_events(const planner *p, events *out) {
  const pipe_rows *rows = &p->out->rows;
  const double delay = next_delay(p);
  for (uint32_t i = 0; i < pipe_rows_count(rows); i++) {
    event e = {.at_s = start_of(p, i),
               .is_row = true,
               .row = i,
               .micro = rows->row[i].microbatch,
               .ahead = is_ahead(p, i) ? AHEAD_AGAIN : 0};
    HP_TRY(add_event(p, e, e.ahead ? p->out->ahead.next_start_s[i] + delay : 0, out));
  }
  for (uint32_t micro = 0; micro < p->s->micros; micro++)
    HP_TRY(list_transfers(p, micro, delay, out));
  if (out->len) qsort(out->at, out->len, sizeof *out->at, by_time);
  return HP_OK;
}

/* The params that rows of the next step read come before the first of them. */
static hp_status begin_ahead(const planner *p, uint32_t on) {
  link_row_list *rows = &p->out->mesh[on].row;
  link_row made = {.piece = p->s->update,
                   .actions = ACTION_UPDATE,
                   .microbatch = p->s->update_micro,
                   .part = LINK_AHEAD};
  for (size_t i = rows->len; i-- > 0 && rows->at[i].ahead != AHEAD_AGAIN;)
    if (rows->at[i].part == LINK_AHEAD) return HP_OK;
  return vec_push(rows, made) ? HP_OK : HP_ERR_OOM;
}

/* A mesh for which the graph has nothing has no rows. */
static hp_status add_row(const planner *p, const event *e) {
  const pipe_row *row = &p->out->rows.row[e->row];
  link_row made = {.piece = p->s->piece_of[row->microbatch],
                   .stage = row->stage,
                   .actions = row->actions,
                   .of_stage = true,
                   .microbatch = e->micro,
                   .with_next = row->with_next,
                   .ahead = e->ahead};
  if (!lowered(p, made.piece, mesh_of(p, row->stage))) return HP_OK;
  if (e->ahead == AHEAD_NEXT) HP_TRY(begin_ahead(p, mesh_of(p, row->stage)));
  if (!p->split && made.actions & PIPE_B) made.actions |= ACTION_WEIGHTS;
  return vec_push(&p->out->mesh[mesh_of(p, row->stage)].row, made) ? HP_OK : HP_ERR_OOM;
}

/* On the mesh that sends, or the one that receives; unless it is declared. */
static hp_status declare_transfer(const planner *p, uint32_t crossing, bool sends) {
  const pipeline_crossing *x = &p->s->crossing[crossing];
  const origin *m = &p->made[crossing];
  mesh_rows *to = &p->out->mesh[sends ? x->from : x->to];
  uint32_t *number = &p->number[2 * (size_t)crossing + !sends];
  link_transfer made = {.piece = x->piece,
                        .name = x->name,
                        .sends = sends,
                        .param = m->once || m->of_update ? x->param : NULL,
                        .id = crossing,
                        .peer = mesh_rank(p->s->mesh[sends ? x->to : x->from], 0)};
  if (*number) return HP_OK;
  if (!vec_push(&to->transfer, made)) return HP_ERR_OOM;
  *number = (uint32_t)to->transfer.len;
  return HP_OK;
}

/* Of a param all micro-batches have the transfer of the first. */
static hp_status declare_params(const planner *p) {
  for (uint32_t c = 0; c < p->s->crossings; c++)
    for (int sends = 0; p->made[c].once && sends < 2; sends++)
      HP_TRY(declare_transfer(p, c, sends));
  return HP_OK;
}

static hp_status add_transfer(const planner *p, uint32_t crossing, bool sends, uint32_t micro,
                              uint8_t ahead) {
  const pipeline_crossing *x = &p->s->crossing[crossing];
  mesh_rows *to = &p->out->mesh[sends ? x->from : x->to];
  HP_TRY(declare_transfer(p, crossing, sends));
  const origin *m = &p->made[crossing];
  link_row row = {.piece = x->piece,
                  .stage = m->stage,
                  .actions = m->action == ACTION_WEIGHTS ? ACTION_BACKWARD : m->action,
                  .microbatch = micro,
                  .transfer = p->number[2 * (size_t)crossing + !sends],
                  .ahead = ahead};
  return vec_push(&to->row, row) ? HP_OK : HP_ERR_OOM;
}

static hp_status add_events(const planner *p) {
  events all = {0};
  hp_status st = declare_params(p);
  if (!st) st = list_events(p, &all);
  for (size_t i = 0; !st && i < all.len; i++) {
    const event *e = &all.at[i];
    if (e->is_row) st = add_row(p, e);
    else st = add_transfer(p, e->crossing, true, e->micro, e->ahead);
    if (!st && !e->is_row) st = add_transfer(p, e->crossing, false, e->micro, e->ahead);
  }
  vec_free(&all);
  return st;
}

/* --- the update -------------------------------------------------------------------------------
 *
 * Its transfers are inside it: sums of gradients go to one mesh, and the factor of all comes back.
 * All meshes have them in the order of crossings. */

typedef struct {
  const planner *p;
  uint32_t mesh;
  uint32_t next; /* the crossing that comes next */
  uint32_t from; /* the first instruction that has no row yet */
} update_rows;

static bool is_of(const update_rows *u, uint32_t crossing) {
  const pipeline_crossing *x = &u->p->s->crossing[crossing];
  if (u->p->made[crossing].action != ACTION_UPDATE) return false;
  return x->piece == u->p->s->update && (x->from == u->mesh || x->to == u->mesh);
}

static hp_status add_range(update_rows *u, uint32_t end) {
  link_row made = {.piece = u->p->s->update,
                   .actions = ACTION_UPDATE,
                   .first = u->from,
                   .end = end,
                   .microbatch = u->p->s->update_micro,
                   .part = u->p->s->next ? LINK_BEHIND : LINK_ALL};
  if (end == u->from) return HP_OK;
  u->from = end;
  return vec_push(&u->p->out->mesh[u->mesh].row, made) ? HP_OK : HP_ERR_OOM;
}

/* Is a value needed that comes from another mesh, before instruction i runs? */
static bool needs_transfer(const update_rows *u, uint32_t i) {
  for (uint32_t c = u->next; c < u->p->s->crossings; c++)
    if (is_of(u, c) && u->p->s->crossing[c].to == u->mesh && u->p->made[c].reader <= i) return true;
  return false;
}

/* The next transfers, until one gives what instruction i has not made yet, or is not asked for. */
static hp_status add_ready(update_rows *u, uint32_t i) {
  for (; u->next < u->p->s->crossings; u->next++) {
    if (!is_of(u, u->next)) continue;
    const origin *m = &u->p->made[u->next];
    bool sends = u->p->s->crossing[u->next].from == u->mesh, made = m->of_update || m->inst < i;
    if (sends ? !made : !needs_transfer(u, i)) return HP_OK;
    HP_TRY(add_range(u, i));
    HP_TRY(add_transfer(u->p, u->next, sends, u->p->s->update_micro, 0));
  }
  return HP_OK;
}

static hp_status add_update(const planner *p, uint32_t on) {
  const program *q = lowered(p, p->s->update, on);
  update_rows u = {.p = p, .mesh = on};
  if (!q) return HP_OK;
  uint32_t n = (uint32_t)q->insts.len;
  for (uint32_t i = 0; i <= n; i++) HP_TRY(add_ready(&u, i));
  return add_range(&u, n);
}

/* --- all of it -------------------------------------------------------------------------------- */

/* What the pieces do, and the costs of all processes. */
static hp_status read_pieces(planner *p) {
  HP_TRY(find_actions(p));
  for (size_t c = 0; c < p->s->crossings; c++) HP_TRY(find_made(p, c));
  HP_TRY(find_edges(p));
  if (p->s->next) HP_TRY(pipeline_ahead_stages(p->s, p->action, p->can, p->guess_s));
  find_costs(p);
  return agree_on_costs(p);
}

static hp_status plan(planner *p) {
  HP_TRY(read_pieces(p));
  HP_TRY(make_schedule(p));
  find_once(p);
  HP_TRY(check_rows(p));
  HP_TRY(add_events(p));
  for (uint32_t m = 0; p->s->update != PROG_NONE && m < (uint32_t)p->out->meshes; m++)
    HP_TRY(add_update(p, m));
  return pipeline_check(p->out->mesh, p->out->meshes);
}

/* The tables of s; ended by end, also after a failure. */
static hp_status begin(const pipeline_step *s, pipeline_plan *out, planner *p) {
  size_t stages = (size_t)s->place.stages, cells = s->pieces * (size_t)s->place.meshes;
  *out = (pipeline_plan){.forward_s = mem_calloc(stages, sizeof(double)),
                         .backward_s = mem_calloc(stages, sizeof(double)),
                         .weights_s = mem_calloc(stages, sizeof(double)),
                         .update_s = mem_calloc(stages, sizeof(double)),
                         .runs_ahead = mem_calloc(stages, sizeof(bool)),
                         .edge = mem_calloc(s->edges + 1, sizeof *out->edge),
                         .transfer_s = mem_calloc(s->edges + 1, sizeof(double)),
                         .mesh = mem_calloc((size_t)s->place.meshes, sizeof *out->mesh),
                         .meshes = s->place.meshes};
  *p = (planner){.s = s,
                 .out = out,
                 .action = mem_calloc(cells, sizeof *p->action),
                 .made = mem_calloc(s->crossings + 1, sizeof *p->made),
                 .number = mem_calloc(s->crossings + 1, 2 * sizeof *p->number),
                 .row_of = mem_calloc(stages * s->micros, 2 * sizeof *p->row_of),
                 .f_s = mem_calloc(stages * s->micros, sizeof(double)),
                 .b_s = mem_calloc(stages * s->micros, sizeof(double)),
                 .w_s = mem_calloc(stages * s->micros, sizeof(double)),
                 .guess_s = mem_calloc(stages, sizeof(double)),
                 .can = mem_calloc(stages, sizeof(bool))};
  bool room = out->forward_s && out->backward_s && out->weights_s && out->update_s && out->edge &&
              out->transfer_s && out->mesh && p->action && p->made && p->number && p->row_of &&
              p->f_s && p->b_s && p->w_s && p->guess_s && p->can && out->runs_ahead;
  return room ? HP_OK : HP_ERR_OOM;
}

static void end(planner *p) {
  size_t cells = p->s->pieces * (size_t)p->s->place.meshes;
  for (size_t i = 0; p->action && i < cells; i++) mem_free(p->action[i]);
  mem_free(p->action);
  mem_free(p->made);
  mem_free(p->number);
  mem_free(p->row_of);
  mem_free(p->f_s);
  mem_free(p->b_s);
  mem_free(p->w_s);
  mem_free(p->guess_s);
  mem_free(p->can);
}

hp_status pipeline_plan_make(const pipeline_step *s, pipeline_plan *out) {
  planner p;
  hp_status st = begin(s, out, &p);
  if (!st) st = plan(&p);
  end(&p);
  return st;
}

static hp_status find_order(planner *p, uint32_t *order) {
  double step_s;
  HP_TRY(read_pieces(p));
  pipe_costs costs = costs_of(p);
  pipe_request q = request_of(p->s, &costs);
  return pipe_order(p->s->schedule, &q, order, &step_s);
}

hp_status pipeline_plan_order(const pipeline_step *s, uint32_t *order) {
  pipeline_plan out;
  planner p;
  order[0] = 0;
  if (s->micros == 1) return HP_OK;
  if (pipe_is_rows(s->schedule))
    HP_FAIL(HP_ERR_ARG, "the schedule of the pipeline is a list of rows, which is for one order of "
                        "micro-batches; expected a name, such as 1f1b");
  hp_status st = begin(s, &out, &p);
  if (!st) st = find_order(&p, order);
  end(&p);
  pipeline_plan_free(&out);
  return st;
}

/* Stages of a mesh are updated one after the other. */
double pipeline_plan_alone_s(const pipeline_plan *p) {
  double most = 0;
  for (uint32_t d = 0; d < p->rows.devices; d++) {
    double own = 0;
    for (uint32_t s = 0; s < p->rows.stages; s++)
      if (p->rows.placement[s] == d) own += p->update_s[s];
    if (own > most) most = own;
  }
  return p->times.step_s + p->once_s + most;
}

double pipeline_plan_seconds(const pipeline_plan *p) {
  return p->ahead.micros ? p->ahead.step_s + p->once_s : pipeline_plan_alone_s(p);
}

double pipeline_plan_sent_s(const pipeline_plan *p, uint32_t stage) {
  double sum = 0;
  for (uint32_t i = 0; i < p->edges; i++)
    if (p->edge[i].from == stage) sum += p->transfer_s[i];
  return sum;
}

void pipeline_plan_free(pipeline_plan *p) {
  for (int m = 0; p->mesh && m < p->meshes; m++) {
    vec_free(&p->mesh[m].row);
    vec_free(&p->mesh[m].transfer);
  }
  mem_free(p->mesh);
  mem_free(p->forward_s);
  mem_free(p->backward_s);
  mem_free(p->weights_s);
  mem_free(p->update_s);
  mem_free(p->edge);
  mem_free(p->transfer_s);
  mem_free(p->runs_ahead);
  pipe_times_free(&p->times);
  pipe_ahead_free(&p->ahead);
  pipe_rows_free(&p->rows);
  *p = (pipeline_plan){0};
}
