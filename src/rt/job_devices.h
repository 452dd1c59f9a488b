/* A job: the devices of this process, how they exchange data with those of other processes, and
 * their threads.  A mesh (rt/group.h) is a subset of its ranks; several meshes may share a device,
 * and then use it one after the other. */
#ifndef RT_JOB_DEVICES_H
#define RT_JOB_DEVICES_H

#include "rt/device.h"
#include "rt/thread_team.h"

typedef struct {
  int ranks;         /* of all processes */
  int first, own;    /* those of this process */
  _Atomic int users; /* meshes, and the caller that opened it */
  comm *comm;        /* NULL: of one rank */
  thread_team *thread_team;
  job_device *device[COMM_LOCAL_MAX]; /* own ones */
} job;

/* Of `ranks` devices, an even share of the machine's threads each: all in this process, or, where
 * it is one of several, one in each.  plan_only: one device stands for all, and there is no comm.
 */
hp_status job_open(const hp_device_options *o, const char *backend, int64_t ranks, job **out);
/* The last of its users closes it. */
void job_release(job *j);

/* The engine whose products have the same bits whatever the shapes of the shards. */
#define JOB_ENGINE_SAME_BITS "packed"

#endif
