#include "ir/op.h"

#include <string.h>

const op_row op_table[OP_COUNT] = {
#define OP(id, name, in_min, in_max, out, attrs, infer, grad, rule, lin, cost, flags, doc)         \
  [OP_##id] = {name, in_min, in_max, out, attrs, rule, LIN_##lin, flags, doc},
#include "ir/ops.def"
#undef OP
};

op_id op_find(const char *name, size_t n) {
  for (int i = 1; i < OP_COUNT; i++)
    if (strlen(op_table[i].name) == n && !memcmp(op_table[i].name, name, n)) return (op_id)i;
  return OP_NONE;
}

#define FLAGS(f)                                                                                   \
  ((strchr(f, 'D') ? OPF_DECOMPOSE : 0u) | (strchr(f, 'E') ? OPF_ELEMENTWISE : 0u) |               \
   (strchr(f, 'C') ? OPF_COLLECTIVE : 0u) | (strchr(f, 'M') ? OPF_RENDEZVOUS : 0u) |               \
   (strchr(f, 'T') ? OPF_TABLES : 0u) | (strchr(f, 'V') ? OPF_MOVE : 0u) |                         \
   (strchr(f, 'X') ? OPF_TRANSFER : 0u))

/* The compiler makes a table of these constants: passes ask for every node. */
unsigned op_flags(op_id op) {
  switch (op) {
#define OP(id, name, in_min, in_max, out, attrs, infer, grad, rule, lin, cost, flags, doc)         \
  case OP_##id:                                                                                    \
    return FLAGS(flags);
#include "ir/ops.def"
#undef OP
  case OP_NONE:
  case OP_COUNT: break;
  }
  return 0;
}

int op_results(op_id op, int n_in) {
  if (op == OP_FUSED) return -1;
  return op == OP_EINSUMS ? n_in - 1 : op_table[op].n_out;
}

int op_inplace(op_id op) {
  const char *f = strchr(op_table[op].flag_text, 'I');
  if (!f) return -1;
  return f[1] >= '0' && f[1] <= '9' ? f[1] - '0' : 0;
}
