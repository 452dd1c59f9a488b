#include "sched/pipe_ahead.h"

#include "base/mem.h"
#include "sched/pipe_walk.h"

#include <string.h>

/* Steps that are simulated for the time between two of them. */
enum { STEPS = 3 };
/* Less gain is not worth a second update. */
static const double LEAST_GAIN = 0.01;

typedef struct {
  const pipe_index *x;
  const pipe_costs *costs;
  const pipe_ahead_request *q;
  const uint32_t *order;   /* pipe_walk */
  double *start_s, *end_s; /* [rows] of the step at hand */
  double *free_s;          /* [devices] */
  double *update_s;        /* [devices] */
  bool *begun;             /* [stages] rows of it run ahead */
} steps;

static double later(double a, double b) { return a > b ? a : b; }

/* When what row i reads is on its device. */
static double arrival_of(const steps *s, uint32_t i) {
  const pipe_rows *p = s->x->p;
  double at = 0;
  pipe_link input;
  for (uint32_t k = 0; pipe_input(s->x, i, k, &input); k++) {
    bool sent = pipe_rows_device(p, input.row) != pipe_rows_device(p, i);
    at = later(at, s->end_s[input.row] + (sent ? pipe_transfer_s(s->costs, input.edge) : 0));
  }
  return at;
}

static void run_rows(steps *s, uint32_t i) {
  const pipe_rows *p = s->x->p;
  const uint32_t end = i + pipe_together(p, i), d = pipe_rows_device(p, i);
  const double time = pipe_together_s(s->x, s->costs, i);
  double start = s->free_s[d];
  for (uint32_t k = i; k < end; k++) start = later(start, arrival_of(s, k));
  s->free_s[d] = start + time;
  for (uint32_t k = i; k < end; k++) {
    s->start_s[k] = start;
    s->end_s[k] = start + time;
  }
}

/* The rows of a step that are run ahead (or, the others). */
static void run_part(steps *s, const pipe_ahead *a, bool ahead) {
  const pipe_rows *p = s->x->p;
  for (uint32_t at = 0; at < pipe_rows_count(p);) {
    const uint32_t i = s->order[at];
    if (pipe_ahead_has(p, a, i) == ahead) run_rows(s, i);
    at += pipe_together(p, i);
  }
}

static double last_of(const steps *s) {
  double last = 0;
  for (uint32_t d = 0; d < s->x->p->devices; d++) last = later(last, s->free_s[d]);
  return last;
}

/* Before the rows of a stage that run ahead come the params that they read. */
static void begin_ahead(steps *s, const pipe_ahead *a) {
  const pipe_rows *p = s->x->p;
  memset(s->begun, 0, p->stages * sizeof *s->begun);
  for (uint32_t d = 0; d < p->devices; d++)
    for (uint32_t i = p->row0[d]; i < p->row0[d] + a->rows[d]; i++) {
      const uint32_t stage = p->row[i].stage;
      if (!s->begun[stage]) s->free_s[d] += s->q->guess_s[stage];
      s->begun[stage] = true;
    }
}

static void update_all(steps *s) {
  const double norm_s = last_of(s);
  for (uint32_t d = 0; d < s->x->p->devices; d++) s->free_s[d] = norm_s + s->update_s[d];
}

static void clear_clocks(steps *s) { memset(s->free_s, 0, s->x->p->devices * sizeof *s->free_s); }

static void clear_rows(const steps *s, pipe_ahead *a) {
  memset(a->rows, 0, s->x->p->devices * sizeof *a->rows);
}

/* Some steps, to the rows of the last one that are its own; returns the time between the updates of
 * the last two before it. */
static double run_steps(steps *s, const pipe_ahead *a) {
  double before = 0, now = 0;
  clear_clocks(s);
  run_part(s, a, true);
  for (int k = 0; k < STEPS; k++) {
    run_part(s, a, false);
    begin_ahead(s, a);
    run_part(s, a, true);
    before = now;
    now = last_of(s);
    update_all(s);
  }
  run_part(s, a, false);
  return now - before;
}

/* What row i reads is made by rows that are run ahead. */
static bool inputs_are_ahead(const steps *s, const pipe_ahead *a, uint32_t i) {
  pipe_link input;
  for (uint32_t k = 0; pipe_input(s->x, i, k, &input); k++)
    if (!pipe_ahead_has(s->x->p, a, input.row)) return false;
  return true;
}

static bool may_be_ahead(const steps *s, const pipe_ahead *a, uint32_t i) {
  const pipe_rows *p = s->x->p;
  const pipe_row *row = &p->row[i];
  const uint32_t d = pipe_rows_device(p, i);
  return i == p->row0[d] + a->rows[d] && row->actions == PIPE_F && !row->with_next &&
         s->q->can[row->stage] && inputs_are_ahead(s, a, i);
}

/* Of a step that has come to its end: rows of the next one that end before all devices are done
 * with it, or `late` of their time after that. */
static void choose_rows(steps *s, double late, pipe_ahead *a) {
  const pipe_rows *p = s->x->p;
  const double norm_s = last_of(s);
  memset(s->begun, 0, p->stages * sizeof *s->begun);
  clear_rows(s, a);
  for (uint32_t at = 0; at < pipe_rows_count(p);) {
    const uint32_t i = s->order[at], d = pipe_rows_device(p, i);
    at += pipe_together(p, i);
    if (!may_be_ahead(s, a, i)) continue;
    const uint32_t stage = p->row[i].stage;
    const double time = pipe_row_s(s->costs, &p->row[i], s->x->split);
    const double guess = s->begun[stage] ? 0 : s->q->guess_s[stage];
    const double start = later(s->free_s[d] + guess, arrival_of(s, i));
    if (start + time > norm_s + late * time + 1e-9 * norm_s) continue;
    s->free_s[d] += guess;
    s->begun[stage] = true;
    run_rows(s, i);
    a->rows[d]++;
  }
}

static bool has_rows(const steps *s, const pipe_ahead *a) {
  for (uint32_t d = 0; d < s->x->p->devices; d++)
    if (a->rows[d]) return true;
  return false;
}

/* Once rows run ahead, devices that were done late are done earlier, and others may run more. */
static void try_rows(steps *s, double late, pipe_ahead *a, pipe_ahead *best) {
  enum { TIMES = 2 };
  clear_rows(s, a);
  for (int k = 0; k < TIMES; k++) {
    (void)run_steps(s, a);
    choose_rows(s, late, a);
    if (!has_rows(s, a)) return;
    a->step_s = run_steps(s, a);
    if (a->step_s >= best->step_s || a->step_s > best->alone_s * (1 - LEAST_GAIN)) continue;
    best->step_s = a->step_s;
    memcpy(best->rows, a->rows, s->x->p->devices * sizeof *a->rows);
  }
}

static void copy_times(const steps *s, double *start_s, double *end_s) {
  const size_t bytes = pipe_rows_count(s->x->p) * sizeof *start_s;
  memcpy(start_s, s->start_s, bytes);
  memcpy(end_s, s->end_s, bytes);
}

/* Of a step once there were some, and of what it does for the next one. */
static void set_times(steps *s, pipe_ahead *a) {
  (void)run_steps(s, a);
  copy_times(s, a->start_s, a->end_s);
  begin_ahead(s, a);
  run_part(s, a, true);
  copy_times(s, a->next_start_s, a->next_end_s);
  for (uint32_t i = 0; i < pipe_rows_count(s->x->p); i++) {
    uint32_t micro = s->x->p->row[i].microbatch;
    if (pipe_ahead_has(s->x->p, a, i) && micro >= a->micros) a->micros = micro + 1;
  }
}

static hp_status find(steps *s, pipe_ahead *out) {
  pipe_ahead tried = {.rows = mem_calloc(s->x->p->devices, sizeof *tried.rows)};
  HP_TRY_MEM(tried.rows);
  out->step_s = out->alone_s = run_steps(s, out);
  try_rows(s, 0, &tried, out);
  try_rows(s, 1, &tried, out);
  set_times(s, out);
  pipe_ahead_free(&tried);
  return HP_OK;
}

static hp_status begin(const pipe_rows *p, steps *s, uint32_t **order, pipe_ahead *out) {
  const size_t rows = pipe_rows_count(p);
  *order = mem_calloc(rows, sizeof **order);
  s->start_s = mem_calloc(rows, sizeof *s->start_s);
  s->end_s = mem_calloc(rows, sizeof *s->end_s);
  s->free_s = mem_calloc(p->devices, sizeof *s->free_s);
  s->update_s = mem_calloc(p->devices, sizeof *s->update_s);
  s->begun = mem_calloc(p->stages, sizeof *s->begun);
  out->rows = mem_calloc(p->devices, sizeof *out->rows);
  out->start_s = mem_calloc(rows, sizeof *out->start_s);
  out->end_s = mem_calloc(rows, sizeof *out->end_s);
  out->next_start_s = mem_calloc(rows, sizeof *out->next_start_s);
  out->next_end_s = mem_calloc(rows, sizeof *out->next_end_s);
  bool room = *order && s->start_s && s->end_s && s->free_s && s->update_s && s->begun &&
              out->rows && out->start_s && out->end_s && out->next_start_s && out->next_end_s;
  HP_TRY_MEM(room);
  for (uint32_t k = 0; k < p->stages; k++)
    s->update_s[p->placement[k]] += pipe_seconds(s->costs->update_s, k, 0);
  s->order = *order;
  return pipe_walk(s->x, *order);
}

hp_status pipe_ahead_find(const pipe_rows *p, const char *source, const pipe_costs *costs,
                          const pipe_ahead_request *q, pipe_ahead *out) {
  pipe_index x;
  uint32_t *order = NULL;
  *out = (pipe_ahead){0};
  HP_TRY(pipe_costs_check(costs, p->stages, p->microbatches));
  HP_TRY(pipe_index_build(p, source, costs, &x));
  steps s = {.x = &x, .costs = costs, .q = q};
  hp_status st = begin(p, &s, &order, out);
  if (!st) st = find(&s, out);
  mem_free(order);
  mem_free(s.start_s);
  mem_free(s.end_s);
  mem_free(s.free_s);
  mem_free(s.update_s);
  mem_free(s.begun);
  pipe_index_free(&x);
  return st;
}

void pipe_ahead_free(pipe_ahead *a) {
  mem_free(a->rows);
  mem_free(a->start_s);
  mem_free(a->end_s);
  mem_free(a->next_start_s);
  mem_free(a->next_end_s);
  *a = (pipe_ahead){0};
}
