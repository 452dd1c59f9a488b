/* What each block of a model costs in a pipeline: the numbers that decide which layers are on which
 * stage. */
#ifndef COMPILE_PIPELINE_BLOCKS_H
#define COMPILE_PIPELINE_BLOCKS_H

#include "compile/pipeline_rows.h"

/* Of a block on a stage, of one micro-batch.  Block 0 is what is before the layers on the first
 * stage, and what is behind them on the last. */
typedef struct {
  uint16_t block, stage;
  double forward_s, backward_s; /* backward: with that to weights */
  uint64_t param_bytes;  /* of a device: of named tensors that its forward is first to read */
  uint64_t stored_bytes; /* of values that its forward makes or is first to read, and that a
                            backward reads */
} block_cost;
typedef VEC(block_cost) block_costs;

/* Of the first micro-batch's piece, in the order of stages and blocks.  vec_free(out), also after a
 * failure. */
hp_status pipeline_blocks_find(const pipeline_step *s, block_costs *out);
/* Bytes of a device of that mesh for all named tensors of the step. */
hp_status pipeline_state_bytes(const pipeline_step *s, int on, uint64_t *out);

#endif
