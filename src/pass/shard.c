#include "pass/shard.h"

#include "pass/pass.h"
#include "shard/rule_node.h"

#include <math.h>
#include <string.h>

/* What a second of a device is worth when layouts are compared: only the ratio counts. */
static const double FLOPS_PER_S = 1e11, BYTES_PER_S = 1e10, MOVE_S = 1e-6;

typedef struct {
  rewrite r;
  const shard_plan *plan;
  const mesh *m;
  layout *made; /* of old values, where they are made */
  layout *now;  /* of their latest form, which later users start from */
  bool *wide;   /* the latest form is in f32: a partial sum of 16-bit numbers */
} shard;

/* How one node is to be computed. */
typedef struct {
  layout need[RULE_TENSORS], out[OPS_OUT_MAX];
  double cost;
  bool found;
} choice;

/* --- redistribution ------------------------------------------------------------------------------
 */

static hp_status find_path(const shard *s, const ir_value *x, const layout *from, const layout *to,
                           path *out) {
  path_request q = {.mesh = s->m, .shape = x->dim, .element_bytes = (double)value_bytes(x)};
  double n = (double)value_elements(x);
  q.element_bytes = n > 0 ? q.element_bytes / n : 1;
  return path_find(&q, from, to, out);
}

static void put_axes(attr_record *a, const uint8_t *axis, int n) {
  int64_t list[LAYOUT_AXES];
  for (int i = 0; i < n; i++) list[i] = axis[i];
  attr_put_list(a, list, n);
}

/* The node of a move. */
static val emit_move(shard *s, const path_move *m, val x) {
  static const op_id ops[] = {[MOVE_SPLIT] = OP_PART,
                              [MOVE_GATHER] = OP_ALL_GATHER,
                              [MOVE_ALL_TO_ALL] = OP_ALL_TO_ALL,
                              [MOVE_REDUCE_SCATTER] = OP_REDUCE_SCATTER,
                              [MOVE_ALL_REDUCE] = OP_ALL_REDUCE,
                              [MOVE_DROP] = OP_DROP};
  attr_record a = {0};
  put_axes(&a, m->axis, m->n);
  attr_put_int(&a, move_devices(s->m, m));
  if (m->kind != MOVE_ALL_REDUCE && m->kind != MOVE_DROP) attr_put_int(&a, m->dim);
  if (m->kind == MOVE_ALL_TO_ALL) {
    put_axes(&a, m->cut, m->n);
    attr_put_int(&a, m->to);
  }
  if (m->op) attr_put_int(&a, m->op);
  return ops_add(s->r.to, ops[m->kind], &x, 1, &a);
}

static bool is_pending(const layout *l) {
  for (int a = 0; a < LAYOUT_AXES; a++)
    if (l->pending[a]) return true;
  return false;
}

/* To the dtype that the value has in the graph of the whole. */
static val narrow(shard *s, val old, val x) {
  s->wide[old] = false;
  return ops_cast(s->r.to, x, (hp_dtype)graph_value(s->r.from, old)->dtype);
}

/* The value in layout `to`.  Where a reduction was carried out, later users start from there. */
static hp_status bring(shard *s, val old, const layout *to, val *out) {
  path p;
  bool reduces = false;
  if (s->wide[old] && is_pending(to)) s->r.map[old] = narrow(s, old, s->r.map[old]);
  *out = s->r.map[old];
  if (layout_equal(&s->now[old], to)) return graph_status(s->r.to);
  HP_TRY(find_path(s, graph_value(s->r.from, old), &s->now[old], to, &p));
  for (int i = 0; i < p.n; i++) {
    *out = emit_move(s, &p.move[i], *out);
    reduces |= p.move[i].kind == MOVE_ALL_REDUCE || p.move[i].kind == MOVE_REDUCE_SCATTER;
  }
  if (s->wide[old]) *out = narrow(s, old, *out);
  if (!reduces) return graph_status(s->r.to);
  s->r.map[old] = *out;
  s->now[old] = *to;
  return graph_status(s->r.to);
}

/* --- how a node is computed ---------------------------------------------------------------------
 */

static int64_t replicas(const mesh *m, const layout *l) { return layout_repeat(m, l); }

/* Sums may wait behind what only moves or adds, and behind factors of one element. */
static bool may_wait(const hp_graph *g, const ir_node *n) {
  op_linearity l = op_table[n->op].linearity;
  if (l == LIN_MOVE || l == LIN_JOINT) return true;
  int large = 0;
  for (int i = 0; i < n->n_in; i++) large += value_elements(graph_value(g, graph_in(g, n)[i])) > 1;
  return large <= 1;
}

static double cost_of(shard *s, const ir_node *n, const choice *c) {
  const val *in = graph_in(s->r.from, n);
  int64_t alike = s->m->devices;
  double seconds = 0;
  for (int i = 0; i < n->n_in; i++) {
    path p;
    if (find_path(s, graph_value(s->r.from, in[i]), &s->now[in[i]], &c->need[i], &p)) {
      err_clear();
      return INFINITY;
    }
    seconds += p.bytes / BYTES_PER_S + p.n * MOVE_S;
    if (replicas(s->m, &c->need[i]) < alike) alike = replicas(s->m, &c->need[i]);
  }
  op_cost k = op_meanings[n->op].cost(s->r.from, n);
  double share = (double)alike / (double)s->m->devices;
  return seconds + share * (k.flops / FLOPS_PER_S + k.bytes / BYTES_PER_S);
}

/* Tries the operands' layouts `in`; keeps the result in best when it is cheaper. */
static void try_layouts(shard *s, const ir_node *n, const rule *r, const layout *in, choice *best) {
  choice c = {.found = true};
  if (rule_derive(s->m, r, in, c.need, c.out)) {
    err_clear();
    return;
  }
  c.cost = cost_of(s, n, &c);
  if (!best->found || c.cost < best->cost) *best = c;
}

/* As the operands lie; with each operand leading and the others whole; and all of them whole. */
static hp_status choose(shard *s, const ir_node *n, choice *best) {
  const val *from = graph_in(s->r.from, n);
  layout in[RULE_TENSORS], some[RULE_TENSORS];
  rule *r = mem_calloc(1, sizeof *r);
  HP_TRY_MEM(r);
  hp_status st = rule_of_node(s->r.from, n, r);
  best->found = false;
  for (int i = 0; i < n->n_in; i++) in[i] = s->now[from[i]];
  if (!st && !may_wait(s->r.from, n)) r->linearity = LIN_NONE;
  if (!st) try_layouts(s, n, r, in, best);
  for (int lead = -1; !st && lead < n->n_in; lead++) {
    for (int i = 0; i < n->n_in; i++) {
      some[i] = (layout){.rank = in[i].rank};
      if (i == lead) some[i] = in[i];
    }
    try_layouts(s, n, r, some, best);
  }
  mem_free(r);
  if (st) return st;
  if (best->found) return HP_OK;
  HP_FAIL(HP_ERR_INTERNAL, "%s \"%s\": no layout of its operands is possible", op_table[n->op].name,
          graph_str(s->r.from, n->loc));
}

/* --- nodes
 * -------------------------------------------------------------------------------------------- */

static void local_type(const shard *s, const layout *l, ir_value *v) {
  for (int d = 0; d < v->rank; d++) v->dim[d] = layout_part_size(s->m, l, d, v->dim[d]);
}

hp_status shard_check_layout(const mesh *m, const char *name, const ir_value *v, const layout *l) {
  if (l->rank != v->rank)
    HP_FAIL(HP_ERR_LAYOUT, "layout of \"%s\": has %d entries, the tensor %d dims", name, l->rank,
            v->rank);
  for (int a = 0; a < m->axes; a++)
    if (l->pending[a])
      HP_FAIL(HP_ERR_LAYOUT, "layout of \"%s\": nothing can be pending on a tensor that is given",
              name);
  for (int d = 0; d < v->rank; d++)
    if (v->dim[d] % layout_parts(m, l, d))
      HP_FAIL(HP_ERR_UNSUPPORTED, "layout of \"%s\": dim %d of size %lld is not divided by %lld",
              name, d, (long long)v->dim[d], (long long)layout_parts(m, l, d));
  return HP_OK;
}

static hp_status leaf(shard *s, const ir_node *n) {
  ir_value v = *graph_value(s->r.from, n->out0);
  const char *name = attr_str(s->r.from, n, "name");
  layout l = {.rank = v.rank};
  if (s->plan->declared(s->plan->model, name, &v, &l))
    HP_TRY(shard_check_layout(s->m, name, &v, &l));
  s->made[n->out0] = s->now[n->out0] = l;
  local_type(s, &l, &v);
  s->r.map[n->out0] = ops_leaf(s->r.to, n->op, name, (hp_dtype)v.dtype, v.dim, v.rank);
  return graph_status(s->r.to);
}

/* Whole parts of what the computation gives; a param goes back to its own layout. */
static hp_status effect(shard *s, const ir_node *n) {
  const val *in = graph_in(s->r.from, n);
  val x = in[n->n_in - 1], moved;
  layout to = s->now[x];
  memset(to.pending, 0, sizeof to.pending);
  if (n->op == OP_ASSIGN) to = s->made[in[0]];
  HP_TRY(bring(s, x, &to, &moved));
  if (n->op == OP_ASSIGN) {
    ops_assign(s->r.to, s->r.map[in[0]], moved);
  } else {
    s->made[x] = to;
    ops_output(s->r.to, attr_str(s->r.from, n, "name"), moved);
  }
  return graph_status(s->r.to);
}

/* A product of 16-bit numbers that is left as a partial sum is made in f32, and rounded when the
 * sum is whole: then it has the accuracy of one device. */
static bool widens(const shard *s, const ir_node *n, const layout *out) {
  return n->op == OP_EINSUM && is_pending(out) &&
         graph_value(s->r.from, n->out0)->dtype != HP_F32 &&
         !is_pending(&s->now[graph_in(s->r.from, n)[0]]) &&
         !is_pending(&s->now[graph_in(s->r.from, n)[1]]);
}

static attr_record wide_einsum(shard *s, const ir_node *n) {
  attr_record a = {0};
  attr_put_str(&a, s->r.to, attr_str(s->r.from, n, "eq"));
  attr_put_int(&a, HP_F32);
  return a;
}

static hp_status compute(shard *s, const ir_node *n) {
  const val *from = graph_in(s->r.from, n);
  val in[RULE_TENSORS];
  choice c;
  HP_TRY(choose(s, n, &c));
  for (int i = 0; i < n->n_in; i++) HP_TRY(bring(s, from[i], &c.need[i], &in[i]));
  bool wide = widens(s, n, &c.out[0]);
  attr_record a = wide ? wide_einsum(s, n) : rule_local_attrs(s->r.from, n, s->m, &c.out[0]);
  val y = ops_add(s->r.to, n->op, in, n->n_in, &a);
  for (int o = 0; y && o < n->n_out; o++) {
    val old = n->out0 + (val)o;
    s->r.map[old] = y + (val)o;
    s->made[old] = s->now[old] = c.out[o];
    s->wide[old] = wide;
  }
  return graph_status(s->r.to);
}

static hp_status shard_all(shard *s) {
  for (uint32_t i = 0; i < s->r.from->nodes.len; i++) {
    const ir_node *n = graph_node(s->r.from, i);
    rewrite_place(&s->r, n);
    if (n->op == OP_INPUT || n->op == OP_PARAM) HP_TRY(leaf(s, n));
    else if (!n->n_out) HP_TRY(effect(s, n));
    else HP_TRY(compute(s, n));
  }
  return HP_OK;
}

hp_status shard_graph(const hp_graph *g, const shard_plan *plan, sharded *out) {
  shard s = {.plan = plan, .m = plan->mesh};
  HP_TRY(rewrite_begin(&s.r, g));
  s.made = mem_calloc(g->values.len, sizeof *s.made);
  s.now = mem_calloc(g->values.len, sizeof *s.now);
  s.wide = mem_calloc(g->values.len, sizeof *s.wide);
  hp_status st = s.made && s.now && s.wide ? shard_all(&s) : HP_ERR_OOM;
  st = rewrite_end(&s.r, st, &out->graph);
  mem_free(s.now);
  mem_free(s.wide);
  if (st) mem_free(s.made);
  else out->of = s.made;
  return st;
}

void sharded_free(sharded *s) {
  graph_free(s->graph);
  mem_free(s->of);
  *s = (sharded){0};
}
