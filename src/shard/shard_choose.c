/* Chooses how a node is computed: the layouts of its operands. */
#include "ops/op_class.h"
#include "shard/shard_state.h"

#include "shard/slices.h"

#include <math.h>
#include <string.h>

static const double MOVE_S = 1e-6; /* to start a collective of any size */
static const double MOVED_ROWS =
    4; /* to move rows, the alternative must cost this many times as much */

/* Sums may stay partial through ops that only move or add, and through factors of one element. */
static bool may_wait(const hp_graph *g, const ir_node *n) {
  op_linearity l = op_table[n->op].linearity;
  if (l == LIN_MOVE || l == LIN_JOINT) return true;
  int large = 0;
  for (int i = 0; i < n->n_in; i++) large += value_elements(graph_value(g, graph_in(g, n)[i])) > 1;
  return large <= 1;
}

/* Seconds of the path from one layout of a value to another. */
static double way(const shard *s, val v, const layout *from, const layout *to) {
  path p;
  if (!shard_path(s, graph_value(s->r.from, v), from, to, &p)) return p.cost + p.n * MOVE_S;
  err_clear();
  return INFINITY;
}

/* Seconds of the path from the layout of result v to the declared layouts of the annotations and
 * params that it becomes. */
static double way_to_users(const shard *s, val v, const layout *out) {
  double seconds = 0;
  layout l;
  for (uint32_t u = s->users.use0[v]; u < s->users.use0[v + 1]; u++) {
    const ir_node *n = graph_node(s->r.from, s->users.use[u]);
    val param = graph_in(s->r.from, n)[0];
    if (n->op == OP_ANNOTATE && shard_declared(s->r.from, s->plan, n, &l))
      seconds += way(s, v, out, &l);
    if (n->op == OP_ASSIGN && param != v) seconds += way(s, v, out, &s->made[param]);
  }
  return seconds;
}

/* The share of a node's operations that one device computes: every axis that shards an operand
 * divides them. */
static double work_share(const mesh *m, const choice *c, int operands) {
  double share = 1;
  for (int a = 0; a < m->axes; a++) {
    bool cuts = false;
    for (int i = 0; i < operands; i++) cuts |= layout_dim_of(&c->need[i], a) >= 0;
    if (cuts) share /= (double)m->size[a];
  }
  return share;
}

/* Bytes of the results on one device. */
static double result_bytes(const shard *s, const ir_node *n, const choice *c) {
  double bytes = 0;
  for (int o = 0; o < n->n_out; o++) {
    double share = (double)layout_repeat(s->m, &c->out[o]) / (double)s->m->devices;
    bytes += share * (double)value_bytes(graph_value(s->r.from, n->out0 + (val)o));
  }
  return bytes;
}

/* A copy from or to the tier that the op names. */
static void set_copy(const shard *s, const ir_node *n, double bytes, cost_work *w) {
  int tier = (int)attr_int(s->r.from, n, "tier");
  w->op = tier == TIER_FLASH ? COST_FLASH : COST_TRANSFER;
  w->bytes = w->size = bytes;
  bool in = n->op == OP_FETCH || n->op == OP_PAGED_FETCH;
  w->from = in ? tier : TIER_DEVICE;
  w->to = in ? TIER_DEVICE : tier;
  w->devices = s->m->devices;
}

static double cost_of(const shard *s, const ir_node *n, const choice *c) {
  const val *in = graph_in(s->r.from, n);
  double seconds = 0;
  for (int i = 0; i < n->n_in; i++) seconds += way(s, in[i], &s->now[in[i]], &c->need[i]);
  for (int o = 0; o < n->n_out; o++) {
    val v = n->out0 + (val)o;
    layout home;
    shard_rows_home(s, n, v, &c->out[o], &home);
    seconds += way(s, v, &c->out[o], &home) + way_to_users(s, v, &home);
  }
  op_cost k = op_meanings[n->op].cost(s->r.from, n);
  double share = work_share(s->m, c, n->n_in);
  double bytes = fmax(share * k.bytes, result_bytes(s, n, c));
  double flops = share * k.flops;
  cost_work w = {.op = op_class((op_id)n->op),
                 .bf16 = graph_value(s->r.from, n->n_in ? in[0] : n->out0)->dtype == HP_BF16,
                 .flops = flops,
                 .bytes = bytes,
                 .size = bytes};
  if (op_flags((op_id)n->op) & OPF_MOVE) set_copy(s, n, result_bytes(s, n, c), &w);
  return seconds + cluster_work_s(s->plan->cluster, &w);
}

typedef struct {
  shard *s;
  const ir_node *n;
  rule *r;
  layout now[RULE_TENSORS],
      in[RULE_TENSORS]; /* current layouts of the operands; the layouts to try */
  choice trial, *best;
} choosing;

static bool derives(choosing *c) {
  if (!rule_derive(c->s->m, c->r, c->in, c->trial.need, c->trial.out)) return true;
  err_clear();
  return false;
}

/* --- sums that are not split --------------------------------------------------------------------
 *
 * An axis that leaves a partial sum is removed from the operands and may shard a dim of the
 * results instead, which divides the work as well: with sharded tokens, the gradient of a weight
 * is sharded along its rows. */

/* The axes over which a result would be partial. */
static int cut_sums(const choosing *c, uint8_t axis[LAYOUT_AXES]) {
  int n = 0;
  for (int a = 0; a < c->s->m->axes; a++) {
    bool partial = false;
    for (int o = 0; o < c->n->n_out; o++) partial |= c->trial.out[o].partial[a] != PARTIAL_NONE;
    if (partial) axis[n++] = (uint8_t)a;
  }
  return n;
}

static bool may_take(const choosing *c) {
  uint8_t axis[LAYOUT_AXES];
  return !c->s->plan->no_partial_sums || !cut_sums(c, axis);
}

static void take_axes(layout *l, const uint8_t *axis, int n) {
  layout left = {.rank = l->rank};
  for (int d = 0; d < l->rank; d++)
    for (int k = 0; k < l->n[d]; k++)
      if (!memchr(axis, l->axis[d][k], (size_t)n)) layout_append(&left, d, l->axis[d][k]);
  *l = left;
}

/* The cheapest; moving rows must be several times cheaper, because they take memory where they
 * go. */
static bool is_better(const choice *a, const choice *b) {
  if (!b->found) return true;
  double x = a->cost * (a->keeps_rows ? 1 : MOVED_ROWS),
         y = b->cost * (b->keeps_rows ? 1 : MOVED_ROWS);
  return x < y;
}

static void consider(choosing *c) {
  if (!derives(c) || !may_take(c)) return;
  c->trial.found = true;
  c->trial.keeps_rows = shard_keeps_rows(c->s, c->n, &c->trial);
  c->trial.cost = cost_of(c->s, c->n, &c->trial);
  if (is_better(&c->trial, c->best)) *c->best = c->trial;
}

/* A factor of a result, sharded by these axes, too. */
static void consider_cut(choosing *c, int factor, const uint8_t *axis, int n) {
  int d, t = rule_find(c->r, factor, &d);
  if (t < 0 || c->r->factor[factor].replicated) return;
  const layout *l = t < c->r->n_in ? &c->trial.need[t] : &c->trial.out[t - c->r->n_in];
  layout cut = *l;
  for (int i = 0; i < n; i++) {
    int64_t shards = layout_shard_count(c->s->m, &cut, d) * c->s->m->size[axis[i]];
    if (c->r->factor[factor].size % shards == 0) layout_append(&cut, d, axis[i]);
  }
  if (cut.n[d] == l->n[d]) return;
  uint8_t had = c->r->factor[factor].n;
  c->r->factor[factor].n = cut.n[d];
  memcpy(c->r->factor[factor].axis, cut.axis[d], cut.n[d]);
  consider(c);
  c->r->factor[factor].n = had;
}

static void try_layouts(choosing *c) {
  uint8_t axis[LAYOUT_AXES];
  if (!derives(c)) return;
  int n = c->s->plan->no_partial_sums ? cut_sums(c, axis) : 0;
  for (int i = 0; n && i < c->n->n_in; i++) take_axes(&c->in[i], axis, n);
  consider(c);
  for (int f = 0; n && f < c->r->factors && derives(c); f++) consider_cut(c, f, axis, n);
}

/* As much of the layout of operand i as is compatible with the others: axis by axis, dim by dim. */
static void adopt(choosing *c, int i) {
  layout have = c->in[i];
  c->in[i] = c->now[i];
  if (derives(c)) return;
  c->in[i] = have;
  memcpy(c->in[i].partial, c->now[i].partial, sizeof have.partial);
  if (!derives(c)) memcpy(c->in[i].partial, have.partial, sizeof have.partial);
  for (int d = 0; d < c->now[i].rank; d++)
    for (int k = 0; k < c->now[i].n[d]; k++) {
      layout_append(&c->in[i], d, c->now[i].axis[d][k]);
      if (derives(c)) continue;
      layout_cut(&c->in[i], d, 1);
      break;
    }
}

static void replicate_all(choosing *c) {
  for (int i = 0; i < c->n->n_in; i++) c->in[i] = (layout){.rank = c->now[i].rank};
}

/* Is the operand's layout usable unchanged? */
static bool lies_right(choosing *c) {
  memcpy(c->in, c->now, sizeof c->in);
  if (!derives(c) || !may_take(c)) return false;
  for (int i = 0; i < c->n->n_in; i++)
    if (!layout_equal(&c->trial.need[i], &c->now[i])) return false;
  if (!shard_keeps_rows(c->s, c->n, &c->trial)) return false;
  c->trial.found = c->trial.keeps_rows = true;
  *c->best = c->trial;
  return true;
}

/* Tries the operands' layouts; each of them leading, with compatible axes of the others; each
 * alone; and all replicated. */
static void choose(choosing *c) {
  if (lies_right(c)) return;
  try_layouts(c); /* lies_right has not changed them */
  for (int lead = 0; lead < c->n->n_in; lead++) {
    replicate_all(c);
    adopt(c, lead);
    try_layouts(c);
    for (int i = 0; i < c->n->n_in; i++)
      if (i != lead) adopt(c, i);
    try_layouts(c);
  }
  replicate_all(c);
  try_layouts(c);
}

/* --- what the users of a value want ---------------------------------------------------------- */

enum { LOOK_AHEAD = 6 };

static bool is_elementwise(int op) {
  return op_flags((op_id)op) & OPF_ELEMENTWISE || op == OP_ADAMW || op == OP_SGD || op == OP_ASSIGN;
}

static bool wanted(const hp_graph *g, const use_lists *users, const shard_plan *plan, val v,
                   int steps, layout *out) {
  const ir_value *x = graph_value(g, v);
  for (uint32_t u = users->use0[v]; u < users->use0[v + 1]; u++) {
    const ir_node *n = graph_node(g, users->use[u]);
    if (!is_elementwise(n->op)) continue;
    for (int i = 0; i < n->n_in; i++) {
      val other = graph_in(g, n)[i];
      bool like = value_same_shape(graph_value(g, other), x);
      if (!like || graph_def(g, other)->op != OP_PARAM) continue;
      if (shard_declared(g, plan, graph_def(g, other), out)) return true;
    }
    if (steps && n->n_out && value_same_shape(graph_value(g, n->out0), x) &&
        wanted(g, users, plan, n->out0, steps - 1, out))
      return true;
  }
  return false;
}

bool shard_wanted(const hp_graph *g, const use_lists *users, const shard_plan *plan, val v,
                  layout *out) {
  return wanted(g, users, plan, v, LOOK_AHEAD, out);
}

/* Shards a dim that only the result has by the axes of the owners of an operand's rows; else as
 * the users need it, by axes that the operands leave free. */
static void ask(choosing *c) {
  layout l;
  const rule_tensor *y = &c->r->out[0];
  const owners *own = shard_owners_of_operands(c->s, c->n);
  for (int d = 0; c->r->n_out && d < y->rank; d++) {
    int f = y->n[d] == 1 ? y->factor[d][0] : 0;
    if (!y->n[d] || !c->r->factor[f].index || rule_find(c->r, f, &(int){0}) < c->r->n_in) continue;
    if (own) {
      l.n[d] = own->n;
      memcpy(l.axis[d], own->axis, sizeof own->axis);
    } else if (!shard_wanted(c->s->r.from, &c->s->users, c->s->plan, c->n->out0, &l)) {
      return;
    }
    int64_t shards = 1;
    for (int k = 0; k < l.n[d]; k++) {
      int axis = l.axis[d][k];
      bool open = true;
      for (int i = 0; !own && i < c->n->n_in; i++) open &= layout_is_free(&c->now[i], axis);
      shards *= c->s->m->size[axis];
      if (!open || c->r->factor[f].size % shards) break;
      c->r->factor[f].axis[c->r->factor[f].n++] = (uint8_t)axis;
    }
  }
}

hp_status shard_choose(shard *s, const ir_node *n, rule *r, choice *best) {
  choosing *c = mem_calloc(1, sizeof *c);
  HP_TRY_MEM(c);
  c->s = s;
  c->n = n;
  c->r = r;
  c->best = best;
  best->found = false;
  for (int i = 0; i < n->n_in; i++) c->now[i] = s->now[graph_in(s->r.from, n)[i]];
  if (!may_wait(s->r.from, n)) r->linearity = LIN_NONE;
  ask(c);
  choose(c);
  mem_free(c);
  if (best->found) return HP_OK;
  HP_FAIL(HP_ERR_INTERNAL, "%s \"%s\": no layout of its operands is possible", op_table[n->op].name,
          graph_str(s->r.from, n->loc));
}
