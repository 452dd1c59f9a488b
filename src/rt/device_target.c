#include "rt/device_target.h"

#include "rt/memory_use.h"

#include <string.h>

static device *device_of(const device_target *t) { return t->dm->member[t->i]; }

static uint64_t resident_bytes(void *context, const program *p, int tier) {
  return memory_state(device_of(context), p, tier);
}

static int home(void *context, const char *name) {
  const device *d = device_of(context);
  uint32_t index;
  if (!device_find(d, name, &index) || !d->states.at[index].programs) return -1;
  return d->states.at[index].tier;
}

static int rule(void *context, const char *name) {
  const device_target *t = context;
  return device_mesh_home(t->dm, name);
}

/* Of this mesh those that loaded programs use, and all of other meshes. */
static uint64_t locked_bytes(void *context) {
  const device *d = device_of(context);
  uint64_t bytes = d->job->state_bytes[TIER_DEVICE] - d->state_bytes[TIER_DEVICE];
  for (size_t i = 0; i < d->states.len; i++) {
    const state_tensor *t = &d->states.at[i];
    if (t->tier == TIER_DEVICE && t->programs) bytes += memory_round(t->bytes);
  }
  return bytes;
}

static hp_status choose(void *context, program *p) {
  device_target *t = context;
  return device_mesh_choose(t->dm, t->i, p);
}

static hp_status prepare(void *context, const program *p, uint64_t *workspace, void **kernels) {
  const device *d = device_of(context);
  return d->backend->prepare(d->dev, p, workspace, kernels);
}

void device_target_init(device_mesh *dm, int i, device_target *out) {
  device *d = dm->member[i];
  *out = (device_target){.dm = dm, .i = i};
  d->backend->capabilities(d->dev, &dm->cluster.can, &out->can);
  out->t = (target){.name = d->backend->name,
                    .can = &out->can,
                    .cluster = d->cluster,
                    .mesh = d->mesh,
                    .offload = d->job->offload,
                    .offsets = &d->offsets,
                    .offloads = &d->offloads,
                    .offload_policy = d->job->offload_policy,
                    .context = out,
                    .sharers = dm->job->sharers,
                    .resident_bytes = resident_bytes,
                    .home = home,
                    .rule = rule,
                    .locked_bytes = locked_bytes,
                    .choose = choose,
                    .prepare = prepare,
                    .release = d->backend->release};
  memcpy(out->t.limit, d->job->limit, sizeof out->t.limit);
}
