#include "rt/op_times.h"

#include "prog/tier_check.h"
#include "rt/inst_name.h"
#include "sim/cost.h"

#include <stdlib.h>
#include <string.h>

static bool needs_rendezvous(const device *d, const prog_inst *n) {
  return d->mesh && op_flags((op_id)n->op) & OPF_RENDEZVOUS;
}

/* The cluster of a device, with the limits that were measured on this machine. */
static void find_machine(const device *d, cluster *out) {
  const hp_limits *l = &d->limits;
  *out = d->cluster ? *d->cluster : (cluster){.nodes = 1};
  out->flops = l->flops;
  out->costs.flops_bf16 = l->bf16_flops;
  out->gb_s = l->bytes * 1e-9;
}

/* Attention does less than its shape says where keys are not visible: the row has what is done. */
static void set_limit(const program *p, const device *d, const cluster *machine, const prog_inst *n,
                      hp_op_time *row) {
  cost_work work = cost_work_of(p, n);
  work.flops = row->flops;
  work.bytes = row->bytes;
  row->limit_s = cluster_limit_s(machine, &work);
  work.flops = 0;
  row->limit = cluster_limit_s(machine, &work) < row->limit_s ? "flops" : "bytes";
  bool copies = d->cluster && op_flags((op_id)n->op) & OPF_MOVE;
  if (!needs_rendezvous(d, n) && !copies) return;
  row->limit = "link";
  if (!copies) {
    row->limit_s = cost_inst(d->cluster, d->mesh, p, n);
    return;
  }
  int64_t devices = d->mesh ? d->mesh->devices : 1;
  tier_copy c = tier_copy_of(p, n);
  row->limit_s = cluster_copy_s(d->cluster, c.from->tier, c.to->tier, (double)c.bytes, devices);
}

/* --- rows ------------------------------------------------------------------------------------- */

static bool same_work(const hp_op_time *a, const hp_op_time *b) {
  return !strcmp(a->kind, b->kind) && !strcmp(a->shape, b->shape) &&
         !strcmp(a->engine, b->engine) && a->limit == b->limit && a->overlapped == b->overlapped;
}

static hp_status add_row(op_times *all, const hp_op_time *one) {
  for (size_t i = 0; i < all->len; i++) {
    hp_op_time *row = &all->at[i];
    if (!same_work(row, one)) continue;
    row->count++;
    row->seconds += one->seconds;
    row->limit_s += one->limit_s;
    row->predicted_s += one->predicted_s;
    row->flops += one->flops;
    row->bytes += one->bytes;
    row->place[graph_common_place(row->place, one->place)] = 0;
    return HP_OK;
  }
  return vec_push(all, *one) ? HP_OK : HP_ERR_OOM;
}

/* Overlapped work has no gap: the time for which computation waits for it is a row of its own. */
static void set_gap(hp_op_time *r) {
  if (!r->overlapped && r->seconds > r->limit_s) r->gap_s = r->seconds - r->limit_s;
}

static int by_gap(const void *a, const void *b) {
  const hp_op_time *x = a, *y = b;
  if (x->gap_s != y->gap_s) return x->gap_s < y->gap_s ? 1 : -1;
  if (x->seconds != y->seconds) return x->seconds < y->seconds ? 1 : -1;
  if (x->limit_s != y->limit_s) return x->limit_s < y->limit_s ? 1 : -1;
  return strcmp(x->kind, y->kind);
}

hp_status op_times_make(const program *p, const device *d, const inst_times *t,
                        const visible_keys *visible, op_times *out) {
  op_times all = {0};
  hp_status st = HP_OK;
  double run_s = t ? inst_times_end(t, p->insts.len) : 0;
  hp_op_time one;
  cluster machine;
  find_machine(d, &machine);
  for (size_t i = 0; i < p->insts.len && !st; i++) {
    inst_describe(p, d->mesh, program_inst(p, i), visible ? &visible[i] : NULL, &one);
    set_limit(p, d, &machine, program_inst(p, i), &one);
    if (d->costs) one.predicted_s = cost_inst(d->costs, d->mesh, p, program_inst(p, i));
    one.seconds = t ? t[i].end_s - t[i].arrived_s : 0;
    if (t && t[i].received > 0) one.bytes = t[i].received; /* rows of experts: those that moved */
    if (!one.overlapped) run_s -= one.seconds;
    st = add_row(&all, &one);
  }
  one = (hp_op_time){.kind = "between instructions", .limit = "wait", .count = 1, .seconds = run_s};
  if (!st && run_s > 0) st = add_row(&all, &one);
  if (st) {
    vec_free(&all);
    return st;
  }
  for (size_t i = 0; i < all.len; i++) set_gap(&all.at[i]);
  if (all.len) qsort(all.at, all.len, sizeof *all.at, by_gap);
  *out = all;
  return HP_OK;
}
