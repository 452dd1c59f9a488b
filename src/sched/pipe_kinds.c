#include "sched/pipe_kinds.h"

#include "sched/pipe_simulate.h"

#include <math.h>

hp_status pipe_kind_create(const pipe_request *q, pipe_rows *out) {
  return pipe_rows_create(q->stages, q->devices, q->microbatches,
                          3 * (size_t)q->stages * q->microbatches, out);
}

void pipe_place_in_v(pipe_rows *p) {
  for (uint32_t s = p->devices; s < p->stages; s++) p->placement[s] = p->stages - 1 - s;
}

/* The lower the better. */
static double score_of(const pipe_request *q, double step_s, double span_s) {
  enum { STEADY = 100 };
  return step_s + (q->steady ? STEADY : 1) * span_s;
}

/* Of rows that were made for other costs. */
static hp_status score(const pipe_request *q, const pipe_rows *made, double *out) {
  pipe_times t;
  HP_TRY(pipe_simulate(made, "rows", q->costs, PIPE_FREE_QUEUES, &t));
  *out = score_of(q, t.step_s, t.span_s);
  pipe_times_free(&t);
  return HP_OK;
}

static bool has_unit_times(const pipe_costs *c) {
  return !c->forward_s && !c->backward_s && !c->weights_s && !c->transfer_s;
}

hp_status pipe_fill_with(const pipe_request *q, const pipe_rows *turns, pipe_fill_policy policy,
                         bool *fits, pipe_rows *out, pipe_fill_times *times) {
  const pipe_costs even = {.edge = q->costs->edge,
                           .edges = q->costs->edges,
                           .bytes = q->costs->bytes,
                           .weights_bytes = q->costs->weights_bytes};
  return pipe_fill(turns, policy.even ? &even : q->costs, q->limits, policy, fits, out, times);
}

static hp_status fill(const pipe_request *q, const pipe_rows *turns, pipe_fill_policy policy,
                      double *reached, pipe_rows *out) {
  bool fits;
  pipe_rows made = {0};
  pipe_fill_times times;
  HP_TRY(pipe_fill_with(q, turns, policy, &fits, &made, &times));
  *reached = fits ? score_of(q, times.step_s, times.span_s) : INFINITY;
  hp_status st = fits && policy.even ? score(q, &made, reached) : HP_OK;
  if (st) pipe_rows_free(&made);
  else *out = made;
  return st;
}

hp_status pipe_fill_best(const pipe_request *q, const pipe_rows *turns, bool patient, double *best,
                         pipe_fill_policy *policy, pipe_rows *out) {
  static const pipe_fill_policy hasty[] = {{true, false, 0},
                                           {false, false, 0},
                                           {true, true, 0},
                                           {false, true, 0}};
  static const pipe_fill_policy waiting[] = {{true, false, 0.5},
                                             {false, false, 0.5},
                                             {true, false, 1},
                                             {false, false, 1}};
  const pipe_fill_policy *policies = patient ? waiting : hasty;
  size_t n = 4;
  if (has_unit_times(q->costs)) n = patient ? 0 : 2; /* the others give the same rows */
  for (size_t i = 0; i < n; i++) {
    pipe_rows made;
    double reached;
    HP_TRY(fill(q, turns, policies[i], &reached, &made));
    if (reached < *best) {
      *best = reached;
      *policy = policies[i];
      pipe_rows_free(out);
      *out = made;
    } else pipe_rows_free(&made);
  }
  return HP_OK;
}
