#include "rt/learn.h"

#include "rt/cost_record.h"
#include "sim/cost_learn.h"

#include <string.h>

enum { RUNS_LEAST = 3 };
static const double SECONDS_LEAST = 1e-3; /* of a run: shorter ones are mostly overhead */

static int threads_of(const device_mesh *dm) {
  return dm->member[0]->backend->threads(dm->member[0]->dev);
}

void learn_open(device_mesh *dm, const hp_device_options *o) {
  bool here = (!o->cluster || !strcmp(o->cluster, "this")) && !o->interpret;
  dm->costs = dm->cluster;
  dm->has_record = here && dm->n == 1 && !strcmp(dm->member[0]->backend->name, "cpu");
  if (dm->has_record) cost_record_read(threads_of(dm), &dm->costs);
  for (int i = 0; i < dm->own || !i; i++) dm->member[i]->costs = &dm->costs;
}

void learn_from(device_mesh *dm, const exec *e) {
  const program *p = exec_program(e);
  const hp_limits *l = &dm->member[0]->limits;
  if (!dm->has_record || dm->plan_only || exec_runs(e) < RUNS_LEAST) return;
  if (exec_last_seconds(e) < SECONDS_LEAST) return;
  inst_times *t = mem_calloc(p->insts.len, sizeof *t);
  if (!t) {
    err_clear();
    return;
  }
  if (!dm->costs.costs.rows && l->flops > 0) {
    dm->costs.flops = l->flops;
    dm->costs.gb_s = l->bytes * 1e-9;
    dm->costs.costs.flops_bf16 = l->bf16_flops;
  }
  exec_recent(e, t);
  cost_learn(&dm->costs, p, t);
  dm->learned = true;
  mem_free(t);
}

void learn_close(device_mesh *dm) {
  if (dm->learned) cost_record_write(threads_of(dm), &dm->costs);
}
