/* The table of what ops mean: a row of functions for each row of ops.def. */
#include "ops/ops.h"

const op_meaning op_meanings[OP_COUNT] = {
#define OP(id, name, in_min, in_max, out, attrs, infer, grad, rule, lin, cost, flags, doc)         \
  [OP_##id] = {infer_##infer, grad_##grad, cost_##cost},
#include "ir/ops.def"
#undef OP
};
