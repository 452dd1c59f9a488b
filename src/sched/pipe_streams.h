/* The order of sends and receives on each device, and whether devices that follow it can deadlock.
 */
#ifndef SCHED_PIPE_STREAMS_H
#define SCHED_PIPE_STREAMS_H

#include "sched/pipe_simulate.h"

/* Device d runs transfers at[at0[d]] to at[at0[d + 1] - 1] (indices of pipe_times.transfer), one
 * after the other on one stream, sends and receives alike. */
typedef struct {
  uint32_t *at0, *at; /* [devices + 1], [2 * transfers] */
} pipe_streams;

/* Each device's share of the global order. */
hp_status pipe_streams_create(const pipe_rows *p, const pipe_times *t, pipe_streams *out);
void pipe_streams_free(pipe_streams *s);

/* Runs the rows and streams of all devices with rendezvous: a transfer takes place when it is next
 * on both devices and its row has run.  HP_ERR_INPUT if they come to a halt, with two transfers
 * that wait for each other.  p must pass pipe_check.  O(rows). */
hp_status pipe_streams_check(const pipe_rows *p, const char *source, const pipe_times *t,
                             const pipe_streams *s);

#endif
