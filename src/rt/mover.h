/* The mover: all copies between memory tiers, and between one device and the host.  Kernels never
 * read another tier's memory.  On a mesh, global tensors are still cut and joined at addresses of
 * the host (shard_copy). */
#ifndef RT_MOVER_H
#define RT_MOVER_H

#include "rt/device.h"

/* Bytes of a named tensor from `offset` in it on, from and to memory of the host. */
hp_status mover_write(const device *d, const state_tensor *t, uint64_t offset, const void *from,
                      uint64_t bytes);
hp_status mover_read(const device *d, const state_tensor *t, uint64_t offset, void *to,
                     uint64_t bytes);
/* Of an address of the device. */
hp_status mover_to_device(const device *d, void *to, const void *from, uint64_t bytes);
hp_status mover_to_host(const device *d, void *to, const void *from, uint64_t bytes);
/* Is it the mover's?  Then mover_run runs it, with the addresses of its operand and its result. */
bool mover_runs(const prog_inst *n);
hp_status mover_run(const device *d, const program *p, const prog_inst *n, void *const *at);

#endif
