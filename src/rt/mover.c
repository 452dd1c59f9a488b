#include "rt/mover.h"

/* Copies of the host's own calls are on the stream of computation. */
static hp_status copy(const device *d, void *to, const void *from, uint64_t bytes) {
  return d->backend->copy(d->dev, to, from, bytes, STREAM_COMPUTE);
}

hp_status mover_write(const device *d, const state_tensor *t, uint64_t offset, const void *from,
                      uint64_t bytes) {
  return copy(d, (char *)device_address(d, t) + offset, from, bytes);
}

hp_status mover_read(const device *d, const state_tensor *t, uint64_t offset, void *to,
                     uint64_t bytes) {
  return copy(d, to, (const char *)device_address(d, t) + offset, bytes);
}

hp_status mover_to_device(const device *d, void *to, const void *from, uint64_t bytes) {
  return copy(d, to, from, bytes);
}

hp_status mover_to_host(const device *d, void *to, const void *from, uint64_t bytes) {
  return copy(d, to, from, bytes);
}

bool mover_runs(const prog_inst *n) { return op_flags((op_id)n->op) & OPF_MOVE; }

hp_status mover_run(const device *d, const program *p, const prog_inst *n, void *const *at) {
  return d->backend->copy(d->dev, at[1], at[0], program_arg(p, n, 0)->bytes, n->stream);
}
