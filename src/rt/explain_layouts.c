#include "rt/explain_layouts.h"

#include "shard/layout_text.h"

#include <stdio.h>
#include <string.h>

/* --- who holds what --------------------------------------------------------------------------- */

/* Elements of tensors, and those that all their parts have room for. */
typedef struct {
  double whole, room;
} elements;

static double padded_share(const elements *e) { return e->room > 0 ? 1 - e->whole / e->room : 0; }

/* How a value lay that was brought to the layout of its mark. */
static void print_source(const group *d, const layout *from, const layout *to, str *out) {
  if (layout_equal(from, to)) return;
  str_add(out, "  made as ");
  layout_print_on(&d->m, from, out);
}

static elements print_value(const group *d, const hp_graph *g, const ir_node *n, const layout *of,
                            str *out) {
  val v = n->op == OP_OUTPUT ? graph_in(g, n)[0] : n->out0;
  ir_value whole = *graph_value(g, v), part = whole, room = whole;
  str type = {0}, held = {0}, lies = {0};
  layout_print_on(&d->m, &of[v], &lies);
  for (int k = 0; k < part.rank; k++) {
    part.dim[k] = layout_part_size(&d->m, &of[v], k, whole.dim[k]);
    room.dim[k] = layout_padded_size(&d->m, &of[v], k, whole.dim[k]);
  }
  elements e = {(double)value_elements(&whole), (double)value_elements(&room)};
  value_print(&whole, &type);
  value_print(&part, &held);
  str_printf(out, "%-7s %-52s %-22s %-18s %s", op_table[n->op].name, attr_str(g, n, "name"),
             type.at ? type.at : "", lies.at ? lies.at : "", held.at ? held.at : "");
  if (padded_share(&e) > 0) str_printf(out, "  %.1f %% padding", 100 * padded_share(&e));
  if (n->op == OP_MARK) print_source(d, &of[graph_in(g, n)[0]], &of[v], out);
  str_add(out, "\n");
  str_free(&type);
  str_free(&held);
  str_free(&lies);
  return e;
}

void explain_layouts(const group *d, const hp_graph *g, const sharded *s, str *out) {
  elements all = {0};
  if (!s->of) {
    str_add(out, "one device: every tensor is whole\n");
    return;
  }
  str_printf(out, "mesh ");
  mesh_print(&d->m, out);
  str_printf(out, ", %d devices\n\n%-7s %-52s %-22s %-18s %s\n", d->n, "", "name", "tensor",
             "layout", "a device's part");
  for (size_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    bool leaf = n->op == OP_INPUT || n->op == OP_PARAM || n->op == OP_OUTPUT;
    if (!leaf && (n->op != OP_MARK || n->phase != PHASE_FORWARD)) continue;
    elements e = print_value(d, g, n, s->of, out);
    if (!leaf) continue;
    all.whole += e.whole;
    all.room += e.room;
  }
  if (padded_share(&all) > 0)
    str_printf(out, "\npadding: %.1f %% of these tensors, %.1f %% of the work\n",
               100 * padded_share(&all), 100 * s->padded_work);
}
