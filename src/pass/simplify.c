/* simplify: removes nodes that no effect depends on, merges equal nodes, and skips ops without
 * effect.
 *
 * Equal nodes of different phases are not merged: a forward value that the backward recomputes
 * cheaply must not be kept alive for it.  Nor are those of different stages of a pipeline, whose
 * schedule decides which of them runs first.  Inputs and params are always shared. */
#include "ops/ops.h"
#include "pass/pass.h"

#include <string.h>

static bool is_shared(int op) { return op == OP_INPUT || op == OP_PARAM; }
static bool is_generated(int op) { return op == OP_CONST || op == OP_IOTA; }

/* Is every element of a value 1? */
static bool is_one(const hp_graph *g, val v) {
  const ir_node *d = graph_def(g, v);
  while (d->op == OP_CAST || d->op == OP_RESHAPE || d->op == OP_BROADCAST)
    d = graph_def(g, graph_in(g, d)[0]);
  return d->op == OP_CONST && attr_float(g, d, "value") == 1;
}

/* The factor of a product whose other operand is 1 everywhere. */
static val only_factor(const rewrite *r, const ir_node *n, const val *in) {
  const ir_value *y = graph_value(r->from, n->out0);
  for (int k = 0; k < 2; k++) {
    const ir_value *x = graph_value(r->to, in[k]);
    if (x->dtype == y->dtype && value_same_shape(x, y) && is_one(r->to, in[1 - k])) return in[k];
  }
  return 0;
}

/* The operand of a node without effect, or 0. */
static val seen_through(const rewrite *r, const ir_node *n, const val *in) {
  if (n->op == OP_MUL) return only_factor(r, n, in);
  if (op_flags((op_id)n->op) & OPF_COLLECTIVE) /* over one device */
    return attr_int(r->from, n, "n") == 1 ? in[0] : 0;
  if (n->n_in != 1 || n->n_out != 1) return 0;
  if (n->op == OP_ANNOTATE) return in[0];
  const ir_value *x = graph_value(r->to, in[0]), *y = graph_value(r->from, n->out0);
  bool same = x->dtype == y->dtype && value_same_shape(x, y);
  if (n->op == OP_CAST || n->op == OP_RESHAPE || n->op == OP_BROADCAST || n->op == OP_SLICE)
    return same ? in[0] : 0;
  if (n->op == OP_TRANSPOSE && same) {
    int64_t perm[ATTR_LIST_MAX];
    int rank = attr_list(r->from, n, "perm", perm);
    for (int i = 0; i < rank; i++)
      if (perm[i] != i && x->dim[i] != 1) return 0;
    return in[0];
  }
  return 0;
}

/* An elementwise op broadcasts by itself, so it reads the operand of a broadcast if that does
 * not change the shape of its result. */
static void skip_broadcasts(const rewrite *r, const ir_node *n, val *in) {
  if (!(op_flags((op_id)n->op) & OPF_ELEMENTWISE) || n->n_in < 2) return;
  const ir_value *y = graph_value(r->from, n->out0);
  for (int k = 0; k < n->n_in; k++) {
    const ir_node *d = graph_def(r->to, in[k]);
    if (d->op != OP_BROADCAST) continue;
    for (int j = 0; j < n->n_in; j++)
      if (j != k && value_same_shape(graph_value(r->to, in[j]), y)) {
        in[k] = graph_in(r->to, d)[0];
        break;
      }
  }
}

typedef struct {
  uint16_t op, stage;
  uint8_t phase, n_in;
  uint32_t attr, block;
  val in[255];
} node_key;

static size_t key_of(const ir_node *n, const val *in, node_key *k) {
  memset(k, 0, offsetof(node_key, in));
  k->op = n->op;
  k->n_in = n->n_in;
  k->attr = n->attr;
  if (!is_shared(n->op)) k->stage = n->stage;
  if (!is_shared(n->op) && !is_generated(n->op)) {
    k->phase = n->phase;
    k->block = n->block;
  }
  memcpy(k->in, in, n->n_in * sizeof *in);
  return offsetof(node_key, in) + n->n_in * sizeof *in;
}

static hp_status simplify_node(rewrite *r, uint32_t i, map *seen) {
  const ir_node *n = graph_node(r->from, i);
  val in[255];
  for (int k = 0; k < n->n_in; k++) in[k] = r->map[graph_in(r->from, n)[k]];
  if (!n->n_out) {
    graph_add_like(r->to, r->from, n, in);
    return HP_OK;
  }
  val same = seen_through(r, n, in);
  if (same) {
    r->map[n->out0] = same;
    return HP_OK;
  }
  skip_broadcasts(r, n, in);
  node_key key;
  size_t bytes = key_of(n, in, &key);
  uint32_t have;
  if (!map_get(seen, &key, bytes, &have)) {
    have = graph_add_like(r->to, r->from, n, in);
    HP_TRY(graph_status(r->to));
    HP_TRY(map_set(seen, &key, bytes, have));
  }
  for (int k = 0; k < n->n_out; k++) r->map[n->out0 + (val)k] = have + (val)k;
  return HP_OK;
}

hp_status pass_simplify(const hp_graph *in, const pass_options *o, hp_graph **out) {
  (void)o;
  rewrite r;
  map seen = {0};
  HP_TRY(rewrite_begin(&r, in));
  hp_status st = HP_OK;
  for (uint32_t i = 0; !st && i < in->nodes.len; i++) st = simplify_node(&r, i, &seen);
  map_free(&seen);
  return rewrite_end_live(&r, st, out);
}
