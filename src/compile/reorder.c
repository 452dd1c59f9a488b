#include "compile/reorder.h"

#include "compile/order.h"

/* Rough speeds, only to rank paths: an order that fits is wanted, not a prediction. */
static const double flops_per_s = 1e11, bytes_per_s = 3e10;

/* Schedules under the least cap that an order is known for. */
static hp_status schedule(order_problem *q, const uint64_t *workspace, list_schedule *out) {
  uint64_t least = 0;
  hp_status st = order_schedule(q, workspace, 1, false, out, &least);
  if (st != HP_ERR_OOM || !least) return st;
  err_clear();
  return order_schedule(q, workspace, least, false, out, NULL);
}

hp_status reorder_minimum_memory(program *p, uint64_t *workspace) {
  order_problem q;
  list_schedule s = {0};
  hp_status st = order_build(p, &q);
  for (size_t i = 0; !st && i < q.n; i++)
    q.duration[i] = p->insts.at[i].flops / flops_per_s + p->insts.at[i].bytes / bytes_per_s;
  if (!st) st = schedule(&q, workspace, &s);
  if (!st) st = order_apply(p, workspace, s.order);
  list_schedule_free(&s);
  order_free(&q);
  return st;
}
