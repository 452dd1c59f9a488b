#include "rt/explain_layouts.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/vec.h"
#include "shard/layout_text.h"

#include <string.h>

/* Elements of tensors, and of all their shards with padding. */
typedef struct {
  double global, room;
} elements;

static double padded_share(const elements *e) { return e->room > 0 ? 1 - e->global / e->room : 0; }

/* A tensor, the shard of a device, and the size of all shards together. */
typedef struct {
  const char *op, *name;
  ir_value global, shard;
  const layout *l, *from; /* from: of an annotation, the layout of its operand; NULL: the same */
  elements e;
  uint32_t node_op;
  bool leaf;
} held;

static held held_of(const device_mesh *d, const hp_graph *g, const ir_node *n, const layout *of) {
  val v = n->op == OP_OUTPUT ? graph_in(g, n)[0] : n->out0;
  held h = {.op = op_table[n->op].name,
            .name = attr_str(g, n, "name"),
            .global = *graph_value(g, v)};
  ir_value room = h.global;
  h.shard = h.global;
  h.e = (elements){(double)value_elements(&h.global), (double)value_elements(&h.global)};
  if (!of) return h;
  h.l = &of[v];
  if (n->op == OP_ANNOTATE && !layout_equal(&of[graph_in(g, n)[0]], h.l))
    h.from = &of[graph_in(g, n)[0]];
  for (int k = 0; k < h.shard.rank; k++) {
    h.shard.dim[k] = layout_shard_size(&d->m, h.l, k, h.global.dim[k]);
    room.dim[k] = layout_padded_size(&d->m, h.l, k, h.global.dim[k]);
  }
  h.e.room = (double)value_elements(&room);
  return h;
}

/* Inputs, params, outputs, and annotated values, but those of the backward. */
static bool is_leaf(const ir_node *n) {
  return n->op == OP_INPUT || n->op == OP_PARAM || n->op == OP_OUTPUT;
}
static bool is_told(const ir_node *n) {
  return is_leaf(n) || (n->op == OP_ANNOTATE && n->phase != PHASE_BACKWARD);
}

typedef VEC(held) held_list;

/* By op and name. */
static bool was_seen(const map *seen, const held *h) {
  uint32_t op;
  return map_get(seen, h->name, strlen(h->name), &op) && op == h->node_op;
}

/* The tensors of a graph that no earlier graph has, in their order. */
static hp_status add_tensors(const device_mesh *d, const graph_layouts *x, map *seen,
                             held_list *list) {
  size_t before = list->len;
  for (uint32_t i = 0; i < x->graph->nodes.len; i++) {
    const ir_node *n = graph_node(x->graph, i);
    if (!is_told(n)) continue;
    held h = held_of(d, x->graph, n, x->layouts->of);
    h.node_op = n->op;
    h.leaf = is_leaf(n);
    if (!was_seen(seen, &h) && !vec_push(list, h)) return HP_ERR_OOM;
  }
  for (size_t i = before; i < list->len; i++)
    HP_TRY(map_set(seen, list->at[i].name, strlen(list->at[i].name), list->at[i].node_op));
  return HP_OK;
}

static hp_status list_tensors(const device_mesh *d, const graph_layouts *g, size_t n,
                              held_list *list) {
  map seen = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < n; i++) st = add_tensors(d, &g[i], &seen, list);
  map_free(&seen);
  return st;
}

/* Of inputs, params and outputs. */
static double padded_share_of(const held_list *list) {
  elements all = {0};
  for (size_t i = 0; i < list->len; i++) {
    if (!list->at[i].leaf) continue;
    all.global += list->at[i].e.global;
    all.room += list->at[i].e.room;
  }
  return padded_share(&all);
}

/* Of the graph that computes most, which is the first. */
static double padded_work_of(const graph_layouts *g) { return g[0].layouts->padded_work; }

/* --- text ------------------------------------------------------------------------------------- */

static void print_held(const device_mesh *d, const held *h, str *out) {
  str type = {0}, shard = {0}, lies = {0};
  layout_print_on(&d->m, h->l, &lies);
  value_print(&h->global, &type);
  value_print(&h->shard, &shard);
  str_printf(out, "%-8s %-52s %-22s %-18s %s", h->op, h->name, type.at ? type.at : "",
             lies.at ? lies.at : "", shard.at ? shard.at : "");
  if (padded_share(&h->e) > 0) str_printf(out, "  %.1f %% padding", 100 * padded_share(&h->e));
  if (h->from) {
    str_add(out, "  made as ");
    layout_print_on(&d->m, h->from, out);
  }
  str_add(out, "\n");
  out->failed |= type.failed || shard.failed || lies.failed;
  str_free(&type);
  str_free(&shard);
  str_free(&lies);
}

hp_status explain_layouts(const device_mesh *d, const graph_layouts *g, size_t n, str *out) {
  held_list list = {0};
  if (!g[0].layouts->of) {
    str_add(out, "one device: no tensor is sharded\n");
    return HP_OK;
  }
  str_printf(out, "mesh ");
  mesh_print(&d->m, out);
  str_printf(out, ", %d devices\n\n%-8s %-52s %-22s %-18s %s\n", d->n, "", "name", "tensor",
             "layout", "a device's shard");
  hp_status st = list_tensors(d, g, n, &list);
  for (size_t i = 0; i < list.len; i++) print_held(d, &list.at[i], out);
  double padded = padded_share_of(&list);
  if (padded > 0)
    str_printf(out, "\npadding: %.1f %% of these tensors, %.1f %% of the work\n", 100 * padded,
               100 * padded_work_of(g));
  vec_free(&list);
  return st;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void put_dims(json_writer *w, const char *key, const ir_value *v) {
  json_put_key(w, key);
  json_open_list(w);
  for (int i = 0; i < v->rank; i++) json_put_int(w, v->dim[i]);
  json_close(w);
}

/* l NULL: omits the key. */
static void put_layout(json_writer *w, const device_mesh *d, const char *key, const layout *l) {
  str text = {0};
  if (!l) return;
  layout_print_on(&d->m, l, &text);
  json_key_string(w, key, text.at ? text.at : "");
  w->out->failed |= text.failed;
  str_free(&text);
}

static void put_held(json_writer *w, const device_mesh *d, const held *h) {
  json_open_map(w);
  json_key_string(w, "op", h->op);
  json_key_string(w, "name", h->name);
  json_key_string(w, "dtype", dtype_name((hp_dtype)h->global.dtype));
  put_dims(w, "shape", &h->global);
  put_layout(w, d, "layout", h->l);
  put_dims(w, "shard_shape", &h->shard);
  json_key_double(w, "padded_share", padded_share(&h->e));
  put_layout(w, d, "made_as", h->from);
  json_close(w);
}

static void put_mesh(json_writer *w, const device_mesh *d) {
  json_key_int(w, "devices", d->n);
  json_put_key(w, "mesh");
  json_open_map(w);
  for (int a = 0; a < d->m.axes; a++) json_key_int(w, d->m.name[a], d->m.size[a]);
  json_close(w);
}

hp_status explain_layouts_json(const device_mesh *d, const graph_layouts *g, size_t n,
                               json_writer *w) {
  held_list list = {0};
  hp_status st = list_tensors(d, g, n, &list);
  put_mesh(w, d);
  json_key_double(w, "padded_share", padded_share_of(&list));
  json_key_double(w, "padded_work_share", padded_work_of(g));
  json_put_key(w, "tensors");
  json_open_list(w);
  for (size_t i = 0; i < list.len; i++) put_held(w, d, &list.at[i]);
  json_close(w);
  vec_free(&list);
  return st;
}
