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
  int sharers;       /* devices of this machine, which share its threads and memory */
  _Atomic int users; /* meshes, and the caller that opened it */
  comm *comm;        /* NULL for one rank */
  thread_team *thread_team;
  host_pool *pool;                    /* host memory of this machine; NULL: it runs nothing */
  link_clock *links;                  /* of emulated clusters; NULL likewise */
  flash_store *flash;                 /* NULL: none */
  job_device *device[COMM_LOCAL_MAX]; /* those of this process */
} job;

/* A job of `ranks` devices, each with an equal share of the machine's threads: all in this
 * process or, in a job of several processes, one in each.  plan_only: one device represents all,
 * and there is no comm.  node: devices of a machine of the cluster; 1: any number. */
hp_status job_open(const hp_device_options *o, const char *backend, int64_t ranks, int64_t node,
                   job **out);
/* The last user closes it. */
void job_release(job *j);

/* The engine whose products have the same bits for any shapes of the shards. */
#define JOB_ENGINE_SAME_BITS "packed"

#endif
