/* Two walks over the graph of a device find what it does with the rows of a value, by the ids of
 * experts that each row has:
 *
 *   needed  rows without an expert of the device may hold anything: their readers are experts, or
 *           ops by row whose results are needed no more than that
 *   zero    rows without an expert of the device are +0
 *
 * The ids are gathered along the same axes as the rows, so they are the same on all devices that
 * exchange the rows, and both ends of a transfer know what it consists of. */
#include "shard/dispatch.h"

#include "ir/layout.h"
#include "ir/rewrite.h"

#include <math.h>
#include <string.h>

/* The rows of a value that matter: those that have in `ids`, [R...,J], an expert of this device, or
 * of devices at its place along the axes `match`.  ids 0: all rows.  Sets of axes have a bit for
 * each. */
typedef struct {
  val ids;
  uint8_t apart; /* axes along which `ids` is gathered, but the value is not */
  uint8_t match;
  uint32_t experts; /* attributes of `locate`: the axes that shard the experts, and their number */
  bool unread;      /* of a value without readers: no rows matter */
} row_set;

typedef struct {
  rewrite r;
  const mesh *m;
  const cluster *c;
  hp_dispatch how;
  use_lists users;
  row_set *needed, *zero; /* by value */
} dispatching;

static const row_set all_rows;

static bool same_set(const row_set *a, const row_set *b) {
  return a->ids == b->ids && a->apart == b->apart && a->experts == b->experts &&
         a->match == b->match && a->unread == b->unread;
}

static uint8_t axes_of(const hp_graph *g, const ir_node *n) {
  int64_t axis[ATTR_LIST_MAX];
  uint8_t axes = 0;
  int count = attr_list(g, n, "axes", axis);
  for (int i = 0; i < count; i++) axes |= (uint8_t)(1u << axis[i]);
  return axes;
}

/* --- what ids say ----------------------------------------------------------------------------- */

/* The rows of ids that are indices in the device's own shard of the experts. */
static row_set rows_of_ids(const hp_graph *g, val ids) {
  const ir_node *n = graph_def(g, ids);
  if (n->op != OP_LOCATE) return all_rows;
  return (row_set){.ids = graph_in(g, n)[0], .experts = n->attr, .match = axes_of(g, n)};
}

static bool is_zero(const hp_graph *g, val v) {
  const ir_node *n = graph_def(g, v);
  if (n->op != OP_CONST) return false;
  double x = attr_float(g, n, "value");
  return x == 0 && !signbit(x);
}

/* The rows that stay of select(ids >= 0, x, 0), where ids are those of rows and slots. */
static row_set rows_of_select(const hp_graph *g, const ir_node *n) {
  const val *in = graph_in(g, n);
  const ir_node *shaped = graph_def(g, in[0]);
  if (shaped->op != OP_RESHAPE || !is_zero(g, in[2])) return all_rows;
  const ir_node *own = graph_def(g, graph_in(g, shaped)[0]);
  if (own->op != OP_GE || !is_zero(g, graph_in(g, own)[1])) return all_rows;
  row_set s = rows_of_ids(g, graph_in(g, own)[0]);
  if (!s.ids) return s;
  const ir_value *ids = graph_value(g, s.ids), *mask = graph_value(g, in[0]);
  const ir_value *x = graph_value(g, in[1]);
  bool fits = mask->rank == ids->rank + 1 && x->rank == mask->rank;
  for (int d = 0; fits && d < ids->rank; d++)
    fits = mask->dim[d] == ids->dim[d] && x->dim[d] == ids->dim[d];
  return fits ? s : all_rows;
}

/* The shape of the set's ids: of a shard of `ids`, if it is apart. */
static ir_value ids_of(const hp_graph *g, const row_set *s) {
  ir_value ids = *graph_value(g, s->ids);
  uint8_t left = s->apart;
  for (const ir_node *n = graph_def(g, s->ids); left; n = graph_def(g, graph_in(g, n)[0])) {
    if (axes_of(g, n) & left) ids.dim[attr_int(g, n, "dim")] /= attr_int(g, n, "n");
    left &= (uint8_t)~axes_of(g, n);
  }
  return ids;
}

/* Do the first dims of the value number the rows of the set? */
static bool has_rows(const hp_graph *g, val v, const row_set *s) {
  const ir_value *x = graph_value(g, v), ids = ids_of(g, s);
  bool has = x->rank >= ids.rank - 1;
  for (int d = 0; has && d < ids.rank - 1; d++) has = x->dim[d] == ids.dim[d];
  return has;
}

/* Does each row of the node's result come from the same row of operand v alone? */
static bool works_by_row(const hp_graph *g, const ir_node *n, val v, const row_set *s) {
  if (n->n_out != 1 || !has_rows(g, v, s) || !has_rows(g, n->out0, s)) return false;
  if (n->op == OP_RESHAPE) return true;
  if (n->op == OP_SUM) {
    int64_t axis[ATTR_LIST_MAX];
    int count = attr_list(g, n, "axes", axis);
    for (int i = 0; i < count; i++)
      if (axis[i] < graph_value(g, s->ids)->rank - 1) return false;
    return true;
  }
  bool by_element = op_flags((op_id)n->op) & OPF_ELEMENTWISE || n->op == OP_BROADCAST;
  return by_element && graph_value(g, v)->rank == graph_value(g, n->out0)->rank;
}

/* The set as one of the shards that an all_gather joins, or a reduce_scatter leaves, n being
 * either.  The ids are gathered along the same axes; gathers along different dims may come in any
 * order. */
static row_set rows_of_shard(const hp_graph *g, const ir_node *n, const row_set *s) {
  uint8_t axes = axes_of(g, n);
  int64_t dim = attr_int(g, n, "dim");
  if (!s->ids) return *s;
  const ir_node *by = graph_def(g, s->ids);
  for (; by->op == OP_ALL_GATHER; by = graph_def(g, graph_in(g, by)[0])) {
    if (axes_of(g, by) & s->apart) continue;
    if (attr_int(g, by, "dim") != dim) continue;
    if (axes_of(g, by) != axes) break;
    row_set shard = *s;
    shard.apart |= axes;
    shard.match &= (uint8_t)~axes;
    return shard;
  }
  return all_rows;
}

/* What a device needs of the rows from which it keeps a shard: those that others with experts like
 * its own would need of their shards, too. */
static row_set rows_of_whole(const hp_graph *g, const ir_node *n, const row_set *s) {
  if (!s->ids) return *s;
  const ir_node *by = graph_def(g, s->ids);
  if (s->apart || by->op != OP_LOCAL_SHARD || by->attr != n->attr) return all_rows;
  row_set whole = *s;
  whole.ids = graph_in(g, by)[0];
  return whole;
}

/* --- needed ----------------------------------------------------------------------------------- */

/* The rows of v that one of its users needs. */
static row_set needed_by(const dispatching *d, const ir_node *n, val v) {
  const hp_graph *g = d->r.from;
  const val *in = graph_in(g, n);
  if (n->op == OP_GROUPED_MATMUL && v != in[1] && v != in[2]) return rows_of_ids(g, in[2]);
  if (n->op == OP_GROUPED_MATMUL_GRAD && v != in[2]) return rows_of_ids(g, in[2]);
  if (!n->n_out) return all_rows;
  row_set s = d->needed[n->out0];
  if (n->op == OP_SELECT && v == in[1] && v != in[2]) {
    row_set kept = rows_of_select(g, n);
    if (kept.ids) return kept;
  }
  if (n->op == OP_ALL_GATHER) return rows_of_shard(g, n, &s);
  if (n->op == OP_LOCAL_SHARD) return rows_of_whole(g, n, &s);
  for (int k = 1; k < n->n_out && s.unread; k++) s = d->needed[n->out0 + (val)k];
  return s.unread || (s.ids && works_by_row(g, n, v, &s)) ? s : all_rows;
}

static row_set needed_by_all(const dispatching *d, val v) {
  row_set all = {.unread = true};
  for (uint32_t u = d->users.use0[v]; u < d->users.use0[v + 1]; u++) {
    row_set one = needed_by(d, graph_node(d->r.from, d->users.use[u]), v);
    if (one.unread) continue;
    if (!one.ids || (!all.unread && !same_set(&all, &one))) return all_rows;
    all = one;
  }
  return all;
}

/* --- zero ------------------------------------------------------------------------------------- */

static row_set zero_of(const dispatching *d, const ir_node *n) {
  const hp_graph *g = d->r.from;
  const val *in = graph_in(g, n);
  if (n->op == OP_GROUPED_MATMUL) return rows_of_ids(g, in[2]);
  if (n->op == OP_SELECT) return rows_of_select(g, n);
  if (!n->n_in || n->n_out != 1) return all_rows;
  row_set s = d->zero[in[0]];
  if (!s.ids) return s;
  if (n->op == OP_REDUCE_SCATTER) return rows_of_shard(g, n, &s);
  /* not those that make -0 or NaN of 0 */
  bool keeps = n->op == OP_CAST || n->op == OP_SUM || n->op == OP_RESHAPE || n->op == OP_ADD;
  if (n->op == OP_ADD) keeps = same_set(&s, &d->zero[in[1]]) && works_by_row(g, n, in[1], &s);
  return keeps && works_by_row(g, n, in[0], &s) ? s : all_rows;
}

static void find_sets(dispatching *d) {
  const hp_graph *g = d->r.from;
  for (uint32_t i = (uint32_t)g->nodes.len; i-- > 0;) {
    const ir_node *n = graph_node(g, i);
    for (val v = n->out0; v < n->out0 + n->n_out; v++) d->needed[v] = needed_by_all(d, v);
  }
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (n->n_out) d->zero[n->out0] = zero_of(d, n);
  }
}

/* --- writing ---------------------------------------------------------------------------------- */

static int64_t devices_along(const mesh *m, uint8_t axes) {
  int64_t n = 1;
  for (int a = 0; a < m->axes; a++)
    if (axes >> a & 1) n *= m->size[a];
  return n;
}

/* An all_gather or reduce_scatter that goes by rows. */
typedef struct {
  row_set rows;
  int op;
  attr_record attrs;
  double share; /* of the rows */
} by_rows;

static void put_axes(attr_record *a, uint8_t axes) {
  int64_t list[MESH_AXES];
  int n = 0;
  for (int k = 0; k < MESH_AXES; k++)
    if (axes >> k & 1) list[n++] = k;
  attr_put_list(a, list, n);
}

/* The attributes of node n, with those of the experts in s. */
static by_rows describe(const dispatching *d, const ir_node *n, const row_set *s) {
  const hp_graph *g = d->r.from;
  const ir_node locate = {.op = OP_LOCATE, .attr = s->experts};
  const ir_value *ids = graph_value(g, s->ids);
  int64_t axis[ATTR_LIST_MAX], shards = attr_int(g, &locate, "n");
  int64_t size = attr_int(g, &locate, "size"), groups = devices_along(d->m, s->match);
  by_rows b = {.rows = *s, .op = n->op == OP_ALL_GATHER ? OP_DISPATCH : OP_COMBINE};
  attr_put_list(&b.attrs, axis, attr_list(g, n, "axes", axis));
  attr_put_int(&b.attrs, attr_int(g, n, "n"));
  attr_put_int(&b.attrs, attr_int(g, n, "dim"));
  attr_put_list(&b.attrs, axis, attr_list(g, &locate, "axes", axis));
  attr_put_int(&b.attrs, shards);
  put_axes(&b.attrs, s->match);
  attr_put_int(&b.attrs, groups);
  attr_put_int(&b.attrs, size);
  b.share = ops_needed_share(shards * size, groups, ids->dim[ids->rank - 1]);
  return b;
}

static bool is_faster(const dispatching *d, const ir_node *n, double share) {
  int64_t list[ATTR_LIST_MAX];
  uint8_t axis[MESH_AXES];
  int count = attr_list(d->r.from, n, "axes", list);
  for (int i = 0; i < count; i++) axis[i] = (uint8_t)list[i];
  double devices = (double)attr_int(d->r.from, n, "n");
  double shard = (double)value_bytes(graph_value(d->r.from, n->out0));
  if (n->op == OP_ALL_GATHER) shard /= devices;
  double bytes = shard * (devices - 1);
  return cluster_rows_s(d->c, d->m, axis, count, share * bytes) <
         cluster_comm_s(d->c, d->m, axis, count, bytes, 1);
}

/* Rows that only some devices need, along one of the dims that number them. */
static bool goes_by_rows(const dispatching *d, const ir_node *n, by_rows *out) {
  const hp_graph *g = d->r.from;
  bool gathers = n->op == OP_ALL_GATHER;
  if (!gathers && (n->op != OP_REDUCE_SCATTER || attr_int(g, n, "op") != PARTIAL_SUM)) return false;
  val whole = gathers ? n->out0 : graph_in(g, n)[0];
  row_set s = gathers ? d->needed[whole] : d->zero[whole];
  if (!s.ids || !has_rows(g, whole, &s)) return false;
  if (attr_int(g, n, "dim") >= graph_value(g, s.ids)->rank - 1) return false;
  if (!rows_of_shard(g, n, &s).ids || !dtype_is_float((hp_dtype)graph_value(g, whole)->dtype))
    return false;
  *out = describe(d, n, &s);
  return d->how == HP_DISPATCH_ROWS || is_faster(d, n, out->share);
}

static void write_node(dispatching *d, uint32_t i);

/* The node that makes v comes first: ids do not depend on the rows that are sent by them. */
static val write_value(dispatching *d, val v) {
  if (!d->r.map[v] && !graph_status(d->r.to)) {
    const ir_node *n = graph_def(d->r.from, v);
    for (int k = 0; k < n->n_in; k++) (void)write_value(d, graph_in(d->r.from, n)[k]);
    write_node(d, graph_value(d->r.from, v)->def);
  }
  return d->r.map[v];
}

/* The ids v without the gathers along the axes `apart`. */
static val write_ids(dispatching *d, val v, uint8_t apart) {
  const hp_graph *g = d->r.from;
  const ir_node *n = graph_def(g, v);
  if (!apart) return write_value(d, v);
  uint8_t axes = axes_of(g, n);
  val shard = write_ids(d, graph_in(g, n)[0], apart & (uint8_t)~axes);
  if (axes & apart) return shard;
  int64_t axis[ATTR_LIST_MAX];
  attr_record a = {0};
  attr_put_list(&a, axis, attr_list(g, n, "axes", axis));
  attr_put_int(&a, attr_int(g, n, "n"));
  attr_put_int(&a, attr_int(g, n, "dim"));
  rewrite_place(&d->r, n);
  return ops_add(d->r.to, OP_ALL_GATHER, &shard, 1, &a);
}

static void write_node(dispatching *d, uint32_t i) {
  const ir_node *n = graph_node(d->r.from, i);
  by_rows b;
  if (n->n_out && d->r.map[n->out0]) return;
  if (!goes_by_rows(d, n, &b)) {
    rewrite_copy(&d->r, i);
    return;
  }
  val x = write_value(d, graph_in(d->r.from, n)[0]);
  val in[] = {x, write_ids(d, b.rows.ids, b.rows.apart)};
  rewrite_place(&d->r, n);
  d->r.map[n->out0] = ops_add(d->r.to, b.op, in, 2, &b.attrs);
}

static bool has_experts(const hp_graph *g) {
  for (uint32_t i = 0; i < g->nodes.len; i++)
    if (graph_node(g, i)->op == OP_GROUPED_MATMUL) return true;
  return false;
}

hp_status shard_dispatch(const hp_graph *g, const mesh *m, const cluster *c, hp_dispatch how,
                         hp_graph **out) {
  dispatching d = {.m = m, .c = c, .how = how};
  *out = NULL;
  if (how == HP_DISPATCH_ALL || !has_experts(g)) return HP_OK;
  HP_TRY(rewrite_begin(&d.r, g));
  d.needed = mem_calloc(g->values.len, sizeof *d.needed);
  d.zero = mem_calloc(g->values.len, sizeof *d.zero);
  hp_status st = d.needed && d.zero ? use_lists_build(g, &d.users) : HP_ERR_OOM;
  if (!st) {
    find_sets(&d);
    for (uint32_t i = 0; i < g->nodes.len && !graph_status(d.r.to); i++) write_node(&d, i);
  }
  use_lists_free(&d.users);
  mem_free(d.needed);
  mem_free(d.zero);
  return rewrite_end(&d.r, st, out);
}
