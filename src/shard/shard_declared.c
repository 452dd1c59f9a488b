/* Layouts that are declared for inputs, params and annotations, by name. */
#include "shard/shard_state.h"
#include "shard/slices.h"

#include <string.h>

hp_status shard_check_layout(const mesh *m, const char *name, const ir_value *v, const layout *l,
                             bool is_param) {
  if (l->rank != v->rank)
    HP_FAIL(HP_ERR_LAYOUT, "%s \"%s\": has %d entries, the tensor %d dims",
            *name == '(' ? "hp_shard" : "layout of", name, l->rank, v->rank);
  for (int a = 0; a < m->axes; a++)
    if (l->partial[a] && !(is_param && l->partial[a] == PARTIAL_SUM))
      HP_FAIL(HP_ERR_LAYOUT,
              "layout of \"%s\": it is an input or a param, which cannot be partial here", name);
  int d = layout_short_dim(m, l, v->dim);
  if (d >= 0)
    HP_FAIL(HP_ERR_LAYOUT, "layout of \"%s\": dim %d of size %lld is more than %lld shards of %d",
            name, d, (long long)v->dim[d], (long long)layout_shard_count(m, l, d),
            l->shard_size[d]);
  return HP_OK;
}

bool shard_declared(const hp_graph *g, const shard_plan *plan, const ir_node *n, layout *out) {
  const ir_value *v = plan->type ? &plan->type[n->out0] : graph_value(g, n->out0);
  if (!plan->declared(plan->model, attr_str(g, n, "name"), v, out)) {
    *out = (layout){.rank = v->rank};
    return false;
  }
  if (plan->no_partial_sums) memset(out->partial, 0, sizeof out->partial);
  for (int d = 0; d < v->rank && d < out->rank; d++)
    if (plan->type || layout_padded_size(plan->mesh, out, d, v->dim[d]) == v->dim[d])
      out->shard_size[d] = 0;
  return true;
}
