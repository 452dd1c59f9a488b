/* Can a pipeline schedule run?  Every F once and before B before W, on the device of its stage,
 * within a memory limit, and no devices that wait for each other. */
#ifndef SCHED_PIPE_CHECK_H
#define SCHED_PIPE_CHECK_H

#include "sched/pipe_costs.h"

/* HP_ERR_INPUT, with `source` and the rows, if it cannot.  `costs` are for limits in bytes.  A
 * schedule that passes does not deadlock even if a send blocks until its receive, as long as each
 * device sends and receives in the order of pipe_simulate. */
hp_status pipe_check(const pipe_rows *p, const char *source, const pipe_costs *costs,
                     pipe_limits limits);

#endif
