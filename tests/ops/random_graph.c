#include "ops/random_graph.h"

#include "base/dtype.h"
#include "base/philox.h"
#include "pass/autodiff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- numbers --------------------------------------------------------------------------------- */

uint32_t rng_next(rng *r) { return philox_u32(r->seed, 0, r->at++); }
int rng_below(rng *r, int n) { return (int)(rng_next(r) % (uint32_t)n); }
bool rng_chance(rng *r, int percent) { return rng_below(r, 100) < percent; }
double rng_unit(rng *r) { return rng_next(r) * 0x1p-32; }

void random_leaf_fill(random_graph *x, random_leaf *l) {
  const ir_value *t = graph_value(x->g, l->v);
  hp_dtype type = (hp_dtype)t->dtype;
  size_t size = dtype_size(type);
  for (int64_t k = 0; k < value_elements(t); k++) {
    double u = l->low + (l->high - l->low) * rng_unit(&x->r);
    int64_t i = (int64_t)floor(u);
    float f = (float)(l->whole ? floor(u) : u);
    char *to = (char *)l->data + (size_t)k * size;
    if (dtype_is_float(type)) HP_ASSERT(!dtype_convert(type, to, HP_F32, &f, 1));
    else memcpy(to, &i, size);
  }
}

/* --- values to go on from -------------------------------------------------------------------- */

static const ir_value *type_of(const random_graph *x, val v) { return graph_value(x->g, v); }
static bool is_float(const random_graph *x, val v) { return dtype_is_float(type_of(x, v)->dtype); }

/* The largest magnitude of a value; infinity when something in it is not finite or not known. */
static double magnitude(const random_graph *x, val v) {
  const ref_tensor *t = &x->ref.value[v];
  double most = 0;
  for (int64_t k = 0; k < t->n; k++) {
    double m = t->f ? fabs(t->f[k]) : fabs((double)t->i[k]);
    if (!(m < INFINITY) || !(t->e[k] < 0.02 * (1 + m))) return INFINITY;
    most = m > most ? m : most;
  }
  return most;
}

static val squash(random_graph *x, val v) {
  v = ops_unary(x->g, OP_TANH, v);
  ref_eval(&x->ref);
  return v;
}

/* Evaluates what was added, and keeps it if more can be made of it. */
static void keep(random_graph *x, val v) {
  HP_ASSERT(!graph_status(x->g));
  ref_eval(&x->ref);
  double m = magnitude(x, v);
  if (is_float(x, v) && m > 50 && m < INFINITY) v = squash(x, v), m = magnitude(x, v);
  if (m < 1e6 && x->pooled < RANDOM_POOL) x->pool[x->pooled++] = v;
}

typedef bool (*fits_fn)(const random_graph *x, val v, val like);
static bool any_float(const random_graph *x, val v, val like) {
  (void)like;
  return is_float(x, v);
}
static bool any(const random_graph *x, val v, val like) {
  (void)x, (void)v, (void)like;
  return true;
}
static bool has_dims(const random_graph *x, val v, val like) {
  (void)like;
  return type_of(x, v)->rank > 0 && value_elements(type_of(x, v)) > 0;
}
static bool same_type(const random_graph *x, val v, val like) {
  return type_of(x, v)->dtype == type_of(x, like)->dtype &&
         value_same_shape(type_of(x, v), type_of(x, like));
}
static bool broadcasts(const random_graph *x, val v, val like) {
  const ir_value *a = type_of(x, v), *b = type_of(x, like);
  if (a->dtype != b->dtype) return false;
  for (int d = 1; d <= a->rank && d <= b->rank; d++) {
    int64_t m = a->dim[a->rank - d], n = b->dim[b->rank - d];
    if (m != n && m != 1 && n != 1) return false;
  }
  return true;
}

/* A value of the pool that fits, the newer the likelier; 0 when there is none. */
static val pick(random_graph *x, fits_fn fits, val like) {
  for (int tries = 0; tries < 40; tries++) {
    int i = rng_below(&x->r, x->pooled);
    if (rng_chance(&x->r, 50)) i = x->pooled - 1 - i / 3;
    if (fits(x, x->pool[i], like)) return x->pool[i];
  }
  return 0;
}

/* --- rows ------------------------------------------------------------------------------------ */

static val make_unary(random_graph *x) {
  static const int ops[] = {OP_NEG,  OP_ABS,  OP_EXP,   OP_TANH, OP_SIGMOID, OP_SILU,
                            OP_RELU, OP_GELU, OP_FLOOR, OP_SIN,  OP_SQUARE,  OP_ERF};
  val v = pick(x, any_float, 0);
  if (!v) return 0;
  int op = ops[rng_below(&x->r, sizeof ops / sizeof *ops)];
  if (op == OP_EXP && magnitude(x, v) > 8) op = OP_SIGMOID;
  if (op == OP_SQUARE && rng_chance(&x->r, 50)) {
    val one = ops_const(x->g, (hp_dtype)type_of(x, v)->dtype, 1);
    val positive = ops_binary(x->g, OP_ADD, ops_unary(x->g, OP_ABS, v), one);
    return ops_unary(x->g, rng_chance(&x->r, 50) ? OP_SQRT : OP_LOG, positive);
  }
  return ops_unary(x->g, op, v);
}

static val make_binary(random_graph *x) {
  static const int ops[] = {OP_ADD, OP_SUB, OP_MUL, OP_MAX, OP_MIN, OP_ADD, OP_MUL};
  val a = pick(x, any, 0), b = pick(x, broadcasts, a);
  if (!b || type_of(x, a)->dtype == HP_BOOL) return 0;
  if (rng_chance(&x->r, 15))
    b = ops_const(x->g, (hp_dtype)type_of(x, a)->dtype, rng_below(&x->r, 5) - 2);
  return ops_binary(x->g, ops[rng_below(&x->r, 7)], a, b);
}

static val make_select(random_graph *x) {
  val a = pick(x, any, 0), b = pick(x, broadcasts, a);
  if (!b) return 0;
  val cond = ops_binary(x->g, OP_EQ + rng_below(&x->r, 6), a, b);
  if (rng_chance(&x->r, 20)) return cond;
  ref_eval(&x->ref);
  val c = pick(x, any, 0), d = pick(x, broadcasts, c);
  if (!d) return cond;
  ir_value t = *type_of(x, ops_binary(x->g, OP_EQ, c, d)), k = *type_of(x, cond);
  for (int i = 1; i <= t.rank && i <= k.rank; i++) {
    int64_t m = t.dim[t.rank - i], n = k.dim[k.rank - i];
    if (m != n && m != 1 && n != 1) return cond;
  }
  return ops_select(x->g, cond, c, d);
}

static val make_reduce(random_graph *x) {
  val v = pick(x, has_dims, 0);
  if (!v || type_of(x, v)->dtype == HP_BOOL) return 0;
  int64_t axes[HP_MAX_RANK];
  int n = 0, rank = type_of(x, v)->rank;
  for (int d = 0; d < rank; d++)
    if (rng_chance(&x->r, 45)) axes[n++] = d;
  if (!n) axes[n++] = rng_chance(&x->r, 70) ? rank - 1 : 0;
  attr_record a = {0};
  attr_put_list(&a, axes, n);
  attr_put_int(&a, rng_chance(&x->r, 50));
  return ops_add(x->g, rng_chance(&x->r, 70) ? OP_SUM : OP_REDUCE_MAX, &v, 1, &a);
}

static val make_reshape(random_graph *x) {
  val v = pick(x, any, 0);
  int64_t n = value_elements(type_of(x, v)), dim[HP_MAX_RANK];
  int rank = 0;
  while (rank < 3 && rng_chance(&x->r, 60)) { /* split off a factor */
    int64_t f = 1 + rng_below(&x->r, 8);
    if (n == 0 || n % f) continue;
    dim[rank++] = f;
    n /= f;
  }
  dim[rank++] = n;
  return ops_reshape(x->g, v, dim, rank);
}

static val make_transpose(random_graph *x) {
  val v = pick(x, has_dims, 0);
  if (!v) return 0;
  int64_t perm[HP_MAX_RANK];
  int rank = type_of(x, v)->rank;
  for (int d = 0; d < rank; d++) perm[d] = d;
  for (int d = rank - 1; d > 0; d--) {
    int e = rng_below(&x->r, d + 1);
    int64_t t = perm[d];
    perm[d] = perm[e];
    perm[e] = t;
  }
  return ops_transpose(x->g, v, perm);
}

static val make_broadcast(random_graph *x) {
  val v = pick(x, any, 0);
  ir_value t = *type_of(x, v);
  int64_t dim[HP_MAX_RANK];
  int rank = 0;
  if (value_elements(&t) > 2000) return 0;
  if (t.rank < 4 && rng_chance(&x->r, 60)) dim[rank++] = x->sizes[rng_below(&x->r, 6)];
  for (int d = 0; d < t.rank; d++)
    dim[rank++] = t.dim[d] == 1 ? x->sizes[rng_below(&x->r, 6)] : t.dim[d];
  return ops_broadcast(x->g, v, dim, rank);
}

static val make_slice(random_graph *x) {
  val v = pick(x, has_dims, 0);
  if (!v) return 0;
  ir_value t = *type_of(x, v);
  int64_t start[HP_MAX_RANK], stop[HP_MAX_RANK], step[HP_MAX_RANK];
  for (int d = 0; d < t.rank; d++) {
    start[d] = 0, stop[d] = t.dim[d], step[d] = 1;
    if (rng_chance(&x->r, 40) || t.dim[d] > 1 << 20) continue;
    start[d] = rng_below(&x->r, (int)t.dim[d]);
    stop[d] = start[d] + 1 + rng_below(&x->r, (int)(t.dim[d] - start[d]));
    if (rng_chance(&x->r, 15)) step[d] = 1 + rng_below(&x->r, 3);
  }
  return ops_slice(x->g, v, start, stop, step);
}

static val make_pad(random_graph *x) {
  val v = pick(x, has_dims, 0);
  if (!v) return 0;
  ir_value t = *type_of(x, v);
  int64_t lo[HP_MAX_RANK], hi[HP_MAX_RANK];
  for (int d = 0; d < t.rank; d++) lo[d] = rng_below(&x->r, 3), hi[d] = rng_below(&x->r, 2);
  return ops_pad(x->g, v, lo, hi, t.dtype == HP_BOOL ? 1 : rng_below(&x->r, 3));
}

static val make_concat(random_graph *x) {
  val in[4] = {pick(x, has_dims, 0)};
  if (!in[0]) return 0;
  int n = 1;
  while (n < 4 && (n == 1 || rng_chance(&x->r, 40))) {
    in[n] = pick(x, same_type, in[0]);
    if (!in[n]) in[n] = in[0];
    n++;
  }
  return ops_concat(x->g, in, n, rng_below(&x->r, type_of(x, in[0])->rank));
}

/* A slice of one value written into another. */
static val make_update(random_graph *x) {
  val v = pick(x, has_dims, 0);
  if (!v) return 0;
  ir_value t = *type_of(x, v);
  int axis = rng_below(&x->r, t.rank);
  int64_t zero[HP_MAX_RANK] = {0}, stop[HP_MAX_RANK], one[HP_MAX_RANK] = {1, 1, 1, 1, 1, 1};
  memcpy(stop, t.dim, sizeof stop);
  stop[axis] = 1 + rng_next(&x->r) % (uint32_t)t.dim[axis];
  val from = pick(x, same_type, v);
  val part = ops_slice(x->g, from ? from : v, zero, stop, one);
  val pos =
      ops_const(x->g, HP_I32, (double)(rng_next(&x->r) % (uint32_t)(t.dim[axis] - stop[axis] + 1)));
  attr_record a = {0};
  attr_put_int(&a, axis);
  return ops_add(x->g, OP_UPDATE, (val[]){v, part, pos}, 3, &a);
}

static val make_cast(random_graph *x) {
  static const hp_dtype to[] = {HP_F32, HP_BF16, HP_F16, HP_I32, HP_F32, HP_U8, HP_I64, HP_BOOL};
  val v = pick(x, any, 0);
  hp_dtype t = to[rng_below(&x->r, 8)];
  return type_of(x, v)->dtype == t ? 0 : ops_cast(x->g, v, t);
}

static val make_einsum(random_graph *x) {
  val a = pick(x, any_float, 0), b = pick(x, any_float, 0);
  if (!a || !b) return 0;
  ir_value t[2] = {*type_of(x, a), *type_of(x, b)};
  bool halves = t[0].dtype == HP_F16 || t[1].dtype == HP_F16; /* f32 and bf16 may meet */
  if (t[0].dtype != t[1].dtype && halves) return 0;
  char eq[24] = "", all[2 * HP_MAX_RANK + 1] = "";
  int64_t size[2 * HP_MAX_RANK];
  int n = 0, len = 0, out = 0;
  double work = 1;
  for (int s = 0; s < 2; s++) {
    bool used[2 * HP_MAX_RANK] = {false};
    for (int d = 0; d < t[s].rank; d++) {
      int l = n;
      for (int k = 0; s == 1 && k < n; k++) /* a letter of a with this size, mostly */
        if (!used[k] && size[k] == t[s].dim[d] && rng_chance(&x->r, 70)) l = k;
      if (l == n) {
        all[n] = (char)('a' + n);
        size[n++] = t[s].dim[d];
        work *= (double)t[s].dim[d];
      }
      used[l] = true;
      eq[len++] = all[l];
    }
    if (s == 0) eq[len++] = ',';
  }
  eq[len++] = '-';
  eq[len++] = '>';
  for (int k = 0; k < n && out < 4; k++)
    if (rng_chance(&x->r, 55)) eq[len++] = all[k], out++;
  eq[len] = 0;
  if (work > 3e6) return 0;
  val y = ops_einsum(x->g, eq, a, b, rng_chance(&x->r, 80) ? (hp_dtype)t[0].dtype : HP_F32);
  return y % 4 ? y : ops_einsum_onto(x->g, eq, a, b, y); /* two in a row */
}

static val make_row(random_graph *x) {
  val v = pick(x, has_dims, 0);
  if (!v || !is_float(x, v)) return 0;
  if (rng_chance(&x->r, 50)) return ops_unary(x->g, OP_SOFTMAX, v);
  ir_value t = *type_of(x, v);
  val w = ops_broadcast(x->g, ops_const(x->g, HP_F32, 1.5), &t.dim[t.rank - 1], 1);
  attr_record a = {0};
  attr_put_float(&a, 0.5);
  return ops_add(x->g, OP_RMS_NORM, (val[]){v, w}, 2, &a);
}

/* Indices along a dim, as a value of its own. */
static val make_iota(random_graph *x) {
  attr_record a = {0};
  int64_t dim[2] = {x->sizes[rng_below(&x->r, 6)], x->sizes[rng_below(&x->r, 6)]};
  attr_put_int(&a, rng_below(&x->r, 2));
  attr_put_int(&a, rng_chance(&x->r, 60) ? HP_F32 : HP_I32);
  attr_put_list(&a, dim, 2);
  return ops_add(x->g, OP_IOTA, NULL, 0, &a);
}

static val make_trip(random_graph *x) {
  val v = pick(x, any, 0);
  attr_record a = {0}, b = {0};
  attr_put_int(&a, 1);
  attr_put_int(&b, 1);
  return ops_add(x->g, OP_FETCH, (val[]){ops_add(x->g, OP_OFFLOAD, &v, 1, &a)}, 1, &b);
}

typedef val (*maker)(random_graph *x);
static const struct {
  maker make;
  int weight;
} makers[] = {{make_unary, 16},  {make_binary, 26},   {make_select, 6},    {make_reduce, 14},
              {make_reshape, 6}, {make_transpose, 6}, {make_broadcast, 4}, {make_slice, 6},
              {make_pad, 2},     {make_concat, 4},    {make_update, 4},    {make_einsum, 8},
              {make_row, 5},     {make_iota, 1}};

static val make_any(random_graph *x, const random_options *o) {
  if (o->dtypes && rng_chance(&x->r, 12)) return make_cast(x);
  if (o->streams && rng_chance(&x->r, 15)) return make_trip(x);
  int total = 0, at;
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) total += makers[i].weight;
  at = rng_below(&x->r, total);
  for (size_t i = 0;; i++)
    if ((at -= makers[i].weight) < 0) return makers[i].make(x);
}

/* --- leaves ----------------------------------------------------------------------------------- */

static void add_leaf(random_graph *x, int op, hp_dtype t, const int64_t *dim, int rank) {
  random_leaf *l = &x->leaf[x->leaves];
  *l = (random_leaf){.low = -2, .high = 2, .whole = rng_chance(&x->r, 40)};
  if (t == HP_U8) l->low = 0, l->high = 7;
  if (t == HP_BOOL) l->low = 0, l->high = 1.999;
  snprintf(l->name, sizeof l->name, "%c%d", op == OP_PARAM ? 'p' : 'x', x->leaves);
  l->v = ops_leaf(x->g, op, l->name, t, dim, rank);
  HP_ASSERT(!graph_status(x->g));
  l->bytes = (size_t)value_bytes(type_of(x, l->v));
  l->data = calloc(l->bytes + 1, 1);
  HP_ASSERT(l->data);
  random_leaf_fill(x, l);
  ref_set(&x->ref, l->v, l->data);
  x->pool[x->pooled++] = l->v;
  x->leaves++;
}

/* Shapes that go together: one of full rank, and parts and permutations of it. */
static void add_leaves(random_graph *x, const random_options *o) {
  static const int64_t small[] = {1, 2, 3, 4, 5, 7, 8, 16, 17}, big[] = {3, 16, 64, 130, 257, 48};
  static const hp_dtype types[] = {HP_F32, HP_BF16, HP_I32, HP_F16, HP_BOOL, HP_I64};
  int rank = 1 + rng_below(&x->r, o->large ? 3 : 4), n = 4 + rng_below(&x->r, 6);
  for (int d = 0; d < 6; d++)
    x->sizes[d] = o->large ? big[rng_below(&x->r, d < 2 ? 6 : 2)] : small[rng_below(&x->r, 9)];
  for (int i = 0; i < n; i++) {
    int64_t dim[HP_MAX_RANK];
    int from = rng_chance(&x->r, 30) ? rng_below(&x->r, rank + 1) : 0;
    for (int d = from; d < rank; d++) dim[d - from] = rng_chance(&x->r, 12) ? 1 : x->sizes[d];
    if (rank - from == 2 && rng_chance(&x->r, 20)) { /* transposed */
      int64_t t = dim[0];
      dim[0] = dim[1];
      dim[1] = t;
    }
    hp_dtype t = o->dtypes && rng_chance(&x->r, 40) ? types[rng_below(&x->r, 6)] : HP_F32;
    add_leaf(x, i % 2 ? OP_PARAM : OP_INPUT, t, dim, rank - from);
  }
}

/* --- backward, effects ------------------------------------------------------------------------ */

/* Has every op between wrt and the loss a gradient? */
static bool differentiable(const random_graph *x, val loss, const val *wrt, int n) {
  const hp_graph *g = x->g;
  bool *moved = calloc(g->values.len, 1), *used = calloc(g->values.len, 1), ok = true;
  HP_ASSERT(moved && used);
  for (int i = 0; i < n; i++) moved[wrt[i]] = true;
  used[loss] = true;
  for (size_t i = 0; i < g->nodes.len; i++) {
    const ir_node *d = graph_node(g, (uint32_t)i);
    bool any_moved = false;
    for (int k = 0; k < d->n_in; k++) any_moved |= moved[graph_in(g, d)[k]];
    for (int k = 0; any_moved && k < d->n_out; k++) moved[d->out0 + (val)k] = true;
  }
  for (size_t i = g->nodes.len; i-- > 0;) {
    const ir_node *d = graph_node(g, (uint32_t)i);
    if (!d->n_out || !used[d->out0]) continue;
    for (int k = 0; k < d->n_in; k++) used[graph_in(g, d)[k]] = true;
    if (moved[d->out0] && d->op == OP_UPDATE) ok = false;
  }
  free(moved);
  free(used);
  return ok;
}

/* Leaves out of wrt what v depends on through ops alone that have no gradient, as argmax: that is
 * refused. */
static int without_cuts(const random_graph *x, val v, val *wrt, int n) {
  const hp_graph *g = x->g;
  bool *used = calloc(g->values.len, sizeof *used), *reached = calloc(g->values.len, sizeof *used);
  int kept = 0;
  HP_ASSERT(used && reached);
  used[v] = reached[v] = true;
  for (size_t i = g->nodes.len; i-- > 0;) {
    const ir_node *d = graph_node(g, (uint32_t)i);
    bool any = false, by_float = false;
    for (int k = 0; k < d->n_out; k++) {
      any |= used[d->out0 + (val)k];
      by_float |= reached[d->out0 + (val)k] && is_float(x, d->out0 + (val)k);
    }
    for (int k = 0; k < d->n_in; k++) {
      used[graph_in(g, d)[k]] |= any;
      reached[graph_in(g, d)[k]] |= by_float;
    }
  }
  for (int i = 0; i < n; i++)
    if (reached[wrt[i]] || !used[wrt[i]]) wrt[kept++] = wrt[i];
  free(used);
  free(reached);
  return kept;
}

static void add_backward(random_graph *x) {
  val v = pick(x, any_float, 0), wrt[3], grads[3];
  int n = 0;
  for (int i = 0; i < x->leaves && n < 3; i++)
    if (is_float(x, x->leaf[i].v) && rng_chance(&x->r, 60)) wrt[n++] = x->leaf[i].v;
  if (!v || !n || !differentiable(x, v, wrt, n)) return;
  n = without_cuts(x, v, wrt, n);
  int64_t axes[HP_MAX_RANK] = {0, 1, 2, 3, 4, 5};
  val loss = ops_cast(x->g, ops_unary(x->g, OP_TANH, v), HP_F32);
  loss = ops_sum(x->g, loss, axes, type_of(x, loss)->rank, false);
  HP_ASSERT(!pass_autodiff(x->g, loss, wrt, n, grads));
  ref_eval(&x->ref);
  for (int i = 0; i < n; i++)
    if (magnitude(x, grads[i]) < 1e6) x->pool[x->pooled++] = grads[i];
}

static void add_output(random_graph *x, val v) {
  int i = x->outputs++;
  snprintf(x->output[i].name, sizeof x->output[i].name, "o%d", i);
  x->output[i].v = v;
  ops_output(x->g, x->output[i].name, v);
}

static void add_effects(random_graph *x) {
  int n = 2 + rng_below(&x->r, 5);
  val last = 0;
  for (int i = 0; i < n; i++) {
    val v = pick(x, any, 0);
    add_output(x, v);
    if (rng_chance(&x->r, 15)) add_output(x, v);
  }
  for (int i = 0; i < x->leaves; i++) {
    val p = x->leaf[i].v, v;
    if (graph_def(x->g, p)->op != OP_PARAM || rng_chance(&x->r, 30)) continue;
    v = pick(x, same_type, p);
    if (!v || rng_chance(&x->r, 20)) { /* an update of its own */
      val q = pick(x, broadcasts, p), sum = q ? ops_binary(x->g, OP_MAX, p, q) : 0;
      if (sum && same_type(x, sum, p)) v = sum;
    }
    if (last && same_type(x, last, p) && rng_chance(&x->r, 30)) v = last;
    if (!v) continue;
    ref_eval(&x->ref);
    x->becomes[i] = last = v;
    ops_assign(x->g, p, v);
  }
  for (int i = 0; i < 2; i++)
    if (rng_chance(&x->r, 40)) add_output(x, pick(x, any, 0));
}

void random_graph_make(uint64_t seed, const random_options *o, random_graph *x) {
  *x = (random_graph){.r = {.seed = seed}};
  HP_ASSERT(!graph_create(NULL, &x->g));
  ref_begin(&x->ref, x->g, false);
  add_leaves(x, o);
  int n = 4 + rng_below(&x->r, 40);
  for (int i = 0; i < n; i++) {
    x->g->block = (uint16_t)(rng_chance(&x->r, 80) ? 1 + i / 8 : 0);
    val v = make_any(x, o);
    if (v) keep(x, v);
  }
  if (rng_chance(&x->r, 60)) add_backward(x);
  x->g->block = 0;
  x->g->phase = PHASE_UPDATE;
  for (int i = 0; i < 6; i++) {
    val v = make_any(x, o);
    if (v) keep(x, v);
  }
  add_effects(x);
  HP_ASSERT(!graph_status(x->g));
}

void random_graph_free(random_graph *x) {
  ref_end(&x->ref);
  graph_free(x->g);
  for (int i = 0; i < x->leaves; i++) free(x->leaf[i].data);
}
