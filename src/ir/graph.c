#include "ir/graph.h"

#include "base/dtype.h"

#include <string.h>

hp_status graph_create(const hp_graph *like, hp_graph **out) {
  hp_graph *g = mem_calloc(1, sizeof *g);
  HP_TRY_MEM(g);
  g->pool = like ? like->pool : mem_calloc(1, sizeof *g->pool);
  if (!g->pool) {
    mem_free(g);
    return HP_ERR_OOM;
  }
  g->pool->refs++;
  /* room for an operand, so that graph_in of a node without has an array to point into */
  if (!vec_reserve(&g->ins, 1) || !vec_push(&g->values, (ir_value){0})) {
    graph_free(g);
    return HP_ERR_OOM;
  }
  *out = g;
  return HP_OK;
}

void graph_free(hp_graph *g) {
  if (!g) return;
  if (--g->pool->refs == 0) {
    intern_free(&g->pool->strings);
    intern_free(&g->pool->attrs);
    mem_free(g->pool);
  }
  vec_free(&g->nodes);
  vec_free(&g->values);
  vec_free(&g->ins);
  mem_free(g);
}

hp_status graph_status(const hp_graph *g) {
  return g->failure.code ? err_give(&g->failure) : HP_OK;
}

void graph_poison(hp_graph *g, hp_status code) {
  if (!g->failure.code) err_take(code, &g->failure);
  err_clear();
}

val graph_add(hp_graph *g, int op, const val *in, int n_in, uint32_t attr, const ir_value *out,
              int n_out) {
  if (g->failure.code) return 0;
  HP_ASSERT(n_in <= 255 && n_out <= 255);
  ir_node n = {.op = (uint16_t)op,
               .n_in = (uint8_t)n_in,
               .n_out = (uint8_t)n_out,
               .in0 = (uint32_t)g->ins.len,
               .out0 = (val)g->values.len,
               .attr = attr,
               .loc = g->loc,
               .block = g->block,
               .phase = g->phase,
               .group = g->group,
               .stage = g->stage,
               .recomputed = g->recomputed ? graph_all_results(n_out) : 0};
  if (!vec_reserve(&g->ins, n_in) || !vec_reserve(&g->values, n_out) || !vec_push(&g->nodes, n)) {
    graph_poison(g, HP_ERR_OOM);
    return 0;
  }
  for (int i = 0; i < n_in; i++) g->ins.at[g->ins.len++] = in[i];
  for (int i = 0; i < n_out; i++) {
    ir_value v = out[i];
    v.def = (uint32_t)g->nodes.len - 1;
    g->values.at[g->values.len++] = v;
  }
  return n_out ? n.out0 : 0;
}

val graph_add_like(hp_graph *g, const hp_graph *from, const ir_node *n, const val *in) {
  HP_ASSERT(g->pool == from->pool);
  size_t before = g->nodes.len;
  val v = graph_add(g, n->op, in, n->n_in, n->attr, &from->values.at[n->out0], n->n_out);
  if (g->nodes.len > before) {
    ir_node *m = &g->nodes.at[before];
    m->loc = n->loc;
    m->block = n->block;
    m->phase = n->phase;
    m->group = n->group;
    m->stage = n->stage;
    m->recomputed = n->recomputed;
  }
  return v;
}

size_t graph_common_place(const char *a, const char *b) {
  size_t same = 0, part = 0;
  for (; a[same] && a[same] == b[same]; same++)
    if (a[same] == '.') part = same;
  bool whole_a = !a[same] || a[same] == '.', whole_b = !b[same] || b[same] == '.';
  return whole_a && whole_b ? same : part;
}

uint32_t graph_string(hp_graph *g, const char *s) {
  uint32_t id = intern(&g->pool->strings, s, strlen(s));
  if (!id) graph_poison(g, HP_ERR_OOM);
  return id;
}

const char *graph_str(const hp_graph *g, uint32_t id) {
  return id ? intern_get(&g->pool->strings, id, NULL) : "";
}

int64_t value_elements(const ir_value *v) {
  int64_t n = 1;
  bool zero = false;
  for (int i = 0; i < v->rank; i++) {
    if (v->dim[i] == 0) zero = true;
    else if (__builtin_mul_overflow(n, v->dim[i], &n)) n = INT64_MAX / 2;
  }
  return zero ? 0 : n;
}

int64_t value_bytes(const ir_value *v) {
  int64_t bytes;
  if (__builtin_mul_overflow(value_elements(v), (int64_t)dtype_size((hp_dtype)v->dtype), &bytes))
    return INT64_MAX;
  return bytes;
}

bool value_fits(const ir_value *v) {
  int64_t n = (int64_t)dtype_size((hp_dtype)v->dtype);
  for (int i = 0; i < v->rank; i++)
    if (v->dim[i] && __builtin_mul_overflow(n, v->dim[i], &n)) return false;
  return n < INT64_MAX / 4;
}

hp_shape value_shape(const ir_value *v) {
  hp_shape s = {.rank = v->rank};
  memcpy(s.dim, v->dim, sizeof s.dim);
  return s;
}

bool value_same_shape(const ir_value *a, const ir_value *b) {
  return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]);
}

void value_print(const ir_value *v, str *s) {
  str_add(s, dtype_name((hp_dtype)v->dtype));
  str_add_char(s, '[');
  for (int i = 0; i < v->rank; i++) str_printf(s, i ? ",%lld" : "%lld", (long long)v->dim[i]);
  str_add_char(s, ']');
}
