#include "pass/fuse_emit.h"

#include "base/dtype.h"
#include "ir/attr.h"

#include <stdlib.h>
#include <string.h>

enum { LOADS_MAX = 64 };

bool fuse_is_view(const ir_node *n) {
  return n->op == OP_BROADCAST || n->op == OP_TRANSPOSE || n->op == OP_SLICE;
}

bool fuse_is_reduced(const fuse_group *k, uint32_t node) {
  for (int i = 0; i < k->n; i++)
    if (k->member[i] == node) return k->reduced[i];
  return false;
}

bool fuse_is_reduction(const ir_node *n) { return n->op == OP_SUM || n->op == OP_REDUCE_MAX; }

static const char *reduction_name(const ir_node *n) { return n->op == OP_SUM ? "sum" : "max"; }

bool fuse_sums_columns(const hp_graph *g, const ir_node *n) {
  int64_t axes[ATTR_LIST_MAX];
  if (!fuse_is_reduction(n)) return false;
  const ir_value *x = graph_value(g, graph_in(g, n)[0]);
  return attr_list(g, n, "axes", axes) != 1 || axes[0] != x->rank - 1;
}

/* Strides of v, broadcast from the right over space. */
static void broadcast_strides(const ir_value *v, const ir_value *space, int64_t *stride) {
  int64_t step = 1;
  int more = space->rank - v->rank;
  for (int d = 0; d < space->rank; d++) stride[d] = 0;
  for (int d = v->rank - 1; d >= 0; d--) {
    if (v->dim[d] != 1) stride[d + more] = step;
    step *= v->dim[d];
  }
}

static bool dims_merge(const int64_t *stride, const int64_t *dim, int d) {
  return dim[d + 1] == 1 || dim[d] == 1 || stride[d] == stride[d + 1] * dim[d + 1];
}

bool fuse_leading_dims_merge(const ir_value *v, const ir_value *space) {
  int64_t stride[HP_MAX_RANK];
  if (v->rank > space->rank) return false;
  broadcast_strides(v, space, stride);
  for (int d = space->rank - 2, inner = -1; d >= 0; d--) {
    if (space->dim[d] == 1) continue;
    if (inner >= 0 && stride[d] != stride[inner] * space->dim[inner]) return false;
    inner = d;
  }
  return true;
}

/* One load or store of the loop, with strides over the full space until dims are merged. */
typedef struct {
  val v; /* original value; for a load 0 = none */
  hp_dtype type;
  int64_t stride[HP_MAX_RANK], offset;
  int seed; /* random numbers, generated: 1 + the load of their seed; 0 for all others */
} access;

typedef struct {
  rewrite *r;
  const hp_graph *g;
  fuse_group *k;
  const uint32_t *group_of;
  uint32_t id;
  access load[LOADS_MAX], store[LOADS_MAX];
  uint32_t load_of[FUSE_MEMBERS][3]; /* load number + 1 of a member's operand, 0 = none */
  int n_loads, n_stores;
  val operand[LOADS_MAX]; /* distinct original values read, in order of their numbers */
  int n_operands;
  int64_t dim[HP_MAX_RANK];
  int rank;
} emit;

/* A sum over columns in a row loop. */
static bool is_fold(const emit *e, const ir_node *n) {
  return e->k->kind == LOOP_ROW && fuse_sums_columns(e->g, n);
}

/* Access of a node's operand over the space; views have their own strides. */
static void operand_access(const emit *e, const ir_node *n, val v, access *a) {
  const ir_value *x = graph_value(e->g, v);
  int64_t perm[ATTR_LIST_MAX], start[ATTR_LIST_MAX], step[ATTR_LIST_MAX], own[HP_MAX_RANK], s = 1;
  *a = (access){.v = v, .type = (hp_dtype)x->dtype};
  if (n->op != OP_TRANSPOSE && n->op != OP_SLICE) {
    broadcast_strides(x, &e->k->space, a->stride);
    return;
  }
  for (int d = x->rank - 1; d >= 0; d--) {
    own[d] = s;
    s *= x->dim[d];
  }
  if (n->op == OP_TRANSPOSE) {
    attr_list(e->g, n, "perm", perm);
    for (int d = 0; d < x->rank; d++) a->stride[d] = own[perm[d]];
    return;
  }
  attr_list(e->g, n, "start", start);
  attr_list(e->g, n, "step", step);
  for (int d = 0; d < x->rank; d++) {
    a->stride[d] = graph_value(e->g, n->out0)->dim[d] > 1 ? own[d] * step[d] : 0;
    a->offset += own[d] * start[d];
  }
}

static int add_load(emit *e, const access *a) {
  for (int i = 0; i < e->n_loads; i++)
    if (e->load[i].v == a->v && e->load[i].offset == a->offset && e->load[i].seed == a->seed &&
        !memcmp(e->load[i].stride, a->stride, sizeof a->stride))
      return i;
  HP_ASSERT(e->n_loads < LOADS_MAX);
  e->load[e->n_loads] = *a;
  for (int i = 0; !a->seed; i++) {
    if (i == e->n_operands) e->operand[e->n_operands++] = a->v;
    if (e->operand[i] == a->v) break;
  }
  return e->n_loads++;
}

bool fuse_is_generated(const ir_node *n) {
  return n->op == OP_CONST || n->op == OP_IOTA || n->op == OP_UNIFORM;
}

bool fuse_inlines(const hp_graph *g, const ir_node *user, val v) {
  int64_t axes[ATTR_LIST_MAX];
  const ir_node *d = graph_def(g, v);
  bool reduction = fuse_is_reduction(user);
  if (d->op == OP_UNIFORM) return !reduction;
  if (d->op != OP_IOTA) return d->op == OP_CONST;
  if (user->op == OP_TRANSPOSE || user->op == OP_SLICE) return false;
  return !reduction || graph_value(g, v)->rank <= 2 || attr_list(g, user, "axes", axes) == 1;
}

/* Adds the random numbers of v with this access, after the load of their seed. */
static int add_drawn(emit *e, access *a) {
  access seed = {.v = graph_in(e->g, graph_def(e->g, a->v))[0], .type = HP_I64};
  a->seed = add_load(e, &seed) + 1;
  return add_load(e, a);
}

static void collect_loads(emit *e) {
  for (int m = 0; m < e->k->n; m++) {
    const ir_node *n = graph_node(e->g, e->k->member[m]);
    for (int i = 0; i < n->n_in; i++) {
      val v = graph_in(e->g, n)[i];
      uint32_t d = graph_value(e->g, v)->def;
      bool inlined = fuse_inlines(e->g, n, v);
      bool drawn = inlined && graph_def(e->g, v)->op == OP_UNIFORM;
      if (e->group_of[d] == e->id || (inlined && !drawn)) continue;
      access a;
      operand_access(e, n, v, &a);
      e->load_of[m][i] = (uint32_t)(drawn ? add_drawn(e, &a) : add_load(e, &a)) + 1;
    }
  }
}

static bool used_outside(const emit *e, const use_lists *uses, val v) {
  for (uint32_t u = uses->use0[v]; u < uses->use0[v + 1]; u++)
    if (e->group_of[uses->use[u]] != e->id) return true;
  return false;
}

static void collect_stores(emit *e, const use_lists *uses) {
  for (int m = 0; m < e->k->n; m++) {
    const ir_node *n = graph_node(e->g, e->k->member[m]);
    if (!used_outside(e, uses, n->out0)) continue;
    access *a = &e->store[e->n_stores++];
    const ir_value *v = graph_value(e->g, n->out0);
    *a = (access){.v = n->out0, .type = (hp_dtype)v->dtype};
    int64_t s = 1;
    const ir_value *space = &e->k->space;
    if (e->k->reduced[m] && (e->k->kind == LOOP_COL || is_fold(e, n))) {
      a->stride[space->rank - 1] = 1;
      continue;
    }
    for (int d = space->rank - 1; d >= 0; d--) {
      if (e->k->kind == LOOP_ROW && e->k->reduced[m] && d == space->rank - 1) continue;
      a->stride[d] = s;
      s *= space->dim[d];
    }
  }
}

static void drop_dim(emit *e, int d) {
  for (int s = 0; s < 2; s++) {
    access *a = s ? e->store : e->load;
    int n = s ? e->n_stores : e->n_loads;
    for (int i = 0; i < n; i++)
      memmove(&a[i].stride[d], &a[i].stride[d + 1], (size_t)(e->rank - 1 - d) * sizeof(int64_t));
  }
  memmove(&e->dim[d], &e->dim[d + 1], (size_t)(e->rank - 1 - d) * sizeof(int64_t));
  e->rank--;
}

/* Can dims d and d + 1 of every access be iterated as one? */
static bool all_merge(const emit *e, int d) {
  for (int i = 0; i < e->n_loads; i++)
    if (!dims_merge(e->load[i].stride, e->dim, d)) return false;
  for (int i = 0; i < e->n_stores; i++)
    if (!dims_merge(e->store[i].stride, e->dim, d)) return false;
  return true;
}

static void merge_dims(emit *e) {
  bool iota = false;
  for (int m = 0; m < e->k->n; m++) {
    const ir_node *n = graph_node(e->g, e->k->member[m]);
    for (int i = 0; i < n->n_in; i++)
      iota |= graph_def(e->g, graph_in(e->g, n)[i])->op == OP_IOTA && !e->load_of[m][i];
  }
  if (iota) return; /* an iota names a dim */
  for (int d = e->rank - 2; d >= 0; d--) {
    if (e->k->kind == LOOP_ROW && d + 1 == e->rank - 1) continue;
    if (e->k->kind == LOOP_COL && d + 1 == e->rank - 1) continue;
    if (!all_merge(e, d)) continue;
    bool inner_one = e->dim[d + 1] == 1;
    int64_t n = e->dim[d] * e->dim[d + 1];
    if (inner_one) {
      drop_dim(e, d + 1);
      e->dim[d] = n;
    } else {
      drop_dim(e, d);
      e->dim[d] = n;
    }
  }
}

/* Value v rounded to its dtype: between two ops no value is wider than in memory. */
static int narrowed(loop *l, hp_dtype t, int v) {
  return t == HP_F32 || t == HP_I64 ? v : loop_cast(l, t, v);
}

/* A constant or iota, as a value of the loop. */
static int inline_leaf(const emit *e, loop *l, val v) {
  const ir_value *x = graph_value(e->g, v);
  const ir_node *n = graph_def(e->g, v);
  hp_dtype t = (hp_dtype)x->dtype;
  if (n->op == OP_IOTA) {
    int axis = (int)attr_int(e->g, n, "axis");
    bool still = x->dim[axis] == 1; /* and may be broadcast */
    int i = still ? loop_int(l, 0) : loop_iota(l, axis + e->k->space.rank - x->rank, 0);
    return loop_cast(l, t, i);
  }
  double c = attr_float(e->g, n, "value");
  if (dtype_is_float(t)) return narrowed(l, t, loop_const(l, (float)c));
  return narrowed(l, t, loop_int(l, ops_const_int(c)));
}

/* Does the result of n need to be narrowed?  Comparisons and logic give 0 or 1. */
static bool may_widen(const ir_node *n, hp_dtype t) {
  if (n->op == OP_CAST || n->op == OP_REDUCE_MAX) return false;
  if (t == HP_BOOL && op_meanings[n->op].grad == grad_none) return n->op == OP_SUM;
  return n->op == OP_SUM || op_flags((op_id)n->op) & OPF_ELEMENTWISE;
}

/* The loaded and generated values of the loop. */
static void write_loads(const emit *e, loop *l, int *loaded) {
  for (int i = 0; i < e->n_loads; i++) {
    const access *a = &e->load[i];
    if (a->seed) {
      int64_t stream = attr_int(e->g, graph_def(e->g, a->v), "stream");
      loaded[i] = loop_uniform(l, loaded[a->seed - 1], stream, a->stride, a->offset);
      loaded[i] = narrowed(l, a->type, loaded[i]);
      continue;
    }
    int op = 0;
    while (e->operand[op] != a->v) op++;
    loaded[i] = loop_in(l, op, a->type, a->stride, a->offset);
  }
}

/* Members in node order as loop values; `number` is by member. */
static void write_values(const emit *e, loop *l, int *number) {
  int loaded[LOADS_MAX];
  write_loads(e, l, loaded);
  for (int m = 0; m < e->k->n; m++) {
    const ir_node *n = graph_node(e->g, e->k->member[m]);
    int arg[3] = {-1, -1, -1};
    for (int i = 0; i < n->n_in; i++) {
      val v = graph_in(e->g, n)[i];
      if (e->load_of[m][i]) {
        arg[i] = loaded[e->load_of[m][i] - 1];
        continue;
      }
      uint32_t d = graph_value(e->g, v)->def;
      if (e->group_of[d] != e->id) arg[i] = inline_leaf(e, l, v);
      else
        for (int j = 0; j < m; j++)
          if (e->k->member[j] == d) arg[i] = number[j];
    }
    hp_dtype t = (hp_dtype)graph_value(e->g, n->out0)->dtype;
    if (is_fold(e, n)) {
      number[m] = arg[0]; /* summed where it is stored, and rounded there */
      continue;
    }
    if (n->op == OP_CAST) number[m] = loop_cast(l, t, arg[0]);
    else if (fuse_is_reduction(n)) number[m] = loop_reduce(l, reduction_name(n), arg[0]);
    else if (fuse_is_view(n)) number[m] = arg[0]; /* the load is all */
    else number[m] = loop_op(l, op_table[n->op].name, arg[0], arg[1], arg[2]);
    if (may_widen(n, t)) number[m] = narrowed(l, t, number[m]);
  }
}

static int compare_members(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static void sort_members(fuse_group *k) {
  uint32_t sorted[FUSE_MEMBERS];
  bool reduced[FUSE_MEMBERS];
  memcpy(sorted, k->member, (size_t)k->n * sizeof *sorted);
  qsort(sorted, (size_t)k->n, sizeof *sorted, compare_members);
  for (int i = 0; i < k->n; i++) reduced[i] = fuse_is_reduced(k, sorted[i]);
  memcpy(k->member, sorted, (size_t)k->n * sizeof *sorted);
  memcpy(k->reduced, reduced, sizeof reduced);
}

/* A loop may contain gradients and recomputed values for others. */
static uint16_t recomputed_stores(const emit *e) {
  uint16_t bits = 0;
  for (int i = 0; i < e->n_stores && i < RECOMPUTED_MOST; i++)
    if (graph_is_recomputed(e->g, e->store[i].v)) bits |= (uint16_t)(1u << i);
  return bits;
}

static hp_status add_fused(emit *e, const loop *l) {
  hp_graph *to = e->r->to;
  str body = {0};
  loop_print(l, "; ", &body);
  hp_status st = str_status(&body);
  attr_record a = {0};
  if (!st) attr_put_str(&a, to, body.at);
  str_free(&body);
  HP_TRY(st);
  val in[LOADS_MAX];
  ir_value out[LOADS_MAX];
  for (int i = 0; i < e->n_operands; i++) {
    in[i] = e->r->map[e->operand[i]];
    HP_ASSERT(in[i] || to->failure.code);
  }
  for (int i = 0; i < e->n_stores; i++) out[i] = *graph_value(e->g, e->store[i].v);
  rewrite_place(e->r, graph_node(e->g, e->k->member[e->k->n - 1]));
  val v = graph_add(to, OP_FUSED, in, e->n_operands, attr_intern(to, &a), out, e->n_stores);
  for (int i = 0; i < e->n_stores; i++) e->r->map[e->store[i].v] = v ? v + (val)i : 0;
  if (v) to->nodes.at[graph_value(to, v)->def].recomputed = recomputed_stores(e);
  return graph_status(to);
}

static hp_status write_loop(emit *e) {
  loop l = {0};
  int number[FUSE_MEMBERS];
  hp_shape space = {.rank = e->rank};
  memcpy(space.dim, e->dim, sizeof space.dim);
  if (!space.rank) {
    space.rank = 1;
    space.dim[0] = 1;
  }
  loop_begin(&l, e->k->kind, &space);
  write_values(e, &l, number);
  for (int i = 0; i < e->n_stores; i++) {
    int m = 0;
    while (graph_node(e->g, e->k->member[m])->out0 != e->store[i].v) m++;
    const ir_node *n = graph_node(e->g, e->k->member[m]);
    const access *a = &e->store[i];
    if (is_fold(e, n))
      loop_fold(&l, reduction_name(n), i, a->type, a->stride, a->offset, number[m]);
    else loop_out(&l, i, a->type, a->stride, a->offset, number[m]);
  }
  hp_status st = loop_status(&l);
  if (!st) st = add_fused(e, &l);
  loop_free(&l);
  return st;
}

/* A generated value as a kernel that writes it to memory. */
static hp_status materialize(rewrite *r, val v) {
  const ir_value *x = graph_value(r->from, v);
  uint32_t def = x->def, group_of_one = 1;
  fuse_group k = {.n = 0, .kind = LOOP_MAP, .space = *x};
  emit e = {.r = r, .g = r->from, .k = &k, .group_of = &group_of_one, .rank = x->rank};
  loop l = {0};
  access all = {.v = v, .type = (hp_dtype)x->dtype, .stride = {1}};
  int64_t s = 1;
  int loaded[LOADS_MAX];
  hp_shape space = {.rank = x->rank ? x->rank : 1, .dim = {1}};
  for (int d = x->rank - 1; d >= 0; d--) {
    space.dim[d] = x->dim[d];
    all.stride[d] = s;
    s *= x->dim[d];
  }
  bool drawn = graph_def(r->from, v)->op == OP_UNIFORM;
  int number = drawn ? add_drawn(&e, &all) : 0;
  loop_begin(&l, LOOP_MAP, &space);
  write_loads(&e, &l, loaded);
  loop_out(&l, 0, all.type, all.stride, 0, drawn ? loaded[number] : inline_leaf(&e, &l, v));
  hp_status st = loop_status(&l);
  e.store[e.n_stores++] = (access){.v = v};
  k.member[k.n++] = def;
  if (!st) st = add_fused(&e, &l);
  loop_free(&l);
  return st;
}

static hp_status make_leaf(rewrite *r, val v) {
  const ir_node *n = graph_def(r->from, v);
  if (r->map[v] || !fuse_is_generated(n)) return HP_OK;
  if (n->op == OP_UNIFORM) HP_TRY(make_leaf(r, graph_in(r->from, n)[0])); /* a constant seed */
  return materialize(r, v);
}

/* The memory that a loop reads for operand v of its member: v, or the seed of its random
 * numbers. */
static hp_status make_operand(rewrite *r, const ir_node *member, val v) {
  const ir_node *n = graph_def(r->from, v);
  if (!fuse_inlines(r->from, member, v)) return make_leaf(r, v);
  return n->op == OP_UNIFORM ? make_leaf(r, graph_in(r->from, n)[0]) : HP_OK;
}

hp_status fuse_make_leaves(rewrite *r, const ir_node *n) {
  for (int i = 0; i < n->n_in; i++) HP_TRY(make_leaf(r, graph_in(r->from, n)[i]));
  return HP_OK;
}

hp_status fuse_emit(rewrite *r, const use_lists *uses, fuse_group *k, const uint32_t *group_of,
                    uint32_t id) {
  emit e = {.r = r, .g = r->from, .k = k, .group_of = group_of, .id = id, .rank = k->space.rank};
  memcpy(e.dim, k->space.dim, sizeof e.dim);
  for (int m = 0; m < k->n; m++) {
    const ir_node *n = graph_node(r->from, k->member[m]);
    for (int i = 0; i < n->n_in; i++) HP_TRY(make_operand(r, n, graph_in(r->from, n)[i]));
  }
  sort_members(k);
  collect_loads(&e);
  collect_stores(&e, uses);
  if (!e.n_stores) return HP_OK; /* without readers */
  merge_dims(&e);
  return write_loop(&e);
}
