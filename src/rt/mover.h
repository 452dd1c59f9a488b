/* The mover: all copies between memory tiers, and between a device and the host, also of a shard of
 * a global tensor.  Kernels never read another tier's memory, and nothing else reads flash. */
#ifndef RT_MOVER_H
#define RT_MOVER_H

#include "rt/device.h"
#include "shard/box.h"

/* Copies bytes of a named tensor, from `offset` in it on, from or to host memory. */
hp_status mover_write(const device *d, const state_tensor *t, uint64_t offset, const void *from,
                      uint64_t bytes);
hp_status mover_read(const device *d, const state_tensor *t, uint64_t offset, void *to,
                     uint64_t bytes);
/* Bytes of a named tensor, from `at` in it on. */
typedef struct {
  uint64_t at, bytes;
} tensor_part;
/* The same, to or from an address of tier device. */
hp_status mover_store(const device *d, const state_tensor *t, const tensor_part *part,
                      const void *from);
hp_status mover_load(const device *d, const state_tensor *t, const tensor_part *part, void *to);
/* May the host read memory of that tier at its addresses? */
bool mover_is_host(const device *d, int tier);
/* Bytes at an address of tier device for the host to read: there, if it can, else copied to
 * stage. */
hp_status mover_show(const device *d, const void *at, uint64_t bytes, void *stage,
                     const void **out);
/* From or to host memory, at an address of the device. */
hp_status mover_to_device(const device *d, void *to, const void *from, uint64_t bytes);
hp_status mover_to_host(const device *d, void *to, const void *from, uint64_t bytes);
/* Moves a named tensor to another tier, with its bits.  HP_ERR_ARG, with its name, if a loaded
 * program uses it. */
hp_status device_move_state(device *d, uint32_t index, int tier);
/* A shard of a global tensor: what a device holds of it, without padding, and with it. */
typedef struct {
  box all, own, room;
  size_t element; /* bytes of one */
} shard_view;
shard_view mover_view(const mesh *m, int64_t position, const ir_value *type, const layout *l);
/* The shard out of a global tensor of the host, and into one; at a shard's address on the device.
 */
hp_status mover_write_shard(const device *d, const shard_view *v, void *to, const void *global);
hp_status mover_read_shard(const device *d, const shard_view *v, const void *from, void *global);
/* The same of a shard that the host has. */
void mover_join_shard(const shard_view *v, const void *shard, void *global);
/* Zeros where the shard is padded. */
hp_status mover_zero_padding(const device *d, const shard_view *v, void *at);
/* A place in a tier: an address, or of flash an offset in the device's part of it. */
typedef struct {
  int tier;
  void *at;
  uint64_t offset;
  bool ends; /* a tensor on flash */
} tier_place;
/* Runs an instruction that crosses tiers (prog/tier_check.h), from and to these places; name: of
 * the tensor, for failures. */
hp_status mover_run(const device *d, const prog_inst *n, const tier_place *from,
                    const tier_place *to, uint64_t bytes, const char *name);
/* The same for blocks of a pool, by lists [groups,row]: slot i of a group, of `slots`, and block
 * list[first + i] of its row, of `blocks`.  Entries that are no block are left out.  The pool is
 * `from`, or, if it is stored, `to`. */
typedef struct {
  const int32_t *list;
  int64_t groups, row, first, slots, blocks;
  uint64_t bytes; /* of a block */
  bool stores;
} block_moves;
hp_status mover_run_blocks(const device *d, const prog_inst *n, const block_moves *b,
                           const tier_place *from, const tier_place *to, const char *name);
/* Bytes that it moves. */
uint64_t mover_block_bytes(const block_moves *b);

#endif
