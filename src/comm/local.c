#include "comm/local.h"

#include "base/mem.h"

#include <pthread.h>
#include <string.h>

typedef struct {
  uint64_t shown, left; /* meetings that the device has come to, and has left */
  const void *data;     /* of the last one */
} member;

struct comm_local {
  int devices, failed; /* the device that failed first, -1: none */
  pthread_mutex_t lock;
  pthread_cond_t change;
  member device[COMM_LOCAL_MAX];
};

hp_status comm_local_create(int devices, comm_local **out) {
  if (devices < 1 || devices > COMM_LOCAL_MAX)
    HP_FAIL(HP_ERR_COMM, "%d devices in one process; 1 to %d are possible", devices,
            COMM_LOCAL_MAX);
  comm_local *c = mem_calloc(1, sizeof *c);
  HP_TRY_MEM(c);
  c->devices = devices;
  c->failed = -1;
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->change, NULL);
  *out = c;
  return HP_OK;
}

void comm_local_free(comm_local *c) {
  if (!c) return;
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->change);
  mem_free(c);
}

void comm_local_reset(comm_local *c) {
  pthread_mutex_lock(&c->lock);
  memset(c->device, 0, sizeof c->device);
  c->failed = -1;
  pthread_mutex_unlock(&c->lock);
}

static hp_status given_up(int failed) {
  HP_FAIL(HP_ERR_COMM, "device %d failed, and the others cannot go on without it", failed);
}

hp_status comm_local_meet(comm_local *c, int me, const int64_t *group, int64_t n, const void *data,
                          const void **at) {
  pthread_mutex_lock(&c->lock);
  uint64_t meeting = ++c->device[me].shown;
  c->device[me].data = data;
  pthread_cond_broadcast(&c->change);
  for (int64_t i = 0; i < n && c->failed < 0; i++) {
    while (c->device[group[i]].shown < meeting && c->failed < 0)
      pthread_cond_wait(&c->change, &c->lock);
    at[i] = c->device[group[i]].data;
  }
  int failed = c->failed;
  pthread_mutex_unlock(&c->lock);
  return failed < 0 ? HP_OK : given_up(failed);
}

hp_status comm_local_leave(comm_local *c, int me, const int64_t *group, int64_t n) {
  pthread_mutex_lock(&c->lock);
  uint64_t meeting = ++c->device[me].left;
  pthread_cond_broadcast(&c->change);
  for (int64_t i = 0; i < n; i++)
    while (c->device[group[i]].left < meeting && c->failed < 0)
      pthread_cond_wait(&c->change, &c->lock);
  int failed = c->failed;
  pthread_mutex_unlock(&c->lock);
  return failed < 0 ? HP_OK : given_up(failed);
}

void comm_local_fail(comm_local *c, int me) {
  pthread_mutex_lock(&c->lock);
  if (c->failed < 0) c->failed = me;
  pthread_cond_broadcast(&c->change);
  pthread_mutex_unlock(&c->lock);
}
