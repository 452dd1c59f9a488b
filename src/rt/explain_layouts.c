#include "rt/explain_layouts.h"

#include "shard/layout_text.h"

#include <stdio.h>
#include <string.h>

/* --- who holds what ------------------------------------------------------------------------------
 */

static void print_value(const group *d, const hp_graph *g, const ir_node *n, const layout *of,
                        str *out) {
  val v = n->op == OP_OUTPUT ? graph_in(g, n)[0] : n->out0;
  ir_value whole = *graph_value(g, v), part = whole;
  str type = {0}, held = {0}, lies = {0};
  layout_print_on(&d->m, &of[v], &lies);
  for (int k = 0; k < part.rank; k++) part.dim[k] = layout_part_size(&d->m, &of[v], k, part.dim[k]);
  value_print(&whole, &type);
  value_print(&part, &held);
  str_printf(out, "%-7s %-52s %-22s %-18s %s\n", op_table[n->op].name, attr_str(g, n, "name"),
             type.at ? type.at : "", lies.at ? lies.at : "", held.at ? held.at : "");
  str_free(&type);
  str_free(&held);
  str_free(&lies);
}

void explain_layouts(const group *d, const hp_graph *g, const layout *of, str *out) {
  if (!of) {
    str_add(out, "one device: every tensor is whole\n");
    return;
  }
  str_printf(out, "mesh ");
  mesh_print(&d->m, out);
  str_printf(out, ", %d devices\n\n%-7s %-52s %-22s %-18s %s\n", d->n, "", "name", "tensor",
             "layout", "a device's part");
  for (size_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    if (n->op == OP_INPUT || n->op == OP_PARAM || n->op == OP_OUTPUT) print_value(d, g, n, of, out);
  }
}

/* --- what goes between them
 * ------------------------------------------------------------------------ */

typedef struct {
  uint16_t op;
  char axes[64];
  int count;
  double bytes;
} traffic;

enum { KINDS_MAX = 128 };

/* Bytes that a device receives, at the formulas of shard/path.h. */
static double received(const hp_graph *g, const ir_node *n) {
  double in = (double)value_bytes(graph_value(g, graph_in(g, n)[0]));
  double devices = (double)attr_int(g, n, "n"), share = (devices - 1) / devices;
  if (n->op == OP_PART || n->op == OP_DROP || n->op == OP_LOCATE) return 0;
  if (n->op == OP_ALL_GATHER) return in * (devices - 1);
  return n->op == OP_ALL_REDUCE ? 2 * in * share : in * share;
}

static void name_axes(const group *d, const hp_graph *g, const ir_node *n, char out[64]) {
  int64_t axes[ATTR_LIST_MAX];
  int count = attr_list(g, n, "axes", axes);
  str s = {0};
  for (int i = 0; i < count; i++) str_printf(&s, i ? ",%s" : "%s", d->m.name[axes[i]]);
  snprintf(out, 64, "%s", s.at ? s.at : "");
  str_free(&s);
}

static void add(traffic *all, int *kinds, const traffic *one) {
  int k = 0;
  while (k < *kinds && (all[k].op != one->op || strcmp(all[k].axes, one->axes))) k++;
  if (k == KINDS_MAX) k--;
  if (k == *kinds) all[(*kinds)++] = (traffic){.op = one->op};
  memcpy(all[k].axes, one->axes, sizeof one->axes);
  all[k].count++;
  all[k].bytes += one->bytes;
}

void explain_comm(const group *d, const hp_graph *part, str *out) {
  traffic all[KINDS_MAX];
  int kinds = 0;
  double sum = 0;
  for (size_t i = 0; part && i < part->nodes.len; i++) {
    const ir_node *n = graph_node(part, (uint32_t)i);
    if (!(op_flags((op_id)n->op) & OPF_COLLECTIVE)) continue;
    traffic one = {.op = n->op, .bytes = received(part, n)};
    name_axes(d, part, n, one.axes);
    add(all, &kinds, &one);
    sum += one.bytes;
  }
  if (!kinds) {
    str_add(out, "nothing goes between devices\n");
    return;
  }
  str_printf(out, "%-16s %-12s %6s %16s\n", "collective", "over", "count", "bytes received");
  for (int k = 0; k < kinds; k++)
    str_printf(out, "%-16s %-12s %6d %16.0f\n", op_table[all[k].op].name, all[k].axes, all[k].count,
               all[k].bytes);
  str_printf(out, "%-16s %-12s %6s %16.0f\n", "all", "", "", sum);
}
