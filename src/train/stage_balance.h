/* How many layers each stage of a pipeline has, so that the slowest stage is as fast as is
 * possible under the memory limit. */
#ifndef TRAIN_STAGE_BALANCE_H
#define TRAIN_STAGE_BALANCE_H

#include "base/status.h"

/* Of one micro-batch on a device. */
typedef struct {
  double seconds;
  uint64_t state_bytes;  /* of its params, with gradients and optimizer state */
  uint64_t stored_bytes; /* from its forward until its backward */
} layer_cost;

typedef struct {
  int64_t layers;
  int stages;
  /* [layers + 2]: what is before the layers, the layers, what is behind them; again where
   * activations are recomputed, NULL: they are not. */
  const layer_cost *plain, *recomputed;
  const uint32_t *in_flight; /* [stages] micro-batches that a stage stores at most */
  uint64_t limit;            /* bytes of a stage; 0: none */
} balance_task;

/* cut[stages]: at least one layer each, but the first stage may be what is before the layers
 * alone, and the last what is behind them, if that costs time.  Exact: no other cut has a faster
 * slowest stage among those within the limit; if none is, the one that is least above it.  A stage
 * that is within the limit only with recomputation counts with the time of that. */
hp_status stage_balance(const balance_task *t, int64_t *cut);

/* Seconds of the stage `s` with the layers from..to - 1, and by how much it is above the limit. */
typedef struct {
  double above_bytes, seconds;
} stage_price;
stage_price stage_balance_price(const balance_task *t, int s, int64_t from, int64_t to);

#endif
