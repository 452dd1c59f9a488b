#include "ops/shard_case.h"

#include "test.h"

#include <stdlib.h>

const grid_row shard_rows[OP_COUNT] = {
#define SHARD(id, low, high, cases) [OP_##id] = {OP_##id, 1 << HP_F32, GRID_NONE, low, high, cases},
#include "ops/shard.def"
#undef SHARD
#define GRID(id, ...)
#define GRID1(id, types, gradient, low, high)                                                      \
  [OP_##id] = {OP_##id, 1 << HP_F32, GRID_NONE, low, high, ONE},
#include "ops/grid.def"
#undef GRID
};

const ir_node *shard_case(const grid_row *row, const char *line, grid_graph *x, ref_run *global) {
  rng r = {.seed = 7 + (uint64_t)row->op};
  val y;
  CHECK_OK(graph_create(NULL, &x->g));
  grid_add_case(x, row, line, HP_F32, false, &y);
  ref_begin(global, x->g, true);
  for (int i = 0; i < x->leaves; i++) {
    const grid_leaf *l = &x->leaf[i];
    void *bytes = calloc((size_t)value_bytes(graph_value(x->g, l->v)) + 1, 1);
    CHECK(bytes);
    grid_leaf_fill(x, l, &r, bytes);
    ref_set(global, l->v, bytes);
    free(bytes);
  }
  ref_eval(global);
  return graph_def(x->g, y);
}
