#include "far_memory.h"

#include "rt/device_mesh.h"
#include "base/status.h"

#include <stdatomic.h>

/* Such an address is no canonical one of x86-64, and beyond the address space of others. */
static const uintptr_t away = (uintptr_t)1 << 62;

static bool is_far(const void *at) { return ((uintptr_t)at & away) != 0; }
static void *near(const void *at) { return (void *)((uintptr_t)at & ~away); }

/* --- backend ---------------------------------------------------------------------------------- */

static void *far_reserve(void *dev, int tier, uint64_t bytes) {
  char *at = backend_cpu.reserve(dev, tier, bytes);
  return at && tier == TIER_DEVICE ? (void *)((uintptr_t)at | away) : at;
}
static void far_unreserve(void *dev, int tier, void *at, uint64_t bytes) {
  backend_cpu.unreserve(dev, tier, near(at), bytes);
}
static hp_status far_commit(void *dev, int tier, void *at, uint64_t bytes) {
  return backend_cpu.commit(dev, tier, near(at), bytes);
}
static void far_discard(void *dev, int tier, void *at, uint64_t bytes) {
  backend_cpu.discard(dev, tier, near(at), bytes);
}
static hp_status far_copy(void *dev, void *to, const void *from, uint64_t bytes, int stream) {
  return backend_cpu.copy(dev, near(to), near(from), bytes, stream);
}
static hp_status far_zero(void *dev, void *at, uint64_t bytes, int stream) {
  return backend_cpu.zero(dev, near(at), bytes, stream);
}
static hp_status far_fill(void *dev, void *at, const ir_value *type, hp_fill_fn fill,
                          void *context) {
  return backend_cpu.fill(dev, near(at), type, fill, context);
}

/* Operands of kernels are in device memory, all of them. */
static hp_status far_launch(void *loaded, const program *p, const prog_inst *n,
                            const launch_args *a) {
  void *at[512];
  launch_args x = *a;
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    if (a->at[k] && !is_far(a->at[k]))
      HP_FAIL(HP_ERR_INTERNAL, "operand %d is not in device memory", k);
    at[k] = near(a->at[k]);
  }
  x.at = at;
  x.workspace = near(a->workspace);
  return backend_cpu.launch(loaded, p, n, &x);
}

/* --- communicator ----------------------------------------------------------------------------- */

static const comm_iface *host;
static _Atomic int collectives;

#define FAR_COLLECTIVE(kind)                                                                       \
  static hp_status far_##kind(communicator *c, const comm_call *call, const comm_tensor *t,        \
                              const void *from, void *to, int stream, double *arrived_s) {         \
    if (!is_far(from) || !is_far(to))                                                              \
      HP_FAIL(HP_ERR_INTERNAL, "%s of a device's communicator on memory of the host", #kind);      \
    atomic_fetch_add(&collectives, 1);                                                             \
    if (t->rows) t->rows->ids = near(t->rows->ids);                                                \
    return host->collective[kind](c, call, t, near(from), near(to), stream, arrived_s);            \
  }
FAR_COLLECTIVE(COMM_ALL_GATHER)
FAR_COLLECTIVE(COMM_ALL_REDUCE)
FAR_COLLECTIVE(COMM_REDUCE_SCATTER)
FAR_COLLECTIVE(COMM_ALL_TO_ALL)
FAR_COLLECTIVE(COMM_PERMUTE)
FAR_COLLECTIVE(COMM_ZIGZAG)
FAR_COLLECTIVE(COMM_DISPATCH)
FAR_COLLECTIVE(COMM_COMBINE)
#undef FAR_COLLECTIVE

static void use_own_communicator(comm *c) {
  static comm_iface own;
  host = c->iface;
  own = *host;
  own.name = "far";
  own.memory_of = "far";
  own.collective[COMM_ALL_GATHER] = far_COMM_ALL_GATHER;
  own.collective[COMM_ALL_REDUCE] = far_COMM_ALL_REDUCE;
  own.collective[COMM_REDUCE_SCATTER] = far_COMM_REDUCE_SCATTER;
  own.collective[COMM_ALL_TO_ALL] = far_COMM_ALL_TO_ALL;
  own.collective[COMM_PERMUTE] = far_COMM_PERMUTE;
  own.collective[COMM_ZIGZAG] = far_COMM_ZIGZAG;
  own.collective[COMM_DISPATCH] = far_COMM_DISPATCH;
  own.collective[COMM_COMBINE] = far_COMM_COMBINE;
  c->iface = &own;
}

void far_memory_use(hp_device *d, bool own_communicator) {
  static backend_iface far;
  far = backend_cpu;
  far.name = "far";
  far.host_addressable = false;
  far.reserve = far_reserve;
  far.unreserve = far_unreserve;
  far.commit = far_commit;
  far.discard = far_discard;
  far.copy = far_copy;
  far.zero = far_zero;
  far.fill = far_fill;
  far.launch = far_launch;
  for (int i = 0; i < d->own; i++) {
    job_device *j = d->member[i]->job;
    HP_ASSERT(!j->memory[TIER_DEVICE].at);
    d->member[i]->backend = j->backend = &far;
    for (int t = 0; t < TIER_COUNT; t++) j->memory[t].backend = &far;
    flash_store *store = j->memory[TIER_FLASH].store;
    if (store)
      HP_ASSERT(
          !job_device_set_flash(j, store, j->memory[TIER_FLASH].from, j->memory[TIER_FLASH].size));
  }
  if (own_communicator) use_own_communicator(d->job->comm);
}

int far_memory_collectives(void) { return atomic_load(&collectives); }
