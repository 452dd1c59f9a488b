/* Layout rules of operators that move elements without an index. */
#include "cli/operator_row.h"

#include <string.h>

static hp_status make_move_rule(const operator* o, const dims *to, const int *source, rule *r) {
  rule_map(&o->in[0], to, source, LIN_MOVE, r);
  return HP_OK;
}

hp_status rule_of_reshape(const operator* o, rule *r) {
  dims to;
  int open = -1;
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_list(o, "shape", to.dim, LAYOUT_DIMS, &to.rank));
  for (int d = 0; d < to.rank; d++)
    if (to.dim[d] < 0) open = d, to.dim[d] = 1;
  int64_t want = dims_elements(&o->in[0]), known = dims_elements(&to);
  if (open >= 0 && known > 0) to.dim[open] = want / known;
  if (dims_elements(&to) != want)
    HP_FAIL(HP_ERR_SHAPE, "%lld elements do not become %lld", (long long)want,
            (long long)dims_elements(&to));
  return rule_reshape(&o->in[0], &to, r);
}

static hp_status make_permute_rule(const operator* o, const int *source, rule *r) {
  dims to = o->in[0];
  for (int d = 0; d < to.rank; d++) to.dim[d] = o->in[0].dim[source[d]];
  return make_move_rule(o, &to, source, r);
}

hp_status rule_of_permute(const operator* o, rule *r) {
  int64_t perm[LAYOUT_DIMS];
  int source[LAYOUT_DIMS], n;
  unsigned seen = 0;
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_list(o, "perm", perm, LAYOUT_DIMS, &n));
  if (n != o->in[0].rank)
    HP_FAIL(HP_ERR_SHAPE, "a permutation of %d dims for %d", n, o->in[0].rank);
  for (int d = 0; d < n; d++) {
    HP_TRY(operator_wrap(perm[d], n, &source[d]));
    seen |= 1u << source[d];
  }
  if (seen != (1u << n) - 1) HP_FAIL(HP_ERR_SHAPE, "perm names a dim twice");
  return make_permute_rule(o, source, r);
}

hp_status rule_of_transpose(const operator* o, rule *r) {
  int a, b, source[LAYOUT_DIMS];
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_dim(o, "dim0", o->in[0].rank, &a));
  HP_TRY(operator_dim(o, "dim1", o->in[0].rank, &b));
  for (int d = 0; d < o->in[0].rank; d++) source[d] = d == a ? b : d == b ? a : d;
  return make_permute_rule(o, source, r);
}

hp_status rule_of_squeeze(const operator* o, rule *r) {
  const dims *x = &o->in[0];
  bool gone[LAYOUT_DIMS];
  int source[LAYOUT_DIMS];
  dims to = {0};
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_dims(o, "dim", x->rank, gone));
  for (int d = 0; d < x->rank; d++) {
    if (gone[d] && x->dim[d] == 1) continue;
    source[to.rank] = d;
    to.dim[to.rank++] = x->dim[d];
  }
  return make_move_rule(o, &to, source, r);
}

/* A new dim of `size` at `at`. */
static hp_status insert_dim(const operator* o, int at, int64_t size, op_linearity l, rule *r) {
  const dims *x = &o->in[0];
  dims to = {.rank = x->rank + 1};
  int source[LAYOUT_DIMS];
  if (to.rank > LAYOUT_DIMS) HP_FAIL(HP_ERR_SHAPE, "more than %d dims", LAYOUT_DIMS);
  for (int d = 0; d < to.rank; d++) {
    source[d] = d == at ? -1 : d - (d > at);
    to.dim[d] = d == at ? size : x->dim[source[d]];
  }
  rule_map(x, &to, source, l, r);
  return HP_OK;
}

hp_status rule_of_expand_dims(const operator* o, rule *r) {
  int at;
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_dim(o, "dim", o->in[0].rank + 1, &at));
  return insert_dim(o, at, 1, LIN_MOVE, r);
}

hp_status rule_of_one_hot(const operator* o, rule *r) {
  int at;
  int64_t classes;
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_dim(o, "axis", o->in[0].rank + 1, &at));
  HP_TRY(operator_int(o, "num_classes", &classes));
  return insert_dim(o, at, classes, LIN_NONE, r);
}

static hp_status expand_to(const operator* o, const dims *to, rule *r) {
  const dims *x = &o->in[0];
  int more = to->rank - x->rank, source[LAYOUT_DIMS];
  if (more < 0) HP_FAIL(HP_ERR_SHAPE, "%d dims cannot become %d", x->rank, to->rank);
  for (int d = 0; d < to->rank; d++) {
    source[d] = d < more ? -1 : d - more;
    if (d >= more && x->dim[d - more] != 1 && x->dim[d - more] != to->dim[d])
      HP_FAIL(HP_ERR_SHAPE, "dim %d of size %lld cannot become %lld", d - more,
              (long long)x->dim[d - more], (long long)to->dim[d]);
  }
  return make_move_rule(o, to, source, r);
}

hp_status rule_of_expand(const operator* o, rule *r) {
  dims to;
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_list(o, "sizes", to.dim, LAYOUT_DIMS, &to.rank));
  for (int d = 0; d < to.rank; d++) {
    int own = d - (to.rank - o->in[0].rank);
    if (to.dim[d] == -1 && own >= 0) to.dim[d] = o->in[0].dim[own];
  }
  return expand_to(o, &to, r);
}

/* The second operand gives its shape alone. */
hp_status rule_of_expand_as(const operator* o, rule *r) {
  HP_TRY(operator_needs(o, 2));
  HP_TRY(expand_to(o, &o->in[1], r));
  rule_in(r, -1);
  return HP_OK;
}

hp_status rule_of_new_ones(const operator* o, rule *r) {
  int64_t size[LAYOUT_DIMS];
  int n;
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_list(o, "size", size, LAYOUT_DIMS, &n));
  rule_begin(r, LIN_NONE);
  rule_in(r, -1); /* only its dtype is asked for */
  rule_tensor *y = rule_out(r, n);
  for (int d = 0; d < n; d++) rule_dim(y, d, rule_factor(r, size[d]));
  return HP_OK;
}

/* Dims that are taken in part must be replicated. */
static hp_status slice_dims(const operator* o, const int64_t *begin, const int64_t *end, rule *r) {
  dims to = o->in[0];
  int source[LAYOUT_DIMS];
  for (int d = 0; d < to.rank; d++) {
    source[d] = d;
    to.dim[d] = end[d] - begin[d];
    if (begin[d] < 0 || end[d] > o->in[0].dim[d] || to.dim[d] < 0)
      HP_FAIL(HP_ERR_SHAPE, "%lld:%lld is no part of dim %d of size %lld", (long long)begin[d],
              (long long)end[d], d, (long long)o->in[0].dim[d]);
  }
  return make_move_rule(o, &to, source, r);
}

hp_status rule_of_slice(const operator* o, rule *r) {
  int64_t begin[LAYOUT_DIMS], end[LAYOUT_DIMS];
  int n, m;
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_list(o, "begin", begin, LAYOUT_DIMS, &n));
  HP_TRY(operator_list(o, "end", end, LAYOUT_DIMS, &m));
  if (n != o->in[0].rank || m != n)
    HP_FAIL(HP_ERR_SHAPE, "begin and end need %d numbers each", o->in[0].rank);
  return slice_dims(o, begin, end, r);
}

hp_status rule_of_slice_one(const operator* o, rule *r) {
  int64_t begin[LAYOUT_DIMS] = {0}, end[LAYOUT_DIMS];
  int dim;
  HP_TRY(operator_needs(o, 1));
  memcpy(end, o->in[0].dim, sizeof end);
  HP_TRY(operator_dim(o, "dim", o->in[0].rank, &dim));
  HP_TRY(operator_int(o, "start", &begin[dim]));
  HP_TRY(operator_int(o, "stop", &end[dim]));
  return slice_dims(o, begin, end, r);
}

hp_status rule_of_concat(const operator* o, rule *r) {
  int dim;
  HP_TRY(operator_needs(o, o->n ? o->n : 1));
  HP_TRY(operator_dim(o, "dim", o->in[0].rank, &dim));
  rule_begin(r, LIN_MOVE);
  rule_tensor *y = rule_out(r, o->in[0].rank);
  for (int d = 0; d < y->rank; d++) {
    rule_dim(y, d, rule_factor(r, o->in[0].dim[d]));
    r->factor[d].replicated = d == dim;
  }
  for (int i = 0; i < o->n; i++) {
    if (o->in[i].rank != y->rank)
      HP_FAIL(HP_ERR_SHAPE, "operands have %d and %d dims", y->rank, o->in[i].rank);
    rule_tensor *x = rule_in(r, y->rank);
    for (int d = 0; d < y->rank; d++) rule_dim(x, d, y->factor[d][0]);
  }
  return HP_OK;
}

hp_status rule_of_split(const operator* o, rule *r) {
  const tree_node *sections;
  int dim, parts;
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_dim(o, "dim", o->in[0].rank, &dim));
  HP_TRY(tree_opt_list(o->attrs, "sections", &sections));
  if (sections) {
    parts = (int)sections->len;
  } else {
    int64_t size;
    HP_TRY(operator_int(o, "size", &size));
    if (size < 1) HP_FAIL(HP_ERR_SHAPE, "parts of size %lld", (long long)size);
    parts = (int)((o->in[0].dim[dim] + size - 1) / size);
  }
  if (parts < 1 || parts > RULE_TENSORS) HP_FAIL(HP_ERR_SHAPE, "%d parts", parts);
  bool replicated[LAYOUT_DIMS] = {false};
  replicated[dim] = true;
  rule_along(&o->in[0], replicated, LIN_MOVE, r);
  operator_repeat(r, parts);
  return HP_OK;
}

hp_status rule_of_unbind(const operator* o, rule *r) {
  dims to = {0};
  int dim, source[LAYOUT_DIMS];
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_dim(o, "dim", o->in[0].rank, &dim));
  if (o->in[0].dim[dim] < 1 || o->in[0].dim[dim] > RULE_TENSORS)
    HP_FAIL(HP_ERR_SHAPE, "%lld parts", (long long)o->in[0].dim[dim]);
  for (int d = 0; d < o->in[0].rank; d++) {
    if (d == dim) continue;
    source[to.rank] = d;
    to.dim[to.rank++] = o->in[0].dim[d];
  }
  HP_TRY(make_move_rule(o, &to, source, r));
  operator_repeat(r, (int)o->in[0].dim[dim]);
  return HP_OK;
}

/* Every element several times in a row: within its part, so the dim may be cut.  Without a dim, of
 * the tensor laid flat. */
hp_status rule_of_repeat_interleave(const operator* o, rule *r) {
  const tree_node *n = tree_get(o->attrs, "dim");
  const dims *x = &o->in[0];
  bool flat = !n || n->kind == TREE_NULL;
  int dim = 0;
  int64_t times;
  HP_TRY(operator_needs(o, 1));
  if (!flat) HP_TRY(operator_dim(o, "dim", x->rank, &dim));
  HP_TRY(operator_int(o, "repeats", &times));
  rule_begin(r, LIN_MOVE);
  rule_tensor *a = rule_in(r, x->rank), *b = rule_out(r, flat ? 1 : x->rank);
  if (x->rank >= RULE_DIM_FACTORS) HP_FAIL(HP_ERR_SHAPE, "too many dims");
  for (int d = 0; d < x->rank; d++) {
    int f = rule_factor(r, x->dim[d]);
    rule_dim(a, d, f);
    rule_dim(b, flat ? 0 : d, f);
    if (!flat && d == dim) rule_dim(b, d, rule_factor(r, times));
  }
  if (flat) rule_dim(b, 0, rule_factor(r, times));
  return HP_OK;
}

/* The global dim several times: a shard of it is no shard of the result. */
hp_status rule_of_tile(const operator* o, rule *r) {
  const dims *x = &o->in[0];
  int64_t times[LAYOUT_DIMS];
  int n;
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_list(o, "repeats", times, LAYOUT_DIMS, &n));
  if (n < x->rank) HP_FAIL(HP_ERR_SHAPE, "%d repeats for %d dims", n, x->rank);
  rule_begin(r, LIN_MOVE);
  rule_tensor *a = rule_in(r, x->rank), *b = rule_out(r, n);
  for (int d = 0; d < n; d++) {
    int own = d - (n - x->rank);
    if (times[d] != 1 || own < 0) rule_dim(b, d, rule_factor(r, times[d]));
    if (own < 0) continue;
    int f = rule_factor(r, x->dim[own]);
    rule_dim(a, own, f);
    rule_dim(b, d, f);
  }
  return HP_OK;
}
