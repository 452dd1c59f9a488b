#include "ir/layout.h"

#include <string.h>

static const char *const partial_op_names[PARTIAL_COUNT] = {"",    "sum",  "avg", "max",
                                                            "min", "prod", "all"};

bool layout_equal(const layout *a, const layout *b) { return !memcmp(a, b, sizeof *a); }

int layout_dim_of(const layout *l, int axis) {
  for (int d = 0; d < l->rank; d++)
    if (memchr(l->axis[d], axis, l->n[d])) return d;
  return -1;
}

bool layout_is_free(const layout *l, int axis) {
  return !l->partial[axis] && layout_dim_of(l, axis) < 0;
}

bool layout_is_partial(const layout *l) {
  for (int a = 0; a < LAYOUT_AXES; a++)
    if (l->partial[a]) return true;
  return false;
}

void layout_append(layout *l, int dim, int axis) {
  HP_ASSERT(l->n[dim] < LAYOUT_AXES);
  l->axis[dim][l->n[dim]++] = (uint8_t)axis;
}

void layout_cut(layout *l, int dim, int n) {
  HP_ASSERT(n <= l->n[dim]);
  l->n[dim] = (uint8_t)(l->n[dim] - n);
  memset(l->axis[dim] + l->n[dim], 0, (size_t)n);
  if (n) l->shard_size[dim] = 0;
}

const char *partial_op_name(int op) { return partial_op_names[op]; }

partial_op partial_op_find(const char *name, size_t n) {
  for (int op = PARTIAL_SUM; op < PARTIAL_COUNT; op++)
    if (strlen(partial_op_names[op]) == n && !memcmp(partial_op_names[op], name, n))
      return (partial_op)op;
  return PARTIAL_NONE;
}
