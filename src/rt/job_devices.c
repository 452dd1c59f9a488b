#include "rt/job_devices.h"

#include "base/thread.h"
#include "comm/world.h"

#include <string.h>

/* In a job of several processes each has one device; a single process has all. */
static hp_status open_comm(job *j) {
  HP_TRY(world_begin());
  const world_facts *w = world_get();
  if (w->size == 1) return j->ranks > 1 ? comm_local_open(j->ranks, &j->comm) : HP_OK;
  if (w->size > COMM_MAX)
    HP_FAIL(HP_ERR_LAYOUT, "%d processes; at most %d are possible", w->size, COMM_MAX);
  j->ranks = w->size;
  j->first = w->rank;
  j->own = 1;
  return comm_world_open(&j->comm);
}

static hp_status open_devices(const hp_device_options *o, const char *backend, int sharers,
                              job *j) {
  const world_facts *w = world_get();
  int threads = o->threads > 0 ? o->threads : cpu_count();
  backend_options b = {.threads = o->threads, .engine = o->engine, .interpret = o->interpret};
  if (o->no_partial_sums) b.engine = JOB_ENGINE_SAME_BITS;
  b.shared = j->ranks > 1;
  for (int i = 0; i < j->own; i++) {
    int place = w->place * j->own + i; /* among the devices that share this machine's threads */
    if (b.shared) b.threads = threads / sharers + (place < threads % sharers);
    if (b.shared && b.threads < 1) b.threads = 1;
    HP_TRY(job_device_open(backend, &b, o->memory_limit, j->own, &j->device[i]));
    memcpy(j->device[i]->offload, o->offload, sizeof o->offload);
  }
  return HP_OK;
}

hp_status job_open(const hp_device_options *o, const char *backend, int64_t ranks, job **out) {
  job *j = mem_calloc(1, sizeof *j);
  HP_TRY_MEM(j);
  *j = (job){.ranks = (int)ranks, .own = o->plan_only ? 1 : (int)ranks, .users = 1};
  hp_status st = o->plan_only ? HP_OK : open_comm(j);
  /* plans describe the devices that a run would open */
  int sharers = o->plan_only ? j->ranks : world_get()->here * j->own;
  if (!st) st = thread_team_create(j->own, &j->thread_team);
  if (!st) st = link_clock_create(j->own, &j->links);
  if (!st) st = open_devices(o, backend, sharers, j);
  if (st) job_release(j);
  else *out = j;
  return st;
}

void job_release(job *j) {
  if (!j || --j->users) return;
  thread_team_free(j->thread_team);
  for (int i = 0; i < COMM_LOCAL_MAX; i++) job_device_release(j->device[i]);
  link_clock_free(j->links);
  if (j->comm) j->comm->iface->close(j->comm);
  mem_free(j);
}
