/* horizontal_fuse: products of one left operand by the same equation become one instruction.
 *
 * A product of few rows takes the time to read its right operand, and each separate read has a
 * start-up cost: q, k and v of a decoded token are read as one, gate and up too.  Products of
 * many rows stay separate: what they could share, packing the left operand, is a hundredth of
 * their time. */
#include "ir/attr.h"
#include "ir/einsum_eq.h"
#include "pass/pass.h"

#include <string.h>

enum { TOGETHER = 3 };

typedef struct {
  const hp_graph *g;
  int64_t rows_max; /* of a left operand with few rows */
  use_lists uses;
  bool *taken; /* by node: it runs with an earlier one */
} fuser;

/* A product whose left operand has few rows, and whose chains start from 0. */
static bool has_few_rows(const fuser *j, const ir_node *n) {
  const hp_graph *g = j->g;
  if (n->op != OP_EINSUM || n->n_in != 2) return false;
  einsum_eq eq;
  einsum_sizes sizes;
  char rows[EINSUM_LETTERS_MAX + 1], batch[EINSUM_LETTERS_MAX + 1];
  hp_shape a = value_shape(graph_value(g, graph_in(g, n)[0])),
           b = value_shape(graph_value(g, graph_in(g, n)[1]));
  if (einsum_parse(attr_str(g, n, "eq"), &eq) || einsum_bind(&eq, &a, &b, &sizes)) {
    err_clear();
    return false;
  }
  einsum_letters(&eq, EINSUM_ROW, rows);
  if (einsum_letters(&eq, EINSUM_BATCH, batch)) return false;
  int64_t n_rows = 1;
  for (const char *c = rows; *c; c++) n_rows *= einsum_size(&sizes, *c);
  return n_rows <= j->rows_max;
}

static bool is_leaf(const ir_node *n) { return n->op == OP_INPUT || n->op == OP_PARAM; }

/* Can node `later` run in the place of node i?  Its users come after it, so after i. */
static bool can_fuse(const fuser *j, uint32_t i, uint32_t later) {
  const ir_node *a = graph_node(j->g, i), *b = graph_node(j->g, later);
  if (b->op != OP_EINSUM || b->n_in != 2 || b->attr != a->attr || j->taken[later]) return false;
  if (b->block != a->block || b->phase != a->phase || b->stage != a->stage || b->group != a->group)
    return false;
  const val *x = graph_in(j->g, a), *y = graph_in(j->g, b);
  uint32_t made = graph_value(j->g, y[1])->def;
  return x[0] == y[0] && (made < i || is_leaf(graph_node(j->g, made)));
}

/* Node i and the products merged with it, in node order; their number. */
static int siblings(fuser *j, uint32_t i, uint32_t member[TOGETHER]) {
  const val x = graph_in(j->g, graph_node(j->g, i))[0];
  int n = 0;
  member[n++] = i;
  for (uint32_t u = j->uses.use0[x]; u < j->uses.use0[x + 1] && n < TOGETHER; u++) {
    uint32_t later = j->uses.use[u];
    if (later <= member[n - 1] || !can_fuse(j, i, later)) continue;
    j->taken[later] = true;
    member[n++] = later;
  }
  return n;
}

/* The common prefix of two places. */
static uint32_t common_place(hp_graph *g, uint32_t a, uint32_t b) {
  if (a == b) return a;
  str s = {0};
  const char *name = graph_str(g, a);
  str_printf(&s, "%.*s", (int)graph_common_place(name, graph_str(g, b)), name);
  uint32_t id = s.at && *s.at ? graph_string(g, s.at) : 0;
  str_free(&s);
  return id;
}

static void emit(rewrite *r, const uint32_t *member, int n) {
  const ir_node *first = graph_node(r->from, member[0]);
  val in[1 + TOGETHER] = {r->map[graph_in(r->from, first)[0]]};
  ir_value out[TOGETHER];
  rewrite_place(r, first);
  for (int k = 0; k < n; k++) {
    const ir_node *m = graph_node(r->from, member[k]);
    val b = graph_in(r->from, m)[1];
    if (!r->map[b]) rewrite_copy(r, graph_value(r->from, b)->def); /* a leaf */
    in[1 + k] = r->map[b];
    out[k] = *graph_value(r->from, m->out0);
  }
  rewrite_place(r, first);
  for (int k = 1; k < n; k++)
    r->to->loc = common_place(r->to, r->to->loc, graph_node(r->from, member[k])->loc);
  val v = graph_add(r->to, OP_EINSUMS, in, 1 + n, first->attr, out, n);
  for (int k = 0; k < n; k++) r->map[graph_node(r->from, member[k])->out0] = v ? v + (val)k : 0;
}

static void rewrite_node(fuser *j, rewrite *r, uint32_t i) {
  const ir_node *n = graph_node(j->g, i);
  uint32_t member[TOGETHER];
  if (j->taken[i] || (is_leaf(n) && r->map[n->out0])) return;
  int together = has_few_rows(j, n) ? siblings(j, i, member) : 1;
  if (together > 1) emit(r, member, together);
  else rewrite_copy(r, i);
}

hp_status pass_horizontal_fuse(const hp_graph *in, const pass_options *o, hp_graph **out) {
  fuser j = {.g = in, .rows_max = o->can->horizontal_rows};
  rewrite r;
  HP_TRY(rewrite_begin(&r, in));
  hp_status st = use_lists_build(in, &j.uses);
  if (!st && !(j.taken = mem_calloc(in->nodes.len, sizeof *j.taken))) st = HP_ERR_OOM;
  for (uint32_t i = 0; !st && i < in->nodes.len; i++) rewrite_node(&j, &r, i);
  use_lists_free(&j.uses);
  mem_free(j.taken);
  return rewrite_end(&r, st, out);
}
