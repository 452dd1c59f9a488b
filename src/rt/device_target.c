#include "rt/device_target.h"

#include "rt/memory_use.h"

static device *device_of(const device_target *t) { return t->g->member[t->i]; }

static uint64_t resident_bytes(void *context, const program *p) {
  const device *d = device_of(context);
  return memory_state(d, p, TIER_DEVICE);
}

static hp_status choose(void *context, program *p) {
  device_target *t = context;
  return group_choose(t->g, t->i, p);
}

static hp_status prepare(void *context, const program *p, uint64_t *workspace, void **kernels) {
  const device *d = device_of(context);
  return d->backend->prepare(d->dev, p, workspace, kernels);
}

void device_target_init(group *g, int i, device_target *out) {
  const device *d = g->member[i];
  *out = (device_target){.g = g, .i = i};
  d->backend->capabilities(d->dev, &g->cluster.can, &out->can);
  out->t = (target){.name = d->backend->name,
                    .can = &out->can,
                    .cluster = d->cluster,
                    .mesh = d->mesh,
                    .limit = {[TIER_DEVICE] = d->job->limit},
                    .context = out,
                    .resident_bytes = resident_bytes,
                    .choose = choose,
                    .prepare = prepare,
                    .release = d->backend->release};
}
