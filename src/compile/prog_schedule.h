/* The schedule of a program: the stream of every instruction, one order of all of them, and the
 * waits between streams.  Collectives and copies between tiers overlap with computation where
 * memory allows it; nothing depends on timing but speed. */
#ifndef COMPILE_PROG_SCHEDULE_H
#define COMPILE_PROG_SCHEDULE_H

#include "prog/program.h"
#include "topo/cluster.h"

typedef enum {
  SCHEDULE_FASTEST, /* collectives on a stream of their own, in the order predicted as fastest */
  SCHEDULE_SERIAL,  /* one instruction after the other, in the order of the graph */
  SCHEDULE_MINIMUM, /* one after the other, in the minimum-memory order */
  SCHEDULE_OFFLOAD  /* one after the other, with copies to other tiers overlapped:
                       compile/offload_stage.h, not schedule_program */
} schedule_kind;

typedef struct {
  const cluster *cluster; /* costs of instructions */
  const mesh *mesh;
  const uint64_t *workspace; /* bytes by kernel (prog_inst.kernel); NULL: none */
  uint64_t cap[TIER_COUNT];  /* bytes of work memory; 0: none */
  uint64_t usual;            /* without a cap: device bytes that the fastest order may use, if the
                                order of the graph needs no more; 0: see schedule_program */
  uint64_t prefetch;         /* bytes of params that may be gathered ahead of their use; 0: those of
                                the largest block, and the largest param */
} schedule_options;

/* Orders the instructions, which are in the order of the graph.  The order depends only on the
 * program, which is the same on every device: so collectives have the same order everywhere, and
 * devices cannot wait for each other in a cycle.  Waits hold for any timing: those of data,
 * those for state that is overwritten, and those for the caps.  *fits false: no such order is
 * known under the caps, and p must be dropped.  Without a cap the fastest order takes the memory
 * of the order of the graph, and with collectives half as much again plus the prefetch. */
hp_status schedule_program(program *p, schedule_kind kind, const schedule_options *o, bool *fits);
/* Puts p into the fastest order, without waits: t[instructions] are the predicted times in the new
 * order.  Transfers are on the stream of computation, whose order they keep. */
hp_status schedule_times(program *p, const schedule_options *o, inst_times *t);
/* Bytes of the device that the fastest order of p takes, which is changed. */
hp_status schedule_peak(program *p, const schedule_options *o, uint64_t *bytes);
/* Are there instructions on STREAM_COMM? */
bool schedule_overlaps(const program *p);

#endif
