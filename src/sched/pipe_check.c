#include "sched/pipe_check.h"

#include "sched/pipe_memory.h"
#include "sched/pipe_walk.h"

static hp_status check_index(const pipe_index *x, const pipe_costs *c, pipe_limits limits) {
  pipe_peak peak;
  for (uint32_t d = 0; d < x->p->devices; d++) HP_TRY(pipe_memory(x, d, c, limits, &peak));
  uint32_t *order = mem_calloc(pipe_rows_count(x->p), sizeof *order);
  HP_TRY_MEM(order);
  hp_status st = pipe_walk(x, order);
  mem_free(order);
  return st;
}

hp_status pipe_check(const pipe_rows *p, const char *source, const pipe_costs *costs,
                     pipe_limits limits) {
  pipe_index x;
  HP_TRY(pipe_costs_check(costs, p->stages, p->microbatches));
  HP_TRY(pipe_index_build(p, source, costs, &x));
  hp_status st = check_index(&x, costs, limits);
  pipe_index_free(&x);
  return st;
}
