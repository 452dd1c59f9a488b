/* A program as input of the list scheduler (sched/list.h), and reordering it. */
#ifndef COMPILE_ORDER_H
#define COMPILE_ORDER_H

#include "prog/program.h"
#include "sched/list.h"

typedef struct {
  const program *p;
  size_t n, values;
  uint32_t *value_of; /* by buffer: its value, PROG_NONE for state */
  double *duration;   /* filled by the caller */
  uint8_t *stream, *keep;
  uint8_t *filled; /* by value: has several writers */
  bool *given;     /* by value: exists before the first instruction */
  uint64_t *bytes;
  uint8_t *tier; /* by value */
  uint32_t *def, *use0, *use;
  VEC(list_edge) edges; /* order besides that of data: for tensors of the device, ... */
  uint32_t *dep0, *dep;
} order_problem;

/* Every work buffer is a value; readers of a tensor of the device, of a buffer with several
 * writers, and of one that is carried from run to run, come between its writers.  order_free(q),
 * also after a failure. */
hp_status order_build(const program *p, order_problem *q);
/* Adds a condition: instruction `before` runs before `after`. */
hp_status order_after(order_problem *q, uint32_t before, uint32_t after);
/* All conditions including those of data, by instruction: i runs after dep[dep0[i]] ..
 * dep[dep0[i + 1] - 1]. */
hp_status order_list(order_problem *q);
/* list_schedule_make under caps (0: none), with workspace[i] (NULL: none) for instruction i. */
hp_status order_schedule(order_problem *q, const uint64_t *workspace,
                         const uint64_t cap[TIER_COUNT], bool keep_order, list_schedule *out,
                         uint64_t needed[TIER_COUNT]);
/* Reorders the instructions. */
hp_status order_apply(program *p, const uint32_t *order);
void order_free(order_problem *q);

#endif
