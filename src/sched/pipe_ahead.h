/* Rows of the next step that a pipeline runs before the update of this one.
 *
 * An update waits for the norm of the gradients of all stages.  Devices that have done their rows
 * before the others may begin the next step meanwhile, with params that are updated as if the norm
 * were below the limit of clipping (optimizer post-validation, arXiv:2401.10241 section 4).  The
 * rows are those with which the device's schedule begins. */
#ifndef SCHED_PIPE_AHEAD_H
#define SCHED_PIPE_AHEAD_H

#include "sched/pipe_costs.h"

typedef struct {
  const bool *can;       /* [stages] a forward needs nothing that is there only after the update */
  const double *guess_s; /* [stages] to update the params that its rows read, beforehand */
} pipe_ahead_request;

typedef struct {
  uint32_t *rows;  /* [devices] so many of its first rows; all 0: it would gain nothing */
  uint32_t micros; /* micro-batches 0 to micros - 1 have such rows */
  /* [rows of the schedule] times of a step between others; of such rows those in the step before,
   * and, as next_*, those of the next step. */
  double *start_s, *end_s, *next_start_s, *next_end_s;
  double step_s;  /* from a step to the next: with these rows, */
  double alone_s; /* and without */
} pipe_ahead;

/* For a schedule that pipe_check accepts.  Forwards alone are run ahead, none that overlaps with a
 * backward.  O(rows).  pipe_ahead_free, also after a failure. */
hp_status pipe_ahead_find(const pipe_rows *p, const char *source, const pipe_costs *costs,
                          const pipe_ahead_request *q, pipe_ahead *out);
void pipe_ahead_free(pipe_ahead *a);

static inline bool pipe_ahead_has(const pipe_rows *p, const pipe_ahead *a, uint32_t row) {
  const uint32_t d = p->placement[p->row[row].stage];
  return row - p->row0[d] < a->rows[d];
}

#endif
