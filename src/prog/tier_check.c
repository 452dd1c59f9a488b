#include "prog/tier_check.h"

static bool is_move(const prog_inst *n) { return op_flags((op_id)n->op) & OPF_MOVE; }

bool tier_is_crossed(const program *p, const prog_inst *n) {
  if (n->op != OP_COPY) return is_move(n);
  return program_arg(p, n, 0)->tier != TIER_DEVICE || program_arg(p, n, 1)->tier != TIER_DEVICE;
}

tier_copy tier_copy_of(const program *p, const prog_inst *n) {
  bool stores = n->op == OP_PAGED_STORE;
  tier_copy c = {program_arg(p, n, stores), program_arg(p, n, n->n_in), 0, -1};
  c.bytes = c.from->bytes;
  if (n->op == OP_PAGED_FETCH) c.bytes = c.to->bytes, c.list = 1;
  if (stores) c.list = 2;
  return c;
}

/* Blocks come from and go to a pool that stays where it is; lists and slots are on the device. */
static hp_status check_blocks(const program *p, const prog_inst *n) {
  tier_copy c = tier_copy_of(p, n);
  if (c.list < 0) return HP_OK;
  bool fetches = n->op == OP_PAGED_FETCH;
  if ((fetches ? c.to : c.from)->tier != TIER_DEVICE ||
      program_arg(p, n, c.list)->tier != TIER_DEVICE)
    HP_FAIL(HP_ERR_ARG, "%s \"%s\" has its slots or its list on another tier than the device",
            op_table[n->op].name, program_str(p, n->loc));
  if (c.to->tier == TIER_FLASH && program_args(p, n)[0] != program_args(p, n)[n->n_in])
    HP_FAIL(HP_ERR_ARG, "%s \"%s\" makes a second pool on tier flash; assign it to its param",
            op_table[n->op].name, program_str(p, n->loc));
  return HP_OK;
}

/* The host's processors run loops over memory of the host. */
static hp_status check_host(const program *p, const prog_inst *n) {
  if (n->op != OP_FUSED || n->workspace != PROG_NONE)
    HP_FAIL(HP_ERR_ARG, "%s \"%s\" is on stream host, which runs loops without workspace alone",
            op_table[n->op].name, program_str(p, n->loc));
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    int tier = program_arg(p, n, k)->tier;
    if (tier != TIER_HOST)
      HP_FAIL(HP_ERR_ARG, "%s \"%s\" is on stream host and reaches into tier %s",
              op_table[n->op].name, program_str(p, n->loc), tier_name(tier));
  }
  return HP_OK;
}

static hp_status check_inst(const program *p, const prog_inst *n) {
  if (n->stream == STREAM_HOST) return check_host(p, n);
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
  if (!moves) return HP_OK;
  tier_copy c = tier_copy_of(p, n);
  if (c.from->tier == TIER_FLASH && c.to->tier == TIER_FLASH)
    HP_FAIL(HP_ERR_ARG, "%s \"%s\" copies within tier flash; go through another tier", op,
            program_str(p, n->loc));
  return check_blocks(p, n);
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
