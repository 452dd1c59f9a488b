#include "ops/ops.h"

#include "base/dtype.h"

#include <stdio.h>
#include <string.h>

enum { WHO_MAX = 256, WORDS = 4 };

/* Op and place in the model, for messages: "hp_add "blk3.ffn"", "hp_map (relu) "blk3.ffn"". */
static const char *describe_op(const hp_graph *g, int op, uint32_t place, char out[WHO_MAX]) {
  const char *name = op ? op_table[op].name : "", *at = graph_str(g, place);
  int n = 0;
  if (!g->caller) n = snprintf(out, WHO_MAX, "%s", name);
  else if (!op || !strcmp(g->caller + strlen("hp_"), name))
    n = snprintf(out, WHO_MAX, "%s", g->caller);
  else n = snprintf(out, WHO_MAX, "%s (%s)", g->caller, name);
  if (*at) snprintf(out + n, WHO_MAX - (size_t)n, " \"%.150s\"", at);
  return out;
}

void ops_no_grad(const grad_ctx *c, const char *fmt, ...) {
  char text[256], by[WHO_MAX];
  va_list ap;
  if (c->g->failure.code) return;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  (void)err_set(HP_ERR_UNSUPPORTED, __FILE__, __LINE__, "%s: no gradient %s",
                describe_op(c->g, c->node.op, c->node.loc, by), text);
  graph_poison(c->g, HP_ERR_UNSUPPORTED);
}

hp_status ops_fail(const infer_ctx *c, const char *fmt, ...) {
  char text[1024], by[WHO_MAX];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  HP_FAIL(HP_ERR_SHAPE, "%s: %s", describe_op(c->g, c->node.op, c->node.loc, by), text);
}

/* One of the buffers that the last few words of a message are in. */
static char *next_word(void) {
  static _Thread_local char text[2 * WORDS][192];
  static _Thread_local int next;
  return memset(text[next++ % (2 * WORDS)], 0, sizeof text[0]);
}

const char *ops_type(const infer_ctx *c, int i) {
  char *t = next_word();
  str s = {0};
  value_print(graph_value(c->g, c->in[i]), &s);
  const ir_node *n = graph_def(c->g, c->in[i]);
  if (n->op == OP_INPUT || n->op == OP_PARAM)
    str_printf(&s, " (%s \"%.60s\")", op_table[n->op].name, attr_str(c->g, n, "name"));
  snprintf(t, 192, "%s", s.at ? s.at : "");
  str_free(&s);
  return t;
}

const char *ops_operand(const infer_ctx *c, int i) {
  char *t = next_word();
  const char *at = c->g->caller && c->g->operands ? c->g->operands : "";
  for (int k = 0; k < i && *at && !strstr(at, "["); k++) at += strcspn(at, " "), at += *at == ' ';
  int n = (int)strcspn(at, " ");
  if (!n) snprintf(t, 192, "operand %d", i);
  else if (at[n - 1] == '[') snprintf(t, 192, "%.*s%d]", n, at, i);
  else snprintf(t, 192, "%.*s", n, at);
  return t;
}

hp_status ops_check_start(infer_ctx *c) {
  const ir_value *start = graph_value(c->g, c->in[2]), *out = &c->out[0];
  if (start->dtype == out->dtype && value_same_shape(start, out)) return HP_OK;
  str want = {0};
  value_print(out, &want);
  hp_status st = ops_fail(c, "operand 2 is %s; %s was expected, as the result is", ops_type(c, 2),
                          want.at ? want.at : "");
  str_free(&want);
  return st;
}

/* A kernel never reads another tier's memory.  The caller's own memory is the host's. */
static hp_status check_tiers(const infer_ctx *c) {
  for (int k = 0; k < c->node.n_in; k++) {
    int tier = ops_tier(c->g, c->in[k]);
    if (tier == TIER_DEVICE || c->node.op == OP_FETCH) continue;
    bool pool = k == 0 && (c->node.op == OP_PAGED_FETCH || c->node.op == OP_PAGED_STORE);
    bool stored =
        k == 1 && c->node.op == OP_ASSIGN && graph_def(c->g, c->in[k])->op == OP_PAGED_STORE;
    if (pool || stored) continue; /* a pool that stays there */
    if (tier == TIER_HOST && c->node.op == OP_OUTPUT) continue;
    return ops_fail(c, "%s is on tier %s, where only fetch reads it; fetch it first",
                    ops_operand(c, k), tier_name(tier));
  }
  return HP_OK;
}

/* Arity, attributes, tiers, then the row's own rule. */
static hp_status infer_results(infer_ctx *c) {
  const op_row *row = &op_table[c->node.op];
  if (c->node.n_in < row->in_min || c->node.n_in > row->in_max)
    return ops_fail(c, "has %d operands, expects %d to %d", c->node.n_in, row->in_min, row->in_max);
  if (!attr_fits(c->g, c->node.op, c->node.attr))
    return ops_fail(c, "an attribute is missing, or is no possible value of its kind; expected %s",
                    row->attrs);
  HP_TRY(check_tiers(c));
  HP_TRY(op_meanings[c->node.op].infer(c));
  for (int i = 0; i < row->n_out && i < OPS_OUT_MAX; i++)
    if (!value_fits(&c->out[i]))
      return ops_fail(c, "the result has more elements than memory can hold");
  return HP_OK;
}

val ops_refuse(hp_graph *g, int op, const char *fmt, ...) {
  char text[512], by[WHO_MAX];
  va_list ap;
  if (g->failure.code) return 0;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  (void)err_set(HP_ERR_ARG, __FILE__, __LINE__, "%s: %s", describe_op(g, op, g->loc, by), text);
  graph_poison(g, HP_ERR_ARG);
  return 0;
}

/* A list of so many numbers can be an attribute; else the graph is poisoned. */
static bool list_fits(hp_graph *g, int op, int n) {
  if (n >= 0 && n <= HP_MAX_RANK) return true;
  ops_refuse(g, op, "%d dims or axes; expected 0 to %d", n, HP_MAX_RANK);
  return false;
}

/* Whether x is a tensor of g; if not, the graph is poisoned in the name of `op`. */
static bool is_value(hp_graph *g, int op, val x) {
  if (g->failure.code) return false;
  if (x && x < g->values.len) return true;
  ops_refuse(g, op, "an operand is not a tensor of this graph");
  return false;
}

val ops_add(hp_graph *g, int op, const val *in, int n_in, const attr_record *attrs) {
  if (g->failure.code) return 0;
  if (n_in < op_table[op].in_min || n_in > op_table[op].in_max)
    return ops_refuse(g, op, "%d operands; expected %d to %d", n_in, op_table[op].in_min,
                      op_table[op].in_max);
  for (int i = 0; i < n_in; i++)
    if (!in[i] || in[i] >= g->values.len)
      return ops_refuse(g, op, "operand %d is not a tensor of this graph", i);
  infer_ctx c = {.g = g, .in = in};
  c.node.op = (uint16_t)op;
  c.node.n_in = (uint8_t)n_in;
  c.node.attr = attrs ? attr_intern(g, attrs) : 0;
  c.node.loc = g->loc;
  if (g->failure.code) return 0;
  hp_status st = infer_results(&c);
  if (st) {
    graph_poison(g, st);
    return 0;
  }
  return graph_add(g, op, in, n_in, c.node.attr, c.out, op_results((op_id)op, n_in));
}

hp_status ops_verify_node(const hp_graph *g, uint32_t index) {
  const ir_node *n = graph_node(g, index);
  infer_ctx c = {.g = g, .node = *n, .in = graph_in(g, n)};
  for (int k = 0; k < n->n_in; k++)
    if (!c.in[k] || c.in[k] >= n->out0 || graph_value(g, c.in[k])->def >= index)
      return ops_fail(&c, "operand %d of node %u is used before it is made", k, index);
  HP_TRY(infer_results(&c));
  if (n->n_out != op_results((op_id)n->op, n->n_in))
    return ops_fail(&c, "node %u has %d results", index, n->n_out);
  for (int k = 0; k < n->n_out; k++) {
    const ir_value *v = graph_value(g, n->out0 + (val)k);
    if (v->dtype == c.out[k].dtype && value_same_shape(v, &c.out[k])) continue;
    str want = {0}, have = {0};
    value_print(&c.out[k], &want);
    value_print(v, &have);
    hp_status st = ops_fail(&c, "result %d is said to be %s, its rule gives %s", k,
                            have.at ? have.at : "", want.at ? want.at : "");
    str_free(&want);
    str_free(&have);
    return st;
  }
  return HP_OK;
}

/* A run would take what is given under such a name for both. */
static hp_status check_outputs_differ(const hp_graph *g, uint32_t *node) {
  map inputs = {0};
  hp_status st = HP_OK;
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t i = 0, input; !st && i < g->nodes.len; i++) {
      const ir_node *n = graph_node(g, i);
      if (n->op != (pass ? OP_OUTPUT : OP_INPUT)) continue;
      const char *name = attr_str(g, n, "name");
      *node = i;
      if (!pass) st = map_set(&inputs, name, strlen(name), i);
      else if (map_get(&inputs, name, strlen(name), &input))
        st = err_set(HP_ERR_ARG, __FILE__, __LINE__,
                     "output \"%s\" has the name of an input; it needs a name of its own", name);
    }
  map_free(&inputs);
  return st;
}

static hp_status check_names_of(const hp_graph *g, op_id op, uint32_t *node) {
  map seen = {0};
  hp_status st = HP_OK;
  for (uint32_t i = 0, first; !st && i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (n->op != op) continue;
    const char *name = attr_str(g, n, "name");
    *node = i;
    if (!*name) st = err_set(HP_ERR_ARG, __FILE__, __LINE__, "%s has no name", op_table[op].name);
    else if (!map_get(&seen, name, strlen(name), &first))
      st = map_set(&seen, name, strlen(name), i);
    else if (op == OP_OUTPUT)
      st = err_set(HP_ERR_ARG, __FILE__, __LINE__,
                   "output \"%s\" is given twice; each needs a name of its own", name);
    else if (n->attr != graph_node(g, first)->attr)
      st = err_set(HP_ERR_ARG, __FILE__, __LINE__,
                   "%s \"%s\" is declared twice, with different types", op_table[op].name, name);
  }
  map_free(&seen);
  return st;
}

hp_status ops_check_names(const hp_graph *g, uint32_t *node) {
  HP_TRY(check_names_of(g, OP_INPUT, node));
  HP_TRY(check_names_of(g, OP_PARAM, node));
  HP_TRY(check_names_of(g, OP_OUTPUT, node));
  return check_outputs_differ(g, node);
}

hp_status ops_verify_at(const hp_graph *g, uint32_t *node) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    *node = i;
    if (graph_node(g, i)->op == OP_FUSED) continue; /* its types: those of the nodes it replaced */
    HP_TRY(ops_verify_node(g, i));
  }
  return ops_check_names(g, node);
}

hp_status ops_verify(const hp_graph *g) {
  uint32_t node;
  return ops_verify_at(g, &node);
}

/* --- builders --------------------------------------------------------------------------- */

val ops_unary(hp_graph *g, int op, val x) { return ops_add(g, op, &x, 1, NULL); }

val ops_binary(hp_graph *g, int op, val a, val b) { return ops_add(g, op, (val[]){a, b}, 2, NULL); }

val ops_leaf(hp_graph *g, int op, const char *name, hp_dtype t, const int64_t *dim, int rank) {
  attr_record a = {0};
  if (!list_fits(g, op, rank)) return 0;
  if (!name || !*name) return ops_refuse(g, op, "the name is missing");
  attr_put_str(&a, g, name);
  attr_put_int(&a, t);
  attr_put_list(&a, dim, rank);
  return ops_add(g, op, NULL, 0, &a);
}

val ops_iota(hp_graph *g, hp_dtype t, const int64_t *dim, int rank, int axis) {
  attr_record a = {0};
  if (!list_fits(g, OP_IOTA, rank)) return 0;
  attr_put_int(&a, axis);
  attr_put_int(&a, t);
  attr_put_list(&a, dim, rank);
  return ops_add(g, OP_IOTA, NULL, 0, &a);
}

val ops_random(hp_graph *g, int op, val seed, int64_t stream, hp_dtype t, const int64_t *dim,
               int rank) {
  attr_record a = {0};
  if (!list_fits(g, op, rank)) return 0;
  attr_put_int(&a, stream);
  attr_put_int(&a, t);
  attr_put_list(&a, dim, rank);
  return ops_add(g, op, &seed, 1, &a);
}

val ops_const(hp_graph *g, hp_dtype t, double value) {
  attr_record a = {0};
  attr_put_float(&a, value);
  attr_put_int(&a, t);
  attr_put_list(&a, NULL, 0);
  return ops_add(g, OP_CONST, NULL, 0, &a);
}

val ops_scale(hp_graph *g, val x, double factor) {
  if (g->failure.code || !x) return 0;
  return ops_binary(g, OP_MUL, x, ops_const(g, (hp_dtype)graph_value(g, x)->dtype, factor));
}

val ops_select(hp_graph *g, val cond, val a, val b) {
  return ops_add(g, OP_SELECT, (val[]){cond, a, b}, 3, NULL);
}

val ops_cast(hp_graph *g, val x, hp_dtype t) {
  if (g->failure.code || !x || graph_value(g, x)->dtype == t) return x;
  attr_record a = {0};
  attr_put_int(&a, t);
  return ops_add(g, OP_CAST, &x, 1, &a);
}

static val add_reduction(hp_graph *g, int op, val x, const int64_t *axes, int n, bool keep) {
  attr_record a = {0};
  if (!list_fits(g, op, n)) return 0;
  attr_put_list(&a, axes, n);
  attr_put_int(&a, keep);
  return ops_add(g, op, &x, 1, &a);
}

val ops_sum(hp_graph *g, val x, const int64_t *axes, int n, bool keep) {
  return n ? add_reduction(g, OP_SUM, x, axes, n, keep) : x;
}

val ops_max(hp_graph *g, val x, const int64_t *axes, int n, bool keep) {
  return n ? add_reduction(g, OP_REDUCE_MAX, x, axes, n, keep) : x;
}

static val reduce_last(hp_graph *g, int op, val x) {
  if (g->failure.code || !x) return 0;
  int64_t last = graph_value(g, x)->rank - 1;
  return add_reduction(g, op, x, &last, 1, true);
}
val ops_sum_last(hp_graph *g, val x) { return reduce_last(g, OP_SUM, x); }
val ops_max_last(hp_graph *g, val x) { return reduce_last(g, OP_REDUCE_MAX, x); }

static val with_list(hp_graph *g, int op, val x, const int64_t *list, int n) {
  attr_record a = {0};
  if (!list_fits(g, op, n)) return 0;
  attr_put_list(&a, list, n);
  return ops_add(g, op, &x, 1, &a);
}

val ops_reshape(hp_graph *g, val x, const int64_t *dim, int rank) {
  return with_list(g, OP_RESHAPE, x, dim, rank);
}
val ops_broadcast(hp_graph *g, val x, const int64_t *dim, int rank) {
  return with_list(g, OP_BROADCAST, x, dim, rank);
}
val ops_transpose(hp_graph *g, val x, const int64_t *perm) {
  if (g->failure.code || !x) return 0;
  return with_list(g, OP_TRANSPOSE, x, perm, graph_value(g, x)->rank);
}

val ops_slice(hp_graph *g, val x, const int64_t *start, const int64_t *stop, const int64_t *step) {
  if (g->failure.code || !x) return 0;
  int rank = graph_value(g, x)->rank;
  attr_record a = {0};
  attr_put_list(&a, start, rank);
  attr_put_list(&a, stop, rank);
  attr_put_list(&a, step, rank);
  return ops_add(g, OP_SLICE, &x, 1, &a);
}

val ops_pad(hp_graph *g, val x, const int64_t *lo, const int64_t *hi, double value) {
  if (g->failure.code || !x) return 0;
  int rank = graph_value(g, x)->rank;
  attr_record a = {0};
  attr_put_list(&a, lo, rank);
  attr_put_list(&a, hi, rank);
  attr_put_float(&a, value);
  return ops_add(g, OP_PAD, &x, 1, &a);
}

val ops_concat(hp_graph *g, const val *x, int n, int axis) {
  attr_record a = {0};
  attr_put_int(&a, axis);
  return ops_add(g, OP_CONCAT, x, n, &a);
}

static val add_copy(hp_graph *g, int op, val x, int tier) {
  attr_record a = {0};
  attr_put_int(&a, tier);
  return ops_add(g, op, &x, 1, &a);
}

val ops_offload(hp_graph *g, val x, int tier) { return add_copy(g, OP_OFFLOAD, x, tier); }
val ops_fetch(hp_graph *g, val x) {
  if (!is_value(g, OP_FETCH, x)) return 0;
  return add_copy(g, OP_FETCH, x, ops_tier(g, x));
}

int ops_tier(const hp_graph *g, val v) {
  const ir_node *n = graph_def(g, v);
  bool away = n->op == OP_OFFLOAD || n->op == OP_PAGED_STORE;
  return away ? (int)attr_int(g, n, "tier") : TIER_DEVICE;
}

static val add_einsum(hp_graph *g, const char *eq, const val *in, int n_in, hp_dtype out) {
  attr_record r = {0};
  if (!eq) return ops_refuse(g, OP_EINSUM, "the equation is missing");
  attr_put_str(&r, g, eq);
  attr_put_int(&r, out);
  return ops_add(g, OP_EINSUM, in, n_in, &r);
}

val ops_einsum(hp_graph *g, const char *eq, val a, val b, hp_dtype out) {
  return add_einsum(g, eq, (val[]){a, b}, 2, out);
}

val ops_einsum_onto(hp_graph *g, const char *eq, val a, val b, val c) {
  if (!is_value(g, OP_EINSUM, c)) return 0;
  return add_einsum(g, eq, (val[]){a, b, c}, 3, (hp_dtype)graph_value(g, c)->dtype);
}

val ops_embedding_grad(hp_graph *g, val dy, val ids, val c, int64_t rows) {
  attr_record a = {0};
  attr_put_int(&a, rows);
  return ops_add(g, OP_EMBEDDING_GRAD, (val[]){dy, ids, c}, c ? 3 : 2, &a);
}

void ops_output(hp_graph *g, const char *name, val x) {
  attr_record a = {0};
  if (!name || !*name) {
    ops_refuse(g, OP_OUTPUT, "the name is missing");
    return;
  }
  attr_put_str(&a, g, name);
  ops_add(g, OP_OUTPUT, &x, 1, &a);
}

void ops_assign(hp_graph *g, val param, val x) {
  ops_add(g, OP_ASSIGN, (val[]){param, x}, 2, NULL);
}

val ops_unbroadcast(hp_graph *g, val dy, val like) {
  if (g->failure.code || !dy) return 0;
  ir_value d = *graph_value(g, dy), l = *graph_value(g, like);
  int64_t axes[HP_MAX_RANK];
  int n = 0;
  for (int i = 0; i < d.rank; i++) {
    int j = i - (d.rank - l.rank);
    if (j < 0 || (l.dim[j] == 1 && d.dim[i] != 1)) axes[n++] = i;
  }
  if (n) {
    dy = ops_sum(g, dy, axes, n, false);
    if (dy && !value_same_shape(graph_value(g, dy), &l)) dy = ops_reshape(g, dy, l.dim, l.rank);
  }
  return ops_cast(g, dy, (hp_dtype)l.dtype);
}
