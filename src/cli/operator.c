#include "cli/operator.h"

#include "ir/op.h"
#include "cli/operator_row.h"

#include <string.h>

/* --- attributes ------------------------------------------------------------------------------- */

hp_status operator_wrap(int64_t dim, int rank, int *out) {
  if (dim < -rank || dim >= rank)
    HP_FAIL(HP_ERR_SHAPE, "dim %lld of a tensor with %d dims", (long long)dim, rank);
  *out = (int)(dim < 0 ? dim + rank : dim);
  return HP_OK;
}

hp_status operator_dim(const operator* o, const char *key, int rank, int *out) {
  int64_t dim;
  HP_TRY(operator_int(o, key, &dim));
  return operator_wrap(dim, rank, out);
}

/* "dim": one, a list, or null for all of them. */
hp_status operator_dims(const operator* o, const char *key, int rank, bool *named) {
  const tree_node *n = tree_get(o->attrs, key);
  int64_t dim;
  int d = 0;
  bool list = n && n->kind == TREE_LIST, none = !n || n->kind == TREE_NULL;
  for (int k = 0; k < rank; k++) named[k] = none;
  for (uint32_t i = 0; !none && i < (list ? n->len : 1); i++) {
    HP_TRY(tree_as_int(list ? n->child[i] : n, &dim));
    HP_TRY(operator_wrap(dim, rank, &d));
    named[d] = true;
  }
  return HP_OK;
}

/* A number that products and sums of a few of cannot overflow. */
static hp_status read_small_int(const tree_node *n, int64_t *out) {
  HP_TRY(tree_as_int(n, out));
  if (*out < INT32_MIN || *out > INT32_MAX) TREE_FAIL(n, "%lld is out of range", (long long)*out);
  return HP_OK;
}

hp_status operator_list(const operator* o, const char *key, int64_t *out, int most, int *n) {
  const tree_node *list;
  HP_TRY(tree_need_list(o->attrs, key, &list));
  if (list->len > (uint32_t)most) TREE_FAIL(list, "more than %d numbers", most);
  *n = (int)list->len;
  for (int i = 0; i < *n; i++) HP_TRY(read_small_int(list->child[i], &out[i]));
  return HP_OK;
}

hp_status operator_int(const operator* o, const char *key, int64_t *out) {
  const tree_node *n;
  HP_TRY(tree_need(o->attrs, key, &n));
  return read_small_int(n, out);
}

int64_t dims_elements(const dims *s) {
  int64_t n = 1;
  for (int d = 0; d < s->rank; d++)
    if (__builtin_mul_overflow(n, s->dim[d], &n)) return INT64_MAX;
  return n;
}

hp_status operator_needs(const operator* o, int n) {
  if (o->n < n) HP_FAIL(HP_ERR_SHAPE, "%d operands, %d are needed", o->n, n);
  for (int i = 0; i < n; i++)
    if (o->in[i].rank < 0) HP_FAIL(HP_ERR_SHAPE, "operand %d is missing", i);
  return HP_OK;
}

void operator_repeat(rule *r, int n) {
  for (; r->n_out < n && r->n_out < RULE_TENSORS; r->n_out++) r->out[r->n_out] = r->out[0];
}

/* --- rows of the op table --------------------------------------------------------------------- */

static hp_status make_rule_from_row(op_id op, const operator* o, rule *r) {
  const op_row *row = &op_table[op];
  return rule_from_text(row->rule, row->linearity, o->in, o->n, r);
}
#define ROW(name, id)                                                                              \
  hp_status rule_of_##name(const operator* o, rule *r) { return make_rule_from_row(OP_##id, o, r); }
ROW(add, ADD)
ROW(sub, SUB)
ROW(mul, MUL)
ROW(div, DIV)
ROW(minimum, MIN)
ROW(less_equal, LE)
ROW(where, SELECT)
ROW(relu, RELU)
ROW(neg, NEG)
ROW(exp, EXP)
ROW(square, SQUARE)
ROW(clone, COPY)

/* --- contractions ----------------------------------------------------------------------------- */

static hp_status matmul_flags(const operator* o, bool ta, bool tb, rule *r) {
  static const char *const text[] = {"...mk,...kn->...mn;k=sum", "...mk,...nk->...mn;k=sum",
                                     "...km,...kn->...mn;k=sum", "...km,...nk->...mn;k=sum"};
  HP_TRY(operator_needs(o, 2));
  if (o->in[0].rank < 2 || o->in[1].rank < 2)
    HP_FAIL(HP_ERR_SHAPE, "operands have %d and %d dims, at least 2 are needed", o->in[0].rank,
            o->in[1].rank);
  const dims *a = &o->in[0], *b = &o->in[1];
  if (a->dim[a->rank - 1 - ta] != b->dim[b->rank - 2 + tb])
    HP_FAIL(HP_ERR_SHAPE, "the contracted dims have sizes %lld and %lld",
            (long long)a->dim[a->rank - 1 - ta], (long long)b->dim[b->rank - 2 + tb]);
  return rule_from_text(text[2 * ta + tb], LIN_EACH, o->in, 2, r);
}

hp_status rule_of_matmul(const operator* o, rule *r) {
  bool ta, tb;
  HP_TRY(tree_opt_bool(o->attrs, "transpose_a", false, &ta));
  HP_TRY(tree_opt_bool(o->attrs, "transpose_b", false, &tb));
  return matmul_flags(o, ta, tb, r);
}

hp_status rule_of_linear(const operator* o, rule *r) {
  dims in[3] = {{.rank = -1}, {.rank = -1}, {.rank = -1}};
  HP_TRY(operator_needs(o, 2));
  memcpy(in, o->in, (size_t)(o->n < 3 ? o->n : 3) * sizeof *in);
  op_linearity l = in[2].rank < 0 ? LIN_EACH : LIN_NONE; /* the bias is to be added once */
  return rule_from_text("...i,oi,o->...o;i=sum", l, in, 3, r);
}

/* --- reductions ------------------------------------------------------------------------------- */

static hp_status make_reduction_rule(const operator* o, partial_op op, int results, rule *r) {
  bool cut[LAYOUT_DIMS], keep;
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_dims(o, "dim", o->in[0].rank, cut));
  HP_TRY(tree_opt_bool(o->attrs, "keepdim", false, &keep));
  rule_reduce(&o->in[0], cut, keep, op, results, r);
  return HP_OK;
}
hp_status rule_of_sum(const operator* o, rule *r) {
  return make_reduction_rule(o, PARTIAL_SUM, 1, r);
}
hp_status rule_of_mean(const operator* o, rule *r) {
  return make_reduction_rule(o, PARTIAL_AVG, 1, r);
}
hp_status rule_of_amax(const operator* o, rule *r) {
  return make_reduction_rule(o, PARTIAL_MAX, 1, r);
}
hp_status rule_of_prod(const operator* o, rule *r) {
  return make_reduction_rule(o, PARTIAL_PROD, 1, r);
}
hp_status rule_of_all(const operator* o, rule *r) {
  return make_reduction_rule(o, PARTIAL_ALL, 1, r);
}
hp_status rule_of_argmax_with_value(const operator* o, rule *r) {
  return make_reduction_rule(o, PARTIAL_NONE, 2, r);
}
/* Indices of parts cannot be joined: the dim must be replicated, but for axes of one device. */
hp_status rule_of_max_dim(const operator* o, rule *r) {
  HP_TRY(make_reduction_rule(o, PARTIAL_MAX, 2, r));
  for (int f = 0; f < r->factors; f++)
    r->factor[f].replicated |= r->factor[f].reduce != PARTIAL_NONE;
  return HP_OK;
}

/* --- along a dim ------------------------------------------------------------------------------ */

static hp_status make_rule_along(const operator* o, const char *key, op_linearity l, int results,
                                 rule *r) {
  bool replicated[LAYOUT_DIMS];
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_dims(o, key, o->in[0].rank, replicated));
  rule_along(&o->in[0], replicated, l, r);
  operator_repeat(r, results);
  return HP_OK;
}
hp_status rule_of_softmax(const operator* o, rule *r) {
  return make_rule_along(o, "dim", LIN_NONE, 1, r);
}
hp_status rule_of_cumsum(const operator* o, rule *r) {
  return make_rule_along(o, "dim", LIN_JOINT, 1, r);
}
hp_status rule_of_sort(const operator* o, rule *r) {
  return make_rule_along(o, "dim", LIN_NONE, 2, r);
}

hp_status rule_of_layer_norm(const operator* o, rule *r) {
  bool replicated[LAYOUT_DIMS] = {false};
  int64_t shape[LAYOUT_DIMS];
  int n;
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_list(o, "normalized_shape", shape, LAYOUT_DIMS, &n));
  for (int d = 0; d < o->in[0].rank; d++) replicated[d] = d >= o->in[0].rank - n;
  rule_along(&o->in[0], replicated, LIN_NONE, r);
  return HP_OK;
}

hp_status rule_of_rms_norm(const operator* o, rule *r) {
  return rule_from_text("...j,j->...j,...k;j=rep", LIN_NONE, o->in, o->n, r);
}

hp_status rule_of_pad(const operator* o, rule *r) {
  const dims *x = &o->in[0];
  bool replicated[LAYOUT_DIMS] = {false};
  int64_t pad[2 * LAYOUT_DIMS], value;
  int n;
  HP_TRY(operator_needs(o, 1));
  HP_TRY(operator_list(o, "pad", pad, 2 * LAYOUT_DIMS, &n));
  HP_TRY(tree_opt_int(o->attrs, "value", 0, &value));
  if (n % 2 || n / 2 > x->rank) HP_FAIL(HP_ERR_SHAPE, "%d paddings for %d dims", n, x->rank);
  for (int i = 0; i < n; i += 2) replicated[x->rank - 1 - i / 2] = pad[i] || pad[i + 1];
  rule_along(x, replicated, value ? LIN_NONE : LIN_JOINT, r);
  return HP_OK;
}

/* --- all of them ------------------------------------------------------------------------------ */

hp_status operator_rule(const char *name, const tree_node *attrs, const dims *in, int n,
                        rule *out) {
  operator o = {.attrs = attrs, .n = n};
  if (n > RULE_TENSORS) HP_FAIL(HP_ERR_SHAPE, "more than %d operands", RULE_TENSORS);
  memcpy(o.in, in, (size_t)n * sizeof *in);
  for (const operator_row *x = operator_rows; x->name; x++)
    if (!strcmp(x->name, name)) return x->rule(&o, out);
  HP_FAIL(HP_ERR_UNSUPPORTED, "operator \"%.60s\" has no layout rule", name);
}
