#include "prog/tier_check.h"

static bool is_move(const prog_inst *n) { return op_flags((op_id)n->op) & OPF_MOVE; }

bool tier_is_crossed(const program *p, const prog_inst *n) {
  if (n->op != OP_COPY) return is_move(n);
  return program_arg(p, n, 0)->tier != TIER_DEVICE || program_arg(p, n, 1)->tier != TIER_DEVICE;
}

static hp_status check_inst(const program *p, const prog_inst *n) {
  const char *op = op_table[n->op].name;
  bool moves = tier_is_crossed(p, n);
  for (int k = 0; !moves && k < n->n_in + n->n_out; k++) {
    int tier = program_arg(p, n, k)->tier;
    if (tier != TIER_DEVICE)
      HP_FAIL(HP_ERR_ARG, "%s \"%s\" reaches into tier %s; only fetch, offload and copy do", op,
              program_str(p, n->loc), tier_name(tier));
  }
  if (n->workspace != PROG_NONE && p->buffers.at[n->workspace].tier != TIER_DEVICE)
    HP_FAIL(HP_ERR_ARG, "%s \"%s\" has its workspace on tier %s", op, program_str(p, n->loc),
            tier_name(p->buffers.at[n->workspace].tier));
  if (moves && program_arg(p, n, 0)->tier == TIER_FLASH && program_arg(p, n, 1)->tier == TIER_FLASH)
    HP_FAIL(HP_ERR_ARG, "%s \"%s\" copies within tier flash; go through another tier", op,
            program_str(p, n->loc));
  return HP_OK;
}

hp_status tier_check(const program *p) {
  for (size_t i = 0; i < p->insts.len; i++) HP_TRY(check_inst(p, program_inst(p, i)));
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->flags & (BUFFER_INPUT | BUFFER_OUTPUT) && f->tier == TIER_FLASH)
      HP_FAIL(HP_ERR_ARG, "\"%s\" is an input or output on tier flash; fetch it first",
              program_str(p, f->name));
  }
  return HP_OK;
}
