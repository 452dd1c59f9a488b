#include "rt/job_devices.h"

#include "base/log.h"
#include "base/thread.h"
#include "comm/world.h"

#include <string.h>

static hp_status open_world(int64_t ranks, comm **out) {
  (void)ranks;
  return comm_world_open(out);
}

/* The communicators: the first row that fits a job is taken.  One for memory of a backend's devices
 * (comm_iface.memory_of) is a row before these. */
static const struct {
  const char *backend; /* NULL: any */
  bool processes;      /* of several processes, or of the devices of one */
  hp_status (*open)(int64_t ranks, comm **out);
} communicators[] = {{NULL, false, comm_local_open}, {NULL, true, open_world}};

static hp_status open_communicator(const char *backend, bool processes, job *j) {
  size_t i = 0;
  while (communicators[i].processes != processes ||
         (communicators[i].backend && strcmp(communicators[i].backend, backend)))
    i++;
  return communicators[i].open(j->ranks, &j->comm);
}

/* In a job of several processes each has one device; a single process has all. */
static hp_status open_comm(const char *backend, job *j) {
  HP_TRY(world_begin());
  const world_facts *w = world_get();
  if (w->size == 1) return j->ranks > 1 ? open_communicator(backend, false, j) : HP_OK;
  if (w->size > COMM_MAX)
    HP_FAIL(HP_ERR_LAYOUT, "%d processes; at most %d are possible", w->size, COMM_MAX);
  j->ranks = w->size;
  j->first = w->rank;
  j->own = 1;
  return open_communicator(backend, true, j);
}

/* Each device of the machine has an equal part of the memory that they share. */
static uint64_t share(uint64_t bytes, int devices) {
  uint64_t one = bytes / (uint64_t)devices / FLASH_ALIGN * FLASH_ALIGN;
  return bytes && !one ? 1 : one;
}

/* Of the processes of this machine the first has the folders, for all. */
static hp_status open_flash(const hp_device_options *o, job *j) {
  flash_options f = {.path = o->flash,
                     .n = o->n_flash,
                     .limit = share(o->flash_limit, j->sharers) * (uint64_t)j->own,
                     .locks = world_get()->place == 0};
  if (!o->n_flash || o->plan_only) return HP_OK;
  HP_TRY(flash_open(&f, &j->flash));
  log_info("tier flash: %s", flash_describe(j->flash));
  return HP_OK;
}

static hp_status open_devices(const hp_device_options *o, const char *backend, job *j) {
  const world_facts *w = world_get();
  uint64_t flash = share(o->flash_limit, j->sharers);
  uint64_t host = o->host_limit / (uint64_t)j->sharers;
  if (o->host_limit && !host) host = 1;
  const uint64_t limit[TIER_COUNT] = {o->memory_limit, host, flash};
  int threads = o->threads > 0 ? o->threads : cpu_count();
  backend_options b = {.threads = o->threads, .engine = o->engine, .interpret = o->interpret};
  if (o->no_partial_sums) b.engine = JOB_ENGINE_SAME_BITS;
  b.shared = j->ranks > 1;
  for (int i = 0; i < j->own; i++) {
    int place = w->place * j->own + i; /* among the devices that share this machine's threads */
    if (b.shared) b.threads = threads / j->sharers + (place < threads % j->sharers);
    if (b.shared && b.threads < 1) b.threads = 1;
    HP_TRY(job_device_open(backend, &b, limit, j->own, &j->device[i]));
    memcpy(j->device[i]->offload, o->offload, sizeof o->offload);
    j->device[i]->memory[TIER_HOST].pool = j->pool;
    j->device[i]->memory[TIER_HOST].place = place;
    j->device[i]->offload_policy = o->offload_policy;
    if (j->flash) HP_TRY(job_device_set_flash(j->device[i], j->flash, (uint64_t)i * flash, flash));
  }
  return HP_OK;
}

/* Devices of this machine; of a plan, those that a run would open there. */
static int count_sharers(const hp_device_options *o, int64_t node, const job *j) {
  const world_facts *w = world_get();
  if (!o->plan_only || w->size > 1) return w->here * j->own;
  return node > 1 && node < j->ranks ? (int)node : j->ranks;
}

hp_status job_open(const hp_device_options *o, const char *backend, int64_t ranks, int64_t node,
                   job **out) {
  job *j = mem_calloc(1, sizeof *j);
  HP_TRY_MEM(j);
  *j = (job){.ranks = (int)ranks, .own = o->plan_only ? 1 : (int)ranks, .users = 1};
  hp_status st = o->plan_only ? HP_OK : open_comm(backend, j);
  j->sharers = count_sharers(o, node, j);
  if (!st) st = thread_team_create(j->own, &j->thread_team);
  if (!st && !o->plan_only) st = host_pool_open(o->host_limit, j->sharers, &j->pool);
  if (!st && j->pool) st = link_clock_create(j->pool, &j->links);
  if (!st) st = open_flash(o, j);
  if (!st) st = open_devices(o, backend, j);
  if (st) job_release(j);
  else *out = j;
  return st;
}

void job_release(job *j) {
  if (!j || --j->users) return;
  thread_team_free(j->thread_team);
  for (int i = 0; i < COMM_LOCAL_MAX; i++) job_device_release(j->device[i]);
  link_clock_free(j->links);
  host_pool_close(j->pool);
  flash_close(j->flash);
  if (j->comm) j->comm->iface->close(j->comm);
  mem_free(j);
}
