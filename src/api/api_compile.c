/* Programs of one mesh: compiled, loaded, counted, and unloaded. */
#include "api/api_program.h"
#include "rt/device_target.h"
#include "rt/exec.h"
#include "rt/explain_comm.h"
#include "rt/learn.h"
#include "rt/memory_use.h"
#include "sim/cost.h"
#include "sim/predict.h"

#include <string.h>

/* What decides the layouts of a graph on the mesh of d; NULL: one device. */
static const shard_plan *layouts_of(hp_device *d, shard_plan *plan) {
  *plan = (shard_plan){.mesh = &d->m,
                       .cluster = &d->cluster,
                       .declared = device_mesh_declared,
                       .model = d,
                       .no_partial_sums = d->no_partial_sums};
  return d->n > 1 ? plan : NULL;
}

hp_status api_compile_begin_with(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                                 shard_declared_fn *declared, const void *model, compilation *c) {
  shard_plan plan;
  *c = (compilation){0};
  HP_TRY(graph_status(g));
  if (d->n > 1) HP_TRY(device_mesh_check_annotations(d, g));
  const shard_plan *layouts = layouts_of(d, &plan);
  plan.declared = declared;
  plan.model = model;
  return compile_begin(g, layouts, o, c);
}

hp_status api_compile_begin(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                            compilation *c) {
  return api_compile_begin_with(g, d, o, device_mesh_declared, d, c);
}

hp_status api_make_program(compilation *c, hp_device *d, int i, compiled *out, hp_memory *memory) {
  device_target t;
  device_target_init(d, i, &t);
  hp_status st = compile_for(c, &t.t, out);
  hp_status counted = out->p ? memory_use_of(d, i, out->p, c->model, memory) : HP_OK;
  if (!st) st = counted;
  if (st) compile_free(&t.t, out);
  return st;
}

hp_status api_compile_devices(compilation *c, hp_device *d, hp_program *h) {
  for (int i = 0; i < d->own; i++) {
    compiled made;
    hp_memory memory;
    HP_TRY(api_make_program(c, d, i, &made, &memory));
    HP_TRY(exec_create(d->member[i], made.p, made.kernels, &h->r.e[i]));
    exec_set_links(h->r.e[i], d->job->links);
  }
  memcpy(h->model, c->model, sizeof h->model);
  return HP_OK;
}

hp_status api_count(const device *d, const program *p, hp_program_stats *s) {
  map seen = {0};
  hp_status st = predict_totals(d->costs, d->mesh, p, &s->predicted_s, &s->exposed_copy_s);
  s->bound_s = p->bound_s;
  s->instructions = (int)p->insts.len;
  for (size_t i = 0; !st && i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    uint32_t one;
    s->host_updates += n->stream == STREAM_HOST;
    s->flops += n->flops;
    s->bytes += n->bytes;
    s->received += cost_received(p, n);
    if (n->op != OP_FUSED || map_get(&seen, &n->attr, sizeof n->attr, &one)) continue;
    s->kernels++;
    st = map_set(&seen, &n->attr, sizeof n->attr, 1);
  }
  map_free(&seen);
  return st;
}

hp_status api_mesh_stats(const hp_program *p, hp_program_stats *out) {
  hp_program_stats s = {0};
  const exec *e = p->r.e[0];
  HP_TRY(memory_use_of(p->r.d, 0, exec_program(e), p->model, &s.memory));
  HP_TRY(api_count(p->r.d->member[0], exec_program(e), &s));
  s.compile_s = p->compile_s;
  s.run_s = exec_last_seconds(e);
  if (s.run_s > 0) {
    comm_time t;
    HP_TRY(comm_times(exec_program(e), exec_last_times(e), NULL, &t));
    s.comm_s = t.comm_s;
    s.overlapped_s = t.overlapped_s;
    s.can_overlap_s = t.can_overlap_s;
    s.received = 0;
    for (size_t i = 0; i < exec_program(e)->insts.len; i++)
      s.received += exec_last_times(e)[i].received;
  }
  *out = s;
  return HP_OK;
}

void api_unload(hp_program *p) {
  if (!p) return;
  if (p->r.e[0]) learn_from(p->r.d, p->r.e[0]);
  runs_free(&p->r);
  mem_free(p);
}
