#include "ir/print.h"

#include "base/dtype.h"
#include "ir/attr.h"

#include <string.h>

void graph_print_string(const char *s, str *out) {
  str_add_char(out, '"');
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\') str_printf(out, "\\%c", c);
    else if (c == '\n') str_add(out, "\\n");
    else if (c < 0x20 || c == 0x7f) str_printf(out, "\\u%04x", c);
    else str_add_char(out, (char)c);
  }
  str_add_char(out, '"');
}

void graph_print_attrs(const hp_graph *g, const ir_node *n, str *out) {
  const char *at = op_table[n->op].attrs, *name;
  int len, count = 0;
  char kind;
  if (!n->attr) return;
  const int64_t *w = intern_get(&g->pool->attrs, n->attr, NULL);
  while (attr_next_key(&at, &name, &len, &kind)) {
    str_add(out, count++ ? ", " : " {");
    str_printf(out, "%.*s=", len, name);
    double f;
    switch (kind) {
    case 'f':
      memcpy(&f, w, sizeof f);
      str_add_double(out, f);
      break;
    case 's': graph_print_string(graph_str(g, (uint32_t)*w), out); break;
    case 't': str_add(out, dtype_name((hp_dtype)*w)); break;
    case 'l':
      str_add_char(out, '[');
      for (int64_t i = 0; i < w[0]; i++) str_printf(out, i ? ",%lld" : "%lld", (long long)w[1 + i]);
      str_add_char(out, ']');
      w += w[0];
      break;
    default: str_printf(out, "%lld", (long long)*w);
    }
    w++;
  }
  if (count) str_add_char(out, '}');
}

static void print_node(const hp_graph *g, const ir_node *n, str *out) {
  static const char *const phase[] = {"forward", "backward", "update"};
  for (int i = 0; i < n->n_out; i++) {
    str_printf(out, i ? ", %%%u:" : "%%%u:", n->out0 + (val)i);
    value_print(graph_value(g, n->out0 + (val)i), out);
  }
  str_printf(out, n->n_out ? " = %s" : "%s", op_table[n->op].name);
  const val *in = graph_in(g, n);
  for (int i = 0; i < n->n_in; i++) str_printf(out, i ? ", %%%u" : " %%%u", in[i]);
  graph_print_attrs(g, n, out);
  if (n->loc) {
    str_add(out, " @");
    graph_print_string(graph_str(g, n->loc), out);
  }
  if (n->block) str_printf(out, " block=%d", n->block);
  if (n->phase) str_printf(out, " phase=%s", phase[n->phase]);
  if (n->stage) str_printf(out, " stage=%d", n->stage);
  if (n->group) str_printf(out, " group=%d", n->group);
  if (n->recomputed) str_printf(out, " recomputed=%d", n->recomputed);
  str_add_char(out, '\n');
}

hp_status graph_print(const hp_graph *g, str *out) {
  for (size_t i = 0; i < g->nodes.len; i++) print_node(g, &g->nodes.at[i], out);
  return str_status(out);
}
