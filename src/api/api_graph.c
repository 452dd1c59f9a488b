/* hyperparallel.h: building graphs. */
#include "ir/print.h"
#include "ops/ops.h"
#include "pass/autodiff.h"

#include <math.h>
#include <string.h>

#define HP_API __attribute__((visibility("default")))

HP_API const char *hp_last_error(void) { return err_message(); }
HP_API const char *hp_error_trace(void) { return err_trace(); }
HP_API const char *hp_status_name(hp_status s) { return err_name(s); }
HP_API const char *hp_version(void) { return HP_VERSION; }
HP_API void hp_free(void *p) { mem_free(p); }

HP_API hp_status hp_graph_create(hp_graph **out) { return graph_create(NULL, out); }
HP_API void hp_graph_free(hp_graph *g) { graph_free(g); }
HP_API hp_status hp_graph_status(const hp_graph *g) { return graph_status(g); }

HP_API hp_status hp_graph_print(const hp_graph *g, char **text) {
  str s = {0};
  hp_status st = graph_print(g, &s);
  if (st) {
    str_free(&s);
    return st;
  }
  *text = str_take(&s);
  return *text ? HP_OK : HP_ERR_OOM;
}

HP_API hp_status hp_graph_parse(const char *text, const char *name, hp_graph **out) {
  return graph_parse_checked(text, strlen(text), name, ops_verify_at, out);
}

HP_API hp_shape hp_shape_of(const hp_graph *g, hp_tensor x) {
  hp_shape s = {0};
  if (!x || x >= g->values.len) return s;
  const ir_value *v = graph_value(g, x);
  s.rank = v->rank;
  memcpy(s.dim, v->dim, sizeof s.dim);
  return s;
}

HP_API hp_dtype hp_dtype_of(const hp_graph *g, hp_tensor x) {
  return x && x < g->values.len ? (hp_dtype)graph_value(g, x)->dtype : HP_F32;
}

HP_API void hp_at(hp_graph *g, const char *place) {
  g->loc = place && *place ? graph_string(g, place) : 0;
}
HP_API void hp_block(hp_graph *g, int block) { g->block = (uint16_t)block; }
HP_API void hp_update_phase(hp_graph *g) { g->phase = PHASE_UPDATE; }

static hp_tensor leaf(hp_graph *g, int op, const char *name, hp_dtype t, const hp_shape *s) {
  return ops_leaf(g, op, name, t, s->dim, s->rank);
}
HP_API hp_tensor hp_input(hp_graph *g, const char *name, hp_dtype t, hp_shape s) {
  return leaf(g, OP_INPUT, name, t, &s);
}
HP_API hp_tensor hp_param(hp_graph *g, const char *name, hp_dtype t, hp_shape s) {
  return leaf(g, OP_PARAM, name, t, &s);
}
HP_API hp_tensor hp_const(hp_graph *g, hp_dtype t, double value) { return ops_const(g, t, value); }
HP_API void hp_output(hp_graph *g, const char *name, hp_tensor x) { ops_output(g, name, x); }
HP_API void hp_assign(hp_graph *g, hp_tensor param, hp_tensor x) { ops_assign(g, param, x); }

static bool is_map(int id) {
  return (op_flags((op_id)id) & OPF_ELEMENTWISE) && !op_table[id].attrs[0];
}

HP_API const char *hp_map_name(int i, int *operands, const char **meaning) {
  for (int id = OP_NONE + 1; id < OP_COUNT && i >= 0; id++) {
    if (!is_map(id) || i-- > 0) continue;
    if (operands) *operands = op_table[id].in_max;
    if (meaning) *meaning = op_table[id].doc;
    return op_table[id].name;
  }
  return NULL;
}

static void refuse_map(hp_graph *g, const char *op) {
  const char *name[OP_COUNT];
  int n = 0;
  while ((name[n] = hp_map_name(n, NULL, NULL))) n++;
  const char *near = str_nearest(op, name, (size_t)n);
  (void)err_set(HP_ERR_ARG, __FILE__, __LINE__,
                "hp_map \"%s\": \"%s\" is not an elementwise op%s%s%s; hp_map_name lists them",
                graph_str(g, g->loc), op, near ? ", did you mean \"" : "", near ? near : "",
                near ? "\"?" : "");
  graph_poison(g, HP_ERR_ARG);
}

HP_API hp_tensor hp_map(hp_graph *g, const char *op, hp_tensor a, hp_tensor b, hp_tensor c) {
  if (!op) op = "";
  op_id id = op_find(op, strlen(op));
  if (!id || !is_map(id)) {
    refuse_map(g, op);
    return HP_NONE;
  }
  hp_tensor in[3] = {a, b, c};
  return ops_add(g, id, in, op_table[id].in_max, NULL);
}
HP_API hp_tensor hp_add(hp_graph *g, hp_tensor a, hp_tensor b) {
  return ops_binary(g, OP_ADD, a, b);
}
HP_API hp_tensor hp_sub(hp_graph *g, hp_tensor a, hp_tensor b) {
  return ops_binary(g, OP_SUB, a, b);
}
HP_API hp_tensor hp_mul(hp_graph *g, hp_tensor a, hp_tensor b) {
  return ops_binary(g, OP_MUL, a, b);
}
HP_API hp_tensor hp_div(hp_graph *g, hp_tensor a, hp_tensor b) {
  return ops_binary(g, OP_DIV, a, b);
}
HP_API hp_tensor hp_scale(hp_graph *g, hp_tensor x, double f) {
  return ops_is_value(g, OP_MUL, x) ? ops_scale(g, x, f) : HP_NONE;
}
HP_API hp_tensor hp_cast(hp_graph *g, hp_tensor x, hp_dtype t) {
  return ops_is_value(g, OP_CAST, x) ? ops_cast(g, x, t) : HP_NONE;
}

HP_API hp_tensor hp_sum(hp_graph *g, hp_tensor x, const int64_t *axes, int n, bool keep) {
  return ops_is_value(g, OP_SUM, x) ? ops_sum(g, x, axes, n, keep) : HP_NONE;
}
HP_API hp_tensor hp_argmax(hp_graph *g, hp_tensor x) { return ops_unary(g, OP_ARGMAX, x); }
HP_API hp_tensor hp_reshape(hp_graph *g, hp_tensor x, hp_shape s) {
  return ops_reshape(g, x, s.dim, s.rank);
}
HP_API hp_tensor hp_broadcast(hp_graph *g, hp_tensor x, hp_shape s) {
  return ops_broadcast(g, x, s.dim, s.rank);
}
HP_API hp_tensor hp_transpose(hp_graph *g, hp_tensor x, const int64_t *perm) {
  return ops_is_value(g, OP_TRANSPOSE, x) ? ops_transpose(g, x, perm) : HP_NONE;
}
HP_API hp_tensor hp_slice_step(hp_graph *g, hp_tensor x, int axis, int64_t start, int64_t stop,
                               int64_t step) {
  int64_t from[HP_MAX_RANK] = {0}, to[HP_MAX_RANK], steps[HP_MAX_RANK] = {1, 1, 1, 1, 1, 1};
  if (!ops_is_value(g, OP_SLICE, x)) return HP_NONE;
  hp_shape s = hp_shape_of(g, x);
  if (axis < 0 || axis >= s.rank) {
    (void)err_set(HP_ERR_ARG, __FILE__, __LINE__, "slice \"%s\": axis %d of a tensor of %d dims",
                  graph_str(g, g->loc), axis, s.rank);
    graph_poison(g, HP_ERR_ARG);
    return HP_NONE;
  }
  memcpy(to, s.dim, sizeof to);
  from[axis] = start;
  to[axis] = stop;
  steps[axis] = step;
  return ops_slice(g, x, from, to, steps);
}
HP_API hp_tensor hp_slice(hp_graph *g, hp_tensor x, int axis, int64_t start, int64_t stop) {
  return hp_slice_step(g, x, axis, start, stop, 1);
}
HP_API hp_tensor hp_concat(hp_graph *g, const hp_tensor *x, int n, int axis) {
  return ops_concat(g, x, n, axis);
}
HP_API hp_tensor hp_update(hp_graph *g, hp_tensor x, hp_tensor y, hp_tensor pos, int axis) {
  attr_record a = {0};
  attr_put_int(&a, axis);
  return ops_add(g, OP_UPDATE, (val[]){x, y, pos}, 3, &a);
}

HP_API hp_tensor hp_einsum(hp_graph *g, const char *eq, hp_tensor a, hp_tensor b) {
  return ops_einsum(g, eq, a, b, hp_dtype_of(g, a));
}
HP_API hp_tensor hp_einsum_to(hp_graph *g, const char *eq, hp_tensor a, hp_tensor b, hp_dtype t) {
  return ops_einsum(g, eq, a, b, t);
}
HP_API hp_tensor hp_embedding(hp_graph *g, hp_tensor table, hp_tensor ids, int64_t skip) {
  attr_record a = {0};
  attr_put_int(&a, skip);
  return ops_add(g, OP_EMBEDDING, (val[]){table, ids}, 2, &a);
}
HP_API hp_tensor hp_mark(hp_graph *g, const char *name, hp_tensor x) {
  attr_record a = {0};
  attr_put_str(&a, g, name ? name : "");
  return ops_add(g, OP_MARK, &x, 1, &a);
}
HP_API hp_tensor hp_shard(hp_graph *g, hp_tensor x, const char *entries) {
  if (entries && *entries == '(') return hp_mark(g, entries, x);
  (void)err_set(HP_ERR_ARG, __FILE__, __LINE__,
                "hp_shard: \"%s\" is no list of entries; expected one a dim, as \"(dp,None)\"",
                entries ? entries : "");
  graph_poison(g, HP_ERR_ARG);
  return HP_NONE;
}
HP_API hp_tensor hp_softmax(hp_graph *g, hp_tensor x) { return ops_unary(g, OP_SOFTMAX, x); }

static hp_tensor norm(hp_graph *g, int op, const val *in, int n, double eps) {
  attr_record a = {0};
  attr_put_float(&a, eps);
  return ops_add(g, op, in, n, &a);
}
HP_API hp_tensor hp_rms_norm(hp_graph *g, hp_tensor x, hp_tensor w, double eps) {
  return norm(g, OP_RMS_NORM, (val[]){x, w}, 2, eps);
}
HP_API hp_tensor hp_layer_norm(hp_graph *g, hp_tensor x, hp_tensor w, hp_tensor b, double eps) {
  return norm(g, OP_LAYER_NORM, (val[]){x, w, b}, 3, eps);
}
HP_API hp_tensor hp_rope(hp_graph *g, hp_tensor x, hp_tensor cos, hp_tensor sin,
                         hp_tensor positions, bool interleaved) {
  attr_record a = {0};
  attr_put_int(&a, 0);
  attr_put_int(&a, interleaved);
  return ops_add(g, OP_ROPE, (val[]){x, cos, sin, positions}, 4, &a);
}
HP_API hp_tensor hp_attention(hp_graph *g, hp_tensor q, hp_tensor k, hp_tensor v,
                              const hp_attention_options *o) {
  static const hp_attention_options usual;
  if (!o) o = &usual;
  hp_shape s = hp_shape_of(g, q);
  attr_record a = {0};
  double scale = o->scale != 0 || s.rank != 4 ? o->scale : 1 / sqrt((double)s.dim[3]);
  attr_put_float(&a, scale);
  attr_put_int(&a, o->causal && !o->span);
  attr_put_int(&a, o->window);
  attr_put_float(&a, o->dropout);
  attr_put_int(&a, o->dropout != 0 ? o->stream : 0);
  val in[5] = {q, k, v};
  int n = 3;
  if (o->span) in[n++] = o->span;
  if (o->dropout != 0) in[n++] = o->seed;
  return ops_add(g, OP_ATTENTION, in, n, &a);
}
HP_API hp_tensor hp_cross_entropy(hp_graph *g, hp_tensor logits, hp_tensor labels, int64_t ignore) {
  attr_record a = {0};
  attr_put_int(&a, ignore);
  return ops_add(g, OP_CROSS_ENTROPY, (val[]){logits, labels}, 2, &a);
}

HP_API hp_tensor hp_topk(hp_graph *g, hp_tensor x, int64_t k, hp_tensor *index) {
  attr_record a = {0};
  attr_put_int(&a, k);
  val y = ops_add(g, OP_TOPK, &x, 1, &a);
  *index = y ? y + 1 : HP_NONE;
  return y;
}
HP_API hp_tensor hp_take(hp_graph *g, hp_tensor x, hp_tensor index) {
  return ops_binary(g, OP_TAKE, x, index);
}
HP_API hp_tensor hp_put(hp_graph *g, hp_tensor v, hp_tensor index, int64_t n) {
  attr_record a = {0};
  attr_put_int(&a, n);
  return ops_add(g, OP_PUT, (val[]){v, index}, 2, &a);
}
HP_API hp_tensor hp_grouped(hp_graph *g, hp_tensor x, hp_tensor w, hp_tensor e) {
  attr_record a = {0};
  attr_put_int(&a, false);
  attr_put_int(&a, hp_dtype_of(g, x));
  return ops_add(g, OP_GROUPED, (val[]){x, w, e}, 3, &a);
}

HP_API hp_tensor hp_uniform(hp_graph *g, hp_tensor seed, int64_t stream, hp_dtype t, hp_shape s) {
  return ops_random(g, OP_UNIFORM, seed, stream, t, s.dim, s.rank);
}
HP_API hp_tensor hp_normal(hp_graph *g, hp_tensor seed, int64_t stream, hp_dtype t, hp_shape s) {
  return ops_random(g, OP_NORMAL, seed, stream, t, s.dim, s.rank);
}
HP_API hp_tensor hp_dropout(hp_graph *g, hp_tensor x, double p, hp_tensor seed, int64_t stream) {
  if (p == 0) return x;
  attr_record a = {0};
  attr_put_float(&a, p);
  attr_put_int(&a, stream);
  return ops_add(g, OP_DROPOUT, (val[]){x, seed}, 2, &a);
}

HP_API hp_status hp_grad(hp_graph *g, hp_tensor loss, const hp_tensor *wrt, int n,
                         hp_tensor *grads) {
  bool known = ops_is_value(g, OP_ADD, loss);
  for (int i = 0; known && i < n; i++) known = ops_is_value(g, OP_ADD, wrt[i]);
  if (!known) return graph_status(g);
  hp_status st = pass_autodiff(g, loss, wrt, n, grads);
  if (st && !g->failure.code) graph_poison(g, st);
  return st ? graph_status(g) : HP_OK;
}
HP_API hp_tensor hp_sum_sq(hp_graph *g, hp_tensor x) { return ops_unary(g, OP_SUM_SQ, x); }

/* What an optimizer's op touches is the update's, whether or not hp_update_phase was called. */
static uint8_t begin_update(hp_graph *g) {
  uint8_t before = g->phase;
  g->phase = PHASE_UPDATE;
  return before;
}

HP_API void hp_adamw(hp_graph *g, hp_tensor p, hp_tensor grad, hp_tensor m, hp_tensor v,
                     hp_tensor factor, hp_tensor lr, hp_tensor step, hp_tensor sqrt_bc2,
                     const hp_adamw_options *o) {
  attr_record a = {0};
  attr_put_float(&a, o->beta1);
  attr_put_float(&a, o->beta2);
  attr_put_float(&a, o->eps);
  attr_put_float(&a, o->decay);
  val in[8] = {p, grad, m, v, factor, lr, step, sqrt_bc2};
  uint8_t phase = begin_update(g);
  val x = ops_add(g, OP_ADAMW, in, 8, &a);
  if (x) {
    ops_assign(g, p, x);
    ops_assign(g, m, x + 1);
    ops_assign(g, v, x + 2);
  }
  g->phase = phase;
}

HP_API void hp_sgd(hp_graph *g, hp_tensor p, hp_tensor grad, hp_tensor buffer, hp_tensor factor,
                   hp_tensor lr, double momentum, double decay) {
  attr_record a = {0};
  attr_put_float(&a, momentum);
  attr_put_float(&a, decay);
  uint8_t phase = begin_update(g);
  val x = ops_add(g, OP_SGD, (val[]){p, grad, buffer, factor, lr}, 5, &a);
  if (x) ops_assign(g, p, x);
  if (x && momentum != 0) ops_assign(g, buffer, x + 1);
  g->phase = phase;
}
