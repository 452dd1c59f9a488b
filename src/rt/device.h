/* Devices at run time.
 *
 * A job_device is a device of the job: its backend and its memory, one arena per tier
 * (rt/tier_memory.h).  A device is a job_device as a member of a mesh: its position there, and
 * the mesh's named tensors that outlive runs (parameters, optimizer state, caches).  A
 * job_device may be in several meshes, with separate tensors. */
#ifndef RT_DEVICE_H
#define RT_DEVICE_H

#include "backend/backend.h"
#include "comm/comm.h"
#include "mem/offload_kept.h"
#include "mem/offsets_kept.h"
#include "rt/tier_memory.h"
#include "topo/cluster.h"

/* Residency of the shard of a named tensor.  Its mesh and layout are those of the device mesh. */
typedef struct {
  uint32_t name; /* index in device->names */
  ir_value type;
  uint64_t bytes, offset; /* in the arena of its tier */
  int tier;
  int programs; /* loaded programs that hold its address */
} state_tensor;

typedef struct {
  const backend_iface *backend;
  void *dev;
  _Atomic int users;   /* devices of meshes, and the job */
  int no_partial_sums; /* of them, those of meshes with no_partial_sums: the engine must stay */
  uint64_t limit[TIER_COUNT];         /* bytes of state and work memory at any time; 0 = none */
  uint8_t offload[HP_MEMORY_CLASSES]; /* HP_OFFLOAD_*, by class */
  int offload_policy;                 /* HP_PLAN_* */
  bool has_homes; /* a mesh has a rule by which named tensors may leave (device_mesh_home_rule) */
  /* The loaded program whose work memory holds named tensors of other tiers from one run to the
   * next, newer than their home has them; NULL: none.  settle brings them home. */
  void *carrier;
  hp_status (*settle)(void *carrier);
  uint64_t physical;                /* bytes that there are */
  uint64_t state_bytes[TIER_COUNT]; /* of all meshes */
  tier_memory memory[TIER_COUNT];
  char *bounce; /* memory of the host, MOVER_BOUNCE a stream, for copies between flash and the
                   device; NULL: the host addresses the device's memory, or there is no flash */
} job_device;
enum { MOVER_BOUNCE = 1 << 20 };

typedef struct {
  const backend_iface *backend; /* of the job_device, as dev */
  void *dev;
  job_device *job;
  hp_limits limits; /* as last measured; zeros before that */
  interner names;
  VEC(state_tensor) states;
  map state_of;                     /* name -> index in states */
  offsets_kept offsets;             /* plans of programs so far */
  offload_kept offloads;            /* the same of what leaves, and when */
  uint64_t state_bytes[TIER_COUNT]; /* of this mesh */
  /* The other devices: the mesh and its costs, this device's position, and the communicators. */
  const mesh *mesh;
  const cluster *cluster; /* for plans */
  const cluster *costs;   /* for predictions */
  int64_t position;
  comm *comm;
  communicator *everyone; /* all devices of the mesh; NULL for one device */
  bool no_partial_sums;   /* counted in job->no_partial_sums */
  bool recorded;          /* its runs are those reported to the watchdog */
} device;

/* devices: of this process, which share its address space. */
hp_status job_device_open(const char *backend, const backend_options *o,
                          const uint64_t limit[TIER_COUNT], int devices, job_device **out);
/* Its part of the store of the process, which outlives it. */
hp_status job_device_set_flash(job_device *j, flash_store *store, uint64_t from, uint64_t bytes);
/* May tensors leave the device? */
bool job_device_offloads(const job_device *j);
/* Do some leave it without a limit, too? */
bool job_device_must_offload(const job_device *j);
/* Before named tensors are used, or work memory by another program: brings them home. */
hp_status job_device_settle(job_device *j);
/* The last of its users closes it. */
void job_device_release(job_device *j);

hp_status device_create(job_device *j, device **out);
/* Frees its tensors. */
void device_close(device *d);
/* The tensor of that name; a new one is created in that tier, with zeros, or, if tensors may leave
 * the device and its limit has no room for it, in host memory, or on flash beyond the limit of the
 * host; an existing one must have the same type and stays where it is. */
hp_status device_state(device *d, const char *name, const ir_value *type, int tier,
                       uint32_t *index);
/* The tier for a tensor that leaves the device: the host, or flash where that has no room. */
int device_tier_beyond(const device *d, uint64_t bytes);
/* HP_ERR_SHAPE, with the name, if an existing param has another type. */
hp_status state_check(const char *name, const ir_value *have, const ir_value *want);
/* Index of an existing tensor. */
bool device_find(const device *d, const char *name, uint32_t *index);
/* Not of flash, which has no addresses: rt/mover.h and rt/state_io.h read and write any tier. */
void *device_address(const device *d, const state_tensor *t);
const char *device_state_name(const device *d, const state_tensor *t);
/* Memory for a named tensor in a tier, zeroed, under the limits; and it is given back. */
hp_status device_take(device *d, int tier, const char *name, const ir_value *type,
                      uint64_t *offset);
void device_give(device *d, int tier, uint64_t offset, uint64_t bytes);
/* Frees its memory.  HP_ERR_ARG, with the name, if a loaded program uses it, or it does not
 * exist. */
hp_status device_free_state(device *d, const char *name);
/* Gives it a second name, which must be new; and takes one of its two names away. */
hp_status device_add_name(device *d, const char *name, const char *second);
void device_drop_name(device *d, const char *dropped, const char *kept);
/* A program that is loaded needs so much work memory of a tier, which begins at device_work; and it
 * is gone.  HP_ERR_OOM where that does not fit the limit. */
hp_status device_add_work(device *d, int tier, uint64_t bytes);
void device_drop_work(device *d, int tier, uint64_t bytes);
void *device_work(const device *d, int tier); /* not of flash */
/* Measures d->limits; for a device that represents one of a named cluster, takes the cluster's
 * figures. */
hp_status device_measure(device *d);
/* The same, if the limits are not known yet. */
hp_status device_know_limits(device *d);

#endif
