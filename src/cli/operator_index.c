/* Layout rules of operators that read or write by index. */
#include "cli/operator_row.h"

hp_status rule_of_embedding(const operator* o, rule *r) {
  return rule_from_text("...,vd->...d", LIN_NONE, o->in, o->n, r);
}

hp_status rule_of_index_select(const operator* o, rule *r) {
  int dim;
  HP_TRY(operator_needs(o, 2));
  HP_TRY(operator_dim(o, "dim", o->in[0].rank, &dim));
  if (o->in[1].rank != 1) HP_FAIL(HP_ERR_SHAPE, "the indices have %d dims", o->in[1].rank);
  rule_begin(r, LIN_FIRST);
  rule_tensor *x = rule_in(r, o->in[0].rank), *index = rule_in(r, 1);
  rule_tensor *y = rule_out(r, o->in[0].rank);
  int along_index = rule_factor(r, o->in[1].dim[0]);
  rule_dim(index, 0, along_index);
  for (int d = 0; d < x->rank; d++) {
    int f = rule_factor(r, o->in[0].dim[d]);
    rule_dim(x, d, f);
    rule_dim(y, d, d == dim ? along_index : f);
  }
  return HP_OK;
}

/* x and an index of the same rank: other dims than `dim` go together where they are alike. */
static hp_status make_rule_by_element(const operator* o, bool result_is_index, op_linearity l,
                                      rule *r) {
  int dim;
  HP_TRY(operator_needs(o, 2));
  HP_TRY(operator_dim(o, "dim", o->in[0].rank, &dim));
  if (o->in[1].rank != o->in[0].rank)
    HP_FAIL(HP_ERR_SHAPE, "operands have %d and %d dims", o->in[0].rank, o->in[1].rank);
  rule_begin(r, l);
  rule_tensor *x = rule_in(r, o->in[0].rank), *index = rule_in(r, o->in[0].rank);
  rule_tensor *y = rule_out(r, o->in[0].rank);
  for (int d = 0; d < x->rank; d++) {
    bool alike = d != dim && o->in[0].dim[d] == o->in[1].dim[d];
    int f = rule_factor(r, o->in[0].dim[d]), g = alike ? f : rule_factor(r, o->in[1].dim[d]);
    if (!alike) r->factor[f].replicated = true;
    if (!alike && !(result_is_index && d == dim)) r->factor[g].replicated = true;
    rule_dim(x, d, f);
    rule_dim(index, d, g);
    rule_dim(y, d, result_is_index ? g : f);
  }
  return HP_OK;
}
hp_status rule_of_gather_d(const operator* o, rule *r) {
  return make_rule_by_element(o, true, LIN_FIRST, r);
}
hp_status rule_of_scatter(const operator* o, rule *r) {
  return make_rule_by_element(o, false, LIN_NONE, r);
}

/* The last dim of the index names so many leading dims of x. */
hp_status rule_of_gather_nd(const operator* o, rule *r) {
  HP_TRY(operator_needs(o, 2));
  const dims *x = &o->in[0], *index = &o->in[1];
  int named = index->rank ? (int)index->dim[index->rank - 1] : 0;
  int rank = index->rank - 1 + x->rank - named;
  if (named < 1 || named > x->rank || rank > LAYOUT_DIMS)
    HP_FAIL(HP_ERR_SHAPE, "an index of %d numbers for %d dims", named, x->rank);
  rule_begin(r, LIN_FIRST);
  rule_tensor *a = rule_in(r, x->rank), *b = rule_in(r, index->rank), *y = rule_out(r, rank);
  for (int d = 0; d < index->rank; d++) {
    int f = rule_factor(r, index->dim[d]);
    rule_dim(b, d, f);
    if (d < index->rank - 1) rule_dim(y, d, f);
  }
  for (int d = 0; d < x->rank; d++) {
    int f = rule_factor(r, x->dim[d]);
    rule_dim(a, d, f);
    if (d >= named) rule_dim(y, index->rank - 1 + d - named, f);
  }
  return HP_OK;
}

/* x with rows written at an index: every device must see all of them. */
hp_status rule_of_scatter_update(const operator* o, rule *r) {
  HP_TRY(operator_needs(o, 3));
  const dims *x = &o->in[0];
  if (x->rank < 1 || o->in[1].rank != 1 || o->in[2].rank != x->rank)
    HP_FAIL(HP_ERR_SHAPE, "operands have %d, %d and %d dims", x->rank, o->in[1].rank,
            o->in[2].rank);
  rule_begin(r, LIN_NONE);
  rule_tensor *a = rule_in(r, x->rank), *index = rule_in(r, 1), *b = rule_in(r, x->rank);
  rule_tensor *y = rule_out(r, x->rank);
  int rows = rule_factor(r, o->in[1].dim[0]);
  r->factor[rows].replicated = true;
  rule_dim(index, 0, rows);
  for (int d = 0; d < x->rank; d++) {
    int f = rule_factor(r, x->dim[d]);
    r->factor[f].replicated = d == 0;
    rule_dim(a, d, f);
    rule_dim(b, d, d ? f : rows);
    rule_dim(y, d, f);
  }
  return HP_OK;
}

/* What goes where depends on all elements before. */
hp_status rule_of_masked_scatter(const operator* o, rule *r) {
  HP_TRY(operator_needs(o, 1));
  rule_begin(r, LIN_NONE);
  for (int i = 0; i < o->n; i++) {
    rule_tensor *x = rule_in(r, o->in[i].rank);
    for (int d = 0; d < o->in[i].rank; d++) rule_dim(x, d, rule_factor(r, o->in[i].dim[d]));
  }
  for (int f = 0; f < r->factors; f++) r->factor[f].replicated = true;
  *rule_out(r, o->in[0].rank) = r->in[0];
  return HP_OK;
}

hp_status rule_of_isin(const operator* o, rule *r) {
  bool replicated[LAYOUT_DIMS] = {false};
  HP_TRY(operator_needs(o, 2));
  rule_along(&o->in[0], replicated, LIN_NONE, r);
  rule_tensor *among = rule_in(r, o->in[1].rank);
  for (int d = 0; d < among->rank; d++) rule_dim(among, d, rule_factor(r, o->in[1].dim[d]));
  return HP_OK;
}
