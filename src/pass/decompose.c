/* decompose: composite rows without a kernel of the target become elementwise ops and reductions
 * (ops/composite.h), and empty values become constants, so that later passes and kernels never
 * see either. */
#include "ops/composite.h"
#include "pass/pass.h"

#include <string.h>

static bool has_kernel(const capabilities *can, const hp_graph *g, const ir_node *n) {
  for (int i = 0; i < can->kernels; i++)
    if (!strcmp(can->kernel[i], op_table[n->op].name))
      return value_elements(graph_value(g, n->out0)) > 0;
  return false;
}

hp_status pass_decompose(const hp_graph *in, const pass_options *o, hp_graph **out) {
  rewrite r;
  HP_TRY(rewrite_begin(&r, in));
  for (uint32_t i = 0; i < in->nodes.len && !r.to->failure.code; i++) {
    const ir_node *n = graph_node(in, i);
    val from[255], to[OPS_OUT_MAX];
    if (!composite_has_form(in, n) || has_kernel(o->can, in, n)) {
      rewrite_copy(&r, i);
      continue;
    }
    for (int k = 0; k < n->n_in; k++) from[k] = r.map[graph_in(in, n)[k]];
    rewrite_place(&r, n);
    composite_decompose(r.to, in, n, from, to);
    for (int k = 0; k < n->n_out; k++) r.map[n->out0 + (val)k] = to[k];
  }
  return rewrite_end(&r, HP_OK, out);
}
