#include "rt/device.h"

#include "base/dtype.h"

#include <string.h>

/* A multiple of the huge page.  What of it is never written takes no memory. */
enum { SLAB_BYTES = 32 << 20 };

hp_status job_device_open(const char *backend, const backend_options *o, uint64_t limit,
                          job_device **out) {
  const backend_iface *b = backend_find(backend);
  if (!b)
    HP_FAIL(HP_ERR_ARG, "backend \"%s\" does not exist; use \"cpu\", or \"sim\" for plans alone",
            backend);
  job_device *j = mem_calloc(1, sizeof *j);
  HP_TRY_MEM(j);
  *j = (job_device){.backend = b, .users = 1, .limit = limit, .physical = mem_physical()};
  hp_status st = b->open(o, &j->dev);
  if (st) mem_free(j);
  else *out = j;
  return st;
}

void job_device_release(job_device *j) {
  if (!j || --j->users) return;
  for (int t = 0; t < TIER_COUNT; t++)
    if (j->arena[t]) j->backend->free(j->dev, t, j->arena[t], j->arena_bytes[t]);
  j->backend->close(j->dev);
  mem_free(j);
}

hp_status device_create(job_device *j, device **out) {
  device *d = mem_calloc(1, sizeof *d);
  HP_TRY_MEM(d);
  *d = (device){.backend = j->backend, .dev = j->dev, .job = j};
  j->users++;
  *out = d;
  return HP_OK;
}

void device_close(device *d) {
  if (!d) return;
  for (size_t i = 0; i < d->slabs.len; i++)
    d->backend->free(d->dev, TIER_DEVICE, d->slabs.at[i].at, d->slabs.at[i].bytes);
  d->job->state_bytes -= d->state_bytes;
  job_device_release(d->job);
  vec_free(&d->states);
  vec_free(&d->slabs);
  map_free(&d->state_of);
  intern_free(&d->names);
  mem_free(d);
}

bool device_find(const device *d, const char *name, uint32_t *index) {
  return map_get(&d->state_of, name, strlen(name), index);
}

hp_status state_check(const char *name, const ir_value *have, const ir_value *want) {
  if (have->dtype == want->dtype && value_same_shape(have, want)) return HP_OK;
  str a = {0}, b = {0};
  value_print(have, &a);
  value_print(want, &b);
  hp_status st = err_set(HP_ERR_SHAPE, __FILE__, __LINE__,
                         "param \"%s\" is %s on the device, and %s in the graph", name,
                         a.at ? a.at : "?", b.at ? b.at : "?");
  str_free(&a);
  str_free(&b);
  return st;
}

/* Zeroed memory for a tensor: in the last slab, or in a new one, as large as the tensor if that is
 * more. */
static void *state_alloc(device *d, uint64_t bytes) {
  state_slab *last = d->slabs.len ? &d->slabs.at[d->slabs.len - 1] : NULL;
  if (!last || last->bytes - last->used < bytes) {
    state_slab s = {.bytes = bytes > SLAB_BYTES ? bytes : SLAB_BYTES};
    if (!vec_reserve(&d->slabs, 1)) return NULL;
    s.at = d->backend->alloc(d->dev, TIER_DEVICE, s.bytes);
    if (!s.at) return NULL;
    d->slabs.at[d->slabs.len++] = s;
    last = &d->slabs.at[d->slabs.len - 1];
  }
  void *at = last->at + last->used;
  last->used += bytes;
  return at;
}

hp_status device_state(device *d, const char *name, const ir_value *type, uint32_t *index) {
  if (device_find(d, name, index)) return state_check(name, &d->states.at[*index].type, type);
  uint64_t bytes = (uint64_t)value_bytes(type);
  uint64_t padded = (bytes + 255) & ~(uint64_t)255;
  job_device *j = d->job;
  if (j->limit && j->state_bytes + padded > j->limit)
    HP_FAIL(HP_ERR_OOM,
            "memory limit %llu bytes: param \"%s\" (%llu bytes) does not fit beside %llu bytes of "
            "others; raise memory_limit",
            (unsigned long long)j->limit, name, (unsigned long long)bytes,
            (unsigned long long)j->state_bytes);
  if (j->state_bytes + padded > j->physical)
    HP_FAIL(HP_ERR_OOM,
            "param \"%s\" (%llu bytes) does not fit beside %llu bytes of others: the machine has "
            "%llu bytes of memory; %sa mesh of several machines takes less of each",
            name, (unsigned long long)bytes, (unsigned long long)j->state_bytes,
            (unsigned long long)j->physical,
            type->dtype == HP_F32 ? "HP_BF16 takes half of it, " : "");
  state_tensor s = {.type = *type, .bytes = bytes};
  s.name = intern(&d->names, name, strlen(name));
  if (!s.name || !vec_reserve(&d->states, 1)) return HP_ERR_OOM;
  s.at = state_alloc(d, padded);
  HP_TRY_MEM(s.at);
  HP_TRY(map_set(&d->state_of, name, strlen(name), (uint32_t)d->states.len));
  *index = (uint32_t)d->states.len;
  d->states.at[d->states.len++] = s;
  d->state_bytes += padded;
  j->state_bytes += padded;
  return HP_OK;
}

hp_status device_reserve(device *d, int tier, uint64_t bytes) {
  job_device *j = d->job;
  if (j->arena[tier] && bytes <= j->arena_bytes[tier]) return HP_OK;
  if (bytes > j->physical || j->state_bytes > j->physical - bytes)
    HP_FAIL(HP_ERR_OOM,
            "work memory of %llu bytes does not fit beside %llu bytes of params: the machine has "
            "%llu bytes; smaller inputs, or remat, take less",
            (unsigned long long)bytes, (unsigned long long)j->state_bytes,
            (unsigned long long)j->physical);
  if (j->arena[tier]) j->backend->free(j->dev, tier, j->arena[tier], j->arena_bytes[tier]);
  j->arena_bytes[tier] = 0;
  j->generation++;
  j->arena[tier] = j->backend->alloc(j->dev, tier, bytes);
  HP_TRY_MEM(j->arena[tier]);
  j->arena_bytes[tier] = bytes;
  return HP_OK;
}

hp_status device_measure(device *d) {
  const cluster *c = d->cluster;
  if (!c || !strcmp(c->name, "this")) return d->backend->measure(d->dev, &d->limits);
  d->limits = (hp_limits){c->flops, c->flops, c->gb_s * 1e9};
  return HP_OK;
}

hp_status device_know_limits(device *d) { return d->limits.flops > 0 ? HP_OK : device_measure(d); }
