/* The cases of shard.def, and what each gives on one device. */
#ifndef SHARD_CASE_H
#define SHARD_CASE_H

#include "ops/grid.h"
#include "ops/ref.h"

extern const grid_row shard_rows[OP_COUNT]; /* by op; in f32 */

/* Case `line` of the row as a graph of one node, which it returns, and the reference of it on
 * random operands, not rounded. */
const ir_node *shard_case(const grid_row *row, const char *line, grid_graph *x, ref_run *global);

#endif
