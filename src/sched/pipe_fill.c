#include "sched/pipe_fill.h"

#include "sched/pipe_events.h"

#include <math.h>
#include <string.h>

typedef struct {
  uint64_t in_flight, bytes;
} amount;

typedef struct {
  uint32_t next;              /* turn that comes next */
  uint32_t weights0, weights; /* of `deferred`: B that have run, W to come */
  amount held, late;          /* late: what the W to come will free */
  double free_s, begin_s;
} device;

typedef struct {
  const pipe_rows *turns;
  const pipe_costs *c;
  amount limit;
  pipe_fill_policy policy;
  device *at;                     /* [devices] */
  uint32_t *stage0, *stage;       /* [devices + 1] the stages of a device */
  uint32_t *forwards, *backwards; /* [stages] micro-batches that have begun */
  uint32_t *f_turn, *b_turn;      /* [cells] turn of F and B */
  double *f_s, *b_s;              /* [cells] when all inputs have arrived */
  uint32_t *f_inputs, *b_inputs;  /* [cells] number of inputs not made yet */
  pipe_graph graph;
  pipe_row *deferred; /* [cells] by device, in the order of B */
  pipe_events events;
  pipe_rows made;
} filling;

static size_t cell_of(const filling *f, uint32_t stage, uint32_t microbatch) {
  return (size_t)stage * f->turns->microbatches + microbatch;
}

/* --- memory ----------------------------------------------------------------------------------- */

static bool add_need(const filling *f, amount *to, uint32_t stage) {
  to->in_flight++;
  to->bytes += pipe_bytes(f->c, stage);
  return to->in_flight <= f->limit.in_flight && to->bytes <= f->limit.bytes;
}

static void take_need(const filling *f, amount *from, uint32_t stage) {
  from->in_flight--;
  from->bytes -= pipe_bytes(f->c, stage);
}

/* Does every device fit if it runs W right after B, turn by turn? */
static bool turns_fit(const filling *f) {
  const pipe_rows *p = f->turns;
  for (uint32_t d = 0; d < p->devices; d++) {
    amount held = {0};
    for (uint32_t i = p->row0[d]; i < p->row0[d + 1]; i++)
      if (p->row[i].actions != PIPE_F) take_need(f, &held, p->row[i].stage);
      else if (!add_need(f, &held, p->row[i].stage)) return false;
  }
  return true;
}

static bool has_begun(const filling *f, const pipe_row *row) {
  const uint32_t *begun = row->actions == PIPE_F ? f->forwards : f->backwards;
  return row->microbatch < begun[row->stage];
}

static bool fits_now(const filling *f, const device *at, const pipe_row *row) {
  amount held = at->held;
  return row->actions != PIPE_F || add_need(f, &held, row->stage);
}

/* May this forward run before the turns that come earlier? */
static bool may_overtake(const filling *f, const device *at, uint32_t turn) {
  const pipe_row *row = &f->turns->row[turn];
  amount held = {at->held.in_flight - at->late.in_flight, at->held.bytes - at->late.bytes};
  if (!fits_now(f, at, row)) return false;
  add_need(f, &held, row->stage);
  for (uint32_t i = at->next; i < turn; i++) {
    const pipe_row *other = &f->turns->row[i];
    if (has_begun(f, other)) continue;
    if (other->actions != PIPE_F) take_need(f, &held, other->stage);
    else if (!add_need(f, &held, other->stage)) return false;
  }
  return true;
}

/* --- the choice of a row ---------------------------------------------------------------------- */

/* INFINITY: not known yet. */
static double arrival_at(const filling *f, bool forward, size_t cell) {
  const uint32_t missing = (forward ? f->f_inputs : f->b_inputs)[cell];
  return missing ? INFINITY : (forward ? f->f_s : f->b_s)[cell];
}

static double arrival(const filling *f, const pipe_row *row) {
  return arrival_at(f, row->actions == PIPE_F, cell_of(f, row->stage, row->microbatch));
}

/* The earliest turn of those that can begin out of turn; UINT32_MAX: none. */
static uint32_t find_overtaking(const filling *f, uint32_t d, double now) {
  uint32_t best = UINT32_MAX;
  for (uint32_t i = f->stage0[d]; i < f->stage0[d + 1]; i++) {
    const uint32_t s = f->stage[i], m = f->turns->microbatches;
    const uint32_t forward = f->forwards[s], backward = f->backwards[s];
    if (backward < m && arrival_at(f, false, cell_of(f, s, backward)) <= now) {
      const uint32_t turn = f->b_turn[cell_of(f, s, backward)];
      if (turn < best) best = turn;
    }
    if (forward < m && arrival_at(f, true, cell_of(f, s, forward)) <= now) {
      const uint32_t turn = f->f_turn[cell_of(f, s, forward)];
      if (turn < best && may_overtake(f, &f->at[d], turn)) best = turn;
    }
  }
  return best;
}

/* The row that a device begins now; false: it waits. */
static bool choose(filling *f, uint32_t d, double now, pipe_row *out) {
  device *at = &f->at[d];
  const pipe_rows *p = f->turns;
  const uint32_t end = p->row0[d + 1];
  const pipe_row *weights = at->weights0 < at->weights ? &f->deferred[at->weights0] : NULL;
  while (at->next < end && has_begun(f, &p->row[at->next])) at->next++;
  bool wait = false, blocked = false;
  if (at->next < end) {
    const pipe_row *turn = &p->row[at->next];
    const double soon = arrival(f, turn);
    if (soon <= now && fits_now(f, at, turn)) {
      *out = *turn;
      return true;
    }
    blocked = soon <= now; /* only W makes room */
    if (weights) wait = soon <= now + f->policy.patience * pipe_row_s(f->c, weights, true);
    wait = wait && !blocked;
  }
  if (weights && !wait && (f->policy.weights_first || blocked)) {
    *out = *weights;
    return true;
  }
  const uint32_t turn = at->next < end ? find_overtaking(f, d, now) : UINT32_MAX;
  if (turn != UINT32_MAX) *out = p->row[turn];
  else if (weights && !wait) *out = *weights;
  else return false;
  return true;
}

/* --- running it ------------------------------------------------------------------------------- */

/* What F (forward) or B of a cell reads arrives. */
static void deliver(filling *f, bool forward, size_t cell, double at) {
  double *known = &(forward ? f->f_s : f->b_s)[cell];
  if (at > *known) *known = at;
  (forward ? f->f_inputs : f->b_inputs)[cell]--;
}

/* To the stage at the other end of an edge. */
static hp_status send_along(filling *f, const pipe_row *row, uint32_t edge, double end) {
  const pipe_rows *p = f->turns;
  const bool forward = row->actions == PIPE_F;
  const uint32_t to = forward ? f->graph.edge[edge].to : f->graph.edge[edge].from;
  const bool stays = p->placement[to] == p->placement[row->stage];
  if (!stays) end += pipe_transfer_s(f->c, edge);
  deliver(f, forward, cell_of(f, to, row->microbatch), end);
  return stays ? HP_OK : pipe_events_add(&f->events, end, p->placement[to]);
}

/* The result of a row arrives where it is read: of the last forward, in its own backward. */
static hp_status send_result(filling *f, const pipe_row *row, double end) {
  const pipe_graph *g = &f->graph;
  const uint32_t s = row->stage;
  const bool forward = row->actions == PIPE_F;
  if (row->actions == PIPE_W) return HP_OK;
  if (forward && g->out0[s] == g->out0[s + 1])
    deliver(f, false, cell_of(f, s, row->microbatch), end);
  for (uint32_t i = g->out0[s]; forward && i < g->out0[s + 1]; i++)
    HP_TRY(send_along(f, row, i, end));
  for (uint32_t i = g->in0[s]; !forward && i < g->in0[s + 1]; i++)
    HP_TRY(send_along(f, row, g->in[i], end));
  return HP_OK;
}

static hp_status run_row(filling *f, uint32_t d, const pipe_row *row, double now) {
  device *at = &f->at[d];
  const uint32_t s = row->stage;
  const double end = now + pipe_row_s(f->c, row, true);
  const uint64_t late = pipe_weights_bytes(f->c, s);
  if (row->actions == PIPE_F) {
    f->forwards[s]++;
    add_need(f, &at->held, s);
  } else if (row->actions == PIPE_B) {
    f->backwards[s]++;
    at->held.bytes -= pipe_bytes(f->c, s) - late;
    at->late.bytes += late;
    at->late.in_flight++;
    f->deferred[at->weights++] =
        (pipe_row){.stage = row->stage, .actions = PIPE_W, .microbatch = row->microbatch};
  } else {
    at->weights0++;
    at->held.in_flight--;
    at->late.in_flight--;
    at->held.bytes -= late;
    at->late.bytes -= late;
  }
  if (!f->made.row0[d + 1]) at->begin_s = now;
  pipe_row *made = &f->made.row[f->turns->row0[d] / 2 * 3 + f->made.row0[d + 1]++];
  *made = (pipe_row){.stage = row->stage, .actions = row->actions, .microbatch = row->microbatch};
  at->free_s = end;
  HP_TRY(send_result(f, row, end));
  return pipe_events_add(&f->events, end, d);
}

static hp_status run_all(filling *f, size_t *ran) {
  const pipe_rows *p = f->turns;
  for (uint32_t d = 0; d < p->devices; d++) HP_TRY(pipe_events_add(&f->events, 0, d));
  while (f->events.len) {
    const pipe_event e = pipe_events_take(&f->events);
    pipe_row row;
    if (f->at[e.device].free_s > e.time_s || !choose(f, e.device, e.time_s, &row)) continue;
    HP_TRY(run_row(f, e.device, &row, e.time_s));
    ++*ran;
  }
  return HP_OK;
}

/* --- all of it -------------------------------------------------------------------------------- */

static hp_status allocate(filling *f) {
  const pipe_rows *p = f->turns;
  const size_t cells = (size_t)p->stages * p->microbatches;
  f->at = mem_calloc(p->devices, sizeof *f->at);
  f->stage0 = mem_calloc((size_t)p->devices + 1, sizeof *f->stage0);
  f->stage = mem_calloc(p->stages, sizeof *f->stage);
  f->forwards = mem_calloc(p->stages, sizeof *f->forwards);
  f->backwards = mem_calloc(p->stages, sizeof *f->backwards);
  f->f_turn = mem_calloc(cells, sizeof *f->f_turn);
  f->b_turn = mem_calloc(cells, sizeof *f->b_turn);
  f->f_s = mem_calloc(cells, sizeof *f->f_s);
  f->b_s = mem_calloc(cells, sizeof *f->b_s);
  f->f_inputs = mem_calloc(cells, sizeof *f->f_inputs);
  f->b_inputs = mem_calloc(cells, sizeof *f->b_inputs);
  f->deferred = mem_calloc(cells, sizeof *f->deferred);
  if (!f->at || !f->stage0 || !f->stage || !f->forwards || !f->backwards || !f->f_turn ||
      !f->b_turn || !f->f_s || !f->b_s || !f->f_inputs || !f->b_inputs || !f->deferred)
    return HP_ERR_OOM;
  HP_TRY(pipe_graph_create(p->stages, f->c->edge, f->c->edges, &f->graph));
  HP_TRY(pipe_rows_create(p->stages, p->devices, p->microbatches, 3 * cells, &f->made));
  memcpy(f->made.placement, p->placement, p->stages * sizeof *p->placement);
  return HP_OK;
}

static void prepare(filling *f) {
  const pipe_rows *p = f->turns;
  const pipe_graph *g = &f->graph;
  for (uint32_t s = 0; s < p->stages; s++) f->stage0[p->placement[s] + 1]++;
  for (uint32_t d = 0; d < p->devices; d++) {
    f->at[d].weights0 = f->at[d].weights = p->row0[d] / 2;
    f->at[d].next = p->row0[d];
    f->stage0[d + 1] += f->stage0[d];
  }
  for (uint32_t s = 0; s < p->stages; s++) f->stage[f->stage0[p->placement[s]]++] = s;
  memmove(f->stage0 + 1, f->stage0, p->devices * sizeof *f->stage0);
  f->stage0[0] = 0;
  for (uint32_t i = 0; i < pipe_rows_count(p); i++) {
    const uint32_t s = p->row[i].stage, readers = g->out0[s + 1] - g->out0[s];
    const size_t cell = cell_of(f, s, p->row[i].microbatch);
    (p->row[i].actions == PIPE_F ? f->f_turn : f->b_turn)[cell] = i;
    f->f_inputs[cell] = g->in0[s + 1] - g->in0[s];
    f->b_inputs[cell] = readers ? readers : 1; /* its own forward */
  }
}

/* made.row0 holds the number of rows of each device while they are added. */
static void finish(filling *f, pipe_rows *out, pipe_fill_times *times) {
  *times = (pipe_fill_times){0};
  for (uint32_t d = 0; d < f->turns->devices; d++) {
    const device *at = &f->at[d];
    if (at->free_s > times->step_s) times->step_s = at->free_s;
    if (at->free_s - at->begin_s > times->span_s) times->span_s = at->free_s - at->begin_s;
    f->made.row0[d + 1] = f->turns->row0[d + 1] / 2 * 3;
  }
  *out = f->made;
  f->made = (pipe_rows){0};
}

hp_status pipe_fill(const pipe_rows *turns, const pipe_costs *c, pipe_limits limits,
                    pipe_fill_policy policy, bool *fits, pipe_rows *out, pipe_fill_times *times) {
  filling f = {.turns = turns,
               .c = c,
               .limit = {limits.in_flight ? limits.in_flight : UINT64_MAX,
                         limits.bytes ? limits.bytes : UINT64_MAX},
               .policy = policy};
  size_t ran = 0;
  hp_status st = HP_OK;
  *fits = turns_fit(&f);
  if (!*fits) return HP_OK;
  HP_TRY_GOTO(allocate(&f), st);
  prepare(&f);
  HP_TRY_GOTO(run_all(&f, &ran), st);
  HP_ASSERT(ran == 3 * (size_t)turns->stages * turns->microbatches);
  finish(&f, out, times);
done:
  mem_free(f.at);
  mem_free(f.stage0);
  mem_free(f.stage);
  mem_free(f.forwards);
  mem_free(f.backwards);
  mem_free(f.f_turn);
  mem_free(f.b_turn);
  mem_free(f.f_s);
  mem_free(f.b_s);
  mem_free(f.f_inputs);
  mem_free(f.b_inputs);
  pipe_graph_free(&f.graph);
  mem_free(f.deferred);
  vec_free(&f.events);
  pipe_rows_free(&f.made);
  return st;
}
