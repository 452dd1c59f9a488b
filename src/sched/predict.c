#include "sched/predict.h"

double predict_received(const program *p, const prog_inst *n) {
  if (!(op_flags((op_id)n->op) & OPF_MEETS)) return 0;
  double in = (double)value_bytes(&program_arg(p, n, 0)->type);
  double devices = (double)inst_int(p, n, "n");
  if (n->op == OP_ALL_GATHER) return in * (devices - 1);
  if (n->op == OP_PERMUTE || n->op == OP_ZIGZAG) return in;
  if (n->op == OP_PERMUTE) return in;
  return (n->op == OP_ALL_REDUCE ? 2 : 1) * in * (devices - 1) / devices;
}

double predict_inst(const cluster *c, const mesh *m, const program *p, const prog_inst *n) {
  if (!(op_flags((op_id)n->op) & OPF_MEETS)) return cluster_work_s(c, n->flops, n->bytes);
  int64_t axes[ATTR_LIST_MAX];
  uint8_t axis[MESH_AXES];
  int count = inst_list(p, n, "axes", axes);
  for (int i = 0; i < count; i++) axis[i] = (uint8_t)axes[i];
  return cluster_comm_s(c, m, axis, count, predict_received(p, n), n->op == OP_ALL_REDUCE ? 2 : 1);
}

hp_status predict_run(const cluster *c, const mesh *m, const program *p, inst_times *out) {
  double free_s[STREAM_COUNT] = {0};
  uint32_t length[STREAM_COUNT] = {0}, *at = mem_calloc(p->insts.len * STREAM_COUNT, sizeof *at);
  HP_TRY_MEM(at);
  for (uint32_t i = 0; i < p->insts.len; i++) { /* a wait names what is listed before */
    const prog_inst *n = program_inst(p, i);
    double start = free_s[n->stream];
    for (uint32_t k = 0; k < n->n_wait; k++) {
      const vclock_wait *w = &p->waits.at[n->wait0 + k];
      double end = out[at[w->stream * p->insts.len + w->position]].end_s;
      if (end > start) start = end;
    }
    out[i] = (inst_times){start, start, start + predict_inst(c, m, p, n)};
    free_s[n->stream] = out[i].end_s;
    at[n->stream * p->insts.len + length[n->stream]++] = i;
  }
  mem_free(at);
  return HP_OK;
}
