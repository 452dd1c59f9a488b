/* The walk over the graph: leaves, effects, and nodes by their rules. */
#include "shard/expand.h"
#include "shard/shard_pad.h"
#include "shard/shard_state.h"

#include "shard/slices.h"

#include <string.h>

static void local_type(const shard *s, const layout *l, ir_value *v) {
  for (int d = 0; d < v->rank; d++) v->dim[d] = layout_shard_size(s->m, l, d, v->dim[d]);
}

static hp_status leaf(shard *s, const ir_node *n) {
  ir_value v = *graph_value(s->r.from, n->out0);
  const char *name = attr_str(s->r.from, n, "name");
  layout l;
  if (shard_declared(s->r.from, s->plan, n, &l))
    HP_TRY(shard_check_layout(s->m, name, &v, &l, n->op == OP_PARAM));
  s->made[n->out0] = s->now[n->out0] = l;
  if (n->op == OP_INPUT) shard_rows_of_input(s, n->out0);
  local_type(s, &l, &v);
  s->r.map[n->out0] = ops_leaf(s->r.to, n->op, name, (hp_dtype)v.dtype, v.dim, v.rank);
  return graph_status(s->r.to);
}

/* Removes partial reductions from what the computation gives; a param gets its own layout. */
static hp_status effect(shard *s, const ir_node *n) {
  const val *in = graph_in(s->r.from, n);
  val x = in[n->n_in - 1], moved;
  HP_TRY(shard_settle(s, x));
  layout to = s->now[x];
  memset(to.partial, 0, sizeof to.partial);
  if (n->op == OP_ASSIGN) to = s->made[in[0]];
  HP_TRY(shard_bring(s, x, &to, &moved));
  if (n->op == OP_ASSIGN) {
    ops_assign(s->r.to, s->r.map[in[0]], moved);
  } else {
    s->made[x] = to;
    ops_output(s->r.to, attr_str(s->r.from, n, "name"), moved);
  }
  return graph_status(s->r.to);
}

/* A product of 16-bit numbers that leaves a partial sum is computed in f32, and rounded after
 * the reduction: then it has the accuracy of one device. */
static bool widens(const shard *s, const ir_node *n, const layout *out) {
  bool product =
      n->op == OP_EINSUM || n->op == OP_GROUPED_MATMUL || n->op == OP_GROUPED_MATMUL_GRAD;
  return product && layout_is_partial(out) && graph_value(s->r.from, n->out0)->dtype != HP_F32 &&
         !layout_is_partial(&s->now[graph_in(s->r.from, n)[0]]) &&
         !layout_is_partial(&s->now[graph_in(s->r.from, n)[1]]);
}

/* The dtype of the result is the last attribute of a product. */
static void widen(attr_record *a) {
  a->n--;
  attr_put_int(a, HP_F32);
}

/* Indices along sharded dims become indices in the device's own shard. */
static void locate_indices(shard *s, const rule *r, const choice *c, val *in) {
  for (int f = 0; f < r->factors; f++) {
    int d, operand = r->factor[f].index - 1, tensor = rule_find(r, f, &d);
    if (operand < 0 || tensor < 0) continue;
    const layout *l = tensor < r->n_in ? &c->need[tensor] : &c->out[tensor - r->n_in];
    if (layout_shard_count(s->m, l, d) == 1) continue;
    int64_t size = layout_shard_size(s->m, l, d, r->factor[f].size);
    in[operand] = shard_locate(s, in[operand], l->axis[d], l->n[d], size);
  }
}

/* Results whose rows were sent to the device of a param: later users find the rows returned. */
static hp_status bring_rows_home(shard *s, const ir_node *n) {
  for (int o = 0; o < n->n_out; o++) {
    val v = n->out0 + (val)o;
    layout home;
    if (s->owned[v].n) HP_TRY(shard_settle(s, v));
    shard_rows_home(s, n, v, &s->now[v], &home);
    HP_TRY(shard_bring(s, v, &home, &s->r.map[v]));
    s->now[v] = home;
  }
  return HP_OK;
}

static hp_status compute(shard *s, const ir_node *n, rule *r, choice *c) {
  const val *from = graph_in(s->r.from, n);
  val in[RULE_TENSORS];
  for (bool again = true; again;) {
    HP_TRY(rule_of_node(s->r.from, n, r));
    HP_TRY(shard_choose(s, n, r, c));
    HP_TRY(shard_settle_operands(s, n, c, &again));
  }
  for (int i = 0; i < n->n_in; i++) HP_TRY(shard_bring_owned(s, from[i], &c->need[i], &in[i]));
  locate_indices(s, r, c, in);
  shard_place_dropout(s, n, c, in);
  shard_own_results(s, n, c);
  bool wide = widens(s, n, &c->out[0]);
  ir_value local = *graph_value(s->r.from, n->out0);
  local_type(s, &c->out[0], &local);
  attr_record a = rule_local_attrs(s->r.from, n, &local);
  if (wide) widen(&a);
  val y = ops_add(s->r.to, n->op, in, n->n_in, &a);
  for (int o = 0; y && o < n->n_out; o++) {
    val old = n->out0 + (val)o;
    s->r.map[old] = y + (val)o;
    s->made[old] = s->now[old] = c->out[o];
    s->wide[old] = wide;
  }
  HP_TRY(graph_status(s->r.to));
  return c->keeps_rows ? HP_OK : bring_rows_home(s, n);
}

/* Gives the value the layout that is declared for the name, if there is one. */
static hp_status visit_annotation(shard *s, const ir_node *n) {
  val from = graph_in(s->r.from, n)[0], old = n->out0;
  const ir_value *v = graph_value(s->r.from, from);
  HP_TRY(shard_settle(s, from));
  layout to = s->now[from], l;
  if (shard_declared(s->r.from, s->plan, n, &l)) {
    HP_TRY(shard_check_layout(s->m, attr_str(s->r.from, n, "name"), v, &l, false));
    to = l;
  }
  HP_TRY(shard_bring(s, from, &to, &s->r.map[old]));
  s->made[old] = s->now[old] = to;
  shard_rows_of_annotation(s, from, old);
  return HP_OK;
}

static hp_status begin(shard *s, const hp_graph *g) {
  s->r.from = g;
  s->r.map = mem_calloc(g->values.len, sizeof *s->r.map);
  s->made = mem_calloc(g->values.len, sizeof *s->made);
  s->now = mem_calloc(g->values.len, sizeof *s->now);
  s->rows = mem_calloc(g->values.len, sizeof *s->rows);
  s->owned = mem_calloc(g->values.len, sizeof *s->owned);
  s->wide = mem_calloc(g->values.len, sizeof *s->wide);
  s->ways = mem_calloc(1, sizeof *s->ways);
  HP_TRY(use_lists_build(g, &s->users));
  return s->r.map && s->made && s->now && s->rows && s->owned && s->wide && s->ways ? HP_OK
                                                                                    : HP_ERR_OOM;
}

/* Frees all but `made`. */
static void end(shard *s) {
  mem_free(s->r.map);
  mem_free(s->now);
  mem_free(s->rows);
  mem_free(s->owned);
  mem_free(s->wide);
  if (s->ways) {
    map_free(&s->ways->place);
    vec_free(&s->ways->way);
    mem_free(s->ways);
  }
  use_lists_free(&s->users);
}

static hp_status node(shard *s, const ir_node *n);

static void copy_value(shard *to, val x, const shard *from, val y) {
  to->r.map[x] = from->r.map[y];
  to->made[x] = from->made[y];
  to->now[x] = from->now[y];
  to->rows[x] = from->rows[y];
  to->owned[x] = from->owned[y];
  to->wide[x] = from->wide[y];
}

static hp_status shard_inner(shard *s, shard *inner, const val *outer) {
  const hp_graph *g = inner->r.from;
  for (uint32_t i = 0, leaf = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    rewrite_place(&inner->r, n);
    if (n->op == OP_INPUT) copy_value(inner, n->out0, s, outer[leaf++]);
    else HP_TRY(node(inner, n));
  }
  return HP_OK;
}

/* Replaces a node by the ops of its decomposition, sharded one by one. */
static hp_status expand(shard *s, const ir_node *n) {
  val out[OPS_OUT_MAX];
  hp_graph *g;
  HP_TRY(expand_node(s->r.from, n, &g, out));
  shard inner = {.plan = s->plan, .m = s->m, .r = {.to = s->r.to}};
  hp_status st = begin(&inner, g);
  if (!st) st = shard_inner(s, &inner, graph_in(s->r.from, n));
  for (int k = 0; !st && k < n->n_out; k++) copy_value(s, n->out0 + (val)k, &inner, out[k]);
  end(&inner);
  mem_free(inner.made);
  graph_free(g);
  return st;
}

static hp_status node(shard *s, const ir_node *n) {
  if (n->op == OP_ANNOTATE) return visit_annotation(s, n);
  struct {
    rule r;
    choice c;
  } *room = mem_calloc(1, sizeof *room);
  HP_TRY_MEM(room);
  hp_status st = rule_of_node(s->r.from, n, &room->r);
  if (!st) {
    shard_rows_of_results(s, n, &room->r);
    if (shard_cuts_sequence(s, n)) st = shard_attention(s, n);
    else if (shard_expands(s, n))
      st = n->op == OP_CROSS_ENTROPY ? shard_cross_entropy(s, n) : expand(s, n);
    else st = compute(s, n, &room->r, &room->c);
  }
  mem_free(room);
  return st;
}

static hp_status shard_all(shard *s) {
  for (uint32_t i = 0; i < s->r.from->nodes.len; i++) {
    const ir_node *n = graph_node(s->r.from, i);
    rewrite_place(&s->r, n);
    if (n->op == OP_INPUT || n->op == OP_PARAM) HP_TRY(leaf(s, n));
    else if (!n->n_out) HP_TRY(effect(s, n));
    else HP_TRY(node(s, n));
  }
  return HP_OK;
}

/* A graph whose dims the layouts divide. */
static hp_status shard_even(const hp_graph *g, const shard_plan *plan, sharded *out) {
  shard s = {.plan = plan, .m = plan->mesh};
  HP_TRY(graph_create(g, &s.r.to));
  hp_status st = begin(&s, g);
  if (!st) st = shard_all(&s);
  if (!st) st = graph_status(s.r.to);
  uint8_t *axes = st ? NULL : mem_calloc(g->values.len, 1);
  if (!st && !axes) st = HP_ERR_OOM;
  for (val v = 1; !st && v < g->values.len; v++) axes[v] = shard_row_axes(&s.rows[v]);
  end(&s);
  *out = (sharded){.graph = s.r.to, .of = s.made, .row_axes = axes};
  if (st) sharded_free(out);
  return st;
}

/* From the layouts of the padded graph to those of g: shards keep the length that they have
 * there. */
static hp_status unpadded(const hp_graph *g, const padded *p, const mesh *m, sharded *s) {
  layout *of = mem_calloc(g->values.len, sizeof *of);
  uint8_t *axes = mem_calloc(g->values.len, 1);
  if (!of || !axes) {
    mem_free(of);
    mem_free(axes);
    return HP_ERR_OOM;
  }
  for (val v = 1; v < g->values.len; v++) {
    const ir_value *t = graph_value(g, v), *longer = graph_value(p->graph, p->of[v]);
    of[v] = s->of[p->of[v]];
    axes[v] = s->row_axes[p->of[v]];
    for (int d = 0; d < t->rank; d++)
      if (longer->dim[d] != t->dim[d])
        of[v].shard_size[d] = (int32_t)layout_shard_size(m, &of[v], d, longer->dim[d]);
  }
  mem_free(s->of);
  mem_free(s->row_axes);
  s->of = of;
  s->row_axes = axes;
  s->padded_work = p->all_flops > 0 ? 1 - p->true_flops / p->all_flops : 0;
  return HP_OK;
}

hp_status shard_graph(const hp_graph *g, const shard_plan *plan, sharded *out) {
  padded p;
  HP_TRY(shard_pad(g, plan, &p));
  shard_plan even = *plan;
  even.type = p.was;
  hp_status st = shard_even(p.graph ? p.graph : g, &even, out);
  if (!st && p.graph) {
    st = unpadded(g, &p, plan->mesh, out);
    if (st) sharded_free(out);
  }
  padded_free(&p);
  return st;
}

void sharded_free(sharded *s) {
  graph_free(s->graph);
  mem_free(s->of);
  mem_free(s->row_axes);
  *s = (sharded){0};
}
