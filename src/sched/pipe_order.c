#include "sched/pipe_order.h"

#include "base/mem.h"
#include "sched/pipe_simulate.h"

#include <stdlib.h>
#include <string.h>

/* A local search: one micro-batch is moved or two are swapped, and the new order is kept if the
 * step is not longer.  It begins with Johnson's rule, which is exact for the forwards of two
 * stages: those that are short on the first come first, in ascending order, and those that are
 * short on the last come last.  A search by simulation knows the schedule, its warm-up and the way
 * back, which rules do not. */
enum { TRIES = 64 }; /* for each micro-batch */

typedef struct {
  const char *name;
  const pipe_request *q;
  double *time[3]; /* F, B and W [stages][microbatches] in the order that is tried */
  uint32_t *tried; /* [microbatches] an order */
  uint64_t state;  /* of random numbers */
} search;

static const double *times_of(const pipe_costs *c, int i) {
  return i == 0 ? c->forward_s : i == 1 ? c->backward_s : c->weights_s;
}

static void permute(search *s, const uint32_t *order) {
  const uint32_t m = s->q->microbatches, each = s->q->costs->micros;
  for (int i = 0; i < 3; i++) {
    const double *from = times_of(s->q->costs, i);
    for (uint32_t stage = 0; from && stage < s->q->stages; stage++)
      for (uint32_t k = 0; k < m; k++)
        s->time[i][stage * m + k] = each ? from[stage * each + order[k]] : from[stage];
  }
}

/* The step in an order. */
static hp_status simulate(search *s, const uint32_t *order, double *out) {
  pipe_costs c = *s->q->costs;
  pipe_request q = *s->q;
  pipe_rows rows;
  pipe_times t;
  permute(s, order);
  c.micros = q.microbatches;
  if (c.forward_s) c.forward_s = s->time[0];
  if (c.backward_s) c.backward_s = s->time[1];
  if (c.weights_s) c.weights_s = s->time[2];
  q.costs = &c;
  HP_TRY(pipe_generate(s->name, &q, &rows));
  hp_status st = pipe_simulate(&rows, s->name, &c, PIPE_ONE_STREAM, &t);
  pipe_rows_free(&rows);
  HP_TRY(st);
  *out = t.step_s;
  pipe_times_free(&t);
  return HP_OK;
}

/* --- where the search begins ------------------------------------------------------------------ */

typedef struct {
  double first_s, last_s; /* forward on the first stage and on the last */
  uint32_t micro;
} job;

static bool is_early(const job *a) { return a->first_s < a->last_s; }

static int by_johnson(const void *a, const void *b) {
  const job *x = a, *y = b;
  if (is_early(x) != is_early(y)) return is_early(x) ? -1 : 1;
  const double p = is_early(x) ? x->first_s : y->last_s, q = is_early(x) ? y->first_s : x->last_s;
  if (p != q) return p < q ? -1 : 1;
  return x->micro < y->micro ? -1 : x->micro > y->micro;
}

static hp_status set_johnson(const pipe_request *q, uint32_t *order) {
  const double *f = q->costs->forward_s;
  const uint32_t last = q->stages - 1, each = q->costs->micros;
  job *all = mem_calloc(q->microbatches, sizeof *all);
  HP_TRY_MEM(all);
  for (uint32_t k = 0; k < q->microbatches; k++)
    all[k] = (job){pipe_seconds(f, k, 1), pipe_seconds(f, (size_t)last * each + k, 1), k};
  qsort(all, q->microbatches, sizeof *all, by_johnson);
  for (uint32_t k = 0; k < q->microbatches; k++) order[k] = all[k].micro;
  mem_free(all);
  return HP_OK;
}

/* --- steps of the search ---------------------------------------------------------------------- */

static uint32_t draw(search *s, uint32_t below) {
  s->state = s->state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(s->state >> 33) % below;
}

static void change(search *s, uint32_t *order) {
  const uint32_t a = draw(s, s->q->microbatches), b = draw(s, s->q->microbatches);
  const uint32_t moved = order[a];
  if (draw(s, 2)) {
    order[a] = order[b];
    order[b] = moved;
    return;
  }
  if (a < b) memmove(&order[a], &order[a + 1], (b - a) * sizeof *order);
  else memmove(&order[b + 1], &order[b], (a - b) * sizeof *order);
  order[b] = moved;
}

/* Keeps the tried order if it is as good as the best so far. */
static hp_status try_order(search *s, uint32_t *order, double *best) {
  double step;
  HP_TRY(simulate(s, s->tried, &step));
  if (step > *best) return HP_OK;
  *best = step;
  memcpy(order, s->tried, s->q->microbatches * sizeof *order);
  return HP_OK;
}

static hp_status run(search *s, uint32_t *order, double *best) {
  const uint32_t m = s->q->microbatches;
  for (uint32_t k = 0; k < m; k++) order[k] = k;
  HP_TRY(simulate(s, order, best));
  if (!s->q->costs->micros) return HP_OK; /* all alike */
  HP_TRY(set_johnson(s->q, s->tried));
  HP_TRY(try_order(s, order, best));
  for (uint64_t i = 0; i < (uint64_t)m * TRIES; i++) {
    memcpy(s->tried, order, m * sizeof *order);
    change(s, s->tried);
    HP_TRY(try_order(s, order, best));
  }
  return HP_OK;
}

hp_status pipe_order(const char *name, const pipe_request *q, uint32_t *order, double *step_s) {
  static const pipe_costs usual = {0};
  pipe_request request = *q;
  if (!request.costs) request.costs = &usual;
  pipe_rows rows;
  HP_TRY(pipe_generate(name, &request, &rows)); /* there is such a schedule */
  pipe_rows_free(&rows);
  size_t cells = (size_t)q->stages * q->microbatches;
  search s = {.name = name,
              .q = &request,
              .tried = mem_calloc(q->microbatches, sizeof *s.tried),
              .state = 1};
  bool room = s.tried;
  for (int i = 0; i < 3; i++) room &= (s.time[i] = mem_calloc(cells + 1, sizeof(double))) != NULL;
  hp_status st = room ? run(&s, order, step_s) : HP_ERR_OOM;
  for (int i = 0; i < 3; i++) mem_free(s.time[i]);
  mem_free(s.tried);
  return st;
}
