/* Activations that are not sharded along the batch: sharding sent their rows to the devices of a
 * param, which costs memory, and work in all following ops. */
#include "rt/explain_rows.h"

#include "base/units.h"
#include "base/vec.h"
#include "shard/layout_text.h"

#include <stdlib.h>

enum { LINES = 12 };

/* Values of all layers with equal op, type and layout. */
typedef struct {
  const ir_node *node; /* the first of them */
  val value;
  int axis, count;
  double bytes; /* of one value, on a device */
} replicated_value;

typedef VEC(replicated_value) value_list;

static double shard_bytes(const device_mesh *d, const hp_graph *g, val v, const layout *l) {
  ir_value shard = *graph_value(g, v);
  for (int i = 0; i < shard.rank; i++) shard.dim[i] = layout_shard_size(&d->m, l, i, shard.dim[i]);
  return (double)value_bytes(&shard);
}

static bool is_like(const hp_graph *g, const sharded *s, const replicated_value *x,
                    const replicated_value *y) {
  const ir_value *a = graph_value(g, x->value), *b = graph_value(g, y->value);
  return x->node->op == y->node->op && x->node->phase == y->node->phase && x->axis == y->axis &&
         value_same_shape(a, b) && a->dtype == b->dtype &&
         layout_equal(&s->of[x->value], &s->of[y->value]);
}

static hp_status add(const hp_graph *g, const sharded *s, const replicated_value *x,
                     value_list *list) {
  for (size_t i = 0; i < list->len; i++)
    if (is_like(g, s, &list->at[i], x)) {
      list->at[i].count++;
      return HP_OK;
    }
  return vec_push(list, *x) ? HP_OK : HP_ERR_OOM;
}

static hp_status find(const device_mesh *d, const hp_graph *g, const sharded *s, value_list *list) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    for (val v = n->out0; v < n->out0 + n->n_out; v++)
      for (int a = 0; a < d->m.axes; a++) {
        if (!(s->row_axes[v] >> a & 1) || layout_dim_of(&s->of[v], a) >= 0) continue;
        replicated_value x = {n, v, a, 1, shard_bytes(d, g, v, &s->of[v])};
        HP_TRY(add(g, s, &x, list));
      }
  }
  return HP_OK;
}

static int largest_first(const void *a, const void *b) {
  const replicated_value *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return x->value < y->value ? -1 : x->value > y->value;
}

static void print_line(const device_mesh *d, const hp_graph *g, const sharded *s,
                       const replicated_value *x, str *out) {
  str_printf(out, "%-10s %5d of ", d->m.name[x->axis], x->count);
  units_put_bytes(out, 10, x->bytes);
  str_printf(out, "  %s ", op_table[x->node->op].name);
  value_print(graph_value(g, x->value), out);
  str_add(out, " ");
  layout_print_on(&d->m, &s->of[x->value], out);
  str_printf(out, "  %s%s\n", graph_str(g, x->node->loc),
             x->node->phase == PHASE_BACKWARD ? " (backward)" : "");
}

hp_status explain_rows(const device_mesh *d, const hp_graph *g, const sharded *s, str *out) {
  value_list list = {0};
  hp_status st = s->of ? find(d, g, s, &list) : HP_OK;
  if (!st && list.len) {
    qsort(list.at, list.len, sizeof *list.at, largest_first);
    str_add(out, "\nreplicated over axes that shard their rows in the inputs:\n");
    for (size_t i = 0; i < list.len && i < LINES; i++) print_line(d, g, s, &list.at[i], out);
    if (list.len > LINES) str_printf(out, "and %zu kinds more\n", list.len - LINES);
  }
  vec_free(&list);
  return st;
}

static void put_value(json_writer *w, const device_mesh *d, const hp_graph *g, const sharded *s,
                      const replicated_value *x) {
  str type = {0}, lies = {0};
  value_print(graph_value(g, x->value), &type);
  layout_print_on(&d->m, &s->of[x->value], &lies);
  json_open_map(w);
  json_key_string(w, "axis", d->m.name[x->axis]);
  json_key_int(w, "count", x->count);
  json_key_int(w, "device_bytes", (int64_t)x->bytes);
  json_key_string(w, "op", op_table[x->node->op].name);
  json_key_string(w, "type", type.at ? type.at : "");
  json_key_string(w, "layout", lies.at ? lies.at : "");
  json_key_string(w, "at", graph_str(g, x->node->loc));
  json_key_bool(w, "backward", x->node->phase == PHASE_BACKWARD);
  json_close(w);
  w->out->failed |= type.failed || lies.failed;
  str_free(&type);
  str_free(&lies);
}

hp_status explain_rows_json(const device_mesh *d, const hp_graph *g, const sharded *s,
                            json_writer *w) {
  value_list list = {0};
  hp_status st = s->of ? find(d, g, s, &list) : HP_OK;
  if (list.len) qsort(list.at, list.len, sizeof *list.at, largest_first);
  json_put_key(w, "replicated_rows");
  json_open_list(w);
  for (size_t i = 0; i < list.len; i++) put_value(w, d, g, s, &list.at[i]);
  json_close(w);
  vec_free(&list);
  return st;
}
