/* Layout rules of attention, in the orders of dims that it is given in. */
#include "cli/operator_row.h"

#include <string.h>

/* Where batch, heads, sequence and width stand; -1: not there.  With width -1 heads and width share
 * a dim, heads outermost. */
typedef struct {
  int batch, heads, sequence, width;
} attention_order;

typedef struct {
  int batch, kv, group, query, key, width, value_width; /* factors */
} attention_factors;

static void fill_attention_tensor(rule_tensor *t, const attention_order *a,
                                  const attention_factors *f, bool grouped, int sequence,
                                  int width) {
  if (a->batch >= 0) rule_dim(t, a->batch, f->batch);
  rule_dim(t, a->sequence, sequence);
  rule_dim(t, a->heads, f->kv);
  if (grouped && f->group >= 0) rule_dim(t, a->heads, f->group);
  rule_dim(t, a->width < 0 ? a->heads : a->width, width);
}

static hp_status make_attention_rule(const operator* o, const attention_order *a, int64_t heads,
                                     rule *r, attention_factors *f) {
  HP_TRY(operator_needs(o, 3));
  int rank = o->in[0].rank;
  const int64_t *q = o->in[0].dim, *k = o->in[1].dim, *v = o->in[2].dim;
  int64_t width = a->width < 0 ? q[a->heads] / heads : q[a->width];
  int64_t kv = a->width < 0 ? (width ? k[a->heads] / width : 0) : k[a->heads];
  if (heads < 1 || kv < 1 || heads % kv || o->in[1].rank != rank || o->in[2].rank != rank)
    HP_FAIL(HP_ERR_SHAPE, "%lld heads over %lld of keys", (long long)heads, (long long)kv);
  rule_begin(r, LIN_NONE);
  f->batch = a->batch < 0 ? -1 : rule_factor(r, q[a->batch]);
  f->kv = rule_factor(r, kv);
  f->group = heads == kv ? -1 : rule_factor(r, heads / kv);
  f->query = rule_factor(r, q[a->sequence]);
  f->key = rule_factor(r, k[a->sequence]);
  f->width = rule_factor(r, width);
  f->value_width = a->width < 0 ? f->width : rule_factor(r, v[a->width]);
  r->factor[f->key].replicated = r->factor[f->width].replicated = true;
  r->factor[f->value_width].replicated = true;
  fill_attention_tensor(rule_in(r, rank), a, f, true, f->query, f->width);
  fill_attention_tensor(rule_in(r, rank), a, f, false, f->key, f->width);
  fill_attention_tensor(rule_in(r, rank), a, f, false, f->key, f->value_width);
  for (int i = 3; i < o->n; i++) rule_in(r, -1); /* masks and the like are not looked at */
  return HP_OK;
}

hp_status rule_of_sdpa(const operator* o, rule *r) {
  static const attention_order with_batch = {0, 1, 2, 3}, without = {-1, 0, 1, 2};
  attention_factors f;
  HP_TRY(operator_needs(o, 3));
  if (o->in[0].rank != 3 && o->in[0].rank != 4)
    HP_FAIL(HP_ERR_SHAPE, "queries have %d dims, 3 or 4 are needed", o->in[0].rank);
  const attention_order *a = o->in[0].rank == 4 ? &with_batch : &without;
  HP_TRY(make_attention_rule(o, a, o->in[0].dim[a->heads], r, &f));
  fill_attention_tensor(rule_out(r, o->in[0].rank), a, &f, true, f.query, f.value_width);
  return HP_OK;
}

/* Results: row maximum and row sum [B,N,S,8], nothing, the output. */
hp_status rule_of_flash_attention(const operator* o, rule *r) {
  static const struct {
    const char *name;
    int rank;
    attention_order a;
  } order[] = {{"BSH", 3, {0, 2, 1, -1}},
               {"SBH", 3, {1, 2, 0, -1}},
               {"BNSD", 4, {0, 1, 2, 3}},
               {"BSND", 4, {0, 2, 1, 3}}};
  static const attention_order rows = {0, 1, 2, 3};
  const char *name;
  int64_t heads;
  attention_factors f;
  HP_TRY(operator_needs(o, 3));
  HP_TRY(tree_need_string(o->attrs, "input_layout", &name));
  HP_TRY(operator_int(o, "head_num", &heads));
  for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
    if (strcmp(name, order[i].name)) continue;
    const attention_order *a = &order[i].a;
    if (o->in[0].rank != order[i].rank || heads < 1)
      HP_FAIL(HP_ERR_SHAPE, "queries have %d dims, %s has %d", o->in[0].rank, name, order[i].rank);
    HP_TRY(make_attention_rule(o, a, heads, r, &f));
    int eight = rule_factor(r, 8);
    for (int k = 0; k < 2; k++)
      fill_attention_tensor(rule_out(r, 4), &rows, &f, true, f.query, eight);
    rule_out(r, 0);
    fill_attention_tensor(rule_out(r, order[i].rank), a, &f, true, f.query, f.value_width);
    return HP_OK;
  }
  HP_FAIL(HP_ERR_UNSUPPORTED, "input_layout \"%s\"; expected BSH, SBH, BNSD or BSND", name);
}
