#include "compile/fetch_bound.h"

static uint32_t root_at(const program *p, const prog_inst *n, int k) {
  return p->buffers.at[program_args(p, n)[k]].root;
}

/* last[i]: instruction i is the last that reads blocks of some fetch. */
static void find_last_uses(const program *p, uint32_t *user, bool *last) {
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_in; k++) user[root_at(p, n, k)] = i + 1;
  }
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    uint32_t use = n->op == OP_PAGED_FETCH ? user[root_at(p, n, n->n_in)] : 0;
    if (use) last[use - 1] = true;
  }
}

hp_status fetch_bound(const program *p, fetch_edges *out) {
  uint32_t *user = mem_calloc(p->buffers.len, sizeof *user), before = PROG_NONE;
  bool *last = mem_calloc(p->insts.len, sizeof *last);
  hp_status st = user && last ? HP_OK : HP_ERR_OOM;
  if (!st) find_last_uses(p, user, last);
  for (uint32_t i = 0; !st && i < p->insts.len; i++) {
    bool fetches = program_inst(p, i)->op == OP_PAGED_FETCH;
    if (fetches && before != PROG_NONE && !vec_push(out, ((list_edge){before, i}))) st = HP_ERR_OOM;
    if (last[i]) before = i;
  }
  mem_free(user);
  mem_free(last);
  return st;
}
