/* A job: the devices of this process, the communication with those of other processes, and their
 * threads.  A mesh (rt/device_mesh.h) is a subset of its ranks; several meshes may share a device,
 * and then use it one after the other. */
#ifndef RT_JOB_DEVICES_H
#define RT_JOB_DEVICES_H

#include "rt/device.h"
#include "rt/link_clock.h"
#include "rt/thread_team.h"

typedef struct {
  int ranks;         /* of all processes */
  int first, own;    /* those of this process */
  _Atomic int users; /* meshes, and the caller that opened it */
  comm *comm;        /* NULL for one rank */
  thread_team *thread_team;
  link_clock *links;                  /* of emulated clusters */
  flash_store *flash;                 /* NULL: none */
  job_device *device[COMM_LOCAL_MAX]; /* those of this process */
} job;

/* A job of `ranks` devices, each with an equal share of the machine's threads: all in this
 * process or, in a job of several processes, one in each.  plan_only: one device represents all,
 * and there is no comm. */
hp_status job_open(const hp_device_options *o, const char *backend, int64_t ranks, job **out);
/* The last user closes it. */
void job_release(job *j);

/* The engine whose products have the same bits for any shapes of the shards. */
#define JOB_ENGINE_SAME_BITS "packed"

#endif
