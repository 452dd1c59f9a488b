/* narrow: f32 params that only products in bf16 read are rounded by these products, while they pack
 * them.
 *
 * A separate cast would write a copy of the param, which every product reads, and which would be
 * kept from the forward to the backward.  The other operand must be bf16 in memory: this makes the
 * product one of bf16. */
#include "pass/pass.h"

/* bf16 of an f32 param. */
static bool is_rounded_param(const hp_graph *g, val v) {
  const ir_node *cast = graph_def(g, v);
  if (cast->op != OP_CAST || graph_value(g, v)->dtype != HP_BF16) return false;
  val of = graph_in(g, cast)[0];
  return graph_def(g, of)->op == OP_PARAM && graph_value(g, of)->dtype == HP_F32;
}

static bool is_read_by_products(const hp_graph *g, const use_lists *u, val v) {
  for (uint32_t i = u->use0[v]; i < u->use0[v + 1]; i++) {
    const ir_node *n = graph_node(g, u->use[i]);
    const val *in = graph_in(g, n);
    if (n->op != OP_EINSUM || in[0] == in[1]) return false;
    if (n->n_in == 3 && in[2] == v) return false; /* the start of the chains */
    if (is_rounded_param(g, in[0] == v ? in[1] : in[0])) return false;
  }
  return true;
}

hp_status pass_narrow(const hp_graph *in, const pass_options *o, hp_graph **out) {
  rewrite r;
  use_lists uses = {0};
  HP_TRY(rewrite_begin(&r, in));
  hp_status st = use_lists_build(in, &uses);
  for (uint32_t i = 0; !st && i < in->nodes.len; i++) {
    const ir_node *n = graph_node(in, i);
    bool goes = n->op == OP_CAST && !o->can->one_type && is_rounded_param(in, n->out0) &&
                is_read_by_products(in, &uses, n->out0);
    if (goes) r.map[n->out0] = r.map[graph_in(in, n)[0]];
    else rewrite_copy(&r, i);
  }
  use_lists_free(&uses);
  return rewrite_end(&r, st, out);
}
