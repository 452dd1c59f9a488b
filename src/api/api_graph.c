/* hyperparallel.h: building graphs. */
#include "api/api_call.h"
#include "api/api_paged.h"
#include "base/dtype.h"
#include "ir/print.h"
#include "ops/ops.h"
#include "pass/autodiff.h"

#include <math.h>
#include <string.h>

HP_API const char *hp_last_error(void) { return err_call_message(); }
HP_API const char *hp_error_trace(void) { return err_call_trace(); }
HP_API const char *hp_status_name(hp_status s) { return err_name(s); }
HP_API const char *hp_version(void) { return HP_VERSION; }
HP_API void hp_free(void *p) { mem_free(p); }

/* --- graphs --------------------------------------------------------------------------------- */

/* A graph for the caller: its ids are told from those of all others that are alive. */
static hp_status give_graph(const char *function, hp_graph *g, hp_graph **out) {
  bool fits = g->values.len <= (size_t)1 << API_VALUE_BITS;
  g->tag = fits ? api_tag_take() : 0;
  if (g->tag) {
    *out = g;
    return HP_OK;
  }
  graph_free(g);
  if (!fits) return api_refuse(function, "the graph has more than %d tensors", 1 << API_VALUE_BITS);
  return api_refuse(function, "%d graphs are alive, the most that are possible; free some first",
                    API_GRAPHS_MAX);
}

HP_API hp_status hp_graph_create(hp_graph **out) {
  hp_graph *g;
  API_CALL;
  API_NEED(out);
  hp_status st = graph_create(NULL, &g);
  if (!st) st = give_graph(__func__, g, out);
  return api_result(__func__, st);
}

HP_API void hp_graph_free(hp_graph *g) {
  if (g && g->tag) api_tag_give_back(g->tag);
  graph_free(g);
}

HP_API hp_status hp_graph_status(const hp_graph *g) {
  API_CALL;
  API_NEED(g);
  return graph_status(g);
}

HP_API hp_status hp_graph_print(const hp_graph *g, char **text) {
  API_CALL;
  API_NEED(g);
  API_NEED(text);
  str s = {0};
  return api_text(__func__, graph_print(g, &s), &s, text);
}

HP_API hp_status hp_graph_parse(const char *text, const char *name, hp_graph **out) {
  hp_graph *g;
  API_CALL;
  API_NEED(text);
  API_NEED(name);
  API_NEED(out);
  hp_status st = graph_parse_checked(text, strlen(text), name, ops_verify_at, &g);
  if (!st) st = give_graph(__func__, g, out);
  return api_result(__func__, st);
}

/* The value that x stands for; NULL, with a message, when it is none of the graph. */
static const ir_value *value_of(const char *function, const hp_graph *g, hp_tensor x) {
  val v = api_number_of(g, x);
  char why[API_WHY_MAX];
  if (v) return graph_value(g, v);
  if (g->failure.code) (void)err_give(&g->failure);
  else (void)api_refuse(function, "%s", api_why_not(g, x, "x", why));
  return NULL;
}

/* --- names ------------------------------------------------------------------------------------ */

static const char *name_of(const hp_graph *g, const ir_node *n) {
  bool named = n->op == OP_INPUT || n->op == OP_PARAM || n->op == OP_OUTPUT;
  return named ? attr_str(g, n, "name") : NULL;
}

static val find_named(const hp_graph *g, op_id op, const char *name) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (n->op != op || strcmp(name_of(g, n), name)) continue;
    return op == OP_OUTPUT ? graph_in(g, n)[0] : n->out0;
  }
  return 0;
}

static void refuse_name(const char *function, const hp_graph *g, const char *name) {
  const char **names = mem_calloc(g->nodes.len + 1, sizeof *names);
  size_t n = 0;
  for (uint32_t i = 0; names && i < g->nodes.len; i++)
    if ((names[n] = name_of(g, graph_node(g, i)))) n++;
  const char *near = n ? str_nearest(name, names, n) : NULL;
  (void)api_refuse(function, "no input, param or output is named \"%.100s\"%s%.100s%s", name,
                   near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
  mem_free(names);
}

HP_API hp_tensor hp_graph_find(const hp_graph *g, const char *name) {
  static const op_id order[] = {OP_INPUT, OP_PARAM, OP_OUTPUT};
  API_GET;
  API_NEED_OR(g, HP_NONE);
  API_NEED_OR(name, HP_NONE);
  for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
    val v = find_named(g, order[i], name);
    if (v) return v | g->tag;
  }
  refuse_name(__func__, g, name);
  return HP_NONE;
}

/* --- what tensors are ------------------------------------------------------------------------- */

HP_API hp_shape hp_shape_of(const hp_graph *g, hp_tensor x) {
  API_GET;
  hp_shape s = {0};
  API_NEED_OR(g, s);
  const ir_value *v = value_of(__func__, g, x);
  if (!v) return s;
  s.rank = v->rank;
  memcpy(s.dim, v->dim, sizeof s.dim);
  return s;
}

HP_API hp_dtype hp_dtype_of(const hp_graph *g, hp_tensor x) {
  API_GET;
  API_NEED_OR(g, HP_F32);
  const ir_value *v = value_of(__func__, g, x);
  return v ? (hp_dtype)v->dtype : HP_F32;
}

HP_API void hp_at(hp_graph *g, const char *place) {
  API_BUILD(g, NULL, );
  g->loc = place && *place ? graph_string(g, place) : 0;
}
HP_API void hp_block(hp_graph *g, int block) {
  API_BUILD(g, NULL, );
  if (block < 0 || block > UINT16_MAX)
    ops_refuse(g, 0, "block is %d; expected 1 to %d, or 0 for none", block, UINT16_MAX);
  else g->block = (uint16_t)block;
}
HP_API void hp_stage(hp_graph *g, int stage) {
  API_BUILD(g, NULL, );
  if (stage < 0 || stage >= UINT16_MAX)
    ops_refuse(g, 0, "stage is %d; expected 0 to %d", stage, UINT16_MAX - 1);
  else g->stage = (uint16_t)stage;
}
HP_API void hp_update_phase(hp_graph *g) {
  API_BUILD(g, NULL, );
  g->phase = PHASE_UPDATE;
}

/* --- leaves and effects ----------------------------------------------------------------------- */

static hp_tensor leaf(hp_graph *g, int op, const char *name, hp_dtype t, const hp_shape *s) {
  bool fits =
      api_need_given(g, name, "name") && api_need_dtype(g, t, "t") && api_need_shape(g, s, "s");
  return fits ? api_tensor(g, ops_leaf(g, op, name, t, s->dim, s->rank)) : HP_NONE;
}
HP_API hp_tensor hp_input(hp_graph *g, const char *name, hp_dtype t, hp_shape s) {
  API_BUILD(g, NULL, HP_NONE);
  return leaf(g, OP_INPUT, name, t, &s);
}
HP_API hp_tensor hp_param(hp_graph *g, const char *name, hp_dtype t, hp_shape s) {
  API_BUILD(g, NULL, HP_NONE);
  return leaf(g, OP_PARAM, name, t, &s);
}

HP_API hp_tensor hp_const(hp_graph *g, hp_dtype t, double value) {
  API_BUILD(g, NULL, HP_NONE);
  return api_need_dtype(g, t, "t") ? api_tensor(g, api_number(g, t, value, "value")) : HP_NONE;
}

static hp_tensor annotate(hp_graph *g, const char *name, val x) {
  attr_record a = {0};
  attr_put_str(&a, g, name);
  return api_tensor(g, ops_add(g, OP_ANNOTATE, &x, 1, &a));
}
HP_API hp_tensor hp_annotate(hp_graph *g, const char *name, hp_tensor x) {
  API_BUILD(g, "x", HP_NONE);
  return api_need_given(g, name, "name") ? annotate(g, name, API_VALUE(g, x)) : HP_NONE;
}
HP_API hp_tensor hp_shard(hp_graph *g, hp_tensor x, const char *entries) {
  API_BUILD(g, "x", HP_NONE);
  if (!api_need_given(g, entries, "entries")) return HP_NONE;
  if (*entries == '(') return annotate(g, entries, API_VALUE(g, x));
  return ops_refuse(g, 0, "\"%.100s\" is no list of entries; expected one a dim, as \"(dp,None)\"",
                    entries);
}
HP_API void hp_output(hp_graph *g, const char *name, hp_tensor x) {
  API_BUILD(g, "x", );
  if (api_need_given(g, name, "name")) ops_output(g, name, API_VALUE(g, x));
}
HP_API void hp_assign(hp_graph *g, hp_tensor param, hp_tensor x) {
  API_BUILD(g, "param x", );
  val p = API_VALUE(g, param);
  ops_assign(g, p, API_VALUE(g, x));
}

/* --- elementwise ------------------------------------------------------------------------------ */

static hp_tensor unary(hp_graph *g, int op, hp_tensor x) {
  return api_tensor(g, ops_unary(g, op, API_VALUE(g, x)));
}
static hp_tensor binary(hp_graph *g, int op, hp_tensor a, hp_tensor b) {
  val x = API_VALUE(g, a);
  return api_tensor(g, ops_binary(g, op, x, API_VALUE(g, b)));
}

static bool is_map(int id) {
  return (op_flags((op_id)id) & OPF_ELEMENTWISE) && !op_table[id].attrs[0];
}

static const char *map_name(int i, int *operands, const char **meaning) {
  for (int id = OP_NONE + 1; id < OP_COUNT && i >= 0; id++) {
    if (!is_map(id) || i-- > 0) continue;
    if (operands) *operands = op_table[id].in_max;
    if (meaning) *meaning = op_table[id].doc;
    return op_table[id].name;
  }
  return NULL;
}
HP_API const char *hp_map_name(int i, int *operands, const char **meaning) {
  API_GET;
  return map_name(i, operands, meaning);
}

static hp_tensor refuse_map(hp_graph *g, const char *op) {
  const char *name[OP_COUNT];
  int n = 0;
  while ((name[n] = map_name(n, NULL, NULL))) n++;
  const char *near = str_nearest(op, name, (size_t)n);
  return ops_refuse(g, 0, "\"%.100s\" is not an elementwise op%s%s%s; hp_map_name lists them", op,
                    near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

HP_API hp_tensor hp_map(hp_graph *g, const char *op, hp_tensor a, hp_tensor b, hp_tensor c) {
  API_BUILD(g, "a b c", HP_NONE);
  if (!api_need_given(g, op, "op")) return HP_NONE;
  op_id id = op_find(op, strlen(op));
  if (!id || !is_map(id)) return refuse_map(g, op);
  const hp_tensor given[3] = {a, b, c};
  static const char *const name[3] = {"a", "b", "c"};
  const int n = op_table[id].in_max;
  val in[3];
  for (int i = 0; i < 3; i++) {
    if (i >= n && given[i])
      return ops_refuse(g, id, "has %d operand%s; expected HP_NONE for %s", n, n > 1 ? "s" : "",
                        name[i]);
    in[i] = i < n ? api_value(g, given[i], name[i]) : 0;
  }
  return api_tensor(g, ops_add(g, id, in, n, NULL));
}
HP_API hp_tensor hp_add(hp_graph *g, hp_tensor a, hp_tensor b) {
  API_BUILD(g, "a b", HP_NONE);
  return binary(g, OP_ADD, a, b);
}
HP_API hp_tensor hp_sub(hp_graph *g, hp_tensor a, hp_tensor b) {
  API_BUILD(g, "a b", HP_NONE);
  return binary(g, OP_SUB, a, b);
}
HP_API hp_tensor hp_mul(hp_graph *g, hp_tensor a, hp_tensor b) {
  API_BUILD(g, "a b", HP_NONE);
  return binary(g, OP_MUL, a, b);
}
HP_API hp_tensor hp_div(hp_graph *g, hp_tensor a, hp_tensor b) {
  API_BUILD(g, "a b", HP_NONE);
  return binary(g, OP_DIV, a, b);
}
HP_API hp_tensor hp_scale(hp_graph *g, hp_tensor x, double factor) {
  API_BUILD(g, "x factor", HP_NONE);
  val v = API_VALUE(g, x);
  if (!v) return HP_NONE;
  val f = api_number(g, (hp_dtype)graph_value(g, v)->dtype, factor, "factor");
  return api_tensor(g, ops_binary(g, OP_MUL, v, f));
}
HP_API hp_tensor hp_cast(hp_graph *g, hp_tensor x, hp_dtype t) {
  API_BUILD(g, "x", HP_NONE);
  return api_need_dtype(g, t, "t") ? api_tensor(g, ops_cast(g, API_VALUE(g, x), t)) : HP_NONE;
}

/* --- reductions and shape --------------------------------------------------------------------- */

HP_API hp_tensor hp_sum(hp_graph *g, hp_tensor x, const int64_t *axes, int n, bool keep) {
  API_BUILD(g, "x", HP_NONE);
  val v = API_VALUE(g, x);
  if (n && !api_need_given(g, axes, "axes")) return HP_NONE;
  return api_tensor(g, v ? ops_sum(g, v, axes, n, keep) : 0);
}
HP_API hp_tensor hp_argmax(hp_graph *g, hp_tensor x) {
  API_BUILD(g, "x", HP_NONE);
  return unary(g, OP_ARGMAX, x);
}
HP_API hp_tensor hp_reshape(hp_graph *g, hp_tensor x, hp_shape s) {
  API_BUILD(g, "x", HP_NONE);
  val v = API_VALUE(g, x);
  return api_need_shape(g, &s, "s") ? api_tensor(g, ops_reshape(g, v, s.dim, s.rank)) : HP_NONE;
}
HP_API hp_tensor hp_broadcast(hp_graph *g, hp_tensor x, hp_shape s) {
  API_BUILD(g, "x", HP_NONE);
  val v = API_VALUE(g, x);
  return api_need_shape(g, &s, "s") ? api_tensor(g, ops_broadcast(g, v, s.dim, s.rank)) : HP_NONE;
}
HP_API hp_tensor hp_transpose(hp_graph *g, hp_tensor x, const int64_t *perm) {
  API_BUILD(g, "x", HP_NONE);
  val v = API_VALUE(g, x);
  if (v && graph_value(g, v)->rank && !api_need_given(g, perm, "perm")) return HP_NONE;
  return api_tensor(g, ops_transpose(g, v, perm));
}
static hp_tensor slice(hp_graph *g, val x, int axis, int64_t start, int64_t stop, int64_t step) {
  int64_t from[HP_MAX_RANK] = {0}, to[HP_MAX_RANK], steps[HP_MAX_RANK] = {1, 1, 1, 1, 1, 1};
  if (!x) return HP_NONE;
  const ir_value *t = graph_value(g, x);
  if (axis < 0 || axis >= t->rank) {
    infer_ctx c = {.g = g, .in = &x};
    return ops_refuse(g, 0, "x is %s; axis is %d, 0 to %d was expected", ops_type(&c, 0), axis,
                      t->rank - 1);
  }
  memcpy(to, t->dim, sizeof to);
  from[axis] = start;
  to[axis] = stop;
  steps[axis] = step;
  return api_tensor(g, ops_slice(g, x, from, to, steps));
}
HP_API hp_tensor hp_slice_step(hp_graph *g, hp_tensor x, int axis, int64_t start, int64_t stop,
                               int64_t step) {
  API_BUILD(g, "x", HP_NONE);
  return slice(g, API_VALUE(g, x), axis, start, stop, step);
}
HP_API hp_tensor hp_slice(hp_graph *g, hp_tensor x, int axis, int64_t start, int64_t stop) {
  API_BUILD(g, "x", HP_NONE);
  return slice(g, API_VALUE(g, x), axis, start, stop, 1);
}
HP_API hp_tensor hp_concat(hp_graph *g, const hp_tensor *x, int n, int axis) {
  API_BUILD(g, "x[", HP_NONE);
  val in[255];
  const int most = op_table[OP_CONCAT].in_max;
  if (!api_need_given(g, x, "x")) return HP_NONE;
  if (n < 1 || n > most) return ops_refuse(g, 0, "n is %d; expected 1 to %d", n, most);
  for (int i = 0; i < n; i++) in[i] = api_value_at(g, x, i, "x");
  return api_tensor(g, ops_concat(g, in, n, axis));
}
HP_API hp_tensor hp_update(hp_graph *g, hp_tensor x, hp_tensor y, hp_tensor pos, int axis) {
  API_BUILD(g, "x y pos", HP_NONE);
  attr_record a = {0};
  attr_put_int(&a, axis);
  val in[3] = {API_VALUE(g, x), API_VALUE(g, y), API_VALUE(g, pos)};
  return api_tensor(g, ops_add(g, OP_UPDATE, in, 3, &a));
}

/* --- contractions and what models are made of ------------------------------------------------- */

static hp_tensor einsum(hp_graph *g, const char *equation, val a, val b, hp_dtype t) {
  if (!api_need_given(g, equation, "equation")) return HP_NONE;
  return api_tensor(g, ops_einsum(g, equation, a, b, t));
}
HP_API hp_tensor hp_einsum(hp_graph *g, const char *equation, hp_tensor a, hp_tensor b) {
  API_BUILD(g, "a b", HP_NONE);
  val x = API_VALUE(g, a), y = API_VALUE(g, b);
  return x ? einsum(g, equation, x, y, (hp_dtype)graph_value(g, x)->dtype) : HP_NONE;
}
HP_API hp_tensor hp_einsum_to(hp_graph *g, const char *equation, hp_tensor a, hp_tensor b,
                              hp_dtype t) {
  API_BUILD(g, "a b", HP_NONE);
  val x = API_VALUE(g, a), y = API_VALUE(g, b);
  return api_need_dtype(g, t, "t") ? einsum(g, equation, x, y, t) : HP_NONE;
}
HP_API hp_tensor hp_embedding(hp_graph *g, hp_tensor table, hp_tensor ids, int64_t skip) {
  API_BUILD(g, "table ids", HP_NONE);
  attr_record a = {0};
  attr_put_int(&a, skip);
  val in[2] = {API_VALUE(g, table), API_VALUE(g, ids)};
  return api_tensor(g, ops_add(g, OP_EMBEDDING, in, 2, &a));
}
HP_API hp_tensor hp_softmax(hp_graph *g, hp_tensor x) {
  API_BUILD(g, "x", HP_NONE);
  return unary(g, OP_SOFTMAX, x);
}

static hp_tensor norm(hp_graph *g, int op, const val *in, int n, double eps) {
  attr_record a = {0};
  attr_put_float(&a, eps);
  return api_tensor(g, ops_add(g, op, in, n, &a));
}
HP_API hp_tensor hp_rms_norm(hp_graph *g, hp_tensor x, hp_tensor w, double eps) {
  API_BUILD(g, "x w", HP_NONE);
  val in[2] = {API_VALUE(g, x), API_VALUE(g, w)};
  return norm(g, OP_RMS_NORM, in, 2, eps);
}
HP_API hp_tensor hp_layer_norm(hp_graph *g, hp_tensor x, hp_tensor w, hp_tensor b, double eps) {
  API_BUILD(g, "x w b", HP_NONE);
  val in[3] = {API_VALUE(g, x), API_VALUE(g, w), API_VALUE(g, b)};
  return norm(g, OP_LAYER_NORM, in, 3, eps);
}
HP_API hp_tensor hp_rope(hp_graph *g, hp_tensor x, hp_tensor cos, hp_tensor sin,
                         hp_tensor positions, bool interleaved) {
  API_BUILD(g, "x cos sin positions", HP_NONE);
  attr_record a = {0};
  attr_put_int(&a, 0);
  attr_put_int(&a, interleaved);
  val in[4] = {API_VALUE(g, x), API_VALUE(g, cos), API_VALUE(g, sin), API_VALUE(g, positions)};
  return api_tensor(g, ops_add(g, OP_ROPE, in, 4, &a));
}
HP_API hp_tensor hp_attention(hp_graph *g, hp_tensor q, hp_tensor k, hp_tensor v,
                              const hp_attention_options *o) {
  API_BUILD(g, "q k v", HP_NONE);
  static const hp_attention_options usual;
  if (!o) o = &usual;
  val in[5] = {API_VALUE(g, q), API_VALUE(g, k), API_VALUE(g, v)};
  if (o->table != HP_NONE) return api_attend_pages(g, in, o);
  val span = api_value_or_none(g, o->span, "o->span");
  int n = 3;
  if (span) in[n++] = span;
  if (o->dropout != 0) in[n++] = api_value(g, o->seed, "o->seed");
  if (g->failure.code) return HP_NONE;
  const ir_value *t = graph_value(g, in[0]);
  attr_record a = {0};
  attr_put_float(&a, o->scale != 0 || t->rank != 4 ? o->scale : 1 / sqrt((double)t->dim[3]));
  attr_put_int(&a, o->causal && !span);
  attr_put_int(&a, o->window);
  attr_put_float(&a, o->dropout);
  attr_put_int(&a, o->dropout != 0 ? o->stream : 0);
  return api_tensor(g, ops_add(g, OP_ATTENTION, in, n, &a));
}
HP_API hp_tensor hp_cross_entropy(hp_graph *g, hp_tensor logits, hp_tensor labels, int64_t ignore) {
  API_BUILD(g, "logits labels", HP_NONE);
  attr_record a = {0};
  attr_put_int(&a, ignore);
  val in[2] = {API_VALUE(g, logits), API_VALUE(g, labels)};
  return api_tensor(g, ops_add(g, OP_CROSS_ENTROPY, in, 2, &a));
}

HP_API hp_tensor hp_topk(hp_graph *g, hp_tensor x, int64_t k, hp_tensor *index) {
  API_BUILD(g, "x", HP_NONE);
  attr_record a = {0};
  attr_put_int(&a, k);
  val v = API_VALUE(g, x);
  if (!api_need_given(g, index, "index")) return HP_NONE;
  val y = ops_add(g, OP_TOPK, &v, 1, &a);
  if (y) *index = api_tensor(g, y + 1);
  return api_tensor(g, y);
}
HP_API hp_tensor hp_gather(hp_graph *g, hp_tensor x, hp_tensor index) {
  API_BUILD(g, "x index", HP_NONE);
  val v = API_VALUE(g, x);
  return api_tensor(g, ops_binary(g, OP_GATHER, v, API_VALUE(g, index)));
}
HP_API hp_tensor hp_scatter_add(hp_graph *g, hp_tensor v, hp_tensor index, int64_t n) {
  API_BUILD(g, "v index", HP_NONE);
  attr_record a = {0};
  attr_put_int(&a, n);
  val in[2] = {API_VALUE(g, v), API_VALUE(g, index)};
  return api_tensor(g, ops_add(g, OP_SCATTER_ADD, in, 2, &a));
}
HP_API hp_tensor hp_grouped_matmul(hp_graph *g, hp_tensor x, hp_tensor w, hp_tensor e) {
  API_BUILD(g, "x w e", HP_NONE);
  val in[3] = {API_VALUE(g, x), API_VALUE(g, w), API_VALUE(g, e)};
  if (!in[0]) return HP_NONE;
  attr_record a = {0};
  attr_put_int(&a, false);
  attr_put_int(&a, graph_value(g, in[0])->dtype);
  return api_tensor(g, ops_add(g, OP_GROUPED_MATMUL, in, 3, &a));
}

/* --- random numbers --------------------------------------------------------------------------- */

static hp_tensor random_numbers(hp_graph *g, int op, val seed, int64_t stream, hp_dtype t,
                                const hp_shape *s) {
  if (!api_need_dtype(g, t, "t") || !api_need_shape(g, s, "s")) return HP_NONE;
  return api_tensor(g, ops_random(g, op, seed, stream, t, s->dim, s->rank));
}
HP_API hp_tensor hp_uniform(hp_graph *g, hp_tensor seed, int64_t stream, hp_dtype t, hp_shape s) {
  API_BUILD(g, "seed", HP_NONE);
  return random_numbers(g, OP_UNIFORM, API_VALUE(g, seed), stream, t, &s);
}
HP_API hp_tensor hp_normal(hp_graph *g, hp_tensor seed, int64_t stream, hp_dtype t, hp_shape s) {
  API_BUILD(g, "seed", HP_NONE);
  return random_numbers(g, OP_NORMAL, API_VALUE(g, seed), stream, t, &s);
}
HP_API hp_tensor hp_dropout(hp_graph *g, hp_tensor x, double p, hp_tensor seed, int64_t stream) {
  API_BUILD(g, "x seed", HP_NONE);
  val v = API_VALUE(g, x);
  if (p == 0) return api_tensor(g, v);
  attr_record a = {0};
  attr_put_float(&a, p);
  attr_put_int(&a, stream);
  val in[2] = {v, API_VALUE(g, seed)};
  return api_tensor(g, ops_add(g, OP_DROPOUT, in, 2, &a));
}

/* --- training --------------------------------------------------------------------------------- */

/* Gradients to grads; of one that fails they are untouched. */
static hp_status grad(hp_graph *g, val loss, const hp_tensor *wrt, int n, hp_tensor *grads) {
  val *of = mem_calloc((size_t)n + 1, sizeof *of), *d = mem_calloc((size_t)n + 1, sizeof *d);
  hp_status st = of && d ? HP_OK : HP_ERR_OOM;
  for (int i = 0; !st && i < n; i++) of[i] = api_value_at(g, wrt, i, "wrt");
  if (!st) st = graph_status(g);
  if (!st) st = pass_autodiff(g, loss, of, n, d);
  for (int i = 0; !st && i < n; i++) d[i] = api_tensor(g, d[i]);
  if (!st) st = graph_status(g);
  if (!st && n) memcpy(grads, d, (size_t)n * sizeof *grads);
  mem_free(of);
  mem_free(d);
  return st;
}

HP_API hp_status hp_grad(hp_graph *g, hp_tensor loss, const hp_tensor *wrt, int n,
                         hp_tensor *grads) {
  API_CALL;
  API_NEED(g);
  if (!api_build(&call_, g, __func__, NULL)) return graph_status(g);
  val y = API_VALUE(g, loss);
  if (n < 0 || (size_t)n >= g->values.len)
    ops_refuse(g, 0, "n is %d; the graph has %zu tensors", n, g->values.len - 1);
  if (n > 0) (void)(api_need_given(g, wrt, "wrt") && api_need_given(g, grads, "grads"));
  if (g->failure.code) return graph_status(g);
  hp_status st = grad(g, y, wrt, n, grads);
  if (st && !g->failure.code) graph_poison(g, st);
  return st ? graph_status(g) : HP_OK;
}
HP_API hp_tensor hp_sum_sq(hp_graph *g, hp_tensor x) {
  API_BUILD(g, "x", HP_NONE);
  return unary(g, OP_SUM_SQ, x);
}

/* What an optimizer's op touches is the update's, whether or not hp_update_phase was called. */
static uint8_t begin_update(hp_graph *g) {
  uint8_t before = g->phase;
  g->phase = PHASE_UPDATE;
  return before;
}

/* The op with its three results: param, m, v; 0 after a failure. */
static val add_adamw(hp_graph *g, const val in[8], const hp_adamw_options *o) {
  attr_record a = {0};
  attr_put_float(&a, o->beta1);
  attr_put_float(&a, o->beta2);
  attr_put_float(&a, o->eps);
  attr_put_float(&a, o->decay);
  uint8_t phase = begin_update(g);
  val x = ops_add(g, OP_ADAMW, in, 8, &a);
  g->phase = phase;
  return x;
}

#define ADAMW_OPERANDS                                                                             \
  {                                                                                                \
    API_VALUE(g, p), API_VALUE(g, grad), API_VALUE(g, m), API_VALUE(g, v), API_VALUE(g, factor),   \
        API_VALUE(g, lr), API_VALUE(g, step), API_VALUE(g, sqrt_bc2)                               \
  }

HP_API void hp_adamw(hp_graph *g, hp_tensor p, hp_tensor grad, hp_tensor m, hp_tensor v,
                     hp_tensor factor, hp_tensor lr, hp_tensor step, hp_tensor sqrt_bc2,
                     const hp_adamw_options *o) {
  API_BUILD(g, "p grad m v factor lr step sqrt_bc2", );
  val in[8] = ADAMW_OPERANDS;
  if (!api_need_given(g, o, "o")) return;
  val x = add_adamw(g, in, o);
  uint8_t phase = begin_update(g);
  if (x) {
    ops_assign(g, in[0], x);
    ops_assign(g, in[2], x + 1);
    ops_assign(g, in[3], x + 2);
  }
  g->phase = phase;
}

HP_API hp_tensor hp_adamw_param(hp_graph *g, hp_tensor p, hp_tensor grad, hp_tensor m, hp_tensor v,
                                hp_tensor factor, hp_tensor lr, hp_tensor step, hp_tensor sqrt_bc2,
                                const hp_adamw_options *o) {
  API_BUILD(g, "p grad m v factor lr step sqrt_bc2", HP_NONE);
  val in[8] = ADAMW_OPERANDS;
  if (!api_need_given(g, o, "o")) return HP_NONE;
  return api_tensor(g, add_adamw(g, in, o));
}

static val add_sgd(hp_graph *g, const val in[5], double momentum, double decay) {
  attr_record a = {0};
  attr_put_float(&a, momentum);
  attr_put_float(&a, decay);
  uint8_t phase = begin_update(g);
  val x = ops_add(g, OP_SGD, in, 5, &a);
  g->phase = phase;
  return x;
}

#define SGD_OPERANDS                                                                               \
  {                                                                                                \
    API_VALUE(g, p), API_VALUE(g, grad), API_VALUE(g, buffer), API_VALUE(g, factor),               \
        API_VALUE(g, lr)                                                                           \
  }

HP_API void hp_sgd(hp_graph *g, hp_tensor p, hp_tensor grad, hp_tensor buffer, hp_tensor factor,
                   hp_tensor lr, double momentum, double decay) {
  API_BUILD(g, "p grad buffer factor lr", );
  val in[5] = SGD_OPERANDS;
  val x = add_sgd(g, in, momentum, decay);
  uint8_t phase = begin_update(g);
  if (x) ops_assign(g, in[0], x);
  if (x && momentum != 0) ops_assign(g, in[2], x + 1);
  g->phase = phase;
}

HP_API hp_tensor hp_sgd_param(hp_graph *g, hp_tensor p, hp_tensor grad, hp_tensor buffer,
                              hp_tensor factor, hp_tensor lr, double momentum, double decay) {
  API_BUILD(g, "p grad buffer factor lr", HP_NONE);
  val in[5] = SGD_OPERANDS;
  return api_tensor(g, add_sgd(g, in, momentum, decay));
}
