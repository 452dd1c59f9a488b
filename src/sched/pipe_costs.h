/* What the rows of a pipeline schedule cost, and which need each other: seconds and bytes of each
 * stage for one micro-batch, and the graph of stages.
 *
 * A NULL array has a default, so that {0} is the case of published formulas: a chain of stages, F =
 * B = W = 1 s, and nothing else takes time. */
#ifndef SCHED_PIPE_COSTS_H
#define SCHED_PIPE_COSTS_H

#include "sched/pipe_graph.h"
#include "sched/pipe_rows.h"

typedef struct {
  const double *forward_s, *backward_s, *weights_s; /* [stages]; NULL: 1 */
  uint32_t micros; /* these three are [stages][micros], of each micro-batch; 0: of all alike */
  const double *update_s; /* [stages]; NULL: 0 */
  const pipe_edge *edge;  /* [edges] see pipe_graph; NULL: a chain of stages - 1 */
  uint32_t edges;
  const double *transfer_s;      /* [edges] of an activation, and of its gradient back; NULL: 0 */
  const uint64_t *bytes;         /* [stages] held from F to the end of B; NULL: 0 */
  const uint64_t *weights_bytes; /* [stages] <= bytes, those held on to the end of W; NULL: bytes */
  double overlapped;             /* time of F and B that overlap, as a share of their sum; 0: 1.0 */
} pipe_costs;

/* The most that a device may hold at any time; 0: no limit. */
typedef struct {
  uint32_t in_flight; /* (stage, micro-batch) pairs whose F has begun and whose W has not ended */
  uint64_t bytes;
} pipe_limits;

/* HP_ERR_ARG, with the stage, unless times are finite, not negative and of all micro-batches, and
 * the bytes of all of them together fit into 64 bits. */
hp_status pipe_costs_check(const pipe_costs *c, uint32_t stages, uint32_t microbatches);

static inline double pipe_seconds(const double *of, size_t at, double without) {
  return of ? of[at] : without;
}
static inline double pipe_transfer_s(const pipe_costs *c, uint32_t edge) {
  return pipe_seconds(c->transfer_s, edge, 0);
}
static inline uint64_t pipe_bytes(const pipe_costs *c, uint32_t stage) {
  return c->bytes ? c->bytes[stage] : 0;
}
static inline uint64_t pipe_weights_bytes(const pipe_costs *c, uint32_t stage) {
  return c->weights_bytes ? c->weights_bytes[stage] : pipe_bytes(c, stage);
}
/* Time of a row by itself.  split: the schedule has rows of W. */
double pipe_row_s(const pipe_costs *c, const pipe_row *row, bool split);

#endif
