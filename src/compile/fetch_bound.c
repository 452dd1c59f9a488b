#include "compile/fetch_bound.h"

enum { AHEAD = 4 };

static uint32_t root_at(const program *p, const prog_inst *n, int k) {
  return p->buffers.at[program_args(p, n)[k]].root;
}

/* The last instruction that has an operand in the memory of the result of instruction i. */
static void find_last_users(const program *p, uint32_t *user) {
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_in; k++) user[root_at(p, n, k)] = i + 1;
  }
}

hp_status fetch_bound(const program *p, fetch_edges *out) {
  uint32_t *user = mem_calloc(p->buffers.len, sizeof *user), before[AHEAD] = {0}, fetches = 0;
  HP_TRY_MEM(user);
  hp_status st = HP_OK;
  find_last_users(p, user);
  for (uint32_t i = 0; !st && i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    if (n->op != OP_PAGED_FETCH) continue;
    uint32_t *last = &before[fetches++ % AHEAD];
    if (*last && *last <= i && !vec_push(out, ((list_edge){*last - 1, i}))) st = HP_ERR_OOM;
    *last = user[root_at(p, n, n->n_in)];
  }
  mem_free(user);
  return st;
}
