/* Costs of each micro-batch, and the order of micro-batches by them. */
#include "pipe_case.h"
#include "sched/pipe_check.h"
#include "sched/pipe_order.h"
#include "sched/pipe_simulate.h"
#include "test.h"

enum { MICROS = 5, STAGES = 3, CELLS = MICROS * STAGES };

typedef struct {
  double f[CELLS], b[CELLS], w[CELLS];
  pipe_costs c;
  pipe_request q;
} request;

static void draw(uint64_t *state, uint32_t stages, request *r) {
  for (int i = 0; i < CELLS; i++) {
    r->f[i] = 1 + pipe_random(state, 9);
    r->b[i] = 1 + pipe_random(state, 9);
    r->w[i] = 1 + pipe_random(state, 9);
  }
  r->c = (pipe_costs){.forward_s = r->f, .backward_s = r->b, .weights_s = r->w, .micros = MICROS};
  r->q =
      (pipe_request){.stages = stages, .devices = stages, .microbatches = MICROS, .costs = &r->c};
}

/* The step of 1f1b with the micro-batches in an order. */
static double step_of(const request *r, const uint32_t *order) {
  request now = *r;
  pipe_rows rows;
  pipe_times t;
  for (uint32_t s = 0; s < r->q.stages; s++)
    for (uint32_t k = 0; k < MICROS; k++) {
      now.f[s * MICROS + k] = r->f[s * MICROS + order[k]];
      now.b[s * MICROS + k] = r->b[s * MICROS + order[k]];
      now.w[s * MICROS + k] = r->w[s * MICROS + order[k]];
    }
  now.c =
      (pipe_costs){.forward_s = now.f, .backward_s = now.b, .weights_s = now.w, .micros = MICROS};
  now.q.costs = &now.c;
  CHECK_OK(pipe_generate("1f1b", &now.q, &rows));
  CHECK_OK(pipe_simulate(&rows, "1f1b", &now.c, PIPE_FREE_QUEUES, &t));
  double step = t.step_s;
  pipe_times_free(&t);
  pipe_rows_free(&rows);
  return step;
}

/* The shortest step of all orders. */
static double best_of(const request *r, uint32_t *order, uint32_t from) {
  if (from == MICROS) return step_of(r, order);
  double best = 1e9;
  for (uint32_t k = from; k < MICROS; k++) {
    uint32_t moved = order[k];
    order[k] = order[from];
    order[from] = moved;
    double step = best_of(r, order, from + 1);
    if (step < best) best = step;
    order[from] = order[k];
    order[k] = moved;
  }
  return best;
}

TEST(rows_take_the_time_of_their_micro_batch) {
  static const double f[] = {1, 10, 2, 3}, b[] = {1, 1, 1, 1}, w[] = {0, 0, 0, 5};
  const pipe_costs c = {.forward_s = f, .backward_s = b, .weights_s = w, .micros = 2};
  pipe_rows p;
  pipe_times t;
  CHECK_OK(pipe_rows_parse("0 F 0\n0 F 1\n1 F 0\n1 B 0\n1 F 1\n1 B 1\n0 B 0\n0 B 1\n", "rows",
                           (pipe_shape){0}, &p));
  CHECK_OK(pipe_simulate(&p, "rows", &c, PIPE_FREE_QUEUES, &t));
  CHECK_NEAR(t.step_s, 1 + 10 + 3 + 6 + 1, 1e-12);
  CHECK_NEAR(t.device[0].busy_s, 13, 1e-12);
  CHECK_NEAR(t.device[1].busy_s, 2 + 3 + 2 + 5, 1e-12);
  for (int d = 0; d < 2; d++)
    CHECK_NEAR(t.device[d].idle_s, t.device[d].warmup_s + t.device[d].imbalance_s, 1e-12);
  pipe_times_free(&t);
  const pipe_costs few = {.forward_s = f, .micros = 1};
  CHECK_FAILS(pipe_check(&p, "rows", &few, (pipe_limits){0}), "costs of 1 micro-batches; expected");
  pipe_rows_free(&p);
}

TEST(the_order_is_near_the_best_of_all) {
  uint64_t state = 11;
  for (int i = 0; i < 20; i++) {
    request r;
    uint32_t order[MICROS], all[MICROS] = {0, 1, 2, 3, 4}, seen = 0;
    double step;
    draw(&state, 2 + (uint32_t)i % 2, &r);
    CHECK_OK(pipe_order("1f1b", &r.q, order, &step));
    for (int k = 0; k < MICROS; k++) seen |= 1u << order[k];
    CHECK_EQ(seen, 31);
    CHECK_NEAR(step, step_of(&r, order), 1e-12);
    double best = best_of(&r, all, 0);
    if (step < best - 1e-9 || step > 1.05 * best)
      test_fail(__FILE__, __LINE__, "case %d: %g s, and the best order takes %g s", i, step, best);
  }
}

TEST(micro_batches_that_are_alike_keep_their_order) {
  const pipe_request q = {.stages = 4, .devices = 4, .microbatches = 8};
  uint32_t order[8];
  double step;
  CHECK_OK(pipe_order("zb-h1", &q, order, &step));
  for (uint32_t k = 0; k < 8; k++) CHECK_EQ(order[k], k);
  CHECK_NEAR(step, 3 * 8 + 3, 1e-9); /* the bubble is (p - 1)(F + B - W) */
  CHECK_FAILS(pipe_order("zb-h2", &q, order, &step), "did you mean zb-h1?");
  const pipe_request none = {.stages = 0, .devices = 4, .microbatches = 8};
  CHECK_FAILS(pipe_order("1f1b", &none, order, &step), "expected at least 1 of each");
}
