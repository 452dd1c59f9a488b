#include "rt/explain_layouts.h"

#include "base/dtype.h"
#include "shard/layout_text.h"

/* Elements of tensors, and of all their shards with padding. */
typedef struct {
  double whole, room;
} elements;

static double padded_share(const elements *e) { return e->room > 0 ? 1 - e->whole / e->room : 0; }

/* A tensor, the shard of a device, and the size of all shards together. */
typedef struct {
  const char *op, *name;
  ir_value whole, part;
  const layout *l, *from; /* from: of an annotation, the layout of its operand; NULL: the same */
  elements e;
} held;

static held held_of(const group *d, const hp_graph *g, const ir_node *n, const layout *of) {
  val v = n->op == OP_OUTPUT ? graph_in(g, n)[0] : n->out0;
  held h = {.op = op_table[n->op].name,
            .name = attr_str(g, n, "name"),
            .whole = *graph_value(g, v)};
  ir_value room = h.whole;
  h.part = h.whole;
  h.e = (elements){(double)value_elements(&h.whole), (double)value_elements(&h.whole)};
  if (!of) return h;
  h.l = &of[v];
  if (n->op == OP_MARK && !layout_equal(&of[graph_in(g, n)[0]], h.l))
    h.from = &of[graph_in(g, n)[0]];
  for (int k = 0; k < h.part.rank; k++) {
    h.part.dim[k] = layout_shard_size(&d->m, h.l, k, h.whole.dim[k]);
    room.dim[k] = layout_padded_size(&d->m, h.l, k, h.whole.dim[k]);
  }
  h.e.room = (double)value_elements(&room);
  return h;
}

/* Inputs, params, outputs, and annotations of the forward. */
static bool is_leaf(const ir_node *n) {
  return n->op == OP_INPUT || n->op == OP_PARAM || n->op == OP_OUTPUT;
}
static bool is_told(const ir_node *n) {
  return is_leaf(n) || (n->op == OP_MARK && n->phase == PHASE_FORWARD);
}

/* The totals of inputs, params and outputs. */
static double padded_share_of(const group *d, const hp_graph *g, const sharded *s) {
  elements all = {0};
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    if (!is_leaf(graph_node(g, i))) continue;
    held h = held_of(d, g, graph_node(g, i), s->of);
    all.whole += h.e.whole;
    all.room += h.e.room;
  }
  return padded_share(&all);
}

/* --- text ------------------------------------------------------------------------------------- */

static void print_held(const group *d, const held *h, str *out) {
  str type = {0}, part = {0}, lies = {0};
  layout_print_on(&d->m, h->l, &lies);
  value_print(&h->whole, &type);
  value_print(&h->part, &part);
  str_printf(out, "%-7s %-52s %-22s %-18s %s", h->op, h->name, type.at ? type.at : "",
             lies.at ? lies.at : "", part.at ? part.at : "");
  if (padded_share(&h->e) > 0) str_printf(out, "  %.1f %% padding", 100 * padded_share(&h->e));
  if (h->from) {
    str_add(out, "  made as ");
    layout_print_on(&d->m, h->from, out);
  }
  str_add(out, "\n");
  out->failed |= type.failed || part.failed || lies.failed;
  str_free(&type);
  str_free(&part);
  str_free(&lies);
}

void explain_layouts(const group *d, const hp_graph *g, const sharded *s, str *out) {
  if (!s->of) {
    str_add(out, "one device: no tensor is sharded\n");
    return;
  }
  str_printf(out, "mesh ");
  mesh_print(&d->m, out);
  str_printf(out, ", %d devices\n\n%-7s %-52s %-22s %-18s %s\n", d->n, "", "name", "tensor",
             "layout", "a device's shard");
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    if (!is_told(graph_node(g, i))) continue;
    held h = held_of(d, g, graph_node(g, i), s->of);
    print_held(d, &h, out);
  }
  double padded = padded_share_of(d, g, s);
  if (padded > 0)
    str_printf(out, "\npadding: %.1f %% of these tensors, %.1f %% of the work\n", 100 * padded,
               100 * s->padded_work);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void put_dims(json_writer *w, const char *key, const ir_value *v) {
  json_put_key(w, key);
  json_open_list(w);
  for (int i = 0; i < v->rank; i++) json_put_int(w, v->dim[i]);
  json_close(w);
}

/* l NULL: omits the key. */
static void put_layout(json_writer *w, const group *d, const char *key, const layout *l) {
  str text = {0};
  if (!l) return;
  layout_print_on(&d->m, l, &text);
  json_key_string(w, key, text.at ? text.at : "");
  w->out->failed |= text.failed;
  str_free(&text);
}

static void put_held(json_writer *w, const group *d, const held *h) {
  json_open_map(w);
  json_key_string(w, "op", h->op);
  json_key_string(w, "name", h->name);
  json_key_string(w, "dtype", dtype_name((hp_dtype)h->whole.dtype));
  put_dims(w, "shape", &h->whole);
  put_layout(w, d, "layout", h->l);
  put_dims(w, "shard_shape", &h->part);
  json_key_double(w, "padded_share", padded_share(&h->e));
  put_layout(w, d, "made_as", h->from);
  json_close(w);
}

static void put_mesh(json_writer *w, const group *d) {
  json_key_int(w, "devices", d->n);
  json_put_key(w, "mesh");
  json_open_map(w);
  for (int a = 0; a < d->m.axes; a++) json_key_int(w, d->m.name[a], d->m.size[a]);
  json_close(w);
}

void explain_layouts_json(const group *d, const hp_graph *g, const sharded *s, json_writer *w) {
  put_mesh(w, d);
  json_key_double(w, "padded_share", padded_share_of(d, g, s));
  json_key_double(w, "padded_work_share", s->padded_work);
  json_put_key(w, "tensors");
  json_open_list(w);
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    if (!is_told(graph_node(g, i))) continue;
    held h = held_of(d, g, graph_node(g, i), s->of);
    put_held(w, d, &h);
  }
  json_close(w);
}
