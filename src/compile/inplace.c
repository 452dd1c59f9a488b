#include "compile/inplace.h"

#include "codegen/loop.h"

#include <string.h>

static bool same_access(const loop_access *a, const loop_access *b) {
  return a->offset == b->offset && !memcmp(a->stride, b->stride, sizeof a->stride);
}

bool inplace_loop(const char *body, int in, int out) {
  loop l = {0};
  if (loop_parse(body, strlen(body), "loop", &l)) {
    err_clear();
    return false;
  }
  bool fits = true;
  const loop_store *store = NULL;
  for (size_t i = 0; i < l.store.len; i++)
    if (l.store.at[i].operand == out) {
      fits &= !store;
      store = &l.store.at[i];
    }
  fits &= store != NULL;
  for (size_t i = 0; fits && i < l.value.len; i++) {
    const loop_value *v = &l.value.at[i];
    if (v->what == LOOP_IN && v->operand == in)
      fits = v->type == store->type && same_access(&v->at, &store->at);
  }
  loop_free(&l);
  return fits;
}

bool inplace_op(op_id op, int in, int out) { return out == 0 && in == op_inplace(op); }

bool inplace_inst(const program *p, const prog_inst *n, int in, int out) {
  return n->op == OP_FUSED ? inplace_loop(inst_str(p, n, "body"), in, out)
                           : inplace_op((op_id)n->op, in, out);
}
