#include "rt/mover.h"

#include "base/dtype.h"
#include "base/status.h"

/* Copies of the host's own calls are on the stream of computation. */
static hp_status copy(const device *d, void *to, const void *from, uint64_t bytes) {
  return d->backend->copy(d->dev, to, from, bytes, STREAM_COMPUTE);
}

static const tier_memory *flash_of(const device *d) { return &d->job->memory[TIER_FLASH]; }

hp_status mover_write(const device *d, const state_tensor *t, uint64_t offset, const void *from,
                      uint64_t bytes) {
  const char *name = device_state_name(d, t);
  if (t->tier == TIER_FLASH)
    return tier_memory_write(flash_of(d), t->offset + offset, from, bytes,
                             offset + bytes == t->bytes, name);
  return copy(d, (char *)device_address(d, t) + offset, from, bytes);
}

hp_status mover_read(const device *d, const state_tensor *t, uint64_t offset, void *to,
                     uint64_t bytes) {
  const char *name = device_state_name(d, t);
  if (t->tier == TIER_FLASH)
    return tier_memory_read(flash_of(d), t->offset + offset, to, bytes, name);
  return copy(d, to, (const char *)device_address(d, t) + offset, bytes);
}

/* --- flash and devices --------------------------------------------------------------------------
 *
 * The system reads and writes files at addresses of the host.  For memory that has none, a stream
 * copies through a buffer of its own. */

bool mover_is_host(const device *d, int tier) {
  return tier == TIER_HOST || (tier == TIER_DEVICE && d->backend->host_addressable);
}

static char *buffer_of(const device *d, int stream) {
  return d->job->bounce + (size_t)stream * MOVER_BOUNCE;
}

static uint64_t lesser(uint64_t a, uint64_t b) { return a < b ? a : b; }

static hp_status read_flash(const device *d, uint64_t offset, const tier_place *to, uint64_t bytes,
                            int stream, const char *name) {
  if (mover_is_host(d, to->tier)) return tier_memory_read(flash_of(d), offset, to->at, bytes, name);
  char *buffer = buffer_of(d, stream);
  for (uint64_t k = 0; k < bytes; k += MOVER_BOUNCE) {
    uint64_t n = lesser(bytes - k, MOVER_BOUNCE);
    HP_TRY(tier_memory_read(flash_of(d), offset + k, buffer, n, name));
    HP_TRY(d->backend->copy(d->dev, (char *)to->at + k, buffer, n, stream));
  }
  return HP_OK;
}

static hp_status write_flash(const device *d, uint64_t offset, const tier_place *from,
                             uint64_t bytes, bool ends, int stream, const char *name) {
  if (mover_is_host(d, from->tier))
    return tier_memory_write(flash_of(d), offset, from->at, bytes, ends, name);
  char *buffer = buffer_of(d, stream);
  for (uint64_t k = 0; k < bytes; k += MOVER_BOUNCE) {
    uint64_t n = lesser(bytes - k, MOVER_BOUNCE);
    HP_TRY(d->backend->copy(d->dev, buffer, (const char *)from->at + k, n, stream));
    HP_TRY(tier_memory_write(flash_of(d), offset + k, buffer, n, ends && k + n == bytes, name));
  }
  return HP_OK;
}

hp_status mover_store(const device *d, const state_tensor *t, const tensor_part *part,
                      const void *from) {
  tier_place x = {.tier = TIER_DEVICE, .at = (void *)(uintptr_t)from};
  bool ends = part->at + part->bytes == t->bytes;
  if (t->tier != TIER_FLASH)
    return copy(d, (char *)device_address(d, t) + part->at, from, part->bytes);
  return write_flash(d, t->offset + part->at, &x, part->bytes, ends, STREAM_COMPUTE,
                     device_state_name(d, t));
}

hp_status mover_load(const device *d, const state_tensor *t, const tensor_part *part, void *to) {
  tier_place x = {.tier = TIER_DEVICE, .at = to};
  if (t->tier != TIER_FLASH)
    return copy(d, to, (char *)device_address(d, t) + part->at, part->bytes);
  return read_flash(d, t->offset + part->at, &x, part->bytes, STREAM_COMPUTE,
                    device_state_name(d, t));
}

hp_status mover_show(const device *d, const void *at, uint64_t bytes, void *stage,
                     const void **out) {
  *out = mover_is_host(d, TIER_DEVICE) ? at : stage;
  return *out == at ? HP_OK : mover_to_host(d, stage, at, bytes);
}

/* --- devices ---------------------------------------------------------------------------------- */

hp_status mover_to_device(const device *d, void *to, const void *from, uint64_t bytes) {
  return copy(d, to, from, bytes);
}

hp_status mover_to_host(const device *d, void *to, const void *from, uint64_t bytes) {
  return copy(d, to, from, bytes);
}

static hp_status move_bytes(const device *d, const state_tensor *from, const state_tensor *to) {
  tier_place x = {.tier = from->tier == TIER_FLASH ? to->tier : from->tier};
  const char *name = device_state_name(d, from);
  x.at = device_address(d, from->tier == TIER_FLASH ? to : from);
  if (from->tier == TIER_FLASH)
    return read_flash(d, from->offset, &x, from->bytes, STREAM_COMPUTE, name);
  if (to->tier == TIER_FLASH)
    return write_flash(d, to->offset, &x, from->bytes, true, STREAM_COMPUTE, name);
  return copy(d, device_address(d, to), x.at, from->bytes);
}

hp_status device_move_state(device *d, uint32_t index, int tier) {
  state_tensor *t = &d->states.at[index], moved = *t;
  const char *name = intern_get(&d->names, t->name, NULL);
  if (tier == t->tier) return HP_OK;
  if (t->programs)
    HP_FAIL(HP_ERR_ARG, "param \"%s\" is used by %d program%s on tier %s; free %s first", name,
            t->programs, t->programs == 1 ? "" : "s", tier_name(t->tier),
            t->programs == 1 ? "it" : "them");
  moved.tier = tier;
  HP_TRY(device_take(d, tier, name, &t->type, &moved.offset));
  hp_status st = move_bytes(d, t, &moved);
  const state_tensor *left = st ? &moved : t;
  device_give(d, left->tier, left->offset, left->bytes);
  if (!st) *t = moved;
  return st;
}

shard_view mover_view(const mesh *m, int64_t position, const ir_value *type, const layout *l) {
  return (shard_view){.all = box_of(type->dim, type->rank),
                      .own = box_of_shard(m, l, type->dim, position),
                      .room = box_room(m, l, type->dim, position),
                      .element = dtype_size((hp_dtype)type->dtype)};
}

hp_status mover_write_shard(const device *d, const shard_view *v, void *to, const void *global) {
  box_runs r;
  for (runs_begin(&r, &v->own, &v->all, &v->room); r.n; runs_next(&r))
    HP_TRY(copy(d, (char *)to + (size_t)r.to * v->element,
                (const char *)global + (size_t)r.from * v->element, (size_t)r.n * v->element));
  return HP_OK;
}

hp_status mover_read_shard(const device *d, const shard_view *v, const void *from, void *global) {
  box_runs r;
  for (runs_begin(&r, &v->own, &v->room, &v->all); r.n; runs_next(&r))
    HP_TRY(copy(d, (char *)global + (size_t)r.to * v->element,
                (const char *)from + (size_t)r.from * v->element, (size_t)r.n * v->element));
  return HP_OK;
}

void mover_join_shard(const shard_view *v, const void *shard, void *global) {
  box_copy(&v->own, v->element, &v->room, shard, &v->all, global);
}

hp_status mover_zero_padding(const device *d, const shard_view *v, void *at) {
  int64_t room = box_elements(&v->room);
  if (box_elements(&v->own) == room) return HP_OK;
  return d->backend->zero(d->dev, at, (uint64_t)room * v->element, STREAM_COMPUTE);
}

/* --- instructions ----------------------------------------------------------------------------- */

hp_status mover_run(const device *d, const prog_inst *n, const tier_place *from,
                    const tier_place *to, uint64_t bytes, const char *name) {
  if (from->tier == TIER_FLASH) return read_flash(d, from->offset, to, bytes, n->stream, name);
  if (to->tier == TIER_FLASH)
    return write_flash(d, to->offset, from, bytes, to->ends, n->stream, name);
  return d->backend->copy(d->dev, to->at, from->at, bytes, n->stream);
}

/* --- blocks of a pool ------------------------------------------------------------------------- */

static bool is_block(const block_moves *b, int64_t g, int64_t i) {
  int32_t block = b->list[g * b->row + b->first + i];
  return block >= 0 && block < b->blocks;
}

uint64_t mover_block_bytes(const block_moves *b) {
  uint64_t n = 0;
  for (int64_t g = 0; g < b->groups; g++)
    for (int64_t i = 0; i < b->slots; i++) n += is_block(b, g, i);
  return n * b->bytes;
}

static tier_place place_after(const tier_place *p, uint64_t bytes) {
  tier_place x = *p;
  if (p->tier == TIER_FLASH) x.offset += bytes;
  else x.at = (char *)p->at + bytes;
  return x;
}

/* Slots i .. i + n - 1 of a group, whose blocks follow one another. */
static hp_status move_run(const device *d, const prog_inst *inst, const block_moves *b, int64_t g,
                          int64_t i, int64_t n, const tier_place *from, const tier_place *to,
                          const char *name) {
  int64_t block = g * b->blocks + b->list[g * b->row + b->first + i], slot = g * b->slots + i;
  tier_place x = place_after(from, (uint64_t)(b->stores ? slot : block) * b->bytes);
  tier_place y = place_after(to, (uint64_t)(b->stores ? block : slot) * b->bytes);
  y.ends = to->ends && block + n == b->groups * b->blocks;
  return mover_run(d, inst, &x, &y, (uint64_t)n * b->bytes, name);
}

hp_status mover_run_blocks(const device *d, const prog_inst *n, const block_moves *b,
                           const tier_place *from, const tier_place *to, const char *name) {
  for (int64_t g = 0; g < b->groups; g++) {
    const int32_t *list = b->list + g * b->row + b->first;
    for (int64_t i = 0, end; i < b->slots; i = end) {
      end = i + 1;
      if (!is_block(b, g, i)) continue;
      while (end < b->slots && is_block(b, g, end) && list[end] == list[end - 1] + 1) end++;
      HP_TRY(move_run(d, n, b, g, i, end - i, from, to, name));
    }
  }
  return HP_OK;
}
