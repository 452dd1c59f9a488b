#include "ir/layout.h"

#include <string.h>

static const char *const pending_word[PENDING_COUNT] = {"",    "sum",  "avg", "max",
                                                        "min", "prod", "all"};

bool layout_equal(const layout *a, const layout *b) { return !memcmp(a, b, sizeof *a); }

int layout_dim_of(const layout *l, int axis) {
  for (int d = 0; d < l->rank; d++)
    if (memchr(l->axis[d], axis, l->n[d])) return d;
  return -1;
}

bool layout_is_free(const layout *l, int axis) {
  return !l->pending[axis] && layout_dim_of(l, axis) < 0;
}

void layout_append(layout *l, int dim, int axis) {
  HP_ASSERT(l->n[dim] < LAYOUT_AXES);
  l->axis[dim][l->n[dim]++] = (uint8_t)axis;
}

void layout_cut(layout *l, int dim, int n) {
  HP_ASSERT(n <= l->n[dim]);
  l->n[dim] = (uint8_t)(l->n[dim] - n);
  memset(l->axis[dim] + l->n[dim], 0, (size_t)n);
  if (n) l->part[dim] = 0;
}

const char *pending_name(int op) { return pending_word[op]; }

pending_op pending_find(const char *name, size_t n) {
  for (int op = PENDING_SUM; op < PENDING_COUNT; op++)
    if (strlen(pending_word[op]) == n && !memcmp(pending_word[op], name, n)) return (pending_op)op;
  return PENDING_NONE;
}
