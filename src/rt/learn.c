#include "rt/learn.h"

#include "rt/cost_record.h"
#include "sim/cost_learn.h"

#include <string.h>

enum { RUNS_LEAST = 3 };
static const double SECONDS_LEAST = 1e-3; /* of a run: shorter ones are mostly overhead */

static int threads_of(const group *g) { return g->member[0]->backend->threads(g->member[0]->dev); }

void learn_open(group *g, const hp_device_options *o) {
  bool here = (!o->cluster || !strcmp(o->cluster, "this")) && !o->interpret;
  g->costs = g->cluster;
  g->has_record = here && g->n == 1 && !strcmp(g->member[0]->backend->name, "cpu");
  if (g->has_record) cost_record_read(threads_of(g), &g->costs);
  for (int i = 0; i < g->own; i++) g->member[i]->costs = &g->costs;
}

void learn_from(group *g, const exec *e) {
  const program *p = exec_program(e);
  const hp_limits *l = &g->member[0]->limits;
  if (!g->has_record || g->plan_only || exec_runs(e) < RUNS_LEAST) return;
  if (exec_last_seconds(e) < SECONDS_LEAST) return;
  inst_times *t = mem_calloc(p->insts.len, sizeof *t);
  if (!t) {
    err_clear();
    return;
  }
  if (!g->costs.costs.rows && l->flops > 0) {
    g->costs.flops = l->flops;
    g->costs.gb_s = l->bytes * 1e-9;
    g->costs.costs.flops_bf16 = l->bf16_flops;
  }
  exec_recent(e, t);
  cost_learn(&g->costs, p, t);
  g->learned = true;
  mem_free(t);
}

void learn_close(group *g) {
  if (g->learned) cost_record_write(threads_of(g), &g->costs);
}
