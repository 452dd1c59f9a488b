#include "sim/cost.h"

#include "ops/op_class.h"
#include "ops/ops.h"
#include "prog/tier_check.h"

bool cost_is_bf16(const program *p, const prog_inst *n) {
  if (n->n_in && program_arg(p, n, 0)->type.dtype == HP_BF16) return true;
  return n->op == OP_EINSUM && program_arg(p, n, 1)->type.dtype == HP_BF16;
}

static cost_class class_of(const program *p, const prog_inst *n) {
  if (n->op != OP_FUSED) return op_class((op_id)n->op);
  const char *body = inst_str(p, n, "body");
  return *body == 'r' ? COST_LOOP_ROW : *body == 'c' ? COST_LOOP_COL : COST_LOOP_MAP;
}

static double elements(const program *p, const prog_inst *n, int from, int to) {
  double all = 0;
  for (int i = from; i < to; i++) all += (double)value_elements(&program_arg(p, n, i)->type);
  return all;
}

/* The smallest of m, n, k, and of a batch, of c = a b: 2 m n k flops by the elements of each of the
 * three give the dim that it lacks.  Products with one left operand count as one. */
static double smallest_dim(const program *p, const prog_inst *n) {
  int last = n->op == OP_EINSUMS ? 1 + n->n_out : 2;
  double of[] = {elements(p, n, 0, 1), elements(p, n, 1, last < n->n_in ? last : n->n_in),
                 elements(p, n, n->n_in, n->n_in + n->n_out)};
  double least = n->flops;
  for (int i = 0; i < 3; i++)
    if (of[i] > 0 && n->flops / (2 * of[i]) < least) least = n->flops / (2 * of[i]);
  return least;
}

/* The tiers of a copy are those of its buffers.  Host and flash are learned apart. */
static void describe_copy(const program *p, const prog_inst *n, cost_work *w) {
  tier_copy c = tier_copy_of(p, n);
  w->from = c.from->tier;
  w->to = c.to->tier;
  w->op = w->from == TIER_FLASH || w->to == TIER_FLASH ? COST_FLASH : COST_TRANSFER;
  w->bytes = w->size = (double)c.bytes;
}

cost_work cost_work_of(const program *p, const prog_inst *n) {
  cost_work w = {.op = class_of(p, n),
                 .bf16 = cost_is_bf16(p, n),
                 .flops = n->flops,
                 .bytes = n->bytes,
                 .size = n->bytes};
  bool product = w.op == COST_PRODUCT || w.op == COST_GROUPED;
  if (product && n->n_in > 1) w.size = smallest_dim(p, n);
  if (w.op == COST_ATTENTION || w.op == COST_ATTENTION_GRAD)
    w.size = (double)program_arg(p, n, 0)->type.dim[1];
  if (op_flags((op_id)n->op) & OPF_MOVE) describe_copy(p, n, &w);
  return w;
}

static bool goes_by_rows(const prog_inst *n) { return n->op == OP_DISPATCH || n->op == OP_COMBINE; }

/* The share of an all_gather's or reduce_scatter's bytes that is received of rows. */
static double share_of_rows(const program *p, const prog_inst *n) {
  const ir_value *ids = &program_arg(p, n, 1)->type;
  int64_t experts = inst_int(p, n, "shards") * inst_int(p, n, "size");
  return ops_needed_share(experts, inst_int(p, n, "groups"), ids->dim[ids->rank - 1]);
}

double cost_received(const program *p, const prog_inst *n) {
  if (n->op == OP_RECV) return n->bytes;
  if (!(op_flags((op_id)n->op) & OPF_RENDEZVOUS)) return 0;
  double in = (double)value_bytes(&program_arg(p, n, 0)->type);
  double devices = (double)inst_int(p, n, "n");
  if (goes_by_rows(n)) in *= share_of_rows(p, n);
  if (n->op == OP_ALL_GATHER || n->op == OP_DISPATCH) return in * (devices - 1);
  if (n->op == OP_PERMUTE || n->op == OP_ZIGZAG) return in;
  return (n->op == OP_ALL_REDUCE ? 2 : 1) * in * (devices - 1) / devices;
}

double cost_inst(const cluster *c, const mesh *m, const program *p, const prog_inst *n) {
  if (n->stream == STREAM_HOST) return cluster_host_update_s(c, n->bytes, m ? m->devices : 1);
  if (op_flags((op_id)n->op) & OPF_TRANSFER)
    return cluster_transfer_s(c, m ? mesh_rank(m, 0) : 0, inst_int(p, n, "peer"), n->bytes);
  if (!(op_flags((op_id)n->op) & OPF_RENDEZVOUS)) {
    cost_work w = cost_work_of(p, n);
    w.devices = m ? m->devices : 1;
    return cluster_work_s(c, &w);
  }
  int64_t axes[ATTR_LIST_MAX];
  uint8_t axis[MESH_AXES];
  int count = inst_list(p, n, "axes", axes);
  for (int i = 0; i < count; i++) axis[i] = (uint8_t)axes[i];
  double bytes = cost_received(p, n);
  if (goes_by_rows(n)) return cluster_rows_s(c, m, axis, count, bytes);
  return cluster_comm_s(c, m, axis, count, bytes, n->op == OP_ALL_REDUCE ? 2 : 1);
}
