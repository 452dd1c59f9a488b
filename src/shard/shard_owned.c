/* Rows that experts compute.  A linear layer with sharded experts gives each row on the one
 * device that has the row's expert, and zeros on the others: a partial sum.  Elementwise ops
 * need not wait for the sum: the owner of a row applies them, whatever the others compute in its
 * place, and the next layer of the same experts reads only owned rows.  So values carry a note
 * of the owners of their rows until another op reads them. */
#include "shard/shard_state.h"
#include "shard/slices.h"

#include <string.h>

/* Operand with the ids of a node that works by expert; -1: it has none. */
static int ids_operand(const ir_node *n) {
  return n->op == OP_GROUPED_MATMUL || n->op == OP_GROUPED_MATMUL_GRAD ? 2 : -1;
}

static bool uses(const layout *l, const owners *o) {
  for (int i = 0; i < o->n; i++)
    if (!layout_is_free(l, o->axis[i])) return true;
  return false;
}

static bool cuts_experts(const layout *l, const owners *o) {
  return l->n[0] == o->n && !memcmp(l->axis[0], o->axis, o->n * sizeof *o->axis);
}

static bool same_owners(const owners *a, const owners *b) {
  return a->ids == b->ids && a->n == b->n && !memcmp(a->axis, b->axis, a->n * sizeof *a->axis);
}

/* Does the path to the layout leave the axes of other owners unchanged? */
static bool comes_by_itself(const shard *s, val v, const layout *to, const owners *o) {
  path p;
  if (uses(to, o)) return false;
  if (shard_path(s, graph_value(s->r.from, v), &s->now[v], to, &p)) {
    err_clear();
    return false;
  }
  for (int k = 0; k < p.n; k++)
    for (int i = 0; i < p.move[k].n; i++)
      for (int a = 0; a < o->n; a++)
        if (p.move[k].axis[i] == o->axis[a]) return false;
  return true;
}

/* May the node, in this choice, read operand i with owned rows? */
static bool reads_owned(const shard *s, const ir_node *n, const choice *c, int i) {
  const hp_graph *g = s->r.from;
  const val *in = graph_in(g, n);
  const owners *o = &s->owned[in[i]];
  if (!comes_by_itself(s, in[i], &c->need[i], o)) return false;
  if (ids_operand(n) >= 0) {
    if (in[ids_operand(n)] != o->ids || i == ids_operand(n)) return false;
    if (n->op == OP_GROUPED_MATMUL_GRAD) return cuts_experts(&c->out[0], o);
    return i == 0 && cuts_experts(&c->need[1], o);
  }
  bool by_element = op_flags((op_id)n->op) & OPF_ELEMENTWISE;
  if (!by_element || uses(&c->out[0], o)) return false;
  for (int k = 0; k < n->n_in; k++)
    if (s->owned[in[k]].n && !same_owners(o, &s->owned[in[k]])) return false;
  return value_same_shape(graph_value(g, in[i]), graph_value(g, n->out0));
}

/* Sets rows of other devices to zero; x has the dims of ids and one more. */
static hp_status own_rows(shard *s, val x, const layout *rows, const owners *o, val *out) {
  hp_graph *g = s->r.to;
  layout l = *rows;
  val ids;
  for (int i = 0; i < LAYOUT_AXES; i++) l.partial[i] = PARTIAL_NONE; /* of the rows, not of ids */
  layout_cut(&l, l.rank - 1, l.n[l.rank - 1]);
  l.rank--;
  hp_status st = shard_bring(s, o->ids, &l, &ids);
  if (st) return st;
  ids = shard_locate(s, ids, o->axis, o->n, o->each);
  if (!ids) return graph_status(g);
  ir_value column = *graph_value(g, ids);
  column.dim[column.rank] = 1;
  val own = ops_binary(g, OP_GE, ids, ops_const(g, HP_I32, 0));
  own = ops_reshape(g, own, column.dim, column.rank + 1);
  val zero = ops_const(g, (hp_dtype)graph_value(g, x)->dtype, 0);
  *out = ops_select(g, own, x, zero);
  return graph_status(g);
}

hp_status shard_settle(shard *s, val old) {
  owners o = s->owned[old];
  if (!o.n) return HP_OK;
  s->owned[old] = (owners){0};
  if (!o.zeros) HP_TRY(own_rows(s, s->r.map[old], &s->now[old], &o, &s->r.map[old]));
  for (int i = 0; i < o.n; i++) s->now[old].partial[o.axis[i]] = PARTIAL_SUM;
  s->made[old] = s->now[old];
  return graph_status(s->r.to);
}

hp_status shard_bring(shard *s, val old, const layout *to, val *out) {
  HP_TRY(shard_settle(s, old));
  return shard_bring_owned(s, old, to, out);
}

hp_status shard_settle_operands(shard *s, const ir_node *n, const choice *c, bool *changed) {
  const val *in = graph_in(s->r.from, n);
  *changed = false;
  for (int i = 0; i < n->n_in; i++) {
    if (!s->owned[in[i]].n || reads_owned(s, n, c, i)) continue;
    HP_TRY(shard_settle(s, in[i]));
    *changed = true;
  }
  return HP_OK;
}

void shard_own_results(shard *s, const ir_node *n, choice *c) {
  const val *in = graph_in(s->r.from, n);
  owners o = {0};
  if (n->op == OP_GROUPED_MATMUL) {
    const layout *w = &c->need[1];
    o = (owners){.ids = in[2], .n = w->n[0], .zeros = true};
    memcpy(o.axis, w->axis[0], sizeof o.axis);
    o.each = layout_shard_size(s->m, w, 0, graph_value(s->r.from, in[1])->dim[0]);
    for (int i = 0; i < o.n; i++) c->out[0].partial[o.axis[i]] = PARTIAL_NONE;
  } else if (n->op != OP_GROUPED_MATMUL_GRAD) {
    for (int i = 0; i < n->n_in; i++)
      if (s->owned[in[i]].n) o = s->owned[in[i]];
    o.zeros = false;
  }
  for (int k = 0; k < n->n_out; k++) s->owned[n->out0 + (val)k] = o;
}

const owners *shard_owners_of_operands(const shard *s, const ir_node *n) {
  const val *in = graph_in(s->r.from, n);
  for (int i = 0; i < n->n_in; i++)
    if (s->owned[in[i]].n) return &s->owned[in[i]];
  return NULL;
}
