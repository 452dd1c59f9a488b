#include "compile/offload_stage.h"

#include "compile/offload_apply.h"

hp_status offload_least(const program *p, const offload_options *o, uint64_t *bytes, uint32_t *at) {
  offload_items x;
  hp_status st = offload_items_make(p, o, &x);
  if (!st) st = offload_floor(&x.problem, bytes, at);
  offload_items_free(&x);
  return st;
}

hp_status offload_program(program *p, const offload_options *o, offload_summary *out) {
  offload_items x;
  offload_plan plan = {0};
  offload_summary s = {0};
  hp_status st = offload_items_make(p, o, &x);
  if (!st) st = offload_floor(&x.problem, &s.floor, &s.floor_at);
  if (!st) st = offload_kept_make(o->kept, &x.problem, &plan);
  if (!st) st = offload_apply(p, &x, &plan);
  s.time_s = plan.time_s;
  s.compute_s = plan.compute_s;
  s.bound_s = plan.bound_s;
  offload_plan_free(&plan);
  offload_items_free(&x);
  if (!st) *out = s;
  return st;
}
