#include "rt/device.h"

#include "base/dtype.h"

#include <string.h>

hp_status job_device_open(const char *backend, const backend_options *o,
                          const uint64_t limit[TIER_COUNT], int devices, job_device **out) {
  const backend_iface *b = backend_find(backend);
  if (!b)
    HP_FAIL(HP_ERR_ARG, "backend \"%s\" does not exist; use \"cpu\", or \"sim\" for plans alone",
            backend);
  job_device *j = mem_calloc(1, sizeof *j);
  HP_TRY_MEM(j);
  *j = (job_device){.backend = b, .users = 1, .physical = mem_physical()};
  memcpy(j->limit, limit, sizeof j->limit);
  hp_status st = b->open(o, &j->dev);
  for (int t = 0; t < TIER_COUNT; t++)
    j->memory[t] = (tier_memory){.backend = b, .dev = j->dev, .tier = t, .devices = devices};
  if (st) mem_free(j);
  else *out = j;
  return st;
}

enum { BOUNCES = STREAM_COUNT * MOVER_BOUNCE };

hp_status job_device_set_flash(job_device *j, flash_store *store, uint64_t from, uint64_t bytes) {
  if (!j->backend->host_addressable) {
    j->bounce = mem_map(BOUNCES);
    HP_TRY_MEM(j->bounce);
  }
  tier_memory *m = &j->memory[TIER_FLASH];
  m->store = store;
  m->from = from;
  m->size = bytes;
  return HP_OK;
}

void job_device_release(job_device *j) {
  if (!j || --j->users) return;
  for (int t = 0; t < TIER_COUNT; t++) tier_memory_free(&j->memory[t]);
  mem_unmap(j->bounce, BOUNCES);
  j->backend->close(j->dev);
  mem_free(j);
}

bool job_device_offloads(const job_device *j) {
  for (int k = 0; k < HP_MEMORY_CLASSES; k++)
    if (j->offload[k]) return true;
  return j->has_homes;
}

bool job_device_must_offload(const job_device *j) {
  for (int k = 0; k < HP_MEMORY_CLASSES; k++)
    if (j->offload[k] > HP_OFFLOAD_AUTO) return true;
  return j->has_homes || j->offload_policy != HP_PLAN_BEST;
}

hp_status job_device_settle(job_device *j) {
  void *carrier = j->carrier;
  j->carrier = NULL;
  return carrier ? j->settle(carrier) : HP_OK;
}

hp_status device_create(job_device *j, device **out) {
  device *d = mem_calloc(1, sizeof *d);
  HP_TRY_MEM(d);
  *d = (device){.backend = j->backend, .dev = j->dev, .job = j};
  j->users++;
  *out = d;
  return HP_OK;
}

/* What the devices of a machine take of its memory together. */
static bool count_more(const job_device *j, int tier, uint64_t bytes) {
  host_pool *pool = j->memory[tier].pool;
  return !pool || host_pool_take(pool, bytes);
}

static void count_less(const job_device *j, int tier, uint64_t bytes) {
  if (j->memory[tier].pool) host_pool_give(j->memory[tier].pool, bytes);
}

void device_close(device *d) {
  if (!d) return;
  for (size_t i = 0; i < d->states.len; i++) {
    const state_tensor *t = &d->states.at[i];
    if (d->job->users > 1) tier_memory_give(&d->job->memory[t->tier], t->offset, t->bytes);
  }
  for (int t = 0; t < TIER_COUNT; t++) {
    d->job->state_bytes[t] -= d->state_bytes[t];
    count_less(d->job, t, d->state_bytes[t]);
  }
  d->job->no_partial_sums -= d->no_partial_sums;
  job_device_release(d->job);
  vec_free(&d->states);
  map_free(&d->state_of);
  offsets_kept_free(&d->offsets);
  offload_kept_free(&d->offloads);
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

static uint64_t add_bytes(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* A limit is on what there is: also the work memory of programs that are loaded.  That of flash is
 * the size of its memory. */
static bool has_room(const job_device *j, int tier, uint64_t bytes) {
  uint64_t taken = add_bytes(j->state_bytes[tier], j->memory[tier].work_bytes);
  return !j->limit[tier] || tier == TIER_FLASH || add_bytes(taken, bytes) <= j->limit[tier];
}

/* What messages and settings call the limit of a tier. */
static const char *const limit_name[TIER_COUNT] = {"memory limit", "host limit", "flash limit"};
static const char *const limit_key[TIER_COUNT] = {"memory_limit", "host_limit", "flash_limit"};

static hp_status no_room(const job_device *j, int tier, const char *name, uint64_t bytes) {
  uint64_t states = j->state_bytes[tier], work = j->memory[tier].work_bytes;
  uint64_t limit = j->limit[tier];
  const host_pool *pool = j->memory[tier].pool;
  if (pool && host_pool_devices(pool) > 1)
    HP_FAIL(HP_ERR_OOM,
            "%s %llu bytes of the %d devices of this machine: param \"%s\" (%llu bytes) does not "
            "fit next to %llu bytes that they have there; raise %s",
            limit_name[tier], (unsigned long long)host_pool_limit(pool), host_pool_devices(pool),
            name, (unsigned long long)bytes, (unsigned long long)host_pool_used(pool),
            limit_key[tier]);
  if (work && add_bytes(states, bytes) <= limit)
    HP_FAIL(
        HP_ERR_OOM,
        "%s %llu bytes: param \"%s\" (%llu bytes) does not fit next to %llu bytes of others and "
        "%llu of work memory of loaded programs; free the largest program, or raise %s",
        limit_name[tier], (unsigned long long)limit, name, (unsigned long long)bytes,
        (unsigned long long)states, (unsigned long long)work, limit_key[tier]);
  HP_FAIL(HP_ERR_OOM,
          "%s %llu bytes: param \"%s\" (%llu bytes) does not fit next to %llu bytes of others; "
          "raise %s",
          limit_name[tier], (unsigned long long)limit, name, (unsigned long long)bytes,
          (unsigned long long)states, limit_key[tier]);
}

/* Tensors that lie in the machine's memory. */
static uint64_t count_resident(const job_device *j) {
  return add_bytes(j->state_bytes[TIER_DEVICE], j->state_bytes[TIER_HOST]);
}

static hp_status check_physical(const job_device *j, const char *name, const ir_value *type,
                                uint64_t bytes) {
  uint64_t others = count_resident(j);
  if (add_bytes(others, bytes) <= j->physical) return HP_OK;
  HP_FAIL(HP_ERR_OOM,
          "param \"%s\" (%lld bytes) does not fit with %llu bytes of others: the machine has "
          "%llu bytes of memory; %sa mesh of several machines takes less of each",
          name, (long long)value_bytes(type), (unsigned long long)others,
          (unsigned long long)j->physical,
          type->dtype == HP_F32 ? "HP_BF16 takes half of it, " : "");
}

hp_status device_take(device *d, int tier, const char *name, const ir_value *type,
                      uint64_t *offset) {
  job_device *j = d->job;
  uint64_t bytes = (uint64_t)value_bytes(type), padded = tier_memory_pad(tier, bytes);
  bool pooled = j->memory[tier].pool != NULL;
  if (!pooled && !has_room(j, tier, padded)) return no_room(j, tier, name, padded);
  if (!count_more(j, tier, padded)) return no_room(j, tier, name, padded);
  hp_status st = tier == TIER_FLASH ? HP_OK : check_physical(j, name, type, padded);
  if (!st) st = tier_memory_take(&j->memory[tier], bytes, offset);
  if (st) count_less(j, tier, padded);
  HP_TRY(st);
  d->state_bytes[tier] += padded;
  j->state_bytes[tier] += padded;
  return HP_OK;
}

void device_give(device *d, int tier, uint64_t offset, uint64_t bytes) {
  uint64_t padded = tier_memory_pad(tier, bytes);
  tier_memory_give(&d->job->memory[tier], offset, bytes);
  count_less(d->job, tier, padded);
  d->state_bytes[tier] -= padded;
  d->job->state_bytes[tier] -= padded;
}

static int beyond(const job_device *j, uint64_t padded) {
  bool is_host = has_room(j, TIER_HOST, padded) || !j->memory[TIER_FLASH].store;
  return is_host ? TIER_HOST : TIER_FLASH;
}

int device_tier_beyond(const device *d, uint64_t bytes) {
  return beyond(d->job, tier_memory_pad(TIER_HOST, bytes));
}

/* The nearest tier with room for a new tensor; flash, the last, says itself that it is full. */
static int find_room(const job_device *j, uint64_t bytes) {
  uint64_t padded = tier_memory_pad(TIER_DEVICE, bytes);
  if (has_room(j, TIER_DEVICE, padded) || !job_device_offloads(j)) return TIER_DEVICE;
  return beyond(j, padded);
}

hp_status device_state(device *d, const char *name, const ir_value *type, int tier,
                       uint32_t *index) {
  if (device_find(d, name, index)) return state_check(name, &d->states.at[*index].type, type);
  if (tier == TIER_DEVICE) tier = find_room(d->job, (uint64_t)value_bytes(type));
  state_tensor s = {.type = *type, .bytes = (uint64_t)value_bytes(type), .tier = tier};
  s.name = intern(&d->names, name, strlen(name));
  if (!s.name || !vec_reserve(&d->states, 1)) return HP_ERR_OOM;
  HP_TRY(device_take(d, tier, name, type, &s.offset));
  if (map_set(&d->state_of, name, strlen(name), (uint32_t)d->states.len)) {
    device_give(d, tier, s.offset, s.bytes);
    return HP_ERR_OOM;
  }
  *index = (uint32_t)d->states.len;
  d->states.at[d->states.len++] = s;
  return HP_OK;
}

void *device_address(const device *d, const state_tensor *t) {
  HP_ASSERT(t->tier != TIER_FLASH);
  return tier_memory_address(&d->job->memory[t->tier], t->offset);
}

const char *device_state_name(const device *d, const state_tensor *t) {
  return intern_get(&d->names, t->name, NULL);
}

static hp_status find_free(const device *d, const char *name, uint32_t *index) {
  if (!device_find(d, name, index)) HP_FAIL(HP_ERR_ARG, "the device has no param \"%s\"", name);
  int programs = d->states.at[*index].programs;
  if (!programs) return HP_OK;
  HP_FAIL(HP_ERR_ARG, "param \"%s\" is used by %d program%s; free %s first", name, programs,
          programs == 1 ? "" : "s", programs == 1 ? "it" : "them");
}

hp_status device_free_state(device *d, const char *name) {
  uint32_t index;
  HP_TRY(find_free(d, name, &index));
  state_tensor *t = &d->states.at[index];
  device_give(d, t->tier, t->offset, t->bytes);
  map_remove(&d->state_of, name, strlen(name));
  uint32_t last = (uint32_t)--d->states.len;
  if (index == last) return HP_OK;
  *t = d->states.at[last]; /* moves into the free place */
  const char *moved = intern_get(&d->names, t->name, NULL);
  return map_set(&d->state_of, moved, strlen(moved), index);
}

hp_status device_add_name(device *d, const char *name, const char *second) {
  uint32_t index, other;
  HP_TRY(find_free(d, name, &index));
  if (device_find(d, second, &other))
    HP_FAIL(HP_ERR_ARG, "param \"%s\" cannot be called \"%s\": there is one already", name, second);
  if (!intern(&d->names, second, strlen(second))) return HP_ERR_OOM;
  return map_set(&d->state_of, second, strlen(second), index);
}

void device_drop_name(device *d, const char *dropped, const char *kept) {
  uint32_t index;
  HP_ASSERT(device_find(d, kept, &index));
  map_remove(&d->state_of, dropped, strlen(dropped));
  d->states.at[index].name = intern(&d->names, kept, strlen(kept)); /* it is there */
}

static hp_status no_work(const job_device *j, int tier, uint64_t bytes) {
  const host_pool *pool = j->memory[tier].pool;
  if (pool && host_pool_devices(pool) > 1)
    HP_FAIL(HP_ERR_OOM,
            "%s %llu bytes of the %d devices of this machine: work memory of %llu bytes does not "
            "fit next to %llu bytes that they have there; raise %s",
            limit_name[tier], (unsigned long long)host_pool_limit(pool), host_pool_devices(pool),
            (unsigned long long)bytes, (unsigned long long)host_pool_used(pool), limit_key[tier]);
  HP_FAIL(HP_ERR_OOM,
          "%s %llu bytes: work memory of %llu bytes does not fit next to %llu bytes of params; "
          "raise %s",
          limit_name[tier], (unsigned long long)j->limit[tier], (unsigned long long)bytes,
          (unsigned long long)j->state_bytes[tier], limit_key[tier]);
}

hp_status device_add_work(device *d, int tier, uint64_t bytes) {
  job_device *j = d->job;
  tier_memory *m = &j->memory[tier];
  uint64_t states = j->state_bytes[tier], limit = j->limit[tier], resident = count_resident(j);
  uint64_t more = bytes > m->work_bytes ? bytes - m->work_bytes : 0;
  if (tier != TIER_FLASH && !m->pool && limit && add_bytes(states, bytes) > limit)
    return no_work(j, tier, bytes);
  if (tier != TIER_FLASH && add_bytes(resident, bytes) > j->physical)
    HP_FAIL(HP_ERR_OOM,
            "work memory of %llu bytes does not fit with %llu bytes of params: the machine has "
            "%llu bytes; smaller inputs, or remat, take less",
            (unsigned long long)bytes, (unsigned long long)resident,
            (unsigned long long)j->physical);
  if (!count_more(j, tier, more)) return no_work(j, tier, bytes);
  hp_status st = tier_memory_add_need(m, bytes);
  if (st) count_less(j, tier, more);
  return st;
}

void device_drop_work(device *d, int tier, uint64_t bytes) {
  tier_memory *m = &d->job->memory[tier];
  uint64_t before = m->work_bytes;
  tier_memory_drop_need(m, bytes);
  count_less(d->job, tier, before - m->work_bytes);
}

void *device_work(const device *d, int tier) {
  const tier_memory *m = &d->job->memory[tier];
  return m->at ? tier_memory_address(m, tier_memory_work_offset(m)) : NULL;
}

/* What a memory limit leaves next to the tensors that are there, at least a byte. */
static uint64_t room_beside_tensors(const job_device *j) {
  uint64_t limit = j->limit[TIER_DEVICE], taken = j->state_bytes[TIER_DEVICE];
  return !limit ? 0 : limit > taken ? limit - taken : 1;
}

hp_status device_measure(device *d) {
  const cluster *c = d->cluster;
  if (!c || !strcmp(c->name, "this"))
    return d->backend->measure(d->dev, room_beside_tensors(d->job), &d->limits);
  double bf16 = c->costs.flops_bf16;
  d->limits = (hp_limits){c->flops, bf16 > 0 ? bf16 : c->flops, c->gb_s * 1e9};
  return HP_OK;
}

hp_status device_know_limits(device *d) { return d->limits.flops > 0 ? HP_OK : device_measure(d); }
