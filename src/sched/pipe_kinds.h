/* Internal to sched/pipe_generate: one function for each kind of schedule.
 *
 * Each gets a request that has been checked, with costs, and the schedule's own limit in
 * q->limits.in_flight where none was asked for.  *out has no rows yet, but the default placement.
 */
#ifndef SCHED_PIPE_KINDS_H
#define SCHED_PIPE_KINDS_H

#include "sched/pipe_fill.h"
#include "sched/pipe_generate.h"

hp_status pipe_gpipe(const pipe_request *q, pipe_rows *out);
hp_status pipe_1f1b(const pipe_request *q, pipe_rows *out);
hp_status pipe_interleaved(const pipe_request *q, pipe_rows *out);
hp_status pipe_zero_bubble(const pipe_request *q, pipe_rows *out);
hp_status pipe_v(const pipe_request *q, pipe_rows *out);
hp_status pipe_dualpipe_v(const pipe_request *q, pipe_rows *out);

/* Space for F, B and W of each micro-batch. */
hp_status pipe_kind_create(const pipe_request *q, pipe_rows *out);
/* Stages go up the devices and down again, if there are two a device. */
void pipe_place_in_v(pipe_rows *p);
/* Adds a row to device d; devices are filled in order, after pipe_kind_device. */
static inline void pipe_kind_device(pipe_rows *p, uint32_t d) { p->row0[d + 1] = p->row0[d]; }
static inline void pipe_kind_add(pipe_rows *p, uint32_t d, uint32_t stage, int actions,
                                 uint32_t microbatch) {
  p->row[p->row0[d + 1]++] =
      (pipe_row){.stage = (uint16_t)stage, .actions = (uint8_t)actions, .microbatch = microbatch};
}
/* pipe_fill under the limits of a request, with its costs or even ones, as the policy says. */
hp_status pipe_fill_with(const pipe_request *q, const pipe_rows *turns, pipe_fill_policy policy,
                         bool *fits, pipe_rows *out, pipe_fill_times *times);
/* pipe_fill with each policy, those that wait for rows or those that do not; keeps the best in
 * *out, by step_s and span_s, in *best (INFINITY: no rows yet; it stays so if none fits).
 */
hp_status pipe_fill_best(const pipe_request *q, const pipe_rows *turns, bool patient, double *best,
                         pipe_fill_policy *policy, pipe_rows *out);

#endif
