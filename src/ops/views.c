#include "ops/views.h"

#include "ir/attr.h"

enum { ALIGN = 64 }; /* of what kernels get: a line of the cache */

static bool is_aligned(uint64_t bytes) { return bytes % ALIGN == 0; }

bool views_part(const hp_graph *g, const ir_node *n, uint64_t *at) {
  int64_t start[ATTR_LIST_MAX], step[ATTR_LIST_MAX];
  if (n->op != OP_SLICE) return false;
  const ir_value *x = graph_value(g, graph_in(g, n)[0]), *y = graph_value(g, n->out0);
  attr_list(g, n, "start", start);
  attr_list(g, n, "step", step);
  bool whole = true; /* are all dims behind this one? */
  int64_t stride = 1, first = 0;
  for (int d = x->rank - 1; d >= 0; d--) {
    if (y->dim[d] != 1 && (!whole || step[d] != 1)) return false;
    whole &= y->dim[d] == x->dim[d];
    first += start[d] * stride;
    stride *= x->dim[d];
  }
  int64_t elements = value_elements(x);
  *at = elements ? (uint64_t)first * (uint64_t)(value_bytes(x) / elements) : 0;
  return elements && is_aligned(*at);
}

bool views_join(const hp_graph *g, const ir_node *n) {
  if (n->op != OP_CONCAT) return false;
  const ir_value *y = graph_value(g, n->out0);
  int axis = (int)attr_int(g, n, "axis");
  for (int d = 0; d < axis; d++)
    if (y->dim[d] != 1) return false;
  for (int i = 0; i < n->n_in - 1; i++)
    if (!is_aligned((uint64_t)value_bytes(graph_value(g, graph_in(g, n)[i])))) return false;
  return true;
}
