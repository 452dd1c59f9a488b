/* Internal to sched/pipe_*: an order of all rows in which each comes after those that it needs. */
#ifndef SCHED_PIPE_WALK_H
#define SCHED_PIPE_WALK_H

#include "sched/pipe_index.h"

/* order[rows]: every device's rows in their order, each after those that it reads (pipe_input);
 * overlapping rows are next to each other.  The same rows give the same order. HP_ERR_INPUT if
 * there is none, with two rows that wait for each other.  O(rows). */
hp_status pipe_walk(const pipe_index *x, uint32_t *order);

#endif
